"""Find heartbeats in long-term ECGs, and the beats that do not belong, on Dask.

Importing the package is cheap: a name below is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .anomaly import Model, group_anomalies, train
    from .beats import Beats
    from .cluster import connect
    from .errors import InputError
    from .evaluation import Evaluation, evaluate
    from .pipeline import run
    from .readers import read
    from .recording import Recording
    from .segment import Detector, find_beats
    from .store import Store

__version__ = "0.1.0"

_HOMES = {
    "Beats": "beats",
    "Detector": "segment",
    "Evaluation": "evaluation",
    "InputError": "errors",
    "Model": "anomaly",
    "Recording": "recording",
    "Store": "store",
    "connect": "cluster",
    "evaluate": "evaluation",
    "find_beats": "segment",
    "group_anomalies": "anomaly",
    "read": "readers",
    "run": "pipeline",
    "train": "anomaly",
}

__all__ = [
    "Beats",
    "Detector",
    "Evaluation",
    "InputError",
    "Model",
    "Recording",
    "Store",
    "connect",
    "evaluate",
    "find_beats",
    "group_anomalies",
    "read",
    "run",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
