"""Where the work runs: a cluster of this machine's processes, or one that is already there."""

from __future__ import annotations

import importlib.util
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import InputError

if TYPE_CHECKING:
    from distributed import Client, Security

    from .gpu.devices import Gpu

#: Seconds to wait for a scheduler that was named, and for the workers of a new cluster of GPUs.
CONNECT_TIMEOUT_S, START_TIMEOUT_S = 10, 120

#: Modules without which no worker works on a GPU.
GPU_PACKAGES = ("cudf", "cupy", "dask_cuda", "dask_cudf", "kvikio", "numba_cuda", "rmm")

_PROTOCOLS = {"tcp": "tcp", "tls": "tls", "ucx": "ucx", "ucxx": "ucx"}
_DASHBOARD = "127.0.0.1:8787"


def connect(
    address: str | None = None,
    *,
    device: str = "auto",
    workers: int | None = None,
    threads: int | None = None,
    protocol: str | None = None,
    pool: str | None = None,
    security: Security | None = None,
    scheduler_file: str | None = None,
    workers_per_gpu: int = 1,
    warm_fs: float | None = None,
) -> Client:
    """Return a client of a running cluster, or of a new one on this machine.

    A new one is a `distributed.LocalCluster` on a machine without a GPU, else a
    `dask_cuda.LocalCUDACluster` with a worker a GPU. It ends when the client is closed.

    Parameters
    ----------
    address
        Address of a running scheduler, such as ``"tcp://10.0.0.1:8786"``, ``"ucx://..."`` or
        ``"tls://..."``. When all its workers were started by ``dask cuda worker``, their
        libraries are told of one memory pool, and they work on their GPUs.
    device
        ``"cpu"``, ``"gpu"``, or ``"auto"``: GPUs where there are some and their packages are
        installed.
    workers
        Number of worker processes; by default one a GPU, or chosen from the number of cores.
    threads
        Threads a worker; by default one on a GPU.
    protocol
        ``"tcp"``; ``"tls"``, which needs `security`; or ``"ucx"`` (alias ``"ucxx"``), which needs
        distributed-ucxx, moves data from GPU to GPU, is not encrypted, and listens on every
        interface. The default is ucx between several GPU workers, else tcp. Its transports (NVLink,
        InfiniBand, shared memory) are chosen by UCX.
    pool
        Memory pool a GPU, such as ``"40 GiB"``, which its workers share; ``"async"`` for CUDA's
        asynchronous pool, which gives memory back to other processes, with tcp or a single worker.
        By default a pool of 80 % of what is free.
    security
        Certificates and keys for ``"tls"``.
    scheduler_file
        File in which a running scheduler wrote its address.
    workers_per_gpu
        Workers that share a GPU.
    warm_fs
        Sampling rate in Hz of recordings to come. New workers on GPUs begin to compile for it when
        they start; without it they do at the first recording.

    Returns
    -------
    distributed.Client
        Also a context manager that closes itself and the cluster that it started.

    Raises
    ------
    InputError
        When options contradict each other, ask for what is not there, or the scheduler does not
        answer.
    """
    if device not in ("auto", "cpu", "gpu"):
        raise InputError("device", repr(device), "auto, cpu or gpu", "Choose one of these")
    counts = {"workers": workers, "threads": threads, "workers_per_gpu": workers_per_gpu}
    for name, number in counts.items():
        if number is not None and number < 1:
            raise InputError(name, str(number), "1 or more", "Choose a number of at least 1")
    protocol = _checked_protocol(protocol, security)
    if address is not None or scheduler_file is not None:
        given = {
            "workers": workers,
            "threads": threads,
            "protocol": protocol if security is None else None,
            "pool": pool,
            "workers_per_gpu": workers_per_gpu if workers_per_gpu > 1 else None,
            "both address and scheduler_file": (address and scheduler_file) or None,
        }
        client = _running(address, scheduler_file, security, given)
        if device != "cpu":
            _take_up_gpus(client, device)
        return client
    options: dict[str, Any] = {} if security is None else {"security": security}
    with warnings.catch_warnings():
        # The dashboard takes another port, which its address tells.
        warnings.filterwarnings("ignore", "Port 8787 is already in use")
        gpus = () if device == "cpu" else _usable_gpus(device)
        if gpus:
            options["warm_fs"] = warm_fs
            return _on_gpus(gpus, workers, workers_per_gpu, threads, protocol, pool, options)
        for name, value in (("pool", pool), ("workers_per_gpu", workers_per_gpu - 1 or None)):
            if value is not None:
                raise InputError(
                    name,
                    repr(value if name == "pool" else workers_per_gpu),
                    "nothing on CPU workers",
                    "Leave it out, or run on a machine with a GPU (ecg-dask doctor tells more)",
                )
        from distributed import Client

        return Client(
            n_workers=workers,
            threads_per_worker=threads,
            protocol=f"{protocol or 'tcp'}://",
            dashboard_address=_DASHBOARD,
            **options,
        )


