"""Each benchmark runs once, tiny, so that it cannot rot."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def run(script, *arguments):
    done = subprocess.run(
        [sys.executable, BENCHMARKS / script, *arguments],
        capture_output=True,
        text=True,
        timeout=200,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_accuracy(data_dir, tmp_path):
    said = run(
        "accuracy.py",
        *("--data", data_dir, "--records", "100", "232", "--jobs", "2", "-t", "cpu"),
        *("--detectors", "ecg_dask", "sleepecg", "--conditions", "clean", "electrode-6"),
        *("--out", tmp_path),
    )
    assert "All records, 50 ms" in said
    assert "numba" in said
    page = (tmp_path / "accuracy.md").read_text()
    for word in ("Second lead, 150 ms", "electrode, 6 dB", "AUROC", "| 232 | 1,7"):
        assert word in page
    if importlib.util.find_spec("sleepecg"):
        assert "| sleepecg | 4,051 | 15 | 2 |" in page
    told = run("accuracy.py", "--readme", "--out", tmp_path)
    assert told.startswith("| detector |")
    assert "| ecg_dask | 4," in told


def test_detect_speed(tmp_path):
    said = run(
        "detect_speed.py",
        *("--samples", "20000", "--repeats", "2", "-t", "cpu", "--out", tmp_path),
        *("--detectors", "ecg_dask", "sleepecg"),
    )
    page = (tmp_path / "detect_speed.md").read_text()
    assert page in said
    assert "| ecg_dask | 0.1.0 | 20,000 |" in page
    assert "numba" in page


def test_end_to_end():
    said = run("end_to_end.py", "--hours", "0.05", "--epochs", "1", "-t", "cpu")
    for word in ("45,000 samples", "segment", "train", "total", "GiB"):
        assert word in said


def test_every_benchmark_has_its_test():
    here = Path(__file__).parent
    tested = "".join(path.read_text() for path in here.glob("test_benchmark*.py"))
    for script in BENCHMARKS.glob("*.py"):
        if "__main__" in script.read_text():
            assert f'"{script.name}"' in tested, script.name
