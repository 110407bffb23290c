"""The facts of recordings, model and run, in words for the page's tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from .charts import numbers
from .spans import unanalysed
from .view import RecordView, elapsed

Facts = list[tuple[str, str]]


def record_facts(view: RecordView, rows: pd.DataFrame) -> Facts:
    """Return the labelled facts of one recording.

    Parameters
    ----------
    view
        The recording.
    rows
        Its rows of the scored table.
    """
    anomalies = int(rows["anomaly"].to_numpy(dtype=bool).sum())
    complete = rows["complete"].to_numpy(dtype=bool)
    missing = f"{view.missing:,} ({view.missing / view.fs:,.1f} s)" if view.missing else "none"
    return [
        ("Source", view.source or "not a file"),
        ("Leads", ", ".join(view.leads)),
        ("Unit", view.amplitude_unit),
        ("Sampling rate", f"{view.fs:g} Hz"),
        ("Start", view.start_text),
        ("Duration", f"{elapsed(view.duration_s)} (h:mm:ss)"),
        ("Samples a lead", f"{view.n_samples:,}"),
        ("Missing samples", missing),
        ("Gaps", f"{view.gaps:,}" if view.gaps else "none"),
        ("Cannot be analysed", unanalysed(view)),
        ("Beats", f"{len(rows):,}"),
        ("Pruned candidates", f"{view.pruned:,}"),
        ("Incomplete beats, not scored", f"{int((~complete).sum()):,}"),
        ("Anomalies", share(anomalies, int(_scored(rows)))),
        ("Mean heart rate", mean_rate(rows)),
    ]


def mean_rate(rows: pd.DataFrame) -> str:
    """Return the mean heart rate of some beats in words."""
    rr_s = numbers(rows["rr_prev_s"])
    known = rr_s[np.isfinite(rr_s) & (rr_s > 0)]
    return f"{60 / known.mean():.1f} beats/min" if len(known) else "unknown"


def share(part: int, whole: int) -> str:
    """Return a count with its share of the scored beats."""
    return f"{part:,} ({part / whole:.2%} of scored)" if whole else f"{part:,}"


def _scored(rows: pd.DataFrame) -> int:
    return int(np.isfinite(numbers(rows["score"])).sum())


def lead_sentence(records: Sequence[RecordView], scored: pd.DataFrame) -> str:
    """Say in a sentence what was found."""
    seconds = sum(view.duration_s for view in records)
    n_beats, n_anomalies = len(scored), int(scored["anomaly"].to_numpy(dtype=bool).sum())
    what = f"{len(records)} recordings" if len(records) != 1 else "one recording"
    beats = "1 beat" if n_beats == 1 else f"{n_beats:,} beats"
    if not n_beats:
        beats = "no beats"
    found = f"{beats} in {elapsed(seconds)} (h:mm:ss) of ECG from {what}"
    if not _scored(scored):
        return f"Found {found}. No beat has an anomaly score."
    are = "1 is an anomaly" if n_anomalies == 1 else f"{n_anomalies:,} are anomalies"
    return f"Found {found}; of the {_scored(scored):,} scored beats {are}."


def model_facts(model: Any) -> Facts:
    """Return the labelled facts of a model; those that it does not know are left out."""
    history = getattr(model, "history", None) or []
    threshold = getattr(model, "threshold", None)
    known: list[tuple[str, Any]] = [
        ("Training beats", getattr(model, "n_train", None)),
        ("of them set aside for validation", getattr(model, "n_validation", None)),
        ("Held-out beats", getattr(model, "n_held_out", None)),
        ("Latent size", getattr(model, "latent", None)),
        ("Epochs", len(history)),
        ("Threshold of the score", None if threshold is None else f"{threshold:.4g}"),
        ("Rule of the threshold", getattr(model, "threshold_rule", None) or None),
    ]
    return [(label, plain(value)) for label, value in known if value is not None]


def run_facts(summary: Mapping[str, Any]) -> Facts:
    """Return what the summary says besides what the page has other places for."""
    elsewhere = ("records", "model", "groups")
    told = {name: value for name, value in summary.items() if name not in elsewhere}
    return list(_flat(told, "")) if told else []


def _flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _flat(inner, f"{path} / {name}" if path else str(name))
    else:
        yield path, plain(value)


def plain(value: Any) -> str:
    """Write a value for reading."""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value)) or "none"
    if value is None or value == {}:
        return "none"
    return str(value)
