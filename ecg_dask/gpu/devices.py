"""The GPUs of this machine, as the driver's management library (NVML) lists them."""

from __future__ import annotations

import importlib
import os
from typing import Any, NamedTuple


class Gpu(NamedTuple):
    """A GPU that this process may use.

    Attributes
    ----------
    number
        Its number among all GPUs of the machine, from 0.
    name
        Its model.
    uuid
        What the driver tells it apart by.
    total, free
        Bytes of its memory.
    """

    number: int
    name: str
    uuid: str
    total: int
    free: int


def gpus() -> tuple[Gpu, ...]:
    """Return the GPUs that ``CUDA_VISIBLE_DEVICES`` lets this process see, in its order.

    Empty where there is no GPU, no driver or no package nvidia-ml-py.
    """
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:
        # No package, or one of the library's own errors: no driver, another version, no right.
        return ()
    try:
        found = [_described(nvml, i) for i in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError:
        return ()
    finally:
        nvml.nvmlShutdown()
    return visible(found, os.environ.get("CUDA_VISIBLE_DEVICES"))


def _described(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    name, uuid = nvml.nvmlDeviceGetName(handle), nvml.nvmlDeviceGetUUID(handle)
    return Gpu(index, name, uuid, int(memory.total), int(memory.free))


def visible(found: list[Gpu], chosen: str | None) -> tuple[Gpu, ...]:
    """Return those of the GPUs that a value of ``CUDA_VISIBLE_DEVICES`` names, in its order.

    As the driver does, what stands behind the first name that fits no GPU is left out.
    """
    if chosen is None:
        return tuple(found)
    seen: list[Gpu] = []
    for name in chosen.split(","):
        name = name.strip()
        fitting = [gpu for gpu in found if name and name in (str(gpu.number), gpu.uuid)]
        fitting = fitting or [gpu for gpu in found if len(name) > 4 and gpu.uuid.startswith(name)]
        if not fitting or fitting[0] in seen:
            break
        seen.append(fitting[0])
    return tuple(seen)
