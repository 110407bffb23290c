"""What partitions cost: file to beats on one worker, in 1, 2, 4, ... 64 of them.

    python benchmarks/partitions.py [-t cpu|gpu] [--samples N] [--partitions N ...] [--repeats N]
        [--out DIR] [--data DIR] [--pool SIZE]

The file is a synthetic day as CSV with rows of 10 characters. All is warm: each number of
partitions is run once before it is timed.

DIR, by default ``benchmarks/results``, gets ``partitions.csv`` and ``partitions.md``, with
``_gpu``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from day_files import DAY, day_csv, kept_in
from stage_runs import READ, SEGMENT, TO_BEATS
from through_dask import read, segment
from timings import Timing, cold, least, median, on_device, parser, positive, report, table, warm

import ecg_dask

PARTITIONS = (1, 2, 4, 8, 16, 32, 64)

#: How much longer than its share a partition is. A reader estimates the length of a row, and must
#: not leave a few rows for one partition more.
LONGER = 1.004


def measure(path: Path, samples: int, partitions: int, repeats: int) -> list[Timing]:
    """Time file to beats in about so many partitions; the rows have their number."""
    timings = []
    for run in range(repeats + 1):
        begun = time.perf_counter()
        _, recording = read(path, chunk=round(LONGER * samples / partitions))
        there = time.perf_counter()
        segment(recording)
        done = time.perf_counter()
        n = recording.signal.numblocks[0]
        times = {READ: there - begun, SEGMENT: done - there, TO_BEATS: done - begun}
        for part, seconds in times.items():
            sized = (1, n, "partitions", run, seconds, path.stat().st_size)
            timings.append(Timing("day", part, *sized))
        del recording
    return timings


def page_lines(timings: Sequence[Timing]) -> list[str]:
    """Return the table."""
    head = ["partitions", *(f"{part}, median, ms" for part in (READ, SEGMENT, TO_BEATS))]
    head += ["least, ms", "first, ms", "ms a further partition"]
    rows = []
    numbers = sorted({timing.size for timing in timings})
    fewest = statistics.median(warm(timings, size=numbers[0], part=TO_BEATS))
    for n in numbers:
        whole = warm(timings, size=n, part=TO_BEATS)
        cells = [str(n)]
        cells += [median(warm(timings, size=n, part=part), 1e3, 1) for part in (READ, SEGMENT)]
        cells += [median(whole, 1e3, 1), least(whole, 1e3, 1)]
        cells += [median(cold(timings, size=n, part=TO_BEATS), 1e3, 1)]
        more = n - numbers[0]
        cells += [f"{1e3 * (statistics.median(whole) - fewest) / more:.2f}" if more else "-"]
        rows.append(cells)
    return table(head, rows)


def main() -> None:
    made = parser(__doc__, samples=DAY)
    made.add_argument("--partitions", type=positive, nargs="+", default=PARTITIONS)
    made.add_argument("--repeats", type=positive, default=10, help="runs after the first")
    options = made.parse_args()
    where: dict[str, Any] = on_device(options)
    timings: list[Timing] = []
    with kept_in(options.data) as folder:
        path = day_csv(folder, 10, options.samples)
        with ecg_dask.connect(workers=1, **where):
            # Compiles what there is to compile.
            segment(read(path)[1])
            for n in options.partitions:
                timings += measure(path, options.samples, n, options.repeats)
    gpus = int(options.type == "gpu")
    report("partitions", gpus, options.out, timings, "The cost of partitions", page_lines(timings))


if __name__ == "__main__":
    main()
