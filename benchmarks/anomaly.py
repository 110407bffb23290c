"""How well the beats that do not belong are told from the others, by ours and by simpler scores.

    pip install -c constraints.txt -e '.[benchmark]'
    python benchmarks/anomaly.py [--data DIR] [--records NAME ...] [--seeds N] [--epochs N]
                                 [--jobs N] [-t cpu|gpu] [--out DIR]

The MIT-BIH Arrhythmia Database, first lead, on the beats that our detector finds, defaults only.
No method sees a label; the labels are those of the annotations within 150 ms. (a) Each record by
itself, learnt from the first 75 % of its beats and tested on the rest: V, E, F against all others,
A, a, J, S, e, j left out. (b) The reverse. (c) Learnt from de Chazal's DS1 and tested on DS2,
otherwise as (a). DIR of ``--data`` holds the WFDB records in a folder ``mitdb``; it defaults to
the environment variable ECG_DASK_DATA. A run over all records writes anomaly_records.csv and
anomaly.md to benchmarks/results, with ``_gpu`` in their names for one on a GPU.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd
from anomaly_data import DS1, DS2, read_record
from anomaly_report import page, write_report
from anomaly_rows import rows_across, rows_within
from machine import machine
from timings import positive

RESULTS = Path(__file__).parent / "results"


@contextmanager
def mapping(jobs: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """Give what maps a function over arguments on `jobs` processes, in their order."""
    if jobs == 1:
        yield map
        return
    # One core a process: those of a pool would fight for them.
    for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ.setdefault(threads, "1")
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield pool.map


def measure(
    paths: Sequence[Path], seeds: int, epochs: int | None, device: str, jobs: int
) -> pd.DataFrame:
    """Return the rows of all protocols; the third has some when both of its sets are there."""
    rows: list[dict[str, Any]] = []
    with mapping(jobs) as spread:
        records = list(spread(partial(read_record, device=device), paths))
        by_record = spread(partial(rows_within, seeds=seeds, epochs=epochs), records)
        for n_done, made in enumerate(by_record, start=1):
            rows += made
            print(f"{n_done} of {len(paths)} records done", file=sys.stderr, flush=True)
    learnt = [record for record in records if record.name in DS1]
    others = [record for record in records if record.name in DS2]
    if learnt and others:
        rows += rows_across(learnt, others, seeds, epochs)
    return pd.DataFrame(rows)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", default=os.environ.get("ECG_DASK_DATA"))
    parser.add_argument("--records", nargs="+", help="all when not given")
    parser.add_argument("--seeds", type=positive, default=5, help="how many, from 0 on")
    parser.add_argument("--epochs", type=positive, help="those of train() when not given")
    parser.add_argument("--jobs", type=positive, help="processes; the cores when not given")
    parser.add_argument("-t", "--type", choices=["cpu", "gpu"], default="cpu", help="ours runs on")
    parser.add_argument(
        "--out",
        type=Path,
        help="folder of the results; when not given, benchmarks/results for all records and none "
        "for some",
    )
    return parser.parse_args(arguments)


def chosen(options: argparse.Namespace) -> list[Path]:
    """Return the records that are asked for, without a suffix; end where they are not there."""
    folder = Path(options.data or "") / "mitdb"
    there = {path.stem: path.with_suffix("") for path in sorted(folder.glob("*.hea"))}
    names = sorted(set(options.records or there))
    if not names or not set(names) <= set(there):
        sys.exit(f"{folder} holds no such WFDB records; name their folder with --data")
    return [there[name] for name in names]


def main() -> None:
    options = parse(sys.argv[1:])
    paths = chosen(options)
    gpu = options.type == "gpu"
    try:
        host = machine(gpu=gpu)
    except Exception as error:
        sys.exit(f"-t gpu wants CuPy and a CUDA device: {error}")
    jobs = options.jobs or (1 if gpu else os.cpu_count() or 1)
    begun = time.perf_counter()
    rows = measure(paths, options.seeds, options.epochs, options.type, jobs)
    if rows.empty:
        sys.exit("Nothing to measure: no record has enough beats of either kind")
    text = page(rows, host, _command(options, jobs), time.perf_counter() - begun)
    print(text)
    out = options.out or (None if options.records else RESULTS)
    if out:
        write_report(rows, text, out, "_gpu" if gpu else "")


def _command(options: argparse.Namespace, jobs: int) -> str:
    """Return the command that makes these rows anywhere, without this machine's folders."""
    parts = ["python benchmarks/anomaly.py"]
    if options.records:
        parts.append(f"--records {' '.join(options.records)}")
    parts.append(f"--seeds {options.seeds}")
    if options.epochs:
        parts.append(f"--epochs {options.epochs}")
    return " ".join([*parts, f"--jobs {jobs}", f"-t {options.type}"])


if __name__ == "__main__":
    main()
