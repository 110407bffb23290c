"""A running scheduler: whether it answers, what its workers are, and which versions they have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dask.utils import format_bytes

from .findings import Case, Finding, missing, ok, wrong
from .probe import ProbeError, probe

#: Seconds for all that is asked.
LIMIT_S = 60

#: Workers that are named, at most.
NAMED = 4


def check_scheduler(case: Case) -> Iterator[Finding]:
    """Tell what a scheduler that was named says."""
    if case.scheduler is None:
        return
    options = {
        name: getattr(case, name) for name in ("protocol", "pool", "workers", "workers_per_gpu")
    }
    code = "from ecg_dask.doctor.scheduler import look; result = look"
    try:
        seen = probe(f"{code}({case.scheduler!r}, {options!r})", limit_s=LIMIT_S)
    except ProbeError as error:
        do = error.remedy or "Check that it runs, and what stands between (firewall, certificates)"
        yield wrong("scheduler", str(error), do, asked=True)
        return
    workers = seen["workers"]
    yield ok("scheduler", f"{seen['address']} ({seen['address'].partition(':')[0]}) answers")
    if not workers:
        yield missing("workers", "none", f"Start some: dask worker {case.scheduler}", asked=True)
        return
    threads = sum(worker["threads"] for worker in workers)
    memory = format_bytes(sum(worker["memory"] for worker in workers))
    yield ok("workers", f"{len(workers)} with {threads} threads and {memory} in all")
    yield on_gpus(case, workers)
    yield from compared(seen["versions"])


def look(address: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return what a scheduler and its workers are.

    Parameters
    ----------
    address
        Of the scheduler.
    options
        Further options that the user gave to `connect`.

    Returns
    -------
    dict
        ``address``; ``workers``, a dict each with ``address``, ``threads``, ``memory`` and ``gpu``;
        ``versions`` of packages, at the client, the scheduler and the workers.
    """
    from ..cluster import connect
    from ..gpu.memory import is_on_gpu

    # On "cpu" nothing is changed at the workers.
    with connect(address, device="cpu", **options) as client:
        info = client.scheduler_info()
        on_gpu = client.run(is_on_gpu, on_error="return")
        versions = client.get_versions(packages=["ecg_dask"])
    workers = [
        {
            "address": name,
            "threads": worker["nthreads"],
            "memory": worker["memory_limit"],
            "gpu": on_gpu[name] if isinstance(on_gpu.get(name), bool) else None,
        }
        for name, worker in info["workers"].items()
    ]
    packages = {
        "client": [versions["client"]["packages"]],
        "scheduler": [versions["scheduler"]["packages"]],
        "workers": [worker["packages"] for worker in versions["workers"].values()],
    }
    return {"address": info["address"], "workers": workers, "versions": packages}


def on_gpus(case: Case, workers: list[dict[str, Any]]) -> Finding:
    """Tell which workers are on GPUs: all or none should be.

    Parameters
    ----------
    case
        What is asked for.
    workers
        ``address`` and ``gpu`` of each; ``gpu`` is None where the worker could not say.
    """
    told = [worker["gpu"] for worker in workers]
    asked = case.device == "gpu"
    if None in told:
        do = "Install ecg_dask, in the same version, where the workers run"
        found = f"{told.count(None)} of {len(told)} workers cannot say: they have no ecg_dask"
        return wrong("workers' GPUs", found, do, asked=asked)
    found = f"{sum(told)} of {len(told)} workers are on GPUs"
    without = [worker["address"] for worker in workers if not worker["gpu"]]
    if any(told) and without:
        found += f"; not {', '.join(without[:NAMED])}{', ...' * (len(without) > NAMED)}"
    if asked and not all(told):
        do = "Start all workers with dask cuda worker, or choose --device cpu"
        return missing("workers' GPUs", found, do, asked=True)
    if any(told) and not all(told):
        do = "Start all workers with dask cuda worker, or none of them"
        return wrong("workers' GPUs", found, do)
    return ok("workers' GPUs", found)


def compared(versions: dict[str, list[dict[str, str | None]]]) -> Iterator[Finding]:
    """Tell where versions differ.

    Parameters
    ----------
    versions
        Versions by package, of each process, under ``client``, ``scheduler`` and ``workers``.
    """
    [client] = versions["client"]
    alike = []
    for package, mine in client.items():
        seen = {
            place: sorted({str(packages.get(package)) for packages in processes})
            for place, processes in versions.items()
        }
        if all(several == [str(mine)] for several in seen.values()):
            alike.append(package)
            continue
        found = "; ".join(f"{place} {', '.join(several)}" for place, several in seen.items())
        do = "Install the same version everywhere: the environments should be copies of one"
        yield wrong(package, found, do)
    yield ok("versions", f"the same everywhere: {', '.join(alike)}")
