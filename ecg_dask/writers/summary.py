"""What a run did, as JSON."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

#: Packages that a result may depend on.
PACKAGES = ("ecg_dask", "dask", "distributed", "numba", "numpy", "pandas", "pyarrow", "torch")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that a result may depend on."""
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def write_summary(path: Path, summary: Mapping[str, Any]) -> None:
    """Write the summary as strict JSON: numbers that are none become null."""
    path.write_text(json.dumps(_plain(summary), indent=2, allow_nan=False) + "\n", "utf-8")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
