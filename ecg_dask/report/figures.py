"""The figures of beat lengths and training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from bokeh.models import BasicTicker

from .charts import Panel, bars, count_figure, finish_legend, numbers, plain_figure
from .style import ALARM, MUTED, SIGNAL

#: Width of a bar of the beat lengths, and the longest length drawn, in seconds.
_LENGTH_BIN_S = 0.02
_MAX_LENGTH_S = 4.0


def beat_lengths(scored: pd.DataFrame) -> Panel:
    """Draw how many beats have which length, all and anomalies."""
    rr_s = numbers(scored["rr_prev_s"])
    known = np.isfinite(rr_s) & (rr_s >= 0)
    if not known.any():
        return Panel({}, "No two neighbouring beats were found, so there is no length to show.")
    shown_s = min(_MAX_LENGTH_S, max(1.5, float(rr_s[known].max())))
    edges = np.arange(np.ceil(shown_s / _LENGTH_BIN_S) + 1) * _LENGTH_BIN_S
    anomaly = scored["anomaly"].to_numpy(dtype=bool)
    everything, _ = np.histogram(rr_s[known], edges)
    odd, _ = np.histogram(rr_s[known & anomaly], edges)
    plot, scale = count_figure(int(everything.max()), height=300)
    for counts, color, label in ((everything, MUTED, "all beats"), (odd, ALARM, "anomalies")):
        if counts.any():
            bars(plot, edges, counts, color, label, "beats", "s")
    plot.xaxis.axis_label = "Time since the beat before (s)"
    plot.xaxis.ticker.desired_num_ticks = 12
    plot.yaxis.axis_label = f"Beats per {_LENGTH_BIN_S:g} s{scale}"
    plot.x_range.start, plot.x_range.end = 0, edges[-1]
    finish_legend(plot)
    low, middle, high = np.percentile(rr_s[known], [5, 50, 95])
    many = "1 beat has" if known.sum() == 1 else f"{known.sum():,} beats have"
    text = (
        f"{many} a known length, the time since the beat before: median {middle:.3f} s, nine of "
        f"ten between {low:.3f} and {high:.3f} s. To the left are premature beats, to the right "
        "pauses and missed beats. Lengths across a gap are unknown."
    )
    if scale:
        text += " Counts are on a log scale, so that rare lengths can be seen."
    longer = int((rr_s[known] > edges[-1]).sum())
    if longer:
        text += (
            f" Not drawn: {longer:,} longer than {edges[-1]:g} s, the longest "
            f"{rr_s[known].max():.3g} s."
        )
    return Panel({"lengths": plot}, text)


def training_curve(model: Any) -> Panel:
    """Draw the loss of every epoch, and its two parts."""
    history = pd.DataFrame(list(getattr(model, "history", None) or []))
    curves = (
        ("loss", ("loss", "validation"), "Loss (a beat)"),
        ("reconstruction", ("reconstruction",), "Reconstruction error (a beat)"),
        ("kl", ("kl",), "KL divergence (nats a beat)"),
    )
    epochs = np.arange(1, len(history) + 1)
    figures = {}
    for name, columns, label in curves:
        values = {
            column: pd.to_numeric(history[column], errors="coerce").to_numpy(dtype=np.float64)
            for column in columns
            if column in history
        }
        values = {column: y for column, y in values.items() if np.isfinite(y).any()}
        if not values:
            continue
        together = np.concatenate(list(values.values()))
        together = together[np.isfinite(together)]
        log = together.min() > 0 and together.max() > 20 * together.min()
        plot = plain_figure(height=260, y_axis_type="log" if log else "linear")
        for column, color in zip(values, (SIGNAL, ALARM), strict=False):
            label_of = {"loss": "training", "validation": "validation"}
            legend = {"legend_label": label_of[column]} if len(columns) > 1 else {}
            plot.line(epochs, values[column], line_color=color, line_width=2, **legend)
            plot.scatter(epochs, values[column], fill_color=color, line_color=None, size=5)
        plot.xaxis.axis_label = "Epoch"
        plot.xaxis.ticker = BasicTicker(min_interval=1, num_minor_ticks=0)
        plot.yaxis.axis_label = label + (", log scale" if log else "")
        if len(columns) > 1:
            finish_legend(plot)
        figures[name] = plot
    if not figures:
        return Panel({}, "No epoch of training with a finite loss is known, so there is no curve.")
    text = (
        "The loss is the reconstruction error (squared differences summed over the points of a "
        "beat, mean over beats) plus the weighted KL divergence of the latent distribution from a "
        "standard normal one. The held-out beats take no part here."
    )
    if any("validation" in row and row["validation"] is not None for row in model.history):
        text += (
            " Validation is the loss, at the final weight, of training beats that were set aside "
            "to tell when to stop."
        )
    weights = pd.to_numeric(history.get("kl_weight", pd.Series(dtype=float)), errors="coerce")
    if len(weights) > 1 and weights.iloc[0] != weights.iloc[-1]:
        full = int((weights == weights.iloc[-1]).to_numpy().argmax()) + 1
        text += (
            f" The weight of the KL divergence rises from {weights.iloc[0]:.3g} to "
            f"{weights.iloc[-1]:.3g} by epoch {full}, which changes the scale of the loss."
        )
    return Panel(figures, text)
