"""What the figures of all beats are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from bokeh.models import BasicTicker, ColumnDataSource, HoverTool, NumeralTickFormatter
from bokeh.plotting import figure

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Panel:
    """Figures beside each other, by name, and the text below them; without figures text alone."""

    figures: Mapping[str, Any]
    text: str


def numbers(column: Any) -> Array:
    """Return a column as float64, null as NaN."""
    values: Array = column.to_numpy(dtype=np.float64, na_value=np.nan)
    return values


def plain_figure(*, height: int, **options: Any) -> Any:
    """Return a figure as wide as its place, with the tools that all have."""
    return figure(
        height=height,
        sizing_mode="stretch_width",
        tools="pan,box_zoom,reset,save",
        toolbar_location="above",
        **options,
    )


def count_figure(top: int, **options: Any) -> tuple[Any, str]:
    """Return a figure for counts up to `top`, and how its axis label names a log scale."""
    log = top >= 10
    plot = plain_figure(y_axis_type="log" if log else "linear", **options)
    # A bar of one beat must be seen, and the legend needs room above the bars.
    plot.y_range.start = 0.6 if log else 0
    plot.y_range.end = top * 4 if log else top * 1.4
    if not log:
        plot.yaxis.ticker = BasicTicker(min_interval=1, num_minor_ticks=0)
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0")
    return plot, " (log scale)" if log else ""


def bars(
    plot: Any,
    edges: Array,
    counts: npt.NDArray[Any],
    color: str,
    label: str,
    what: str,
    unit: str,
    alpha: float = 1.0,
) -> None:
    """Add bars; those without beats are left out, since 0 has no place on a log axis."""
    full = np.flatnonzero(counts)
    source = ColumnDataSource(
        {"left": edges[full], "right": edges[full + 1], "top": counts[full].astype(float)}
    )
    drawn = plot.quad(
        left="left",
        right="right",
        top="top",
        bottom=0.01,
        source=source,
        fill_color=color,
        fill_alpha=alpha,
        line_color="white",
        line_width=0.3,
        legend_label=label,
    )
    plot.add_tools(
        HoverTool(
            renderers=[drawn],
            tooltips=[(label, f"@top{{0,0}} {what}"), (unit, "@left{0.00} to @right{0.00}")],
        )
    )


def finish_legend(plot: Any) -> None:
    """Put the legend, when there is one, into a line above the data."""
    if plot.legend:
        plot.legend.location = "top_right"
        plot.legend.orientation = "horizontal"
        plot.legend.level = "overlay"
