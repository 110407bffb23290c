"""What `bare.py` and `through_dask.py` have in common: the clock, and the lines that they print.

Each prints JSON lines for `stages.py`: one when it is ready, then one a measurement, and one with
what was found.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from timings import device_parser

from ecg_dask.arrays import on_gpu

START, READ, SEGMENT, TRAIN, SCORE = "start", "read", "segment", "train", "score"
#: Sums of the stages before them.
TO_BEATS, TO_SCORES = "file to beats", "file to scores"
#: The line that tells what was found.
FOUND = "found"


class Steps(NamedTuple):
    """A way to do the stages. Each returns when its results are on the device.

    Attributes
    ----------
    read
        Takes a path; returns the number of samples, and the signal.
    segment
        Takes the signal; returns table and waves.
    count
        Takes table and waves; returns the number of beats. It is not timed.
    train
        Takes table and waves; returns the `Model`.
    score
        Takes table and waves, and the model; returns the number of anomalies.
    """

    read: Callable[[Path], tuple[int, Any]]
    segment: Callable[[Any], Any]
    count: Callable[[Any], int]
    train: Callable[[Any], Any]
    score: Callable[[Any, Any], int]


def add_runs(made: argparse.ArgumentParser) -> None:
    """Add the options that tell how often to run, and on what."""
    made.add_argument("--epochs", type=int, default=5)
    made.add_argument("--wholes", type=int, default=3, help="warm runs from file to scores")
    made.add_argument("--repeats", type=int, default=10, help="warm runs from file to beats")
    made.add_argument("--workers", type=int, help="worker processes of Dask's cluster")


def options_of(text: str | None) -> argparse.Namespace:
    """Return the options of a script with this docstring."""
    made = device_parser(text)
    made.add_argument("files", type=Path, nargs="+", metavar="FILE", help="CSV files of one lead")
    add_runs(made)
    return made.parse_args()


def measure(steps: Steps, options: argparse.Namespace, workers: int = 0) -> None:
    """Print what the stages take, cold and then warm.

    The first file goes all the way. The text makes no difference behind the beats, so the others
    only go as far as these.

    Parameters
    ----------
    steps
        How the stages are done.
    options
        What `options_of` gave.
    workers
        Worker processes that there are.
    """
    tell(part=START)
    for run in range(options.wholes + 1):
        found = _whole(steps, options.files[0], run)
    tell(part=FOUND, workers=workers, **found)
    for file in options.files:
        for run in range(1, options.repeats + 1):
            _to_beats(steps, file, options.wholes + run)


def tell(**line: Any) -> None:
    """Print a line."""
    print(json.dumps(line), flush=True)


def _whole(steps: Steps, file: Path, run: int) -> dict[str, int]:
    beats, found, to_beats_s = _to_beats(steps, file, run)
    model, train_s = _timed(steps.train, beats)
    anomalies, score_s = _timed(steps.score, beats, model)
    total_s = to_beats_s + train_s + score_s
    for part, seconds in ((TRAIN, train_s), (SCORE, score_s), (TO_SCORES, total_s)):
        tell(part=part, file=str(file), run=run, seconds=seconds)
    return {**found, "trained": model.n_train, "anomalies": anomalies}


def _to_beats(steps: Steps, file: Path, run: int) -> tuple[Any, dict[str, int], float]:
    (samples, signal), read_s = _timed(steps.read, file)
    beats, segment_s = _timed(steps.segment, signal)
    total_s = read_s + segment_s
    for part, seconds in ((READ, read_s), (SEGMENT, segment_s), (TO_BEATS, total_s)):
        tell(part=part, file=str(file), run=run, seconds=seconds)
    return beats, {"samples": samples, "beats": steps.count(beats)}, total_s


def _timed(step: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    begun = time.perf_counter()
    result = step(*arguments)
    return result, time.perf_counter() - begun


def arrived(table: Any, *arrays: Any) -> int:
    """Return the rows of a table once the device has done all that it was told to do."""
    if any(on_gpu(array) for array in arrays):
        importlib.import_module("cupy").cuda.runtime.deviceSynchronize()
    return len(table)