def _usable_gpus(device: str) -> tuple[Gpu, ...]:
    """Return the GPUs of this machine, none where they cannot be used and need not be."""
    from .gpu.devices import gpus

    found = gpus()
    if not found:
        if device == "gpu":
            raise InputError(
                "device",
                "'gpu' where the driver lists no GPU",
                "gpu on a machine with an NVIDIA GPU, its driver and the package nvidia-ml-py",
                "See what ecg-dask doctor says, or choose cpu",
            )
        return ()
    missing = [name for name in GPU_PACKAGES if importlib.util.find_spec(name) is None]
    if not missing:
        return found
    if device == "gpu":
        raise InputError(
            "device",
            f"'gpu' without the packages {', '.join(missing)}",
            "gpu where these are installed",
            "Install the extra gpu-cu12 or gpu-cu13, as the driver's CUDA version is, or choose "
            "cpu",
        )
    warnings.warn(
        f"There is a GPU, and the CPU is used: {', '.join(missing)} cannot be imported. Install "
        "the extra gpu-cu12 or gpu-cu13, or choose device cpu.",
        stacklevel=3,
    )
    return ()


def _on_gpus(
    gpus: tuple[Gpu, ...],
    workers: int | None,
    workers_per_gpu: int,
    threads: int | None,
    protocol: str | None,
    pool: str | None,
    options: dict[str, Any],
) -> Client:
    """Start a cluster of this machine's GPUs."""
    from .gpu.pool import ASYNC, Pool, pool_bytes

    most = len(gpus) * workers_per_gpu
    if workers is not None and workers > most:
        raise InputError(
            "workers",
            f"{workers} on {len(gpus)} GPU{'s' * (len(gpus) > 1)}",
            f"up to {most}",
            "Choose fewer, a larger workers_per_gpu, or device cpu",
        )
    workers = most if workers is None else workers
    if protocol is None:
        have_ucx = importlib.util.find_spec("distributed_ucxx") is not None
        protocol = "ucx" if workers > 1 and have_ucx and pool != ASYNC else "tcp"
    if protocol == "ucx" and pool == ASYNC and workers > 1:
        raise InputError(
            "pool",
            f"'{ASYNC}' together with ucx",
            f"'{ASYNC}' with tcp, or with a single worker: UCX leaves its fast path between GPUs "
            "for such memory, without a word",
            "Give the pool a size, or choose tcp",
        )
    used = gpus[: -(-workers // workers_per_gpu)]
    total, free = min(gpu.total for gpu in used), min(gpu.free for gpu in used)
    size = pool_bytes(pool, total, free, workers_per_gpu)
    # UCX warns of variables that RAPIDS sets for other versions of it.
    os.environ.setdefault("UCX_WARN_UNUSED_ENV_VARS", "n")
    import dask

    from .gpu.latency import SETTINGS, hurry
    from .gpu.local import GpuCluster, OwnClient

    with dask.config.set(SETTINGS):
        cluster = GpuCluster(
            indices=[gpu.number for gpu in gpus],
            per_gpu=workers_per_gpu,
            workers=workers,
            pool=Pool(ASYNC if pool == ASYNC else "cuda", size, workers),
            threads_per_worker=threads or 1,
            protocol=protocol,
            dashboard_address=_DASHBOARD,
            **options,
        )
    # Over tcp results come straight from the workers; over UCX the client would need a context.
    client = OwnClient(cluster, direct_to_workers=protocol != "ucx")
    try:
        client.wait_for_workers(workers, timeout=START_TIMEOUT_S)
        hurry(client)
    except BaseException:
        client.close()
        raise
    return client


def _take_up_gpus(client: Client, device: str) -> None:
    """Give the workers of a running cluster one pool each, if they were started on GPUs."""
    from .gpu.latency import hurry
    from .gpu.memory import GpuMemory, is_on_gpu
    from .gpu.pool import FOUND, Pool

    on_gpu = client.run(is_on_gpu)
    if on_gpu and all(on_gpu.values()):
        client.register_plugin(GpuMemory(Pool(FOUND, 0, len(on_gpu))))
        hurry(client)
    elif device == "gpu" or any(on_gpu.values()):
        client.close()
        raise InputError(
            "device",
            f"{sum(on_gpu.values())} of {len(on_gpu)} workers on GPUs",
            "one kind of workers, and for gpu at least one, started by dask cuda worker",
            "Start all workers with dask cuda worker, or none of them and choose cpu",
        )


def _checked_protocol(protocol: str | None, security: Security | None) -> str | None:
    if protocol is None:
        return None if security is None else "tls"
    if protocol not in _PROTOCOLS:
        raise InputError(
            "protocol", repr(protocol), "tcp, tls or ucx (ucxx)", "Choose one of these"
        )
    chosen = _PROTOCOLS[protocol]
    if chosen == "ucx":
        if security is not None:
            raise InputError(
                "protocol",
                "ucx together with security",
                "security with tls only: UCX does not encrypt",
                "Choose tls, or leave security out on a network that you trust",
            )
        if importlib.util.find_spec("distributed_ucxx") is None:
            raise InputError(
                "protocol",
                "ucx without the package distributed-ucxx",
                "ucx where distributed-ucxx is installed",
                "Install the extra gpu-cu12 or gpu-cu13, or choose tcp",
            )
    if chosen == "tls" and security is None:
        raise InputError(
            "protocol",
            "tls without security",
            "tls with a distributed.Security",
            "Give security=distributed.Security(...)",
        )
    return chosen


def _running(
    address: str | None,
    scheduler_file: str | None,
    security: Security | None,
    given: dict[str, Any],
) -> Client:
    for name, value in given.items():
        if value is not None:
            raise InputError(
                "address",
                f"{name} beside a running scheduler",
                "only one of address and scheduler_file, and security",
                "Leave it out: a running cluster has its workers and its protocol already",
            )
    from distributed import Client
    from distributed.comm.addressing import parse_address, parse_host_port

    options: dict[str, Any] = {} if security is None else {"security": security}
    where = address or scheduler_file
    if scheduler_file is not None and not Path(scheduler_file).is_file():
        raise InputError(
            "scheduler_file",
            f"{scheduler_file!r}, which is no file",
            "the file that a running dask scheduler wrote with --scheduler-file",
            "Check the path, and that the scheduler runs",
        )
    if address is None:
        options["scheduler_file"] = scheduler_file
    try:
        if address is not None and not address.startswith("inproc://"):
            # A client of an address that is none would fail once more when Python ends.
            parse_host_port(parse_address(address)[1])
        # A client that fails to start stays Dask's default scheduler, so one that does not
        # become the default tries the address first.
        Client(address, timeout=CONNECT_TIMEOUT_S, set_as_default=False, **options).close()
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            "address" if address else "scheduler_file",
            f"{where!r}, where no scheduler answered ({type(error).__name__})",
            "the address of a running dask scheduler, such as tcp://host:8786",
            "Check the address, and that the scheduler runs and can be reached from here",
        ) from error
    return Client(address, **options)
