"""Seconds and bytes a stage, through Dask and without it, and what a plain copy would take.

    python benchmarks/stages.py [-t cpu|gpu] [--samples N] [--out DIR] [--data DIR] [--pool SIZE]
        [--epochs N] [--wholes N] [--repeats N] [--workers N] [--kept]

`through_dask.py` and `bare.py` run in fresh processes on a synthetic day as CSV with rows of 10
and of 25 characters. The first of them finds empty caches of compiled kernels, the others what it
left there, unless ``--kept`` is given: then all use the caches of the user. "start" is the time
from the start of the process until it can read, "cold" its first run.

A stage's bytes are those that it cannot do without, read and written: the text, the samples, the
waves, the numbers of the table, and what the network sees once an epoch. They are set beside the
time that a copy within the device's memory takes for as many.

DIR, by default ``benchmarks/results``, gets ``stages.csv`` and ``stages.md``, with ``_gpu``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from day_files import DAY, FS, WIDTHS, day_csv, kept_in
from machine import copy_bandwidth
from stage_runs import (
    FOUND,
    READ,
    SCORE,
    SEGMENT,
    START,
    TO_BEATS,
    TO_SCORES,
    TRAIN,
    add_runs,
)
from timings import Timing, cold, least, median, parser, report, table, warm

from ecg_dask import Detector

HERE = Path(__file__).parent
DASK, EMPTY, BARE = "dask", "dask, caches empty", "bare"

#: Where compiled kernels are kept: ours, Numba's, CuPy's and the driver's.
CACHES = ("ECG_DASK_CACHE_DIR", "NUMBA_CACHE_DIR", "CUPY_CACHE_DIR", "CUDA_CACHE_PATH")

#: The whole of a first run, with the start of its processes.
FROM_START = "start to scores"

#: The parts in the order of the table.
PARTS = (READ, SEGMENT, TO_BEATS, TRAIN, SCORE, TO_SCORES, START, FROM_START)

#: Bytes of a row of the beat table without its words, and of a beat's score and flag.
ROW, SCORED = 41, 5


def runs(
    script: str, what: str, files: Sequence[Path], options: argparse.Namespace, env: dict[str, str]
) -> Iterator[dict[str, Any]]:
    """Run a script in a new process; give its lines, with seconds since its start in the first."""
    command = [sys.executable, str(HERE / script), *map(str, files)]
    command += ["-t", options.type, "--pool", options.pool, "--epochs", str(options.epochs)]
    warm_runs = (0, 0) if what == EMPTY else (options.wholes, options.repeats)
    command += ["--wholes", str(warm_runs[0]), "--repeats", str(warm_runs[1])]
    if options.workers:
        command += ["--workers", str(options.workers)]
    begun = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        for text in process.stdout or ():
            line = json.loads(text)
            if line["part"] == START:
                line |= {"run": 0, "seconds": time.perf_counter() - begun, "file": str(files[0])}
            yield {"what": what, **line}
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with status {process.returncode}")


def stage_bytes(found: Mapping[str, int], text: int, epochs: int) -> dict[str, int]:
    """Return the bytes that each stage cannot do without, read and written.

    Parameters
    ----------
    found
        Numbers of ``samples``, ``beats`` and ``trained`` beats.
    text
        Bytes of the file.
    epochs
        How often the network sees the training beats.
    """
    from ecg_dask.anomaly.inputs import LENGTH
    from ecg_dask.anomaly.training import LATENT

    widths = Detector().widths(FS)
    samples, wave, seen = 4 * found["samples"], 4 * (widths.before + widths.after), 4 * LENGTH
    beats = found["beats"]
    stages = {
        READ: text + samples,
        SEGMENT: samples + beats * (wave + ROW),
        TRAIN: beats * (wave + seen) + epochs * found["trained"] * seen,
        SCORE: beats * (wave + SCORED + 4 * LATENT),
    }
    to_beats = stages[READ] + stages[SEGMENT]
    to_scores = to_beats + stages[TRAIN] + stages[SCORE]
    return {START: 0, **stages, TO_BEATS: to_beats, TO_SCORES: to_scores, FROM_START: to_scores}


def timings_of(lines: Sequence[dict[str, Any]], found: dict[str, Any], epochs: int) -> list[Timing]:
    """Return the lines of one script as rows, and the whole of its first run."""
    rows: list[Timing] = []
    for line in lines:
        text = Path(line["file"]).stat().st_size
        sizes = stage_bytes(found, text, epochs)
        seconds = {line["part"]: line["seconds"]}
        if line["part"] == TO_SCORES and line["run"] == 0:
            seconds[FROM_START] = rows[0].seconds + line["seconds"]
        rows += [
            Timing(
                what=line["what"],
                part=part,
                workers=found["workers"],
                size=text,
                unit="bytes of text",
                run=line["run"],
                seconds=taken,
                bytes=sizes[part],
            )
            for part, taken in seconds.items()
        ]
    return rows


def page_lines(rows: Sequence[Timing], widths: Mapping[int, int], bandwidth: float) -> list[str]:
    """Return a table for each file.

    Parameters
    ----------
    rows
        All rows.
    widths
        Bytes of each file, by the characters of its rows.
    bandwidth
        Bytes a second of a copy, read and written.
    """
    head = ["part", "MB read and written", "as a copy, ms"]
    head += [f"{way}, {kind}, ms" for way in (BARE, DASK) for kind in ("median", "least")]
    head += ["dask / bare", *(f"{way}, cold, s" for way in (BARE, DASK, EMPTY))]
    lines = []
    for width, text in widths.items():
        of_file = [row for row in rows if row.size == text]
        parts = [part for part in PARTS if any(row.part == part for row in of_file)]
        cells = [_cells([row for row in of_file if row.part == part], bandwidth) for part in parts]
        lines += [f"Rows of {width} characters, {text / 1e6:,.1f} MB:", ""]
        lines += [*table(head, cells), ""]
    return lines


def _cells(rows: Sequence[Timing], bandwidth: float) -> list[str]:
    """Return a row of the table of one part's rows."""
    n_bytes = rows[0].bytes
    cells = [rows[0].part, "-", "-"]
    if n_bytes:
        cells[1:] = [f"{n_bytes / 1e6:,.1f}", f"{1e3 * n_bytes / bandwidth:.3f}"]
    bare, through = warm(rows, what=BARE), warm(rows, what=DASK)
    for seconds in (bare, through):
        cells += [median(seconds, 1e3, 1), least(seconds, 1e3, 1)]
    both = bare and through
    cells += [f"{statistics.median(through) / statistics.median(bare):.2f}" if both else "-"]
    return cells + [median(cold(rows, what=way), digits=2) for way in (BARE, DASK, EMPTY)]


