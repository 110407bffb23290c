"""Detection accuracy of ours and of other open detectors, with and without noise, defaults only.

    pip install -c constraints.txt -e '.[benchmark]'
    python benchmarks/accuracy.py [--data DIR] [--jobs N] [--detectors ecg_dask ...] [-t cpu|gpu]

The 48 records of the MIT-BIH Arrhythmia Database whole, first and second lead; and the first lead
plus three kinds of noise (noise.py) at four levels. One to one at 150 and 50 ms, ventricular
flutter left out. DIR holds the WFDB records in a folder ``mitdb``; it defaults to the environment
variable ECG_DASK_DATA. A run over all records writes accuracy.csv and accuracy.md to
benchmarks/results; one of some detectors or conditions replaces their rows there and leaves the
others, so that ours can be measured again without the others. ``--readme`` prints the README's
tables from there and measures nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import date
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import wfdb
from accuracy_report import merge, read_rows, readme_tables, write_report
from accuracy_rows import GROSS, Condition, Detected, Reference, quality_auroc, table_rows
from machine import machine
from noise import KINDS, LEVELS_DB, at_snr, seed_of, signal_power
from peers import PEERS

import ecg_dask
from ecg_dask.evaluation import flutter_spans
from ecg_dask.readers.wfdb_records import BEAT_SYMBOLS, read_annotations

OURS = "ecg_dask"
CONDITIONS = [
    Condition(0),
    Condition(1),
    *(Condition(0, kind, level) for kind in KINDS for level in LEVELS_DB),
]
RESULTS = Path(__file__).parent / "results"


def read_reference(path: Path) -> Reference:
    """Read the beats and the spans of flutter that belong to a record."""
    annotations = read_annotations(path)
    sample = np.asarray(annotations.sample, np.int64)
    is_beat = np.isin(np.asarray(annotations.symbol), sorted(BEAT_SYMBOLS))
    fs = float(wfdb.rdheader(str(path)).fs)
    return Reference(fs, sample[is_beat], flutter_spans(sample, annotations.symbol))


def make_lead(path: Path, reference: Reference, condition: Condition) -> np.ndarray:
    """Return a lead in mV, float64 of shape (n,), with the condition's noise added."""
    record = wfdb.rdrecord(str(path), channels=[condition.lead])
    lead = record.p_signal[:, 0]
    if condition.snr_db is None:
        return lead
    noise = KINDS[condition.kind](len(lead), reference.fs, seed_of(path.name, condition.kind))
    power = signal_power(lead, reference.beats, reference.fs)
    return lead + at_snr(noise, power, condition.snr_db)


def find_ours(lead: np.ndarray, fs: float, device: str) -> tuple[np.ndarray, np.ndarray]:
    """Return sample and quality of our beats, defaults only."""
    signal = lead.astype(np.float32)[:, None]
    if device == "gpu":
        import cupy

        signal = cupy.asarray(signal)
    blocks = da.from_array(signal, chunks=signal.shape, asarray=False)
    table = ecg_dask.find_beats(ecg_dask.Recording(blocks, fs)).table[["sample", "quality"]]
    table = table.compute(scheduler="synchronous")
    return table["sample"].to_numpy().astype(np.int64), table["quality"].to_numpy()


def measure(
    path: Path, condition: Condition, detectors: Sequence[str], device: str
) -> list[Detected]:
    """Run all detectors on one record under one condition."""
    reference = read_reference(path)
    lead = make_lead(path, reference, condition)
    results = []
    for name in detectors:
        if name == OURS:
            sample, quality = find_ours(lead, reference.fs, device)
            results.append(Detected(name, path.name, condition, sample, quality))
            continue
        # What a peer cannot analyse, it has found nothing in; the table counts how often.
        try:
            with warnings.catch_warnings(action="ignore"):
                sample = PEERS[name].detect(lead, reference.fs)
            results.append(Detected(name, path.name, condition, sample))
        except Exception as error:
            nothing = np.zeros(0, np.int64)
            results.append(Detected(name, path.name, condition, nothing, failed=repr(error)))
    return results


def measure_all(
    tasks: Sequence[tuple[Path, Condition]], detectors: Sequence[str], device: str, jobs: int
) -> Iterator[list[Detected]]:
    """Run the tasks on `jobs` processes, in whatever order they end."""
    # One core a process: those of a pool would fight for them.
    for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ.setdefault(threads, "1")
    if jobs == 1:
        for path, condition in tasks:
            yield measure(path, condition, detectors, device)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(measure, *task, detectors, device) for task in tasks]
        for future in as_completed(futures):
            yield future.result()


def all_rows(
    detected: Sequence[Detected], references: dict[str, Reference]
) -> list[dict[str, Any]]:
    """Return the rows of all detectors and conditions; the records' own only for ours."""
    groups = defaultdict(list)
    for one in detected:
        groups[one.detector, one.condition].append(one)
    rows = []
    for (detector, condition), group in groups.items():
        group.sort(key=lambda one: one.record)
        made = table_rows(group, references)
        if detector == OURS and condition.kind != "clean":
            made[0]["quality_auroc"] = quality_auroc(group, references)[0]
        rows += made if detector == OURS and condition.kind == "clean" else _gross(made)
    for kind in (*KINDS, "noise"):
        wanted = [c for c in CONDITIONS if c.kind == kind or (kind == "noise" and c.kind in KINDS)]
        if all((OURS, condition) in groups for condition in wanted):
            group = [one for condition in wanted for one in groups[OURS, condition]]
            pooled = [one._replace(condition=Condition(0, kind)) for one in group]
            made = _gross(table_rows(pooled, references))
            made[0]["quality_auroc"] = quality_auroc(pooled, references)[0]
            rows += made
    return rows


