"""A day-long CSV from file to report: seconds a stage and peak memory over all processes.

    python benchmarks/end_to_end.py [--hours 22.4] [--csv FILE --fs 250] [-t cpu|gpu]

Runs the command ``ecg-dask run`` as a user does, on a synthetic day unless a file is named. Memory
is the sum of the proportional set sizes (PSS) of the command and all its children.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from machine import machine

DAY_HOURS = 20_140_000 / 250 / 3600


def total_pss(process: psutil.Process) -> int:
    """Return the bytes of a process and of all its descendants."""
    total = 0
    try:
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for member in family:
        try:
            total += member.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total


def measure(command: list[str]) -> tuple[float, int]:
    """Run a command; return its seconds and the peak of its memory in bytes."""
    begun = time.perf_counter()
    running = psutil.Popen(command)
    peak = 0
    while running.poll() is None:
        peak = max(peak, total_pss(running))
        time.sleep(0.2)
    if running.returncode:
        sys.exit(f"{' '.join(command)} ended with status {running.returncode}")
    return time.perf_counter() - begun, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hours", type=float, default=DAY_HOURS)
    parser.add_argument("--csv", type=Path, help="a file instead of a synthetic day")
    parser.add_argument("--fs", type=float, default=250.0)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("-t", "--type", choices=["cpu", "gpu"], default="cpu", help="device")
    options = parser.parse_args()
    tool = [sys.executable, "-m", "ecg_dask"]
    with tempfile.TemporaryDirectory() as folder:
        csv = options.csv
        if csv is None:
            csv = Path(folder) / "day.csv"
            fs = ["--fs", str(options.fs)]
            subprocess.run(
                [*tool, "synth", str(csv), "--hours", str(options.hours), *fs], check=True
            )
        out = Path(folder) / "out"
        command = [*tool, "run", str(csv), "--out", str(out), "--fs", str(options.fs)]
        command += ["--device", options.type, "--quiet"]
        if options.epochs:
            command += ["--epochs", str(options.epochs)]
        seconds, peak = measure(command)
        summary = json.loads((out / "summary.json").read_text())
        size = csv.stat().st_size
    print(machine())
    facts = next(iter(summary["records"].values()))
    print(f"{facts['samples']:,} samples, {size / 1e6:.0f} MB, {facts['beats']:,} beats")
    for stage, taken in summary["stages_s"].items():
        print(f"{stage:<20} {taken:8.1f} s")
    rest = seconds - sum(summary["stages_s"].values())
    print(f"{'start, write, end':<20} {rest:8.1f} s")
    print(f"{'total':<20} {seconds:8.1f} s")
    print(f"{'peak PSS':<20} {peak / 2**30:8.2f} GiB")


if __name__ == "__main__":
    main()
