"""Read NumPy arrays from .npy and .npz files, in ranges of samples."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt
from dask.delayed import delayed

from ..errors import InputError
from ..recording import Recording
from .files import (
    Leads,
    chosen,
    fs_needed,
    infinite_note,
    on_workers,
    opened,
    ranges,
    same_fs,
    samples_per_chunk,
    stem,
)
from .gaps import from_blocks

#: A first axis shorter than the second and than this looks like leads instead of samples.
_FEW = 16


@dataclass(frozen=True)
class Stored:
    """An array as it lies in its file.

    Attributes
    ----------
    member
        Its name in an .npz file; None in an .npy file.
    shape
        (n_samples, n_leads).
    dtype
        Type of its numbers.
    fortran
        Whether each lead lies by itself, instead of each sample.
    offset
        Bytes before the first number.
    fs, leads
        What the .npz file tells beside the signal; None where it does not.
    """

    member: str | None
    shape: tuple[int, int]
    dtype: np.dtype[np.generic]
    fortran: bool
    offset: int
    fs: float | None = None
    leads: tuple[str, ...] | None = None


def read_numpy(
    path: str, *, fs: float | None = None, leads: Leads = None, chunk: int | str | None = None
) -> Recording:
    """Read an array of shape (n_samples,) or (n_samples, n_leads), integers or floats.

    An .npz file holds one array, or ``signal`` and beside it ``fs`` and ``leads``. See `read` for
    the parameters.

    Raises
    ------
    InputError
        When the array has another shape or type, or when neither the file nor `fs` tells the rate.
    """
    (stored,) = on_workers([delayed(survey_array)(path)])
    if stored.fs is not None:
        fs = same_fs(path, stored.fs, fs)
    if fs is None:
        raise fs_needed(path, "an array alone does not tell it")
    n_samples, n_leads = stored.shape
    names = stored.leads or tuple(f"lead{i}" for i in range(n_leads))
    wanted = chosen(names, leads, stem(path))
    pieces = ranges(0, n_samples, samples_per_chunk(chunk, len(wanted)))
    infinite = on_workers([delayed(count_infinite)(path, stored, wanted, *p) for p in pieces])
    return Recording(
        from_blocks(
            [delayed(read_rows)(path, stored, wanted, *piece) for piece in pieces],
            [stop - start for start, stop in pieces],
            len(wanted),
        ),
        fs,
        leads=tuple(names[i] for i in wanted),
        name=stem(path),
        source=path,
        notes=infinite_note(sum(infinite)),
    )


@contextmanager
def _stream(path: str, member: str | None) -> Iterator[BinaryIO]:
    """Open the bytes of an array, in a zip file or not; what is broken becomes an InputError."""
    with opened(path) as file:
        try:
            if member is None:
                yield file
            else:
                with zipfile.ZipFile(file) as archive, archive.open(member) as stream:
                    yield cast(BinaryIO, stream)
        except (zipfile.BadZipFile, EOFError, KeyError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise _broken(path, str(error)) from None


def _broken(path: str, why: str) -> InputError:
    return InputError(
        path,
        f"no whole NumPy file ({why[:80]})",
        "an .npy or .npz file of integers or floats, without pickled objects",
        "Save it again with numpy.save or numpy.savez",
    )


def survey_array(path: str) -> Stored:
    """Read what the file tells about its array (a task)."""
    with opened(path) as file:
        zipped = file.read(2) == b"PK"
    if not zipped:
        return _header(path, None)
    with _stream(path, None) as file, zipfile.ZipFile(file) as archive:
        members = [name for name in archive.namelist() if name.endswith(".npy")]
    if "signal.npy" in members:
        signal = "signal.npy"
    elif len(members) == 1:
        signal = members[0]
    else:
        raise InputError(
            path,
            f"the arrays {', '.join(name.removesuffix('.npy') for name in members) or '(none)'}",
            "an array signal, and fs and leads beside it, or one array alone",
            "Name the array of samples signal",
        )
    stored = _header(path, signal)
    fs, leads = stored.fs, stored.leads
    if "fs.npy" in members and signal != "fs.npy":
        value = _whole(path, "fs.npy")
        if value.size != 1 or value.dtype.kind not in "iuf" or not 0 < value.item() < np.inf:
            raise InputError(
                f"fs in {path}", str(value)[:40], "a positive number of Hz", "Save fs as one number"
            )
        fs = float(value.item())
    if "leads.npy" in members and signal != "leads.npy":
        leads = tuple(str(name) for name in np.atleast_1d(_whole(path, "leads.npy")))
        if len(set(leads)) != stored.shape[1] or len(leads) != stored.shape[1]:
            raise InputError(
                f"leads in {path}",
                f"the names {', '.join(leads)} for {stored.shape[1]} columns",
                "one name a column, no name twice",
                "Save a name for each lead",
            )
    return Stored(
        signal, stored.shape, stored.dtype, stored.fortran, stored.offset, fs=fs, leads=leads
    )


def _whole(path: str, member: str) -> npt.NDArray[np.generic]:
    with _stream(path, member) as stream:
        array: npt.NDArray[np.generic] = np.lib.format.read_array(stream, allow_pickle=False)
    return array


def _header(path: str, member: str | None) -> Stored:
    with _stream(path, member) as stream:
        version = np.lib.format.read_magic(stream)
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, fortran, dtype = read(stream)
        offset = stream.tell()
    if dtype.kind not in "iuf":
        raise InputError(
            path,
            f"an array of {dtype}",
            "integers or floats",
            "Save the samples with one of these types",
        )
    if len(shape) not in (1, 2):
        raise InputError(
            path,
            f"an array of shape {shape}",
            "(n_samples,) or (n_samples, n_leads)",
            "Bring it into this shape",
        )
    n_samples, n_leads = (*shape, 1)[:2]
    if not n_samples or not n_leads:
        raise InputError(
            path, f"an array of shape {shape}", "one sample or more", "Choose another file"
        )
    if n_samples < min(n_leads, _FEW):
        raise InputError(
            path,
            f"an array of shape {shape}, fewer samples than leads",
            "(n_samples, n_leads)",
            "Save it transposed, signal.T",
        )
    stored = Stored(member, (n_samples, n_leads), dtype, fortran, offset)
    # The last sample tells whether the file is whole.
    read_rows(path, stored, [n_leads - 1], n_samples - 1, n_samples)
    return stored


def _raw_rows(
    path: str, stored: Stored, columns: Sequence[int], start: int, stop: int
) -> npt.NDArray[np.float32]:
    """Read a range of rows by seeking, so that a task holds no more than its own samples."""
    n_samples, n_leads = stored.shape
    size = stored.dtype.itemsize
    out = np.empty((stop - start, len(columns)), np.float32)
    with _stream(path, stored.member) as stream, np.errstate(over="ignore"):
        if stored.fortran and n_leads > 1:
            for i, column in sorted(enumerate(columns), key=lambda pair: pair[1]):
                stream.seek(stored.offset + (column * n_samples + start) * size)
                out[:, i] = _numbers(path, stream, stored.dtype, stop - start)
        else:
            stream.seek(stored.offset + start * n_leads * size)
            flat = _numbers(path, stream, stored.dtype, (stop - start) * n_leads)
            out[:] = flat.reshape(-1, n_leads)[:, columns]
    return out


def _numbers(
    path: str, stream: BinaryIO, dtype: np.dtype[np.generic], count: int
) -> npt.NDArray[np.generic]:
    data = stream.read(count * dtype.itemsize)
    if len(data) < count * dtype.itemsize:
        raise _broken(path, "it ends before its last sample")
    return np.frombuffer(data, dtype)


def count_infinite(path: str, stored: Stored, columns: Sequence[int], start: int, stop: int) -> int:
    """Count infinite values, numbers too large for float32 among them (a task)."""
    if stored.dtype.kind != "f":
        return 0
    return int(np.isinf(_raw_rows(path, stored, columns, start, stop)).sum())


def read_rows(
    path: str, stored: Stored, columns: Sequence[int], start: int, stop: int
) -> npt.NDArray[np.float32]:
    """Read samples [start, stop) of some columns (a task): float32 (stop - start, n_leads)."""
    block = _raw_rows(path, stored, columns, start, stop)
    block[np.isinf(block)] = np.nan
    return block
