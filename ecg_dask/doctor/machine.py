"""The machine and the Python that everything runs in."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

from .. import __version__
from .findings import Case, Finding, note, ok


def check_machine(case: Case) -> Iterator[Finding]:
    """Tell of Python, this package, cores and memory."""
    from dask.system import CPU_COUNT
    from dask.utils import format_bytes
    from distributed.system import MEMORY_LIMIT

    system = f"{platform.system()} {platform.release()}, {platform.machine()}"
    yield ok("Python", f"{platform.python_version()} on {system}")
    yield ok("ecg_dask", f"{__version__} in {Path(__file__).parents[1]}")
    yield ok("memory", format_bytes(MEMORY_LIMIT))
    if case.workers is not None and case.workers > CPU_COUNT:
        yield note("cores", f"{CPU_COUNT} for {case.workers} workers", "Choose fewer --workers")
    else:
        yield ok("cores", str(CPU_COUNT))
