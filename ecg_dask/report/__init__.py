"""The report: one HTML page that opens offline.

`envelope` and `pick_beats` describe work for the workers and return small results; `write_report`
draws the page from these on the client. Bokeh is loaded when a page is written, not on the workers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .envelope import choose_bin_samples, envelope
from .picks import GroupTemplate, Picked, WorstBeat, pick_beats
from .view import RecordView

if TYPE_CHECKING:
    from .page import write_report

__all__ = [
    "GroupTemplate",
    "Picked",
    "RecordView",
    "WorstBeat",
    "choose_bin_samples",
    "envelope",
    "pick_beats",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name == "write_report":
        return importlib.import_module(".page", __name__).write_report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
