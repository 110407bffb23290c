"""How files reach GPU memory: by GPUDirect Storage, or through the host."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path

from .findings import Case, Finding, note, ok, wrong
from .probe import ProbeError, probe

#: KvikIO, which cuDF reads files with, says whether it would read them by cuFile.
LOOK = "import kvikio.defaults; result = bool(kvikio.defaults.is_compat_mode_preferred())"


def check_storage(case: Case, root: Path = Path("/")) -> Iterator[Finding]:
    """Tell which way a file takes, and why.

    Parameters
    ----------
    case
        What is asked for.
    root
        Where ``proc`` and ``run`` are.
    """
    if not (case.has_gpu or case.wants_gpu):
        yield ok("reading", "POSIX, into the host's memory")
        return
    try:
        posix = probe(LOOK)
    except ProbeError as error:
        do = "Install the extra gpu-cu12 or gpu-cu13, and nvidia-cufile for libcufile"
        yield wrong("KvikIO", str(error), do, asked=case.wants_gpu)
        return
    driver = (root / "proc/driver/nvidia-fs").exists()
    if posix:
        yield note("reading", f"POSIX through host memory: {_reason(root)}", _REMEDY)
    elif not driver:
        found = "cuFile in its own compatibility mode: the driver nvidia-fs is not loaded"
        yield note("reading", found, _REMEDY)
    else:
        yield ok("reading", "GPUDirect Storage, where the file system supports it")


_REMEDY = (
    "Nothing for files in the page cache, which POSIX reads as fast; for others install "
    "GPUDirect Storage (nvidia-fs and libcufile) and unset KVIKIO_COMPAT_MODE"
)


def _reason(root: Path) -> str:
    """Say why KvikIO does not use cuFile, in the order in which it decides."""
    mode = os.environ.get("KVIKIO_COMPAT_MODE", "")
    if mode.lower() in ("on", "true", "yes", "1"):
        return f"KVIKIO_COMPAT_MODE={mode}"
    if not os.access(root / "run/udev", os.R_OK):
        return "/run/udev cannot be read, as in a container without it"
    if "microsoft" in platform.release().lower():
        return "this is Windows' Subsystem for Linux"
    return "libcufile cannot be loaded"
