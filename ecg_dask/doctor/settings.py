"""What a new cluster on this machine would be made of: workers, pool, certificates, dashboard."""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Iterator

from dask.utils import format_bytes

from ..errors import InputError
from ..gpu.pool import ASYNC, pool_bytes
from .findings import Case, Finding, missing, note, ok, wrong

#: Where the dashboard is, if the port is free.
PORT = 8787


def check_settings(case: Case) -> Iterator[Finding]:
    """Tell whether what was asked for a new cluster can be had."""
    if case.scheduler is None:
        yield from _workers(case)
        yield from _pool(case)
        if case.protocol == "tls":
            yield _certificates()
    yield _dashboard()


def _workers(case: Case) -> Iterator[Finding]:
    if case.workers is None or not (case.has_gpu or case.wants_gpu):
        return
    most = len(case.gpus) * case.workers_per_gpu
    found = f"{case.workers} on {len(case.gpus)} GPUs, {case.workers_per_gpu} on each at most"
    if case.workers > most:
        do = f"Choose --workers up to {most}, a larger --workers-per-gpu, or --device cpu"
        yield wrong("workers", found, do, asked=True)
    else:
        yield ok("workers", found)


def _pool(case: Case) -> Iterator[Finding]:
    asked = case.pool is not None
    if not case.has_gpu:
        if asked:
            do = "Leave --pool out: workers without a GPU have none"
            yield missing("pool", f"{case.pool!r}, and no GPU to have it on", do, asked=True)
        return
    for gpu in case.gpus:
        name = f"pool of GPU {gpu.number}"
        try:
            size = pool_bytes(case.pool, gpu.total, gpu.free, case.workers_per_gpu)
        except InputError as error:
            _, found, allowed, do = error.args
            yield wrong(name, f"{found}; allowed: {allowed}", do, asked=True)
            continue
        found = f"{format_bytes(size)} a worker, of {format_bytes(gpu.total)}"
        if size * case.workers_per_gpu > gpu.free:
            do = "End the processes that hold the rest (nvidia-smi lists them), or choose less"
            yield wrong(name, f"{found}, {format_bytes(gpu.free)} free", do, asked=asked)
        elif case.pool == ASYNC:
            yield ok(name, f"up to {found}, asynchronous")
        else:
            yield ok(name, found)


def _certificates() -> Finding:
    """Tell of the certificates in Dask's configuration, the only ones that a command can use."""
    from distributed import Security

    files = Security().get_tls_config_for_role("client")
    absent = [name for name in ("ca_file", "cert", "key") if not files.get(name)]
    if absent:
        do = "Set distributed.comm.tls in Dask's configuration, and start the scheduler with it"
        return missing("tls", f"no {', '.join(absent)} in Dask's configuration", do, asked=True)
    return ok("tls", f"certificates {files['ca_file']}, {files['cert']}, {files['key']}")


def _dashboard() -> Finding:
    if importlib.util.find_spec("bokeh") is None:
        return missing("dashboard", "bokeh is not installed", "pip install bokeh")
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", PORT))
        except OSError as error:
            found = f"port {PORT} is taken ({error.strerror})"
            do = "Nothing: the dashboard takes another port, which the client tells"
            return note("dashboard", found, do)
    return ok("dashboard", f"http://127.0.0.1:{PORT}")
