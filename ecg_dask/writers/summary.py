"""What a run did, as JSON."""

from __future__ import annotations

import contextlib
import json
import math
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pandas as pd

from ..segment.runs import REASONS

#: Packages that a result may depend on, where they are installed.
PACKAGES = (
    *("ecg_dask", "dask", "distributed", "numba", "numpy", "pandas", "pyarrow", "torch"),
    *("cudf-cu12", "cudf-cu13", "cupy-cuda12x", "cupy-cuda13x", "numba-cuda"),
)

#: Most spans of a record that its summary lists.
MOST_SPANS = 100


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that a result may depend on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def span_facts(spans: pd.DataFrame) -> dict[str, Any]:
    """Return what the summary tells of a record's spans that cannot be analysed.

    Parameters
    ----------
    spans
        The record's rows of ``Beats.spans``.

    Returns
    -------
    dict
        ``seconds`` and ``counts`` by reason, and the ``longest`` spans, of which there are
        ``longest_at_most``; all of them are in ``spans.parquet``.
    """
    seconds = spans.groupby("reason")["seconds"].sum()
    counts = spans.groupby("reason").size()
    longest = spans.sort_values("seconds", ascending=False, kind="stable").head(MOST_SPANS)
    return {
        "seconds": {reason: float(seconds.get(reason, 0.0)) for reason in REASONS},
        "counts": {reason: int(counts.get(reason, 0)) for reason in REASONS},
        "longest_at_most": MOST_SPANS,
        "longest": longest.drop(columns="record").to_dict("records"),
    }


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
