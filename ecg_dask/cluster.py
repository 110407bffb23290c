"""Where the work runs: a cluster of this machine's processes, or one that is already there."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import InputError

if TYPE_CHECKING:
    from distributed import Client, Security

#: Seconds to wait for a scheduler that was named.
CONNECT_TIMEOUT_S = 10

_PROTOCOLS = {"tcp": "tcp", "tls": "tls", "ucx": "ucx", "ucxx": "ucx"}


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
) -> Client:
    """Return a client of a running cluster, or of a new one on this machine.

    Parameters
    ----------
    address
        Address of a running scheduler, such as ``"tcp://10.0.0.1:8786"``; None starts a
        `distributed.LocalCluster`, which ends when the client is closed.
    device
        ``"auto"`` or ``"cpu"``.
    workers
        Number of worker processes; chosen from the number of cores when not given.
    threads
        Threads a worker; likewise.
    protocol
        ``"tcp"`` (the default), ``"tls"`` (needs `security`) or ``"ucx"``, which needs
        distributed-ucxx and is not encrypted.
    pool
        Size of the memory pool a GPU; for GPU workers only.
    security
        Certificates and keys for ``"tls"``.
    scheduler_file
        File in which a running scheduler wrote its address.

    Returns
    -------
    distributed.Client
        Also a context manager that closes itself and the cluster that it started.

    Raises
    ------
    InputError
        When options contradict each other or the scheduler does not answer.
    """
    if device == "gpu":
        raise InputError(
            "device",
            "'gpu'",
            "auto or cpu: files are read, and clusters started, on CPUs so far",
            "Choose cpu, or hand find_beats a Recording whose blocks are CuPy arrays",
        )
    if device not in ("auto", "cpu"):
        raise InputError("device", repr(device), "auto or cpu", "Choose one of these")
    if pool is not None:
        raise InputError(
            "pool", repr(pool), "nothing on CPU workers", "Leave it out, or set it at GPU workers"
        )
    for name, number in (("workers", workers), ("threads", threads)):
        if number is not None and number < 1:
            raise InputError(name, str(number), "1 or more", "Choose a number of at least 1")
    protocol = _checked_protocol(protocol, security)
    if address is not None or scheduler_file is not None:
        return _running(address, scheduler_file, security, workers, threads, protocol)
    from distributed import Client

    options: dict[str, Any] = {} if security is None else {"security": security}
    with warnings.catch_warnings():
        # The dashboard takes another port, which its address tells.
        warnings.filterwarnings("ignore", "Port 8787 is already in use")
        return Client(
            n_workers=workers,
            threads_per_worker=threads,
            protocol=f"{protocol or 'tcp'}://",
            dashboard_address="127.0.0.1:8787",
            **options,
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
    workers: int | None,
    threads: int | None,
    protocol: str | None,
) -> Client:
    given = {
        "workers": workers,
        "threads": threads,
        "protocol": protocol if security is None else None,
        "both address and scheduler_file": (address and scheduler_file) or None,
    }
    for name, value in given.items():
        if value is not None:
            raise InputError(
                "address",
                f"{name} beside a running scheduler",
                "only one of address and scheduler_file, and security",
                "Leave it out: a running cluster has its workers and its protocol already",
            )
    from distributed import Client

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