def _gross(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["record"] == GROSS]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = list(dict.fromkeys(condition.name for condition in CONDITIONS))
    parser.add_argument("--data", default=os.environ.get("ECG_DASK_DATA"))
    parser.add_argument("--records", nargs="+", help="all when not given")
    parser.add_argument("--detectors", nargs="+", choices=[OURS, *PEERS], default=[OURS, *PEERS])
    parser.add_argument("--leads", nargs="+", type=int, choices=[0, 1], default=[0, 1])
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--conditions",
        nargs="+",
        choices=names,
        default=names,
        metavar="NAME",
        help=", ".join(names),
    )
    which.add_argument("--no-noise", dest="conditions", action="store_const", const=["clean"])
    parser.add_argument("--jobs", type=int, help="processes; the cores when not given")
    parser.add_argument("-t", "--type", choices=["cpu", "gpu"], default="cpu", help="ours runs on")
    parser.add_argument(
        "--out",
        type=Path,
        help="folder of the results; when not given, benchmarks/results for all records and none "
        "for some",
    )
    parser.add_argument("--readme", action="store_true", help="print the README's tables")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse(sys.argv[1:])
    if options.readme:
        print(readme_tables(read_rows(options.out or RESULTS)), end="")
        return
    folder = Path(options.data or "") / "mitdb"
    there = {path.stem: path.with_suffix("") for path in sorted(folder.glob("*.hea"))}
    records = options.records or list(there)
    if not records or not set(records) <= set(there):
        sys.exit(f"{folder} holds no such WFDB records; name their folder with --data")
    paths = [there[name] for name in records]
    versions = {name: peer.version for name, peer in PEERS.items()}
    versions[OURS] = f"ecg_dask {version('ecg_dask')}"
    detectors = [name for name in options.detectors if versions[name]]
    missing = [name for name in options.detectors if not versions[name]]
    if missing:
        print(f"Not installed: {', '.join(missing)}; pip install -e '.[benchmark]'")
    where = dict.fromkeys(detectors, machine())
    if options.type == "gpu" and OURS in where:
        where[OURS] += f"; {_gpu_name()}"
    jobs = options.jobs or (os.cpu_count() or 1 if options.type == "cpu" else 1)

    chosen = [c for c in CONDITIONS if c.name in options.conditions and c.lead in options.leads]
    if not detectors or not chosen:
        sys.exit("Nothing to measure: no such detector is installed, or noise without lead 0")
    tasks = [(path, condition) for path in paths for condition in chosen]
    detected = []
    for n_done, results in enumerate(measure_all(tasks, detectors, options.type, jobs), start=1):
        detected += results
        if n_done % 24 == 0:
            print(f"{n_done} of {len(tasks)} done", file=sys.stderr, flush=True)
    for one in detected:
        if one.failed:
            print(f"{one.detector} failed on {one.record}, {one.condition.name}: {one.failed}")
    references = {path.name: read_reference(path) for path in paths}
    table = pd.DataFrame(all_rows(detected, references))
    table["version"] = table["detector"].map(versions)
    table["measured"] = str(date.today())
    table["machine"] = table["detector"].map(where)
    _print(table)
    out = options.out or (None if options.records else RESULTS)
    if out:
        write_report(merge(read_rows(out), table), out, _command(options, jobs))


def _command(options: argparse.Namespace, jobs: int) -> str:
    """Return the command that makes these rows anywhere, without this machine's folders."""
    parts = ["python benchmarks/accuracy.py"]
    for name in ("records", "detectors", "leads", "conditions"):
        given = getattr(options, name)
        if given != getattr(parse([]), name):
            parts.append(f"--{name} {' '.join(str(value) for value in given)}")
    return " ".join([*parts, f"--jobs {jobs}", f"-t {options.type}"])


def _print(table: pd.DataFrame) -> None:
    """Show all records together, then each record of ours."""
    facts = ["record", "tolerance_ms", "version", "measured", "machine"]
    for where in table["machine"].unique():
        print(where)
    for tolerance_ms, rows in table.groupby("tolerance_ms", sort=False):
        gross, single = rows[rows["record"] == GROSS], rows[rows["record"] != GROSS]
        print(f"\nAll records, {tolerance_ms} ms:")
        print(gross.drop(columns=facts).to_string(index=False, float_format="{:.4f}".format))
        if len(single):
            shown = single[["record", "lead", "hits", "false", "missed", "f1"]]
            print(f"\n{OURS} by record, {tolerance_ms} ms:")
            print(shown.to_string(index=False, float_format="{:.4f}".format))


def _gpu_name() -> str:
    try:
        import cupy

        return cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    except Exception as error:
        sys.exit(f"-t gpu wants CuPy and a CUDA device: {error}")


if __name__ == "__main__":
    main()