def main() -> None:
    made = parser(__doc__, samples=DAY)
    add_runs(made)
    made.add_argument("--kept", action="store_true", help="use the user's caches of kernels")
    options = made.parse_args()
    gpu = options.type == "gpu"
    if gpu and options.workers is None:
        # One GPU, as the bare script has.
        options.workers = 1
    scripts = {EMPTY: "through_dask.py", DASK: "through_dask.py", BARE: "bare.py"}
    if options.kept:
        del scripts[EMPTY]
    rows, facts = [], []
    with kept_in(options.data) as folder, tempfile.TemporaryDirectory() as caches:
        files = {width: day_csv(folder, width, options.samples) for width in WIDTHS}
        sizes = {width: file.stat().st_size for width, file in files.items()}
        env = os.environ | ({} if options.kept else dict.fromkeys(CACHES, caches))
        for what, script in scripts.items():
            lines = list(runs(script, what, list(files.values()), options, env))
            (found,) = (line for line in lines if line["part"] == FOUND)
            lines.remove(found)
            rows += timings_of(lines, found, options.epochs)
            facts.append(
                f"- {what} ({script}), {found['workers']} workers: {found['samples']:,} samples, "
                f"{found['beats']:,} beats, {found['trained']:,} of them trained on, "
                f"{found['anomalies']:,} anomalies"
            )
    bandwidth = copy_bandwidth(gpu=gpu)
    lines = page_lines(rows, sizes, bandwidth)
    lines += [f"{options.epochs} epochs. A copy reads and writes {bandwidth / 1e9:,.0f} GB/s."]
    if not gpu:
        lines += ["Through Dask, the samples are counted in read, and read in segment."]
    report("stages", int(gpu), options.out, rows, "Seconds a stage", [*lines, "", *facts])


if __name__ == "__main__":
    main()
