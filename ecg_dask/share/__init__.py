"""Data of a worker in processes outside Dask, without a copy.

A worker offers what it holds and tells of it in a descriptor, which is JSON; a process on the same
host maps it: host memory through POSIX shared memory, GPU memory through CUDA IPC.

    piece = ecg_dask.share.offer(array)                      # in the process that holds it
    descriptor = ecg_dask.share.describe("ecg", "recording", [{"signal": piece}], fs=250.0)

    with ecg_dask.share.attach(descriptor) as shared:        # in another one
        tensor = torch.from_dlpack(shared.signal[0])
"""

from __future__ import annotations

from .descriptor import describe
from .owner import offer, withdraw
from .reader import Shared, attach

__all__ = ["Shared", "attach", "describe", "offer", "withdraw"]
