"""A module's process: it makes beats and hands them on, or takes them over and uses them.

    python benchmarks/handover_module.py make|take WAY [-t cpu|gpu] [--pool SIZE] [--file FILE]
        [--folder DIR] [--scheduler ADDRESS]

`handover.py` runs two of them. Each prints a JSON line when it can begin. The first then reads
names from its standard input, hands the beats on under each, and prints what that took, and what
the second is to be told: the same name, or for share() the descriptor of what it may map.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any, Protocol

from bare import read_on_cpu, read_on_gpu, segment
from day_files import FS
from handover_files import FORMATS
from stage_runs import arrived, tell
from timings import device_parser

MAKE, TAKE = "make", "take"
START, MADE, PUT, OFFER, GET, USE = "start", "made", "put", "share()", "get", "use"

TCP, UCX, SHARE = "store, tcp", "store, ucx", "share"


class Maker(Protocol):
    """A process that has beats and hands them on; each call returns when its work is done."""

    def make(self, path: Path) -> None:
        """Find the beats of a CSV file, and keep them as a module has its result."""

    def put(self, name: str) -> None:
        """Hand the beats on."""


class Taker(Protocol):
    """A process that takes beats over and works with them."""

    def get(self, told: str) -> Any:
        """Return what was handed on, so that a module can work with it."""

    def use(self, beats: Any) -> tuple[int, float]:
        """Return the number of beats, and the sum of their waves."""


class Files:
    """Beats in this process, and in files between it and the next."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.format, self.folder = FORMATS[options.way], options.folder
        self.gpu = options.type == "gpu"
        if self.gpu:
            from dask.utils import parse_bytes

            from ecg_dask.gpu.memory import set_up
            from ecg_dask.gpu.pool import Pool

            set_up(Pool("cuda", parse_bytes(options.pool)))

    def make(self, path: Path) -> None:
        """Find beats without a cluster."""
        _, signal = (read_on_gpu if self.gpu else read_on_cpu)(path)
        self.beats = segment(signal)

    def put(self, name: str) -> None:
        """Write files."""
        folder = self.folder / name
        folder.mkdir()
        self.format.write(folder, *self.beats)

    def get(self, name: str) -> tuple[Any, Any]:
        """Read files into this process, or to its GPU."""
        table, waves = self.format.read(self.folder / name, self.gpu)
        arrived(table, waves)
        return table, waves

    def use(self, beats: tuple[Any, Any]) -> tuple[int, float]:
        """Count and sum in this process."""
        return used(*beats)


class Stored:
    """Beats on a cluster's worker, and their name in the store."""

    def __init__(self, options: argparse.Namespace) -> None:
        from ecg_dask import connect
        from ecg_dask.store import Store

        self.client = connect(options.scheduler, device=options.type)
        self.store = Store(self.client)

    def make(self, path: Path) -> None:
        """Find beats on the workers."""
        from distributed import wait

        import ecg_dask

        self.beats = ecg_dask.find_beats(ecg_dask.read(path, fs=FS)).persist()
        wait([self.beats.partitions(), self.beats.records, self.beats.spans])

    def put(self, name: str) -> None:
        """Put them into the store."""
        self.store.put(name, self.beats)

    def get(self, name: str) -> Any:
        """Get them from the store."""
        return self.store.get(name)

    def use(self, beats: Any) -> tuple[int, float]:
        """Count and sum on the worker."""
        import dask
        from dask.delayed import delayed

        parts = dask.compute(*(delayed(used)(*part) for part in beats.partitions()))
        return sum(rows for rows, _ in parts), sum(total for _, total in parts)


class Mapped:
    """Beats on a cluster's worker, mapped by a process outside Dask."""

    def __init__(self, options: argparse.Namespace) -> None:
        if options.type == "gpu":
            import cudf

            # The GPU is this process's too before it begins.
            cudf.DataFrame({"a": [1]})
        else:
            import pandas  # noqa: F401
        from ecg_dask.share import attach

        self.attach = attach

    def get(self, told: str) -> tuple[Any, list[Any]]:
        """Map the worker's memory."""
        shared = self.attach(told)
        return shared, list(zip(shared.table, shared.waves, strict=True))

    def use(self, beats: tuple[Any, list[Any]]) -> tuple[int, float]:
        """Count and sum in this process."""
        shared, parts = beats
        with shared:
            sums = [used(*part) for part in parts]
        return sum(rows for rows, _ in sums), sum(total for _, total in sums)


def used(table: Any, waves: Any) -> tuple[int, float]:
    """Return the rows of a table and the sum of its waves (a task, for the store)."""
    return len(table), float(waves.sum(dtype="float64"))


def hand_on(maker: Maker, options: argparse.Namespace) -> None:
    """Make beats, and hand them on once for each name that comes in."""
    maker.make(options.file)
    tell(part=MADE)
    for line in sys.stdin:
        name = line.strip()
        begun = time.perf_counter()
        maker.put(name)
        tell(part=PUT, seconds=time.perf_counter() - begun, told=name)
        if isinstance(maker, Stored) and options.way == SHARE:
            begun = time.perf_counter()
            descriptor = json.dumps(maker.store.share(name))
            tell(part=OFFER, seconds=time.perf_counter() - begun, told=descriptor)


def take_over(taker: Taker) -> None:
    """Take beats over, once for each line that comes in, and use them."""
    for line in sys.stdin:
        begun = time.perf_counter()
        beats = taker.get(line.strip())
        got = time.perf_counter()
        rows, total = taker.use(beats)
        ended = time.perf_counter()
        del beats
        tell(part=GET, seconds=got - begun)
        tell(part=USE, seconds=ended - got, rows=rows, total=total)


def main() -> None:
    made = device_parser(__doc__)
    made.add_argument("role", choices=[MAKE, TAKE])
    made.add_argument("way", choices=[*FORMATS, TCP, UCX, SHARE])
    made.add_argument("--file", type=Path, help="CSV file of one lead")
    made.add_argument("--folder", type=Path, help="folder of the files between the modules")
    made.add_argument("--scheduler", help="address of the scheduler")
    options = made.parse_args()
    if options.role == MAKE:
        maker = Files(options) if options.way in FORMATS else Stored(options)
        tell(part=START)
        hand_on(maker, options)
    else:
        kinds: dict[str, type[Taker]] = {TCP: Stored, UCX: Stored, SHARE: Mapped}
        taker = kinds.get(options.way, Files)(options)
        tell(part=START)
        take_over(taker)


if __name__ == "__main__":
    main()
