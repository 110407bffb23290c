"""Read recordings from files: `read` finds out the format and hands over to its module."""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import dask
import numpy as np
from dask.delayed import delayed

from ..errors import InputError
from ..gpu.pool import Pool, on_device, pool_here
from ..recording import Recording
from .csv import Block, Survey, load_block, plan_of, read_csv, survey_csv
from .files import Leads, samples_per_chunk, values_of
from .formats import format_of
from .numpy_arrays import read_numpy
from .opensignals import read_opensignals
from .parquet import read_parquet
from .wfdb_records import read_wfdb

__all__ = ["read"]

#: On a GPU a partition holds so small a share of the worker's pool, as float32: a task needs about
#: fifteen times as much at once. And at most so much, in bytes. One partition more costs 30 ms, in
#: which a GPU reads and segments a hundred million samples, so that a day of one lead at 250 Hz is
#: one partition, on several GPUs as well.
_SHARE_OF_POOL, _LARGEST = 1 / 64, 256 * 2**20

#: Share of the workers' pools that a recording may fill which is read while it is counted.
_ROOM = 1 / 8

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
        at 250 Hz gives 10 to 14 partitions, and a task stays under about 100 MB. On GPU workers a
        64th of the pool, but at most 256 MiB.

    Returns
    -------
    Recording
        Blocks are float32 of shape (n, n_leads), NumPy or, on GPU workers, CuPy, NaN where a sample
        is missing. A table of text without times that fits several times over into the workers'
        pools is read while its rows are counted, and stays there. ``notes``
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
    kept = dask.persist(*delayed(_open, nout=2)(name, fs, leads, chunk))
    (first,) = values_of(kept[:1])
    options: dict[str, Any] = {"fs": fs, "leads": leads, "chunk": chunk}
    if first.survey is not None:
        options["survey"] = first.survey
    if first.pool is None:
        return _READERS[first.kind](name, **options)
    options |= _sizes(first.pool, chunk)
    if first.block is not None:
        options["held"] = (kept[1], first.block)
    return _read_on_gpus(first.kind, name, options)


class _First(NamedTuple):
    """What a worker tells that opened a file first.

    Attributes
    ----------
    kind
        The file's format.
    pool
        The worker's pool of GPU memory, if it has one.
    survey
        What a first look at a CSV shows.
    block
        Of a CSV that was read at once, what its only range of bytes holds.
    """

    kind: str
    pool: Pool | None = None
    survey: Survey | None = None
    block: Block | None = None


def _open(name: str, fs: float | None, leads: Leads, chunk: int | str | None) -> tuple[_First, Any]:
    """Find out a file's format, and look at a CSV (a task).

    What fits into one partition of a GPU is read in the same task, for each that waits for another
    costs as much as the parsing of some ten million bytes. Its samples are the second value.
    """
    first = _First(format_of(name), pool_here())
    if first.kind != "csv":
        return first, None
    survey = survey_csv(name, fs)
    first = first._replace(survey=survey)
    if first.pool is None:
        return first, None
    sizes = _sizes(first.pool, chunk)
    plan = plan_of(name, survey, fs=fs, leads=leads, chunk=sizes["chunk"])
    if len(plan.pieces) > 1 or not plan.fits(sizes["room"]):
        return first, None
    samples, block = load_block(name, survey.layout, plan.columns, *plan.pieces[0])
    return first._replace(block=block), samples


def _sizes(pool: Pool, chunk: int | str | None) -> dict[str, Any]:
    """Return the size of a partition, and room for what is read at once, on workers with a pool."""
    if chunk is None:
        chunk = f"{min(int(pool.size * _SHARE_OF_POOL), _LARGEST)} B"
    return {"chunk": chunk, "room": int(pool.size * pool.workers * _ROOM)}


def _read_on_gpus(kind: str, name: str, options: dict[str, Any]) -> Recording:
    """Read a recording into GPU memory."""
    meta = _gpu_meta()
    if kind == "csv":
        return read_csv(name, meta=meta, **options)
    del options["room"]
    if kind == "opensignals":
        return read_opensignals(name, meta=meta, **options)
    recording = _READERS[kind](name, **options)
    return replace(recording, signal=recording.signal.map_blocks(on_device, meta=meta))


def _gpu_meta() -> Any:
    """Return what tells Dask that blocks are CuPy arrays."""
    try:
        cupy = importlib.import_module("cupy")
        return cupy.empty((0, 0), dtype=np.float32)
    except Exception as error:
        raise InputError(
            "device",
            f"workers on GPUs, and a client that can use none ({error})",
            "a client on a machine with a GPU and with the workers' packages",
            "Start the client on a worker's machine",
        ) from error


def _positive(fs: Any) -> float:
    """Return a rate as a float, whatever number it is."""
    try:
        rate = math.nan if isinstance(fs, bool | str) else float(fs)
    except (TypeError, ValueError):
        rate = math.nan
    if not 0 < rate < math.inf:
        raise InputError("fs", repr(fs), "a positive number of Hz", "Give the sampling rate")
    return rate
