"""A cluster of this machine's GPUs."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import count
from typing import Any

import dask
from dask_cuda import LocalCUDACluster
from dask_cuda.plugins import CPUAffinity
from dask_cuda.utils import cuda_visible_devices, get_cpu_affinity, nvml_device_index
from distributed import Client

from ..cluster import START_TIMEOUT_S
from .memory import GpuMemory
from .pool import Pool

#: Share of its pool that a worker's results may hold before they are moved to the host.
SPILL_SHARE = 0.5

#: What the workers' libraries read from their environment: KvikIO's threads, which copy from the
#: page cache. Eight read six times as fast as one, and sixteen no faster.
ENVIRONMENT = {"KVIKIO_NTHREADS": "8"}


class GpuCluster(LocalCUDACluster):  # type: ignore[misc]
    """`dask_cuda.LocalCUDACluster` with our memory plugin, and with several workers a GPU if asked.

    Parameters
    ----------
    indices
        Numbers of the GPUs.
    per_gpu
        Workers a GPU.
    workers
        Workers in all; the first GPUs get theirs first.
    pool, warm_fs
        What `GpuMemory` takes, for each worker.
    options
        What `LocalCUDACluster` takes besides.
    """

    def __init__(
        self,
        *,
        indices: Sequence[int],
        per_gpu: int,
        workers: int,
        pool: Pool,
        warm_fs: float | None = None,
        **options: Any,
    ) -> None:
        self._per_gpu = per_gpu
        self._pool = pool
        self._warm_fs = warm_fs
        super().__init__(
            CUDA_VISIBLE_DEVICES=list(indices),
            n_workers=workers,
            device_memory_limit=int(SPILL_SHARE * pool.size),
            **options,
        )

    def new_worker_spec(self) -> dict[int, Any]:
        """Return the description of one more worker."""
        number = next(i for i in count() if i not in self.worker_spec)
        visible = cuda_visible_devices(number // self._per_gpu, self.cuda_visible_devices)
        index = nvml_device_index(0, visible)
        spec = copy.deepcopy(self.new_spec)
        spec["options"].update(
            env={**ENVIRONMENT, "CUDA_VISIBLE_DEVICES": visible},
            data=self.data(index),
            plugins={CPUAffinity(get_cpu_affinity(index)), GpuMemory(self._pool, self._warm_fs)},
        )
        return {number: spec}

    def _update_worker_status(self, op: str, msg: Any) -> None:
        # Distributed gives a worker up that is not back after 15 s, or is gone again just then.
        # One on a GPU may take as long to start: it imports cuDF and PyTorch.
        with dask.config.set({"distributed.deploy.lost-worker-timeout": f"{START_TIMEOUT_S}s"}):
            super()._update_worker_status(op, msg)


class OwnClient(Client):  # type: ignore[misc]
    """A client that closes its cluster when it is closed."""

    def close(self, *arguments: Any, **options: Any) -> Any:
        """Close the client, then the cluster."""
        closed = super().close(*arguments, **options)
        if self.cluster is not None:
            self.cluster.close()
        return closed
