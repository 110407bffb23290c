"""The figures of one record: its whole series, its heart rate, and an overview to move in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from bokeh.layouts import column
from bokeh.models import (
    BoxZoomTool,
    ColumnDataSource,
    CustomJSTickFormatter,
    HoverTool,
    PanTool,
    Range1d,
    RangeTool,
    ResetTool,
    SaveTool,
    WheelZoomTool,
    ZoomInTool,
    ZoomOutTool,
)
from bokeh.plotting import figure

from .charts import numbers
from .packing import amplitudes, pack
from .spans import add_legend, shade, shades
from .style import ALARM, LEFT_BORDER, RATE, SIGNAL, TICK
from .view import RecordView

Shades = dict[str, ColumnDataSource]

_RATE_TEXT = (
    "The rate is 60 s divided by the time since the beat before: the line is its mean, the band "
    "reaches from the lowest to the highest."
)


@dataclass(frozen=True)
class Series:
    """The drawing of one record: `layout` for the page, `args` for its script, `text` below it."""

    layout: Any
    args: dict[str, Any]
    text: str


def series(view: RecordView, rows: pd.DataFrame, index: int) -> Series | None:
    """Draw a record, or return None when no sample of it was recorded.

    The figures get their columns from the page's script, whenever the visible span changes.

    Parameters
    ----------
    view
        The record.
    rows
        Its rows of the scored table.
    index
        Its place among the records of the page, which names its part of the page.
    """
    if not np.isfinite(view.low).any():
        return None
    start_ms = view.start_ms
    end_ms = start_ms + view.duration_s * 1000
    bins, scale, offset = pack(view)
    low, high, amplitude_text = amplitudes(view)
    shaded, shade_text = shades(view)
    # The page shows at least a second or so, and never less than the envelope can tell.
    least_ms = min(max(1000.0, 20_000 * view.bin_s), end_ms - start_ms)
    args: dict[str, Any] = {
        "index": index,
        "x_range": Range1d(start_ms, end_ms, bounds=(start_ms, end_ms), min_interval=least_ms),
        "y_range": Range1d(low, high),
        "start_ms": start_ms,
        "end_ms": end_ms,
        "midnight": None if view.start is None else view.midnight_ms,
        "sample_ms": 1000 / view.fs,
        "bin_samples": view.bin_samples,
        "scale": scale,
        "offset": offset,
        "bins": ColumnDataSource(bins),
        "beats": _beat_source(rows),
        "anomalies": _beat_source(rows[rows["anomaly"].to_numpy(dtype=bool)]),
    }
    figures = [_signal_figure(view, args, shaded)]
    has_rate = bool((numbers(rows["rr_prev_s"]) > 0).any())
    if has_rate:
        figures[0].xaxis.visible = False
        figures.append(_rate_figure(rows, args, shaded))
    figures[-1].xaxis.axis_label = (
        "Time since the start (h:min:s)" if view.start is None else "Time of day (h:min:s)"
    )
    figures.append(_overview_figure(args, shaded))
    texts = [_bin_text(view), _RATE_TEXT if has_rate else "", amplitude_text, shade_text]
    layout = column(*figures, sizing_mode="stretch_width", spacing=0)
    return Series(layout, args, " ".join(filter(None, texts)))


def _signal_figure(view: RecordView, args: dict[str, Any], shaded: Shades) -> Any:
    args["view"] = ColumnDataSource({"x": [], "y": []})
    args["ticks"] = ColumnDataSource({"x": []})
    args["spans"] = ColumnDataSource({"x": []})
    args["marks"] = ColumnDataSource({"x": [], "time": [], "score": [], "rr": []})
    plot = _time_figure(args, args["x_range"], args["y_range"], height=300, tools=_tools())
    plot.toolbar_location = "above"
    plot.yaxis.axis_label = f"{view.leads[0][:24]} ({view.amplitude_unit})"
    plot.extra_y_ranges = {"rug": Range1d(0, 1)}
    items = shade(plot, shaded, cover=True)
    plot.vspan("x", source=args["spans"], line_color=ALARM, line_alpha=0.35, level="underlay")
    plot.patch("x", "y", source=args["view"], fill_color=SIGNAL, line_color=SIGNAL)
    beats = {"line_color": TICK, "line_width": 2, "y_range_name": "rug"}
    plot.segment("x", 0, "x", 0.04, source=args["ticks"], **beats)
    marks = plot.scatter(
        "x",
        0.965,
        source=args["marks"],
        marker="inverted_triangle",
        size=9,
        fill_color=ALARM,
        line_color="white",
        line_width=0.5,
        y_range_name="rug",
    )
    tooltips = [
        ("Anomaly at", "@time"),
        ("Score", "@score{0.00}"),
        ("Since the beat before", "@rr"),
    ]
    plot.add_tools(HoverTool(renderers=[marks], tooltips=tooltips))
    add_legend(plot, items)
    return plot


def _rate_figure(rows: pd.DataFrame, args: dict[str, Any], shaded: Shades) -> Any:
    for name in ("rate_band", "rate_line", "rate_dots"):
        args[name] = ColumnDataSource({"x": [], "y": []})
    rr_s = numbers(rows["rr_prev_s"])
    lower, upper = np.percentile(60 / rr_s[rr_s > 0], [0.1, 99.9])
    y_range = Range1d(max(0.0, np.floor(lower / 10) * 10 - 5), np.ceil(upper / 10) * 10 + 5)
    plot = _time_figure(args, args["x_range"], y_range, height=150, tools=_tools())
    plot.yaxis.axis_label = "Rate (beats/min)"
    shade(plot, shaded)
    plot.patch("x", "y", source=args["rate_band"], color=RATE, alpha=0.25)
    plot.line("x", "y", source=args["rate_line"], line_color=RATE, line_width=1.5)
    plot.scatter("x", "y", source=args["rate_dots"], color=RATE, size=4)
    return plot


def _overview_figure(args: dict[str, Any], shaded: Shades) -> Any:
    args["overview"] = ColumnDataSource({"x": [], "y": []})
    x_range = Range1d(args["start_ms"], args["end_ms"])
    y_range = Range1d(args["y_range"].start, args["y_range"].end)
    plot = _time_figure(args, x_range, y_range, height=84, tools=[])
    plot.yaxis.visible = False
    plot.ygrid.visible = False
    shade(plot, shaded)
    plot.patch("x", "y", source=args["overview"], fill_color=TICK, line_color=TICK)
    tool = RangeTool(x_range=args["x_range"], start_gesture="pan")
    tool.overlay.fill_color = SIGNAL
    tool.overlay.fill_alpha = 0.15
    plot.add_tools(tool)
    return plot


def _time_figure(
    args: dict[str, Any], x_range: Range1d, y_range: Range1d, *, height: int, tools: list[Any]
) -> Any:
    plot = figure(
        height=height,
        sizing_mode="stretch_width",
        x_range=x_range,
        y_range=y_range,
        x_axis_type="datetime",
        tools=tools,
        toolbar_location=None,
        # Left and right borders are fixed, so that the time axes of a record lie over each other.
        min_border_left=LEFT_BORDER,
        min_border_right=40,
    )
    plot.xaxis.formatter = CustomJSTickFormatter(
        args={"midnight": args["midnight"]},
        code="return EcgReport.tickText(tick, ticks, midnight)",
    )
    plot.xaxis.ticker.desired_num_ticks = 9
    plot.yaxis.ticker.desired_num_ticks = 5
    return plot


def _tools() -> list[Any]:
    return [
        PanTool(dimensions="width"),
        # A bare wheel scrolls the page, so it zooms with Ctrl only.
        WheelZoomTool(dimensions="width", modifiers={"ctrl": True}),
        BoxZoomTool(dimensions="width"),
        ZoomInTool(dimensions="width", factor=0.5),
        ZoomOutTool(dimensions="width", factor=0.5),
        ResetTool(),
        SaveTool(),
    ]


def _beat_source(rows: pd.DataFrame) -> ColumnDataSource:
    sample = rows["sample"].to_numpy()
    fits = not len(sample) or sample[-1] <= np.iinfo(np.int32).max
    return ColumnDataSource(
        {
            "sample": sample.astype(np.int32 if fits else np.float64),
            "rr": numbers(rows["rr_prev_s"]).astype(np.float32),
            "score": numbers(rows["score"]).astype(np.float32),
        }
    )


def _bin_text(view: RecordView) -> str:
    if view.bin_samples == 1:
        return "Every sample is in this page: zoom in to see single waves."
    return (
        f"The page holds the lowest and the highest of every {view.bin_samples} samples "
        f"({view.bin_s:.3g} s), so single beats can be told apart from minutes down to seconds, "
        "but not the fine shape of a wave."
    )
