"""Read WFDB records and the annotations beside them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
import numpy.typing as npt
from dask.delayed import delayed

from ..errors import InputError
from ..recording import Recording
from .files import (
    Leads,
    chosen,
    common_unit,
    on_workers,
    ranges,
    same_fs,
    samples_per_chunk,
    unique_names,
    unreadable,
)
from .gaps import from_blocks

#: Annotation codes that stand for a beat.
BEAT_SYMBOLS = frozenset("NLRBAaJSVrFejnE/fQ?")


class Annotations(NamedTuple):
    """Annotations of a record.

    Attributes
    ----------
    sample
        int64 of shape (n,), counted from the record's first sample, which is 0.
    symbol
        The n annotation codes; those in `BEAT_SYMBOLS` are beats.
    fs
        Rate in Hz that `sample` counts in; None when neither file tells it.
    """

    sample: npt.NDArray[np.int64]
    symbol: tuple[str, ...]
    fs: float | None


@dataclass(frozen=True)
class Header:
    """What a record's header tells, with `notes` about what is read in another way."""

    fs: float
    n_samples: int
    names: tuple[str, ...]
    units: tuple[str | None, ...]
    start: dt.datetime | None
    notes: tuple[str, ...]


def record_path(path: str) -> str:
    """Return the path of a record without the suffix of one of its files."""
    return path[:-4] if path.endswith((".hea", ".dat")) else path


def read_wfdb(
    path: str, *, fs: float | None = None, leads: Leads = None, chunk: int | str | None = None
) -> Recording:
    """Read a WFDB record: physical units, NaN where a sample is missing.

    See `read` for the parameters.

    Raises
    ------
    InputError
        When header and data are not as WFDB has them, or when the data end before the header says.
    """
    record = record_path(path)
    (header,) = on_workers([delayed(survey_record)(record)])
    name = Path(record).name
    wanted = chosen(header.names, leads, name)
    pieces = ranges(0, header.n_samples, samples_per_chunk(chunk, len(wanted)))
    signal: da.Array = from_blocks(
        [delayed(read_samples)(record, wanted, *piece) for piece in pieces],
        [stop - start for start, stop in pieces],
        len(wanted),
    )
    return Recording(
        signal,
        same_fs(record, header.fs, fs),
        leads=tuple(header.names[i] for i in wanted),
        unit=common_unit([header.units[i] for i in wanted]),
        start=header.start,
        name=name,
        source=path,
        notes=header.notes,
    )


def survey_record(record: str) -> Header:
    """Read the header, and the first and the last sample to see that they are there (a task)."""
    import wfdb

    what = f"{record}.hea"
    try:
        header: Any = wfdb.rdheader(record, rd_segments=True)
    except OSError as error:
        raise unreadable(error.filename or what, error) from None
    except Exception as error:
        raise _bad_header(what, f"a header that WFDB cannot read ({_short(error)})") from None
    if not header.sig_len or not header.n_sig:
        raise _bad_header(
            what, f"{header.sig_len or 'no number of'} samples of {header.n_sig or 'no'} signals"
        )
    variable = getattr(header, "layout", None) == "variable"
    segments = getattr(header, "segments", None) or []
    if not variable and any(segment is None for segment in segments):
        raise _bad_header(what, "an empty segment in a record of fixed layout")
    try:
        first: Any = wfdb.rdrecord(record, sampfrom=0, sampto=1)
        wfdb.rdrecord(record, sampfrom=header.sig_len - 1, sampto=header.sig_len)
    except OSError as error:
        raise unreadable(error.filename or record, error) from None
    except Exception as error:
        raise InputError(
            record,
            f"no sample {header.sig_len - 1} in the data ({_short(error)})",
            f"{header.sig_len} samples a signal, as the header says",
            "Copy the data file again, or correct the header",
        ) from None
    units: Sequence[str | None] = segments[0].units if variable else first.units
    frames = [n or 1 for n in first.samps_per_frame or []]
    names = unique_names([name or f"lead{i}" for i, name in enumerate(first.sig_name)])
    notes = [
        f"Lead {name} has {n} samples a frame, which were averaged to {header.fs:g} Hz"
        for name, n in zip(names, frames, strict=False)
        if n > 1
    ]
    start = first.base_datetime
    if start is None and first.base_time is not None:
        # The day is not told, and 1900-01-01 stands for it.
        start = dt.datetime.combine(dt.date(1900, 1, 1), first.base_time)
    return Header(float(header.fs), int(header.sig_len), names, tuple(units), start, tuple(notes))


def _bad_header(what: str, found: str) -> InputError:
    return InputError(
        what,
        found,
        "a WFDB header with its number of samples and signals",
        "Correct the header, or copy it again",
    )


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:80]}"


def read_samples(
    record: str, channels: Sequence[int], start: int, stop: int
) -> npt.NDArray[np.float32]:
    """Read samples [start, stop) of some signals (a task): float32 (stop - start, n_leads)."""
    import wfdb

    try:
        part: Any = wfdb.rdrecord(record, sampfrom=start, sampto=stop, channels=list(channels))
    except OSError as error:
        raise unreadable(error.filename or record, error) from None
    except Exception as error:
        raise InputError(
            record,
            f"no samples {start} to {stop - 1} ({_short(error)})",
            "data as long as the header says, that stay as they are while they are read",
            "Copy the data file again, or correct the header",
        ) from None
    return np.asarray(part.p_signal, np.float32)


def read_annotations(path: str | Path, extension: str = "atr") -> Annotations:
    """Read the annotations of a WFDB record.

    Parameters
    ----------
    path
        The record, or its .hea or .dat file.
    extension
        Suffix of the annotation file, without its dot.

    Raises
    ------
    InputError
        When there is no such file, or when WFDB cannot read it.
    """
    (found,) = on_workers([delayed(_annotations)(record_path(str(path)), extension)])
    annotations: Annotations = found
    return annotations


def _annotations(record: str, extension: str) -> Annotations:
    import wfdb

    what = f"{record}.{extension}"
    try:
        found: Any = wfdb.rdann(record, extension)
        fs = found.fs
        if fs is None and Path(f"{record}.hea").is_file():
            fs = wfdb.rdheader(record).fs
    except OSError as error:
        raise unreadable(what, error) from None
    except Exception as error:
        raise InputError(
            what,
            f"annotations that WFDB cannot read ({_short(error)})",
            "a WFDB annotation file",
            "Copy it again, or name another extension",
        ) from None
    return Annotations(
        np.asarray(found.sample, np.int64),
        tuple(found.symbol),
        None if fs is None else float(fs),
    )
