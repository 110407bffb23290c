"""The benchmarks that run on a cluster: each one once, tiny, on the CPU, and what they count."""

import csv
import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from test_benchmarks import run

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import scaling
import stages
import transfer
from day_files import day_array, day_csv, short_arrays
from timings import Timing, cold, least, median, warm

pytestmark = pytest.mark.cluster


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_stages(tmp_path):
    said = run(
        "stages.py",
        *("-t", "cpu", "--samples", "50000", "--epochs", "1", "--wholes", "0", "--repeats", "1"),
        *("--workers", "1", "--kept", "--out", tmp_path),
    )
    assert (tmp_path / "stages.md").read_text() in said
    found = {}
    for script in ("bare.py", "through_dask.py"):
        (found[script],) = re.findall(rf"\({script}\), \d workers: (.*)", said)
    assert found["bare.py"] == found["through_dask.py"]
    assert re.fullmatch(
        r"50,000 samples, 2\d\d beats, 1\d\d .* trained on, \d+ .*", found["bare.py"]
    )
    measured = rows(tmp_path / "stages.csv")
    for way in ("bare", "dask"):
        first = {row["part"] for row in measured if row["what"] == way and row["run"] == "0"}
        assert first == {*stages.PARTS}
        again = [row["part"] for row in measured if row["what"] == way and row["state"] == "warm"]
        assert again == ["read", "segment", "file to beats"] * 2
    assert all(row["machine"] and row["device"] == "cpu" for row in measured)
    assert all(float(row["seconds"]) > 0 for row in measured)


@pytest.mark.skipif(
    importlib.util.find_spec("distributed_ucxx") is None, reason="needs distributed-ucxx"
)
def test_transfer(tmp_path):
    said = run(
        "transfer.py", *("-t", "cpu", "--largest", "1 MB", "--repeats", "1", "--out", tmp_path)
    )
    assert (tmp_path / "transfer.md").read_text() in said
    measured = rows(tmp_path / "transfer.csv")
    assert [(row["what"], row["size"], row["run"]) for row in measured] == [
        (way, size, run)
        for way in ("tcp", "ucx", "copy")
        for size in ("1000", "1000000")
        for run in ("0", "1")
    ]


def test_partitions(tmp_path):
    said = run(
        "partitions.py",
        *("-t", "cpu", "--samples", "60000", "--partitions", "1", "3", "--repeats", "1"),
        *("--out", tmp_path),
    )
    assert (tmp_path / "partitions.md").read_text() in said
    measured = rows(tmp_path / "partitions.csv")
    assert {row["size"] for row in measured} == {"1", "3"}


def test_scaling(tmp_path):
    said = run(
        "scaling.py",
        *("-t", "cpu", "--samples", "20000", "--recordings", "2", "--repeats", "1"),
        *("--workers", "2", "--out", tmp_path),
    )
    assert (tmp_path / "scaling.md").read_text() in said
    measured = {
        (row["what"], row["workers"]): row["size"] for row in rows(tmp_path / "scaling.csv")
    }
    assert measured["ten days, default partitions", "2"] == "200000"
    assert measured["a day a worker, a partition a worker", "1"] == "20000"
    assert measured["a day a worker, a partition a worker", "2"] == "40000"
    assert measured["short recordings", "2"] == "20000"


def test_rows_of_a_day_are_its_samples(tmp_path):
    day = np.load(day_array(tmp_path, 3000))
    wide = day_csv(tmp_path, 25, 3000)
    assert np.loadtxt(wide, dtype=np.float32).tolist() == day.tolist()
    narrow = np.loadtxt(day_csv(tmp_path, 10, 3000))
    np.testing.assert_allclose(narrow, day, rtol=0, atol=5.1e-9)
    thrice = day_csv(tmp_path, 25, 3000, days=3)
    assert thrice.read_bytes() == 3 * wide.read_bytes()
    first, last = short_arrays(tmp_path, 2, 1000, 3000)
    assert np.load(first).tolist() == day[:1000].tolist()
    assert np.load(last).tolist() == day[2000:].tolist()


def timing(what, part, workers, size, run, seconds):
    return Timing(what, part, workers, size, "samples", run, seconds, size)


def test_cold_and_warm_are_told_apart():
    several = [timing("a", "b", 1, 1, run, seconds) for run, seconds in enumerate([9, 1, 4, 2])]
    several.append(timing("b", "b", 1, 1, 1, 7))
    assert cold(several, what="a") == [9]
    assert warm(several, what="a") == [1, 4, 2]
    assert median(warm(several, what="a"), 1e3, 1) == "2000.0"
    assert least(warm(several, what="a")) == "1.000"
    assert median([]) == "-"


def test_bytes_that_a_stage_cannot_do_without():
    window = 4 * (stages.Detector().widths(250).before + stages.Detector().widths(250).after)
    found = {"samples": 1000, "beats": 10, "trained": 7}
    sizes = stages.stage_bytes(found, 12_000, epochs=5)
    assert sizes["read"] == 16_000
    assert sizes["segment"] == 4000 + 10 * (window + 41)
    assert sizes["train"] == 10 * (window + 512) + 5 * 7 * 512
    assert sizes["score"] == 10 * (window + 37)
    assert sizes["file to scores"] == sum(
        sizes[part] for part in ("read", "segment", "train", "score")
    )


def test_efficiency_divides_by_the_workers_where_the_work_stays_the_same():
    times = {(scaling.DAYS, 1): 4.0, (scaling.DAYS, 2): 2.5}
    times |= {(scaling.WEAK, 1): 4.0, (scaling.WEAK, 2): 5.0}
    several = [
        timing(what, part, workers, 10**6 * workers, run, seconds * (1 + 9 * (run == 0)))
        for (what, workers), seconds in times.items()
        for part in ("read", "segment", "file to beats")
        for run in (0, 1)
    ]
    lines = scaling.page_lines(several)[2:]
    assert [line.split("|")[-2].strip() for line in lines] == ["1.00", "0.80", "1.00", "0.80"]
    assert scaling.counts(6) == [1, 2, 4, 6]
    assert scaling.counts(1) == [1]


def test_ratios_of_transfers_are_of_rates():
    several = [
        timing(way, "transfer", 2, size, run, seconds)
        for way, size, seconds in (
            *(("tcp", 1000, 0.01), ("ucx", 1000, 0.02), ("copy", 1000, 0.001)),
            *(("tcp", 10**9, 1.0), ("ucx", 10**9, 0.1), ("copy", 10**9, 0.04)),
        )
        for run in (0, 1)
    ]
    cells = transfer.page_lines(several, "within")[3].split("|")
    assert [cell.strip() for cell in cells[-4:-1]] == ["10.0", "0.400", "0.500"]
    assert cells[13].strip() == "25"
