"""What a benchmark ran on, for the head of its table, and how fast its memory is."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

import ecg_dask

#: Bytes that the copy bandwidth is measured with, in the host's memory and in a GPU's.
COPIED, COPIED_ON_GPU = 200_000_000, 2_000_000_000

#: Copies, of which the fastest counts.
COPIES = 10

_VERSIONS = ("dask", "numba", "numba-cuda", "numpy", "pandas", "torch")
_VERSIONS_ON_GPU = tuple(
    f"{name}-cu{cuda}" for cuda in (12, 13) for name in ("cudf", "rmm", "distributed-ucxx")
)


def machine(*, gpu: bool = False) -> str:
    """Return GPUs if asked for, processor, cores, memory and versions that matter, in one line."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = [f"Python {platform.python_version()}", f"ecg_dask {ecg_dask.__version__}"]
    for name in (*_VERSIONS, *(_VERSIONS_ON_GPU if gpu else ())):
        # A machine of a cluster may have some of them in other ways than by a package.
        with contextlib.suppress(PackageNotFoundError):
            versions.append(f"{name} {version(name)}")
    host = f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB; {', '.join(versions)}"
    return f"{_gpu_names()}; {host}" if gpu else host


def _gpu_names() -> str:
    import cupy
    import pynvml

    from ecg_dask.gpu.devices import gpus

    names = [gpu.name for gpu in gpus()]
    counted = [f"{names.count(name)} x {name}" for name in dict.fromkeys(names)]
    pynvml.nvmlInit()
    driver = pynvml.nvmlSystemGetDriverVersion()
    pynvml.nvmlShutdown()
    cuda = cupy.cuda.runtime.runtimeGetVersion()
    return f"{', '.join(counted)}, driver {driver}, CUDA {cuda}, CuPy {cupy.__version__}"


def copy_bandwidth(*, gpu: bool) -> float:
    """Return the bytes a second, read and written, of a copy within the device's memory."""
    if gpu:
        return 2 * COPIED_ON_GPU / min(_copies_on_gpu())
    source = np.zeros(COPIED // 4, np.float32)
    target = np.ones_like(source)
    seconds = []
    for _ in range(COPIES):
        begun = time.perf_counter()
        np.copyto(target, source)
        seconds.append(time.perf_counter() - begun)
    return 2 * COPIED / min(seconds)


def _copies_on_gpu() -> list[float]:
    import cupy

    source = cupy.zeros(COPIED_ON_GPU // 4, cupy.float32)
    target = cupy.empty_like(source)
    seconds = []
    for _ in range(COPIES):
        events = cupy.cuda.Event(), cupy.cuda.Event()
        events[0].record()
        cupy.copyto(target, source)
        events[1].record()
        events[1].synchronize()
        seconds.append(cupy.cuda.get_elapsed_time(*events) / 1e3)
    return seconds
