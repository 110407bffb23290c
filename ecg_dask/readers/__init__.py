"""Read recordings from files: `read` finds out the format and hands over to its module."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

from dask.delayed import delayed

from ..errors import InputError
from ..recording import Recording
from .csv import read_csv
from .files import Leads, on_workers, samples_per_chunk
from .formats import format_of
from .numpy_arrays import read_numpy
from .opensignals import read_opensignals
from .parquet import read_parquet
from .wfdb_records import read_wfdb

__all__ = ["read"]

_READERS: dict[str, Callable[..., Recording]] = {
    "csv": read_csv,
    "numpy": read_numpy,
    "opensignals": read_opensignals,
    "parquet": read_parquet,
    "wfdb": read_wfdb,
}


def read(
    path: str | os.PathLike[str],
    *,
    fs: float | None = None,
    leads: Leads = None,
    chunk: int | str | None = None,
) -> Recording:
    """Read a recording, in partitions.

    The format is found out by content, then by suffix: CSV and other tables of text, OpenSignals
    text, WFDB records, Parquet, NumPy. Only tasks open the file, so with a distributed client it is
    the workers that must see it; the samples are read when they are needed.

    Parameters
    ----------
    path
        The file; for a WFDB record its .hea or .dat file, or its name without a suffix.
    fs
        Sampling rate in Hz. Needed where the file does not tell it. Where a time column tells one
        within 1 % of it, `fs` is taken, with a note.
    leads
        A lead's name or its index from 0, several of them, or ``"all"``; None for all.
    chunk
        Size of a partition: a number of samples, or memory as text such as ``"64 MiB"``, in bytes
        of float32 signal. Exact for WFDB and NumPy, kept on average for tables of text, whole
        groups of rows for Parquet. By default 8 MiB of signal, or 16 MiB of text: a day of one lead
        at 250 Hz gives 10 to 14 partitions, and a task stays under about 100 MB.

    Returns
    -------
    Recording
        Blocks are NumPy float32 of shape (n, n_leads), NaN where a sample is missing. ``notes``
        tells what was changed: jumps of a time column that became missing samples, a rate that is
        not exact, infinite values, columns that were left out. Nothing is resampled. Where only
        the time of day is known, ``start`` has the date 1900-01-01.

    Raises
    ------
    InputError
        When there is no such file, when it cannot be read, is of no known format or damaged, has no
        samples or no rate, or tells another rate than `fs`; when an argument is not as described.

    Notes
    -----
    A time column is recognised by its name (time, timestamp, t, t_ms, ...) or because it increases
    evenly. Its unit is told by its name; else it is the first of s, ms, us and ns in which the
    usual step means 20 to 20,000 Hz. A step that is 1.5 times as long as the usual one and far
    outside of its jitter is a jump; the samples that fit in it are missing. A column that counts
    rows in steps of one is neither time nor lead, and what it skips is missing.
    """
    if not isinstance(path, str | os.PathLike) or isinstance(os.fspath(path), bytes):
        raise InputError("path", repr(path), "a path as str or os.PathLike", "Name the file")
    if fs is not None:
        fs = _positive(fs)
    samples_per_chunk(chunk, 1)
    name = os.fspath(path)
    (kind,) = on_workers([delayed(format_of)(name)])
    return _READERS[kind](name, fs=fs, leads=leads, chunk=chunk)


def _positive(fs: Any) -> float:
    """Return a rate as a float, whatever number it is."""
    try:
        rate = math.nan if isinstance(fs, bool | str) else float(fs)
    except (TypeError, ValueError):
        rate = math.nan
    if not 0 < rate < math.inf:
        raise InputError("fs", repr(fs), "a positive number of Hz", "Give the sampling rate")
    return rate
