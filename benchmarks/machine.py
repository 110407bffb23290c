"""What a benchmark ran on, for the head of its table."""

from __future__ import annotations

import contextlib
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import ecg_dask


def machine() -> str:
    """Return processor, cores, memory and the versions that matter, in one line."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = [f"Python {platform.python_version()}", f"ecg_dask {ecg_dask.__version__}"]
    for name in ("dask", "numba", "numba-cuda", "numpy", "pandas", "torch"):
        # A machine of a cluster may have some of them in other ways than by a package.
        with contextlib.suppress(PackageNotFoundError):
            versions.append(f"{name} {version(name)}")
    return f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB; {', '.join(versions)}"
