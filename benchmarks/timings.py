"""Tidy rows of the benchmarks that run on a cluster, and the options that they share."""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from machine import machine

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Timing:
    """One measurement.

    Attributes
    ----------
    what
        What was measured: a way of doing it, or a case.
    part
        Which part of that.
    workers
        Worker processes; 0 where there is no cluster.
    size, unit
        How large it was, and in what.
    run
        0 for the first call in new processes, which is cold; 1, 2, ... for those that follow.
    seconds
        What it took.
    bytes
        Bytes that it read, wrote or sent at the least.
    """

    what: str
    part: str
    workers: int
    size: int
    unit: str
    run: int
    seconds: float
    bytes: int


def cold(timings: Iterable[Timing], **wanted: Any) -> list[float]:
    """Return the seconds of the first calls whose attributes are as given."""
    return [timing.seconds for timing in _fitting(timings, wanted) if timing.run == 0]


def warm(timings: Iterable[Timing], **wanted: Any) -> list[float]:
    """Return the seconds of the calls after the first whose attributes are as given."""
    return [timing.seconds for timing in _fitting(timings, wanted) if timing.run > 0]


def _fitting(timings: Iterable[Timing], wanted: dict[str, Any]) -> list[Timing]:
    return [
        timing
        for timing in timings
        if all(getattr(timing, name) == value for name, value in wanted.items())
    ]


def median(seconds: Sequence[float], unit: float = 1.0, digits: int = 3) -> str:
    """Return the median as a cell of a table, ``-`` of nothing; `unit` 1e3 makes it ms."""
    return f"{unit * statistics.median(seconds):.{digits}f}" if seconds else "-"


def least(seconds: Sequence[float], unit: float = 1.0, digits: int = 3) -> str:
    """Return the least as a cell of a table, ``-`` of nothing; `unit` 1e3 makes it ms."""
    return f"{unit * min(seconds):.{digits}f}" if seconds else "-"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> list[str]:
    """Return a Markdown table; all but the first `words` columns are aligned as numbers."""
    rules = ["---" if i < words else "---:" for i in range(len(head))]
    return [f"| {' | '.join(cells)} |" for cells in (head, rules, *rows)]


def parser(text: str | None, samples: int | None = None) -> argparse.ArgumentParser:
    """Return a parser of the options that benchmarks with a report share.

    Parameters
    ----------
    text
        The script's docstring.
    samples
        Default length of the synthetic recording; None for a script that makes none.
    """
    made = device_parser(text)
    made.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    if samples is not None:
        made.add_argument("--samples", type=int, default=samples, help="length of the recording")
        made.add_argument("--data", type=Path, help="folder that keeps the recordings made")
    return made


def device_parser(text: str | None) -> argparse.ArgumentParser:
    """Return a parser of the device's options, for a script with this docstring."""
    made = argparse.ArgumentParser(description=(text or "").partition("\n")[0])
    made.add_argument("-t", "--type", choices=["cpu", "gpu"], default="cpu", help="device")
    made.add_argument("--pool", default="32 GiB", help="memory pool a GPU")
    return made


def positive(text: str) -> int:
    """Return the number that an option is given, of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def on_device(options: argparse.Namespace) -> dict[str, Any]:
    """Return what `ecg_dask.connect` is told of the device."""
    if options.type == "gpu":
        return {"device": "gpu", "pool": options.pool}
    return {"device": "cpu"}


def number_of_gpus(options: argparse.Namespace) -> int:
    """Return how many GPUs a benchmark may use: all, or none on the CPU."""
    from ecg_dask.gpu.devices import gpus

    return len(gpus()) if options.type == "gpu" else 0


def report(
    name: str,
    gpus: int,
    folder: Path,
    timings: Sequence[Timing],
    title: str,
    lines: Sequence[str],
) -> None:
    """Write the rows as CSV and the page as Markdown, and print the page.

    Parameters
    ----------
    name
        Name of the benchmark; ``_gpu``, ``_2gpus``, ... are added to that of the files.
    gpus
        GPUs that were used.
    folder
        Where to write.
    timings
        The rows.
    title, lines
        Title and text of the page; machine and command are put between.
    """
    host = machine(gpu=gpus > 0)
    stem = name + {0: "", 1: "_gpu"}.get(gpus, f"_{gpus}gpus")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{stem}.csv").open("w", newline="") as file:
        names = ["benchmark", "machine", "device", "state", *Timing.__dataclass_fields__]
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        for timing in timings:
            row = asdict(timing) | {"seconds": f"{timing.seconds:.6f}"}
            state = "warm" if timing.run else "cold"
            device = "gpu" if gpus else "cpu"
            row |= {"benchmark": name, "machine": host, "device": device, "state": state}
            writer.writerow(row)
    command = " ".join(["python", f"benchmarks/{name}.py", *sys.argv[1:]])
    page = "\n".join([f"# {title}", "", f"{host}.", "", f"    {command}", "", *lines]) + "\n"
    (folder / f"{stem}.md").write_text(page)
    print(page)
