"""Files of a synthetic day: one lead, as an array and as CSV rows of two widths.

They are made by as many processes as there are cores, and only where they are not there yet.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dask
import numpy as np
from dask.delayed import delayed

FS = 250.0
DAY = 20_140_000

#: How a sample is written in rows of about so many characters.
WIDTHS = {10: "%.8f\n", 25: "%.18e\n"}

#: Samples that a process makes or writes at a time.
_BLOCK = 2**18


@contextmanager
def kept_in(folder: Path | None) -> Iterator[Path]:
    """Give a folder for the files, a temporary one if none is named."""
    if folder is None:
        with tempfile.TemporaryDirectory() as made:
            yield Path(made)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


def day_array(folder: Path, samples: int = DAY) -> Path:
    """Return an .npy file of float32 samples in mV, of shape (samples,)."""
    path = folder / f"day-{samples}.npy"
    if not path.exists():
        from ecg_dask.synthetic import synthetic

        signal = synthetic(samples / FS, FS, chunk=_BLOCK).recording.signal
        blocks = signal.to_delayed(optimize_graph=False).ravel().tolist()
        with _whole(path) as aside:
            np.save(aside, np.concatenate(_in_processes(blocks))[:, 0])
    return path


def day_csv(folder: Path, width: int, samples: int = DAY, days: int = 1) -> Path:
    """Return a CSV file of such days in a row, without a header, a sample a row.

    Parameters
    ----------
    folder
        Where the file is.
    width
        Characters a row, a key of `WIDTHS`.
    samples
        Samples a day.
    days
        How often the day is repeated.
    """
    path = folder / f"day-{samples}-{width}-x{days}.csv"
    if path.exists():
        return path
    if days > 1:
        day = day_csv(folder, width, samples)
        with _whole(path) as aside, aside.open("wb") as target:
            for _ in range(days):
                with day.open("rb") as source:
                    shutil.copyfileobj(source, target, 2**24)
        return path
    array = str(day_array(folder, samples))
    rows = [delayed(_rows)(array, i, WIDTHS[width]) for i in range(0, samples, _BLOCK)]
    with _whole(path) as aside, aside.open("wb") as file:
        file.writelines(_in_processes(rows))
    return path


def short_arrays(folder: Path, number: int, samples: int, day: int = DAY) -> list[Path]:
    """Return .npy files of short recordings, evenly spread over the day."""
    paths = [folder / f"short-{samples}-{i}of{number}-of-{day}.npy" for i in range(number)]
    signal = np.load(day_array(folder, day), mmap_mode="r")
    for i, path in enumerate(paths):
        if not path.exists():
            begin = (day - samples) * i // max(number - 1, 1)
            with _whole(path) as aside:
                np.save(aside, signal[begin : begin + samples])
    return paths


def _rows(path: str, begin: int, form: str) -> bytes:
    block = np.load(path, mmap_mode="r")[begin : begin + _BLOCK].tolist()
    return (form * len(block) % tuple(block)).encode()


def _in_processes(tasks: list[object]) -> tuple[object, ...]:
    """Compute tasks in processes of their own, or here where there is only one."""
    return dask.compute(*tasks, scheduler="processes" if len(tasks) > 1 else "synchronous")


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """Give a name beside `path` that becomes `path` at the end."""
    aside = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        yield aside
        aside.rename(path)
    finally:
        aside.unlink(missing_ok=True)
