"""What a benchmark ran on, for the head of its table."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path


def machine() -> str:
    """Return processor, cores, memory and the versions that matter, in one line."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = ("ecg_dask", "dask", "numba", "numpy", "pandas", "torch")
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    return (
        f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB; "
        f"Python {platform.python_version()}, {versions}"
    )
