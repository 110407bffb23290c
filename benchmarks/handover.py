"""The beats of a day from one module's process to the next: by files, by the store, by share().

    python benchmarks/handover.py [-t cpu|gpu] [--samples N] [--repeats N] [--out DIR]
        [--data DIR] [--pool SIZE]

Two processes (`handover_module.py`): the first finds the beats of a synthetic day and hands them
on, table and waves; the second takes them over, counts the rows and sums the waves. What is timed
is handing on (put), taking over until table and waves are there for the next module to work with
(get), and that first use; "handover" is their sum. The beats are where modules have them before and
after: in the memory of their process, or on a GPU in its pool, when files are between them; on the
cluster's one worker for the store, where a task uses them; and for share() on that worker before,
which offers them, and mapped by the second process, which has no connection to the cluster, after.
"start" is the time from the start of the second process
until it could begin, with its imports and its connection; it is part of nothing else.

Files are on local disk, and read while the system still holds them. CSV goes 2 times instead of
the number of repeats.

DIR, by default ``benchmarks/results``, gets ``handover.csv`` and ``handover.md``, with ``_gpu``.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from day_files import DAY, FS, day_csv, kept_in
from handover_files import CSV, FORMATS, PARQUET
from handover_module import GET, MAKE, OFFER, PUT, SHARE, START, TAKE, TCP, UCX, USE
from stages import ROW
from timings import (
    Timing,
    cold,
    least,
    median,
    on_device,
    parser,
    positive,
    report,
    table,
    warm,
)

import ecg_dask
from ecg_dask.store import Store

HERE = Path(__file__).parent
HANDOVER = "handover"

#: What a handover consists of.
PARTS = (PUT, OFFER, GET, USE)

#: Handovers by CSV after the first, at most.
FEW = 2

#: The ways, and the protocol of the cluster that each needs.
WAYS = {**dict.fromkeys(FORMATS), TCP: "tcp", UCX: "ucx", SHARE: "tcp"}


class Module:
    """A process of `handover_module.py`.

    Attributes
    ----------
    start_s
        Seconds from its start until it could begin.
    """

    def __init__(self, role: str, way: str, options: Sequence[str]) -> None:
        command = [sys.executable, str(HERE / "handover_module.py"), role, way, *options]
        begun = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.next()
        self.start_s = time.perf_counter() - begun

    def next(self) -> dict[str, Any]:
        """Return the next line that it prints."""
        line = self.process.stdout.readline()
        if not line:
            status = self.process.wait()
            sys.exit(f"{' '.join(self.process.args)} ended with status {status}")
        return json.loads(line)

    def tell(self, line: str) -> None:
        """Give it the next line that it reads."""
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()


@contextmanager
def module(role: str, way: str, options: Sequence[str]) -> Iterator[Module]:
    """Run a module, and let it end."""
    running = Module(role, way, options)
    try:
        yield running
    finally:
        running.process.stdin.close()
        running.process.stdout.close()
        running.process.wait()


def handovers(way: str, options: argparse.Namespace, file: Path, folder: Path) -> list[Timing]:
    """Hand beats over by one way, cold and then warm.

    Parameters
    ----------
    way
        One of `WAYS`.
    options
        Those of this script.
    file
        The recording.
    folder
        Where files between the modules are.
    """
    arguments = ["-t", options.type, "--pool", options.pool, "--folder", str(folder)]
    with ExitStack() as stack:
        store = None
        if WAYS[way]:
            connected = ecg_dask.connect(protocol=WAYS[way], workers=1, **on_device(options))
            client = stack.enter_context(connected)
            store = Store(client)
            arguments += ["--scheduler", client.scheduler.address]
        maker = stack.enter_context(module(MAKE, way, [*arguments, "--file", str(file)]))
        maker.next()
        taker = stack.enter_context(module(TAKE, way, arguments))
        rows: list[Timing] = []
        repeats = min(options.repeats, FEW) if way == CSV else options.repeats
        for run in range(repeats + 1):
            name = f"beats-{run}"
            maker.tell(name)
            lines = [maker.next() for _ in range(1 + (way == SHARE))]
            taker.tell(lines[-1]["told"])
            lines += [taker.next(), taker.next()]
            seconds = {line["part"]: line["seconds"] for line in lines}
            seconds[HANDOVER] = sum(seconds.values())
            if run == 0:
                seconds[START] = taker.start_s
                found = lines[-1]
            check_same(lines[-1], found, way)
            size = n_bytes(found["rows"])
            rows += [
                Timing(way, part, int(store is not None), size, "bytes", run, taken, size)
                for part, taken in seconds.items()
            ]
            if store is None:
                shutil.rmtree(folder / name)
            else:
                store.drop(name)
        print(f"{way}: {found['rows']:,} beats", file=sys.stderr)
    return rows


def n_bytes(beats: int) -> int:
    """Return the bytes of so many beats of one lead: waves, and the numbers of the table."""
    widths = ecg_dask.Detector().widths(FS)
    return beats * (4 * (widths.before + widths.after) + ROW)


def check_same(one: dict[str, Any], other: dict[str, Any], way: str) -> None:
    """End when two handovers gave different beats."""
    alike = math.isclose(one["total"], other["total"], rel_tol=1e-6)
    if one["rows"] != other["rows"] or not alike:
        sys.exit(f"by {way} came {one['rows']:,} beats of sum {one['total']}, not {other}")


def page_lines(timings: Sequence[Timing]) -> list[str]:
    """Return the table."""
    head = ["way", "start, s", "handover, cold, ms", "handover, median, ms", "handover, least, ms"]
    head += [f"{part}, median, ms" for part in PARTS]
    head += [f"times as fast as {name}" for name in (PARQUET, CSV)]
    slow = {
        name: statistics.median(warm(timings, what=name, part=HANDOVER)) for name in (PARQUET, CSV)
    }
    rows = []
    for way in WAYS:
        whole = warm(timings, what=way, part=HANDOVER)
        cells = [way, median(cold(timings, what=way, part=START), digits=2)]
        cells += [median(cold(timings, what=way, part=HANDOVER), 1e3)]
        cells += [median(whole, 1e3), least(whole, 1e3)]
        cells += [median(warm(timings, what=way, part=part), 1e3) for part in PARTS]
        cells += [f"{seconds / statistics.median(whole):.3g}" for seconds in slow.values()]
        rows.append(cells)
    return table(head, rows)


def main() -> None:
    made = parser(__doc__, samples=DAY)
    made.add_argument("--repeats", type=positive, default=10, help="handovers after the first")
    options = made.parse_args()
    timings: list[Timing] = []
    with kept_in(options.data) as data, kept_in(None) as folder:
        file = day_csv(data, 10, options.samples)
        for way in WAYS:
            timings += handovers(way, options, file, folder)
    lines = page_lines(timings)
    lines += ["", f"{timings[0].size / 1e6:,.1f} MB of table and waves; one worker."]
    title = "Seconds from one module to the next"
    report("handover", int(options.type == "gpu"), options.out, timings, title, lines)


if __name__ == "__main__":
    main()
