"""The figures of the model's answers: the latent space and the scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from bokeh.models import (
    BasicTickFormatter,
    ColorBar,
    ColumnDataSource,
    HoverTool,
    LinearColorMapper,
    LogColorMapper,
    Span,
    Title,
)
from bokeh.palettes import Viridis256

from .charts import Array, Panel, bars, count_figure, finish_legend, numbers, plain_figure
from .style import ALARM, INK, MUTED, SIGNAL

#: Points of the latent space that are drawn, anomalies on top of that.
MAX_POINTS = 20_000


def latent_space(scored: pd.DataFrame) -> Panel:
    """Draw the latent coordinates of the held-out beats, coloured by score."""
    names = [name for name in scored.columns if name[:1] == "z" and name[1:].isdecimal()]
    score = numbers(scored["score"])
    held_out = (scored["split"] == "test").to_numpy(dtype=bool) & np.isfinite(score)
    if not names or not held_out.any():
        return Panel({}, "No held-out beat has a score, so there is no latent space to show.")
    latent = np.column_stack([numbers(scored[name]) for name in names])[held_out]
    score = score[held_out]
    anomaly = scored["anomaly"].to_numpy(dtype=bool)[held_out]
    xy, labels, how = _two_coordinates(latent, names)

    even = np.linspace(0, len(score) - 1, min(MAX_POINTS, len(score))).astype(np.int64)
    drawn = np.union1d(even, np.flatnonzero(anomaly))
    drawn = drawn[np.argsort(score[drawn], kind="stable")]  # the highest scores on top
    source = ColumnDataSource(
        {
            "x": xy[drawn, 0].astype(np.float32),
            "y": xy[drawn, 1].astype(np.float32),
            "score": score[drawn].astype(np.float32),
        }
    )
    ringed = drawn[anomaly[drawn]]
    rings = ColumnDataSource({"x": xy[ringed, 0], "y": xy[ringed, 1], "score": score[ringed]})
    plot = plain_figure(height=460)
    low, high = np.percentile(score, [1, 99])
    log = low > 0 and high > 10 * low
    mapper = (LogColorMapper if log else LinearColorMapper)(
        palette=Viridis256[:235], low=float(low), high=float(high) if high > low else float(low) + 1
    )
    plot.scatter(
        "x",
        "y",
        source=source,
        size=4,
        line_color=None,
        fill_color={"field": "score", "transform": mapper},
        fill_alpha=0.8,
    )
    if len(ringed):
        hover = plot.scatter(
            "x", "y", source=rings, size=10, fill_color=None, line_color=ALARM, line_width=1.2
        )
        plot.add_tools(HoverTool(renderers=[hover], tooltips=[("Anomaly, score", "@score{0.00}")]))
    plot.add_layout(
        ColorBar(color_mapper=mapper, width=12, major_label_text_font_size="12px"), "right"
    )
    plot.add_layout(
        Title(
            text="Score",
            align="center",
            text_font_style="normal",
            text_font_size="12px",
            text_color=INK,
        ),
        "right",
    )
    plot.xaxis.axis_label, plot.yaxis.axis_label = labels
    text = (
        f"The held-out beats with a score ({len(score):,}) in the latent space of the model; {how} "
        "Colours end at the 1st and 99th percentile of the score. Anomalies "
        f"({anomaly.sum():,}) are ringed in red."
    )
    if len(drawn) < len(score):
        text += (
            f" {len(drawn):,} points are drawn: {len(even):,} evenly chosen ones and every anomaly."
        )
    return Panel({"latent": plot}, text)


def _two_coordinates(latent: Array, names: Sequence[str]) -> tuple[Array, list[str], str]:
    """Return two coordinates of each beat, their axis labels, and which they are."""
    if len(names) == 1:
        flat = np.column_stack([latent[:, 0], np.zeros(len(latent))])
        return flat, [f"{names[0]} (no unit)", "(one coordinate only)"], "it has one coordinate."
    if len(names) == 2:
        return latent, [f"{name} (no unit)" for name in names], "it has two coordinates."
    centred = latent - latent.mean(axis=0)
    axes, share = _principal(centred)
    labels = [
        f"Principal component {i} (no unit, {part:.0%} of the variance)"
        for i, part in zip((1, 2), share, strict=True)
    ]
    how = f"of its {len(names)} coordinates the first two principal components are drawn."
    return centred @ axes.T, labels, how


def _principal(centred: Array) -> tuple[Array, Array]:
    """Return the first two principal axes, and their share of the variance."""
    # The covariance is small, so its SVD costs nothing however many beats there are.
    axes, variances, _ = np.linalg.svd(centred.T @ centred)
    first = axes.T[:2]
    # An axis has no sign of its own: the largest part is made positive, for equal pictures.
    signs = np.sign(first[np.arange(2), np.abs(first).argmax(axis=1)])
    total = variances.sum()
    return first * signs[:, None], variances[:2] / (total if total > 0 else 1)


def score_counts(scored: pd.DataFrame, model: Any) -> Panel:
    """Draw how many beats have which score, and the threshold."""
    score = numbers(scored["score"])
    finite = np.isfinite(score)
    if not finite.any():
        return Panel({}, "No beat has a score.")
    threshold = getattr(model, "threshold", None)
    lines = [] if threshold is None else [float(threshold)]
    shown = np.append(score[finite], lines)
    least, most = float(shown.min()), float(shown.max())
    log = least > 0 and most > 20 * least
    if log:
        edges = np.geomspace(least, most, 61)
    else:
        edges = np.linspace(least, most if most > least else least + 1, 61)
    edges[-1] = max(edges[-1], most)  # rounding must not drop the highest
    edges[0] = min(edges[0], least)
    split = scored["split"]
    top = int(np.histogram(score[finite], edges)[0].max())
    plot, scale = count_figure(top, height=460, x_axis_type="log" if log else "linear")
    for name, color, label in (("train", MUTED, "training"), ("test", SIGNAL, "held-out")):
        counts, _ = np.histogram(score[finite & (split == name).to_numpy(dtype=bool)], edges)
        if counts.any():
            bars(plot, edges, counts, color, label, "beats", "score", alpha=0.65)
    for line in lines:
        plot.add_layout(Span(location=line, dimension="height", line_color=ALARM, line_width=2))
        plot.line([np.nan], [np.nan], line_color=ALARM, line_width=2, legend_label="threshold")
    plot.xaxis.axis_label = "Score" + (" (log scale)" if log else "")
    plot.xaxis.formatter = BasicTickFormatter()
    plot.yaxis.axis_label = f"Beats a bar{scale}"
    finish_legend(plot)
    return Panel({"scores": plot}, "")
