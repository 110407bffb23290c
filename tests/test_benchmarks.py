"""Each benchmark runs once, tiny, so that it cannot rot."""

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


def test_accuracy(data_dir):
    said = run("accuracy.py", "--data", data_dir, "--records", "100", "232", "-t", "cpu")
    assert "Gross, 2 records, lead 0" in said
    assert "numba" in said


def test_end_to_end():
    said = run("end_to_end.py", "--hours", "0.05", "--epochs", "1", "-t", "cpu")
    for word in ("45,000 samples", "segment", "train", "total", "GiB"):
        assert word in said


def test_every_benchmark_has_its_test():
    tested = Path(__file__).read_text()
    for script in BENCHMARKS.glob("*.py"):
        assert script.name == "machine.py" or f'"{script.name}"' in tested, script.name
