"""UCX: which transports it has, which it may use, and how it was told to choose."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

from .findings import Case, Finding, missing, note, ok, wrong
from .network import ports
from .probe import ProbeError, probe

#: UCX starts and says what it would use. Its modules lie in a folder beside its library, and only
#: the map of the process tells which of several libraries was taken.
LOOK = """
import glob, os, ucxx
version, active = ucxx.get_ucx_version(), ucxx.get_active_transports()
with open("/proc/self/maps") as maps:
    library = next(line.split()[-1] for line in maps if "/libuct.so" in line)
modules = glob.glob(os.path.join(os.path.dirname(library), "ucx", "libuct_*.so"))
result = {
    "version": ".".join(map(str, version)),
    "active": sorted(active),
    "modules": sorted(os.path.basename(path)[7:-3] for path in modules),
    "library": library,
}
"""


def check_ucx(case: Case, root: Path = Path("/")) -> Iterator[Finding]:
    """Tell of UCX's version, transports and settings.

    Parameters
    ----------
    case
        What is asked for.
    root
        Where ``sys`` is.
    """
    asked = case.protocol == "ucx"
    do = "Install the extra gpu-cu12 or gpu-cu13, or choose --protocol tcp"
    absent = [name for name in ("distributed_ucxx", "ucxx") if not importlib.util.find_spec(name)]
    if absent:
        found = f"{' and '.join(absent)} not installed"
        if asked or case.has_gpu:
            yield missing("distributed-ucxx", found, do, asked=asked)
        else:
            yield ok("distributed-ucxx", f"{found}; only --protocol ucx needs it")
        return
    yield _environment()
    try:
        seen = probe(LOOK)
    except ProbeError as error:
        do = "Unset what UCX_* variables are set, and try again; else choose --protocol tcp"
        yield wrong("UCX", f"does not start: {error}", do, asked=asked)
        return
    modules = seen["modules"]
    told = ", ".join(modules) or "none"
    yield ok("UCX", f"{seen['version']} with the modules {told}, {seen['library']}")
    yield _transports(case, seen["active"], modules)
    if any(port.active for port in ports(root)) and "ib" not in modules:
        do = (
            "Set RAPIDS_LIBUCX_PREFER_SYSTEM_LIBRARY=1 where the system has a UCX with InfiniBand, "
            "or install from conda-forge"
        )
        yield note("InfiniBand in UCX", "not built in, so nodes talk over tcp", do)


def _transports(case: Case, active: list[str], modules: list[str]) -> Finding:
    found = f"may use {', '.join(active)}"
    if not case.has_gpu or "cuda_ipc" in active:
        return ok("transports", found)
    if "cuda" in modules:
        do = "Unset UCX_TLS if it is set; else the driver does not allow CUDA IPC, as in WSL"
    else:
        do = "Install a UCX that is built with CUDA (libucx-cu12 or libucx-cu13)"
    asked = case.protocol == "ucx"
    return wrong("transports", f"{found}; not cuda_ipc", do, asked=asked)


def _environment() -> Finding:
    settings = {name: os.environ[name] for name in sorted(os.environ) if name.startswith("UCX_")}
    told = ", ".join(f"{name}={value}" for name, value in settings.items())
    if "UCX_TLS" in settings:
        do = "Unset UCX_TLS, unless it is for a measurement: UCX chooses best by itself"
        return note("environment", told, do)
    return ok("environment", told or "no UCX_* variable is set")
