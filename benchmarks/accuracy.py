"""Detection accuracy on the MIT-BIH Arrhythmia Database, defaults only.

    python benchmarks/accuracy.py [--data DIR] [--lead 0] [--records 100 104 ...] [-t cpu]

Each record whole, one to one at 150 and 50 ms, ventricular flutter left out. DIR holds the WFDB
records in a folder ``mitdb``; it defaults to the environment variable ECG_DASK_DATA.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from machine import machine

import ecg_dask
from ecg_dask.evaluation import flutter_spans
from ecg_dask.readers.wfdb_records import BEAT_SYMBOLS, read_annotations

TOLERANCES_S = (0.15, 0.05)


def evaluate_record(path: Path, lead: int) -> list[dict[str, object]]:
    recording = ecg_dask.read(path, leads=lead)
    detected = ecg_dask.find_beats(recording).table["sample"].compute(scheduler="threads")
    annotations = read_annotations(path)
    is_beat = np.isin(np.asarray(annotations.symbol), sorted(BEAT_SYMBOLS))
    rows = []
    for tolerance_s in TOLERANCES_S:
        result = ecg_dask.evaluate(
            detected,
            np.asarray(annotations.sample)[is_beat],
            fs=recording.fs,
            tolerance_s=tolerance_s,
            exclude=flutter_spans(annotations.sample, annotations.symbol),
        )
        rows.append({"record": path.name, "tolerance_s": tolerance_s, **result._asdict()})
    return rows


def gross(table: pd.DataFrame) -> pd.DataFrame:
    """Add the counts of all records up, a row a tolerance."""
    sums = table.groupby("tolerance_s", sort=False)[["hits", "false", "missed"]].sum()
    sums["sensitivity"] = sums.hits / (sums.hits + sums.missed)
    sums["positive_predictivity"] = sums.hits / (sums.hits + sums.false)
    sums["f1"] = 2 * sums.hits / (2 * sums.hits + sums.false + sums.missed)
    return sums


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", default=os.environ.get("ECG_DASK_DATA"))
    parser.add_argument("--lead", type=int, default=0)
    parser.add_argument("--records", nargs="*")
    parser.add_argument("-t", "--type", choices=["cpu"], default="cpu", help="device")
    options = parser.parse_args()
    folder = Path(options.data or "") / "mitdb"
    paths = sorted(path.with_suffix("") for path in folder.glob("*.hea"))
    if options.records:
        paths = [path for path in paths if path.name in options.records]
    if not paths:
        sys.exit(f"{folder} holds no such WFDB records; name their folder with --data")
    table = pd.DataFrame([row for path in paths for row in evaluate_record(path, options.lead)])
    shown = table[table.tolerance_s == TOLERANCES_S[0]].drop(columns="tolerance_s")
    print(machine())
    print(shown.to_string(index=False, float_format="{:.4f}".format))
    print(f"\nGross, {len(paths)} records, lead {options.lead}:")
    print(gross(table).to_string(float_format="{:.5f}".format))


if __name__ == "__main__":
    main()
