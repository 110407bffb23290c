"""What every reader shares: opening, naming, choosing leads and sizing chunks."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import dask
import dask.array as da
import numpy as np
from dask.utils import parse_bytes

from ..errors import InputError
from ..recording import Recording

#: What a user may ask of the `leads` argument of read().
Leads = str | int | Sequence[str | int] | None

#: Bytes of float32 signal a partition, when no chunk is asked for: two million samples of one
#: lead. A detector needs a few arrays of that size at once, so a task stays under 100 MB, and a
#: day at 250 Hz still gives ten partitions.
DEFAULT_CHUNK_BYTES = 8 * 2**20


def on_workers(tasks: Sequence[Any]) -> list[Any]:
    """Compute delayed calls with the active scheduler: a client's workers open the files."""
    return list(dask.compute(*tasks))


def values_of(persisted: Sequence[Any]) -> list[Any]:
    """Return the values of persisted delayed calls; a client gathers them without a graph."""
    distributed = sys.modules.get("distributed")
    futures = [distributed.futures_of(one) for one in persisted] if distributed else []
    if not all(futures) or not futures:
        return on_workers(persisted)
    return list(futures[0][0].client.gather([future for (future,) in futures]))


@contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """Open a file for reading bytes; what the system refuses becomes an InputError."""
    try:
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: str, error: OSError) -> InputError:
    """Put an error of the operating system into the four parts of an InputError."""
    if isinstance(error, FileNotFoundError):
        return InputError(
            path, "no such file", "a file that is there", "Check the path, as the workers see it"
        )
    if isinstance(error, IsADirectoryError):
        return InputError(path, "a folder", "one file", "Name the recording's file")
    if isinstance(error, PermissionError):
        return InputError(
            path, "a file that must not be read", "a readable file", "Change its permissions"
        )
    return InputError(
        path, f"a read error ({error})", "a readable file", "Check the disk, or copy the file"
    )


def fs_needed(path: str, why: str) -> InputError:
    """Say that the file does not tell its sampling rate."""
    return InputError(
        path,
        f"no sampling rate ({why})",
        "a rate in the file, or one that is given",
        "Give fs in Hz (--fs on the command line)",
    )


def same_fs(path: str, told: float, given: float | None, tolerance: float = 1e-6) -> float:
    """Return the rate that the file tells, after comparing it with the one that was given.

    Raises
    ------
    InputError
        When the two differ by more than `tolerance`, relative.
    """
    if given is not None and abs(given - told) > tolerance * told:
        raise InputError(
            f"fs of {path}",
            f"{given:g} Hz given and {told:g} Hz in the file",
            "the rate that the file tells",
            "Leave fs out, or correct the file",
        )
    return told


def unique_names(names: Sequence[str]) -> tuple[str, ...]:
    """Tell equal names apart by a suffix: ``ECG``, ``ECG_2``, ``ECG_3``."""
    taken = set(names)
    seen: set[str] = set()
    unique = []
    for name in names:
        number, candidate = 2, name
        while candidate in seen:
            candidate = f"{name}_{number}"
            number += 1
            if candidate in taken and candidate not in seen:
                candidate = name
        seen.add(candidate)
        unique.append(candidate)
    return tuple(unique)


def chosen(names: Sequence[str], leads: Leads, record: str) -> list[int]:
    """Return the indexes of the leads that are asked for, by the rule of Recording.select."""
    if leads is None:
        return list(range(len(names)))
    stand_in = Recording(da.zeros((1, len(names))), fs=1.0, leads=tuple(names), name=record)
    return [names.index(name) for name in stand_in.select(leads).leads or ()]


def samples_per_chunk(chunk: int | str | None, n_leads: int) -> int:
    """Return how many samples a partition holds.

    Parameters
    ----------
    chunk
        A number of samples, or memory as text such as ``"64 MiB"``, bytes of float32 signal; None
        for `DEFAULT_CHUNK_BYTES`.
    n_leads
        Number of leads that share the bytes.

    Raises
    ------
    InputError
        When `chunk` is neither, or not positive.
    """
    samples: float = 0
    if isinstance(chunk, str):
        try:
            n_bytes = parse_bytes(chunk)
        except ValueError:
            n_bytes = 0
        samples = max(1, n_bytes // (4 * n_leads)) if n_bytes > 0 else 0
    elif chunk is None:
        samples = max(1, DEFAULT_CHUNK_BYTES // (4 * n_leads))
    elif isinstance(chunk, int | np.integer) and not isinstance(chunk, bool):
        samples = chunk
    if samples < 1 or not math.isfinite(samples):
        raise InputError(
            "chunk",
            repr(chunk),
            'a positive number of samples, or memory as text such as "64 MiB"',
            "Give one of these, or leave it out",
        )
    return int(samples)


def ranges(start: int, stop: int, step: int) -> list[tuple[int, int]]:
    """Cut the half-open range [start, stop) into pieces of `step`."""
    return [(low, min(low + step, stop)) for low in range(start, stop, step)]


def stem(path: str) -> str:
    """Return the name that a recording gets from its file."""
    return Path(path).stem or "recording"


def common_unit(units: Sequence[str | None]) -> str | None:
    """Return the unit that all leads share, None when they do not."""
    return units[0] if len(set(units)) == 1 else None


def infinite_note(count: int) -> tuple[str, ...]:
    """Return the note about infinite values, none when there are none."""
    if not count:
        return ()
    return (f"{counted(count, 'infinite value')} became missing",)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural where it needs one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
