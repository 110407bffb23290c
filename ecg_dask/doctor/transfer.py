"""How fast arrays move between two workers over UCX, and whether they take the direct way.

UCX falls back to slower ways without a word, so the way is told by the rate.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ..gpu.pool import ASYNC
from .findings import Case, Finding, note, ok, wrong
from .probe import ProbeError, probe

if TYPE_CHECKING:
    from distributed import Client

#: Bytes of the array that is moved, in GPU memory and in the host's, where nothing depends on its
#: rate, and of a small one that shows what a task costs without it.
SIZE, HOST_SIZE, SMALL = 256_000_000, 32_000_000, 1000

#: Transfers a pair of workers, of which the fastest counts.
REPEATS = 5

#: Least difference of two times, in seconds, that means anything.
RESOLUTION_S = 1e-3

#: Rate in bytes a second above which an array did not go through the host's memory. On that way a
#: CPU core copies every byte, at a few GB/s, between two trips over PCIe. CUDA IPC leaves the
#: core out: PCIe 3 gives 12 GB/s, later ones 25 and more, NVLink and a GPU's own memory hundreds.
DIRECT = 10e9

#: Seconds for the start of the cluster and all transfers, for one of them, and for a connection.
LIMIT_S, TASK_LIMIT_S, CONNECT_LIMIT = 180, 60, "10 s"


def check_transfer(case: Case, *, works: bool) -> Iterator[Finding]:
    """Tell how fast arrays move over UCX, between GPUs if these work.

    Parameters
    ----------
    case
        What is asked for.
    works
        Whether every library computes on the GPU.
    """
    asked = case.protocol == "ucx"
    has_ucx = importlib.util.find_spec("distributed_ucxx") is not None
    if case.scheduler is not None or not has_ucx or case.protocol not in (None, "ucx"):
        return
    workers = case.workers or len(case.gpus) * case.workers_per_gpu
    if case.has_gpu and case.pool == ASYNC and (workers == 1 or not asked):
        # A run with this pool does not use UCX, or has nobody to send to.
        return
    if case.has_gpu and not works:
        do = "Make the libraries above work first"
        yield note("cuda_ipc", "not measured, since the GPU cannot be used", do)
    elif case.has_gpu or asked:
        code = "from ecg_dask.doctor.transfer import measure; result = measure"
        try:
            rates = probe(
                f"{code}({case.has_gpu}, {case.pool!r}, {len(case.gpus)})", limit_s=LIMIT_S
            )
        except ProbeError as error:
            do = error.remedy or "Choose --protocol tcp, or mend what is named here"
            yield wrong("ucx", f"two workers cannot use it: {error}", do, asked=asked)
            return
        yield verdict(rates, on_gpu=case.has_gpu, asked=asked)


def verdict(rates: list[tuple[str, str, float]], *, on_gpu: bool, asked: bool) -> Finding:
    """Tell from the measured rates whether arrays take the direct way.

    Parameters
    ----------
    rates
        Source, target and bytes a second, for each pair of workers.
    on_gpu
        Whether the arrays were in GPU memory.
    asked
        Whether UCX was asked for.
    """
    source, target, rate = min(rates, key=lambda measured: measured[2])
    size = SIZE if on_gpu else HOST_SIZE
    found = f"{size / 1e6:.0f} MB from {source} to {target} at {rate / 1e9:.3g} GB/s"
    if len(rates) > 2:
        found += f", the slowest of {len(rates)} pairs"
    if not on_gpu:
        return ok("ucx", f"{found}, in the host's memory")
    if rate >= DIRECT:
        return ok(
            "cuda_ipc", f"used: {found}; through the host it would be below {DIRECT / 1e9:.0f}"
        )
    do = (
        "Unset UCX_TLS and leave --pool async out; workers in containers must share their IPC and "
        "PID namespaces; if the GPUs have no peer access (nvidia-smi topo -p2p r), choose tcp"
    )
    return wrong("cuda_ipc", f"not used: {found}, below {DIRECT / 1e9:.0f}", do, asked=asked)


def measure(on_gpu: bool, pool: str | None, n_gpus: int) -> list[tuple[str, str, float]]:
    """Move arrays around a ring of new workers.

    Parameters
    ----------
    on_gpu
        Whether the workers are on GPUs, one each, or two on a single one.
    pool
        Size of the memory pool a GPU, or None.
    n_gpus
        Number of GPUs.

    Returns
    -------
    list
        Source, target and bytes a second, for each pair of neighbours.
    """
    import dask

    from ..cluster import connect

    dask.config.set({"distributed.comm.timeouts.connect": CONNECT_LIMIT})
    if on_gpu:
        client = connect(device="gpu", protocol="ucx", pool=pool, workers_per_gpu=1 + (n_gpus == 1))
    else:
        client = connect(device="cpu", protocol="ucx", workers=2, threads=1)
    with client:
        names = client.run(_name, on_gpu)
        ring = [*names, next(iter(names))]
        size, rates = SIZE if on_gpu else HOST_SIZE, []
        for source, target in pairwise(ring):
            # In turns, so that whatever else the machine does slows both down.
            times = [
                [_seconds(client, on_gpu, n, source, target) for n in (size, SMALL)]
                for _ in range(REPEATS)
            ]
            large, small = (min(several) for several in zip(*times, strict=True))
            rates.append((names[source], names[target], size / max(large - small, RESOLUTION_S)))
    return rates


def _name(on_gpu: bool, dask_worker: Any) -> str:
    """Return what a worker is called in words."""
    if not on_gpu:
        return f"worker {dask_worker.name}"
    import os

    return f"worker {dask_worker.name} on GPU {os.environ['CUDA_VISIBLE_DEVICES'].split(',')[0]}"


def _seconds(client: Client, on_gpu: bool, size: int, source: str, target: str) -> float:
    """Return the seconds that a task on `target` takes with a new array from `source`."""
    array = client.submit(_array, on_gpu, size, workers=[source], pure=False)
    array.exception(timeout=TASK_LIMIT_S)
    begun = time.perf_counter()
    task = client.submit(_size, array, workers=[target], pure=False)
    if task.result(timeout=TASK_LIMIT_S) != size:
        raise RuntimeError(f"an array of {size} bytes arrived with another size")
    return time.perf_counter() - begun


def _array(on_gpu: bool, size: int) -> Any:
    library = importlib.import_module("cupy" if on_gpu else "numpy")
    array = library.ones(size, "uint8")
    if on_gpu:
        library.cuda.runtime.deviceSynchronize()
    return array


def _size(array: Any) -> int:
    return int(array.nbytes)
