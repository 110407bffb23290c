"""The handover benchmark: once, tiny, on the CPU, and what its formats keep."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_benchmarks import run
from test_benchmarks_gpu import rows

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import handover
from handover_files import FORMATS
from timings import Timing

from ecg_dask.beats import BEAT_COLUMNS


@pytest.mark.cluster
@pytest.mark.skipif(
    importlib.util.find_spec("distributed_ucxx") is None, reason="needs distributed-ucxx"
)
def test_handover(tmp_path):
    """It runs "handover_module.py" twice for each way."""
    said = run(
        "handover.py", *("-t", "cpu", "--samples", "50000", "--repeats", "1", "--out", tmp_path)
    )
    page = (tmp_path / "handover.md").read_text()
    assert page in said
    measured = rows(tmp_path / "handover.csv")
    for way in ("csv", "parquet", "pickle", "store, tcp", "store, ucx", "share"):
        assert f"| {way} |" in page
        own = [row for row in measured if row["what"] == way]
        first = {row["part"] for row in own if row["run"] == "0"}
        between = {"share()"} if way == "share" else set()
        assert first == {"put", "get", "use", "handover", "start"} | between
        assert {row["part"] for row in own if row["run"] == "1"} == first - {"start"}
        for one in ("0", "1"):
            seconds = {row["part"]: float(row["seconds"]) for row in own if row["run"] == one}
            assert all(taken > 0 for taken in seconds.values())
            parts = sum(seconds[part] for part in {"put", "get", "use"} | between)
            assert seconds["handover"] == pytest.approx(parts, abs=1e-5)
    assert len({row["bytes"] for row in measured}) == 1
    assert int(measured[0]["bytes"]) > 200 * 4 * 175


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_keeps_table_and_waves(name, tmp_path):
    rng = np.random.default_rng(1)
    columns = {column: rng.integers(0, 5, 7) for column in BEAT_COLUMNS}
    table = pd.DataFrame(columns).astype(BEAT_COLUMNS)
    table["span"] = pd.Series(["noise", None, None, "flat", None, None, "flat"], dtype="str")
    table.loc[0, "rr_prev_s"] = np.nan
    waves = rng.normal(size=(7, 2, 50)).astype(np.float32)
    FORMATS[name].write(tmp_path, table, waves)
    told, rows = FORMATS[name].read(tmp_path, False)
    pd.testing.assert_frame_equal(told, table)
    np.testing.assert_array_equal(rows, waves.reshape(7, -1))
    assert rows.dtype == np.float32
    assert rows.flags.c_contiguous


def test_the_page_compares_medians_of_warm_runs():
    timings = []
    for i, way in enumerate(handover.WAYS):
        for run_, seconds in enumerate((9.0, 1.0, 2.0, 3.0)):
            own = {
                "put": seconds,
                "get": 0.0,
                "use": 0.0,
                "handover": seconds / 10**i,
                "start": 7.0,
            }
            timings += [
                Timing(way, part, 1, 10, "bytes", run_, taken, 10)
                for part, taken in own.items()
                if part != "start" or run_ == 0
            ]
    lines = handover.page_lines(timings)
    assert lines[2].startswith("| csv | 7.00 | 9000.000 | 2000.000 | 1000.000 | 2000.000 | - |")
    assert lines[2].endswith("| 0.1 | 1 |")
    assert lines[5].startswith("| store, tcp | 7.00 | 9.000 | 2.000 | 1.000 |")
    assert lines[5].endswith("| 100 | 1e+03 |")


def test_other_beats_end_the_benchmark():
    one = {"rows": 5, "total": 1.0}
    handover.check_same(one, one | {"total": 1.0 + 1e-9}, "csv")
    for other in ({"rows": 6, "total": 1.0}, {"rows": 5, "total": 1.1}):
        with pytest.raises(SystemExit, match="by csv came 5 beats"):
            handover.check_same(one, other, "csv")
