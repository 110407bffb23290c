"""One memory pool of a worker, from which cuDF, CuPy, Numba and PyTorch all allocate.

RMM owns the pool. The libraries are told of it before their first allocation, in this order: RMM,
on which cuDF allocates by itself, then CuPy, Numba and PyTorch.
"""

from __future__ import annotations

import os
from typing import Any

from distributed.diagnostics.plugin import WorkerPlugin

from ..errors import InputError
from .latency import send_soon
from .pool import ASYNC, DEFAULT_SHARE, FOUND, Pool, enter, pool_here
from .warm import warm_up


class GpuMemory(WorkerPlugin):  # type: ignore[misc]
    """Dask worker plugin that sets up the one pool.

    Parameters
    ----------
    pool
        What to make; of kind ``"found"`` and size 0 it is the memory resource that RMM has already,
        as the workers that ``dask cuda worker --rmm-pool-size`` starts have.
    warm_fs
        Sampling rate in Hz to `warm_up` for; None for none.
    """

    name = "ecg_dask-gpu-memory"
    idempotent = True

    def __init__(self, pool: Pool, warm_fs: float | None = None) -> None:
        self.pool = pool
        self.warm_fs = warm_fs

    def setup(self, worker: Any) -> None:
        """Set up the pool of the worker's process, once, and let it answer without delay."""
        set_up(self.pool)
        send_soon(worker.batched_stream)
        if self.warm_fs is not None:
            warm_up(self.warm_fs)


def is_on_gpu(dask_worker: Any) -> bool:
    """Tell whether a worker has a pool, or was started by dask-cuda and can have one."""
    plugins = {type(plugin).__module__.partition(".")[0] for plugin in dask_worker.plugins.values()}
    return pool_here() is not None or "dask_cuda" in plugins


def set_up(pool: Pool) -> Pool:
    """Make the one pool of this process, and tell CuPy, Numba and PyTorch of it.

    A process has one pool for good: a later call changes nothing.

    Raises
    ------
    InputError
        When PyTorch is built without CUDA.
    """
    here = pool_here()
    if here is not None:
        return here
    # Deterministic matrix products need it, before the first of them.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import cupy
    import rmm
    import torch
    from numba import cuda
    from rmm.allocators.cupy import rmm_cupy_allocator
    from rmm.allocators.numba import RMMNumbaManager
    from rmm.allocators.torch import rmm_torch_allocator

    if not torch.cuda.is_available():
        raise InputError(
            "device",
            f"PyTorch {torch.__version__}, which cannot use the GPU",
            "a build of PyTorch for CUDA",
            "Install PyTorch for this driver's CUDA version, or choose device cpu",
        )
    if pool.kind == FOUND:
        total = cupy.cuda.runtime.memGetInfo()[1]
        pool = pool._replace(size=int(total * DEFAULT_SHARE))
    elif pool.kind == ASYNC:
        resource = rmm.mr.CudaAsyncMemoryResource()
        rmm.mr.set_current_device_resource(
            rmm.mr.LimitingResourceAdaptor(resource, allocation_limit=pool.size)
        )
    else:
        # All at once: what is one allocation for the driver is mapped by other processes once.
        resource = rmm.mr.PoolMemoryResource(
            rmm.mr.CudaMemoryResource(),
            initial_pool_size=pool.size,
            maximum_pool_size=pool.size,
        )
        rmm.mr.set_current_device_resource(resource)
    cupy.cuda.set_allocator(rmm_cupy_allocator)
    cuda.set_memory_manager(RMMNumbaManager)
    torch.cuda.memory.change_current_allocator(rmm_torch_allocator)
    enter(pool)
    return pool
