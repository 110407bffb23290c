"""The stages of `bare.py` as a user runs them: through `ecg_dask.connect`, on Dask's workers.

    python benchmarks/through_dask.py [-t cpu|gpu] [--pool SIZE] [--epochs N] [--workers N]
        FILE [FILE ...]

Table and waves of the beats stay on the workers. `stages.py` runs this in fresh processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import dask
from dask.delayed import delayed
from day_files import FS
from distributed import default_client, futures_of, wait
from stage_runs import Steps, arrived, measure, options_of
from timings import on_device

import ecg_dask


def read(path: Path, chunk: int | None = None) -> tuple[int, Any]:
    """Return the recording. On a GPU its samples are there already, on a CPU they are counted."""
    recording = ecg_dask.read(path, fs=FS, chunk=chunk)
    return recording.n_samples, recording


def segment(recording: Any) -> Any:
    """Find the beats of one recording."""
    (beats,) = segment_all([recording])
    return beats


def segment_all(recordings: Sequence[Any]) -> list[Any]:
    """Find the beats of several recordings at once."""
    found = [ecg_dask.find_beats(recording).persist() for recording in recordings]
    wait([beats.partitions() for beats in found])
    return found


def count(beats: Any) -> int:
    """Return the number of beats."""
    return sum(dask.compute(*(delayed(arrived)(*pair) for pair in beats.partitions())))


def score(beats: Any, model: Any) -> int:
    """Score every beat where it is, and return how many are anomalies."""
    scored = model.score(beats).to_delayed(optimize_graph=False)
    scored, counts = dask.persist(scored, [delayed(anomalies)(part) for part in scored])
    return total(counts)


def total(counts: Sequence[Any]) -> int:
    """Wait for persisted numbers, and return their sum."""
    return sum(default_client().gather(futures_of(counts)))


def anomalies(scored: Any) -> int:
    """Return how many beats of a partition are anomalies, once all of it is there."""
    arrived(scored, scored["score"].values)
    return int(scored["anomaly"].sum())


def main() -> None:
    options = options_of(__doc__)
    train = partial(ecg_dask.train, epochs=options.epochs)
    with ecg_dask.connect(workers=options.workers, warm_fs=FS, **on_device(options)) as client:
        measure(Steps(read, segment, count, train, score), options, len(client.nthreads()))


if __name__ == "__main__":
    main()
