"""The network devices that UCX may use, InfiniBand and RoCE, and GPUDirect RDMA over them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .findings import Case, Finding, note, ok, wrong
from .probe import ProbeError, probe

#: Asks the driver whether it hands GPU memory to other devices as DMA buffers; the attribute is
#: CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED.
DMA_BUF = """
import ctypes
cuda, value, device = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_int()
for status in (
    cuda.cuInit(0),
    cuda.cuDeviceGet(ctypes.byref(device), 0),
    cuda.cuDeviceGetAttribute(ctypes.byref(value), 124, device),
):
    if status:
        raise RuntimeError(f"the driver answers with error {status}")
result = bool(value.value)
"""


class Port(NamedTuple):
    """A port of an InfiniBand or RoCE adapter.

    Attributes
    ----------
    name
        As UCX names it, such as ``"mlx5_0:1"``.
    active
        Whether it is connected.
    kind
        ``"InfiniBand"``, or ``"RoCE"`` where the link is Ethernet.
    told
        Its state and rate, in the kernel's words.
    """

    name: str
    active: bool
    kind: str
    told: str


def ports(root: Path) -> list[Port]:
    """Return the ports that the kernel lists under ``sys`` in `root`."""
    found = []
    for folder in sorted(root.glob("sys/class/infiniband/*/ports/*")):
        state, rate = _line(folder / "state"), _line(folder / "rate")
        kind = "RoCE" if _line(folder / "link_layer") == "Ethernet" else "InfiniBand"
        name = f"{folder.parts[-3]}:{folder.name}"
        found.append(Port(name, "ACTIVE" in state, kind, f"{state}, {rate}"))
    return found


def check_network(case: Case, root: Path = Path("/")) -> Iterator[Finding]:
    """Tell of the network devices.

    Parameters
    ----------
    case
        What is asked for.
    root
        Where ``sys`` is.
    """
    adapters = ports(root)
    yield _devices(case, adapters, root)
    if not adapters:
        yield ok("InfiniBand, RoCE", "none; only clusters of several nodes need it")
        return
    for port in adapters:
        if port.active:
            yield ok(port.name, f"{port.kind}, {port.told}")
        else:
            do = "Connect it, or start the subnet manager, if several nodes are to use it"
            yield note(port.name, f"{port.kind}, {port.told}", do)
    if case.has_gpu:
        yield _gpudirect(root)


def _devices(case: Case, adapters: list[Port], root: Path) -> Finding:
    """Tell which devices UCX may use: those that it was told to, else all that are up."""
    interfaces = sorted(path.name for path in root.glob("sys/class/net/*"))
    chosen = os.environ.get("UCX_NET_DEVICES", "all")
    names = [name.strip() for name in chosen.split(",")]
    if "all" in names or chosen.startswith("^"):
        up = [
            name
            for name in interfaces
            if _line(root / "sys/class/net" / name / "operstate") == "up"
        ]
        active = [port.name for port in adapters if port.active]
        found = ", ".join([*active, *up]) or "only this machine's own loopback"
        return ok("network devices", f"{found} (UCX_NET_DEVICES={chosen})")
    here = {
        *interfaces,
        *(port.name for port in adapters),
        *(p.name.split(":")[0] for p in adapters),
    }
    unknown = [name for name in names if name not in here]
    found = f"UCX_NET_DEVICES={chosen}"
    if not unknown:
        return ok("network devices", found)
    found += f", of which {', '.join(unknown)} is not here"
    do = f"Unset it, or choose among {', '.join(sorted(here))}"
    return wrong("network devices", found, do, asked=case.protocol == "ucx")


def _gpudirect(root: Path) -> Finding:
    """Tell whether an adapter can read GPU memory without the host."""
    modules = [
        name for name in ("nvidia_peermem", "nv_peer_mem") if (root / "sys/module" / name).exists()
    ]
    if modules:
        return ok("GPUDirect RDMA", f"the kernel module {modules[0]} is loaded")
    try:
        if probe(DMA_BUF):
            return ok("GPUDirect RDMA", "the driver offers DMA buffers")
        found = "no: nvidia_peermem is not loaded, and the driver offers no DMA buffers"
    except ProbeError as error:
        found = f"nvidia_peermem is not loaded, and DMA buffers cannot be asked for: {error}"
    do = "Load it (modprobe nvidia-peermem), or use the driver's open kernel modules"
    return note("GPUDirect RDMA", found, do)


def _line(path: Path) -> str:
    """Return what a file of the kernel's says; it may vanish, or have nothing to say."""
    try:
        return path.read_text().strip()
    except OSError:
        return "unknown"
