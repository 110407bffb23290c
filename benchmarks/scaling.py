"""Loading and segmenting on 1, 2, 4, ... workers: strong and weak scaling.

    python benchmarks/scaling.py [-t cpu|gpu] [--samples N] [--recordings N] [--repeats N]
        [--workers N] [--workers-per-gpu N] [--out DIR] [--data DIR] [--pool SIZE]

On GPUs there are up to as many workers as GPUs, or with ``--workers-per-gpu`` several times as
many, on a CPU up to ``--workers``, 2 by default, with a thread each. The cases:

- a synthetic day, and ten of them in a row (200 million samples), on more and more workers;
- as many days in a row as there are workers;
- 64 recordings of half an hour each.

The days are CSV with rows of 10 characters, the short recordings NumPy arrays. Days are cut into
partitions as `ecg_dask.read` does by itself, and into one a worker (of at most 256 MiB).
Efficiency is the time on one worker divided by the time on n, and also by n where the work stays
the same. All is warm: each cluster first runs a day in several partitions a worker, then each case
once, before it is timed.

DIR, by default ``benchmarks/results``, gets ``scaling.csv`` and ``scaling.md``, with ``_gpu``,
``_2gpus``, ...
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from day_files import DAY, day_csv, kept_in, short_arrays
from partitions import LONGER
from stage_runs import READ, SEGMENT, TO_BEATS
from through_dask import read, segment_all
from timings import (
    Timing,
    least,
    median,
    number_of_gpus,
    on_device,
    parser,
    positive,
    report,
    table,
    warm,
)

import ecg_dask

#: Samples of a short recording, and of the largest partition.
SHORT, LARGEST = 450_000, 2**26

#: Partitions a worker that warm it up.
SEVERAL = 4

DAYS, LONG, WEAK, BATCH = "a day", "ten days", "a day a worker", "short recordings"
OWN, EACH = "default partitions", "a partition a worker"


class Case(NamedTuple):
    """Files to load and segment, with their samples together, and samples a partition."""

    what: str
    paths: list[Path]
    samples: int
    chunk: int | None


def cases(folder: Path, day: int, recordings: int, workers: int) -> Iterator[Case]:
    """Give the cases for a number of workers; the files are made where they are not there."""
    for what, days in ((DAYS, 1), (LONG, 10), (WEAK, workers)):
        path, samples = day_csv(folder, 10, day, days), days * day
        yield Case(f"{what}, {OWN}", [path], samples, None)
        yield Case(
            f"{what}, {EACH}", [path], samples, min(round(LONGER * samples / workers), LARGEST)
        )
    short = min(SHORT, day // 2)
    paths = short_arrays(folder, recordings, short, day)
    yield Case(BATCH, paths, recordings * short, None)


def warm_up(case: Case, workers: int) -> None:
    """Let every worker compile and load: one that had nothing to do in a first run would not."""
    pieces = SEVERAL * workers
    segment_all([read(path, chunk=-(-case.samples // pieces))[1] for path in case.paths])


def measure(case: Case, workers: int, repeats: int) -> list[Timing]:
    """Time a case."""
    n_bytes = sum(path.stat().st_size for path in case.paths)
    timings = []
    for run in range(repeats + 1):
        begun = time.perf_counter()
        recordings = [read(path, chunk=case.chunk)[1] for path in case.paths]
        there = time.perf_counter()
        segment_all(recordings)
        done = time.perf_counter()
        times = {READ: there - begun, SEGMENT: done - there, TO_BEATS: done - begun}
        for part, seconds in times.items():
            sized = (workers, case.samples, "samples", run, seconds, n_bytes)
            timings.append(Timing(case.what, part, *sized))
        del recordings
    return timings


def page_lines(timings: Sequence[Timing]) -> list[str]:
    """Return the table."""
    head = ["case", "workers", "samples", f"{READ}, median, s", f"{SEGMENT}, median, s"]
    head += [f"{TO_BEATS}, median, s", "least, s", "Msamples/s", "efficiency"]
    rows = []
    for what in dict.fromkeys(timing.what for timing in timings):
        of_case = [timing for timing in timings if timing.what == what]
        alone = statistics.median(warm(of_case, part=TO_BEATS, workers=1))
        for workers in sorted({timing.workers for timing in of_case}):
            here = [timing for timing in of_case if timing.workers == workers]
            samples, seconds = here[0].size, warm(here, part=TO_BEATS)
            taken = statistics.median(seconds)
            share = 1 if what.startswith(WEAK) else workers
            rows.append(
                [
                    what,
                    str(workers),
                    f"{samples:,}",
                    *(median(warm(here, part=part)) for part in (READ, SEGMENT)),
                    median(seconds),
                    least(seconds),
                    f"{samples / taken / 1e6:,.0f}",
                    f"{alone / taken / share:.2f}",
                ]
            )
    return table(head, rows)


def counts(most: int) -> list[int]:
    """Return the numbers of workers: 1, 2, 4, ... and the most."""
    return sorted({most, *(2**i for i in range(most.bit_length()) if 2**i <= most)})


def main() -> None:
    made = parser(__doc__, samples=DAY)
    made.add_argument("--recordings", type=positive, default=64, help="short recordings")
    made.add_argument("--repeats", type=positive, default=5, help="runs after the first")
    made.add_argument("--workers", type=positive, default=2, help="most workers on a CPU")
    made.add_argument("--workers-per-gpu", type=positive, default=1)
    options = made.parse_args()
    gpus = number_of_gpus(options)
    each: dict[str, Any] = {"threads": 1}
    if gpus:
        each["workers_per_gpu"] = options.workers_per_gpu
    most = gpus * options.workers_per_gpu or options.workers
    timings: list[Timing] = []
    with kept_in(options.data) as folder:
        for workers in counts(most):
            todo = list(cases(folder, options.samples, options.recordings, workers))
            with ecg_dask.connect(workers=workers, **each, **on_device(options)):
                warm_up(todo[0], workers)
                for case in todo:
                    timings += measure(case, workers, options.repeats)
    report("scaling", gpus, options.out, timings, "Scaling", page_lines(timings))


if __name__ == "__main__":
    main()
