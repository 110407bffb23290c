"""The GPUs, their driver, and whether the libraries really work on them."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dask.utils import format_bytes

from ..gpu.devices import Gpu
from .findings import Case, Finding, missing, note, ok, wrong
from .probe import ProbeError, probe

#: What each library is tried with; all of them import without a GPU, and fail at first use. The
#: result is 6.
USES = {
    "cupy": "import cupy; result = int(cupy.arange(4).sum())",
    "cudf": "import cudf; result = int(cudf.Series([1, 2, 3]).sum())",
    "numba.cuda": """
import numpy
from numba import cuda
@cuda.jit
def count(values):
    values[cuda.threadIdx.x] = cuda.threadIdx.x
values = cuda.device_array(4, numpy.int64)
count[1, 4](values)
result = int(values.copy_to_host().sum())
""",
    "torch": "import torch; result = int(torch.arange(4, device='cuda').sum())",
}

_DRIVER = (
    "Install NVIDIA's driver, or start the container with its GPUs (docker run --gpus all); "
    "nvidia-smi must list them"
)


def check_gpus(case: Case, root: Path = Path("/")) -> Iterator[Finding]:
    """Tell of the driver and of each GPU.

    Parameters
    ----------
    case
        What is asked for.
    root
        Where ``proc`` and ``dev`` are.
    """
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception as error:
        yield _without_nvml(case, root, error)
        return
    try:
        yield from _with_nvml(case, nvml)
    finally:
        nvml.nvmlShutdown()


def _without_nvml(case: Case, root: Path, error: Exception) -> Finding:
    """Tell of GPUs where the driver's library does not: by the traces that a driver leaves."""
    absent = isinstance(error, ImportError)
    reason = "the package nvidia-ml-py is not installed" if absent else f"NVML says: {error}"
    traces = [path for path in ("proc/driver/nvidia", "dev/nvidia0") if (root / path).exists()]
    if traces:
        found = f"/{traces[0]} is there, but {reason}"
        do = "Install nvidia-ml-py" if absent else _DRIVER
        return wrong("driver", found, do, asked=case.wants_gpu)
    if case.wants_gpu:
        return missing("GPU", f"none: {reason}", _DRIVER, asked=True)
    return ok("GPU", f"none, work runs on the CPU ({reason})")


def _with_nvml(case: Case, nvml: Any) -> Iterator[Finding]:
    version = nvml.nvmlSystemGetCudaDriverVersion()
    cuda = f"{version // 1000}.{version % 1000 // 10}"
    yield ok("driver", f"{nvml.nvmlSystemGetDriverVersion()}, for CUDA up to {cuda}")
    count, chosen = nvml.nvmlDeviceGetCount(), os.environ.get("CUDA_VISIBLE_DEVICES")
    if count and not case.gpus:
        yield missing(
            "CUDA_VISIBLE_DEVICES",
            f"{chosen!r}, which leaves none of {count} GPUs",
            "Unset it, or name GPUs by number or UUID (parts of a GPU, MIG, are not used)",
            asked=case.wants_gpu,
        )
    elif chosen is not None:
        yield ok("CUDA_VISIBLE_DEVICES", f"{chosen!r}, {len(case.gpus)} of {count} GPUs")
    if not count:
        yield missing("GPU", "the driver lists none", _DRIVER, asked=case.wants_gpu)
    for gpu in case.gpus:
        yield _one(gpu, nvml)


def _one(gpu: Gpu, nvml: Any) -> Finding:
    handle = nvml.nvmlDeviceGetHandleByIndex(gpu.number)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    try:
        mig = nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE
    except nvml.NVMLError:
        # A GPU that cannot be divided.
        mig = False
    name = f"GPU {gpu.number}"
    found = (
        f"{gpu.name}, {format_bytes(gpu.total)}, {format_bytes(gpu.free)} free, "
        f"compute capability {major}.{minor}, MIG {'on' if mig else 'off'}"
    )
    if mig:
        return note(name, found, "Switch MIG off: CUDA IPC does not work between parts of a GPU")
    return ok(name, found)


def check_use(case: Case) -> list[Finding]:
    """Tell whether a small sum comes out right on the GPU, in each library that computes there."""
    if not (case.has_gpu or case.wants_gpu):
        return []
    with ThreadPoolExecutor(len(USES)) as pool:
        return list(pool.map(lambda name: _used(name, case.wants_gpu), USES))


def _used(name: str, asked: bool) -> Finding:
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        do = "Install the extra gpu-cu12 or gpu-cu13"
        return missing(name, "not installed, so not tried", do, asked=asked)
    try:
        total = probe(USES[name])
    except ProbeError as error:
        do = "Check its version below, and that it was built for this driver's CUDA"
        return wrong(name, f"fails on the GPU: {error}", do, asked=asked)
    if total != 6:
        return wrong(name, f"1 + 2 + 3 is {total} on the GPU", "Check the GPU", asked=asked)
    return ok(name, "computes on the GPU")
