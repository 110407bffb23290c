"""What of a recording cannot be analysed: shades behind its figures, and a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bokeh.models import ColumnDataSource, Legend, LegendItem

from .packing import MAX_GAPS, gaps
from .style import SPAN_COLORS
from .view import RecordView

#: Spans that the table of a record lists.
MAX_ROWS = 10


def shades(view: RecordView) -> tuple[dict[str, ColumnDataSource], str]:
    """Return where the figures are shaded, by reason, and words about it.

    Gaps are those that the envelope sees, for they hide what lies below them; of other reasons
    every span is shaded, or the longest ones when there are too many.
    """
    starts, stops, text = gaps(view)
    bounds = {"missing": (starts, stops)}
    for reason, spans in view.spans.groupby("reason"):
        if reason != "missing":
            longest = spans.sort_values("seconds", ascending=False, kind="stable")[:MAX_GAPS]
            if len(longest) < len(spans):
                text += f" Of {reason} only the {MAX_GAPS:,} longest spans are shaded."
            start_ms = view.start_ms + longest["start"].to_numpy() / view.fs * 1000
            stop_ms = view.start_ms + longest["stop"].to_numpy() / view.fs * 1000
            bounds[str(reason)] = (start_ms, stop_ms)
    return {
        reason: ColumnDataSource({"x0": bounds[reason][0], "x1": bounds[reason][1]})
        for reason in SPAN_COLORS
        if reason in bounds and len(bounds[reason][0])
    }, text


def shade(plot: Any, sources: Mapping[str, ColumnDataSource], *, cover: bool = False) -> list[Any]:
    """Shade a figure of time behind its data, gaps before them when `cover`; name the colours.

    Returns
    -------
    list
        An item of a legend for each reason.
    """
    items = []
    for reason, source in sources.items():
        color = SPAN_COLORS[reason]
        over = cover and reason == "missing"
        # The line lets a span be seen that is narrower than a pixel.
        drawn = plot.vstrip(
            "x0",
            "x1",
            source=source,
            fill_color=color,
            line_color=color,
            fill_alpha=1.0 if reason == "missing" else 0.45,
            level="glyph" if over else "underlay",
        )
        items.append(LegendItem(label=reason, renderers=[drawn]))
    return items


def add_legend(plot: Any, items: list[Any]) -> None:
    """Put a legend, when it has items, above a figure."""
    if items:
        legend = Legend(
            items=items, name="unanalysed", orientation="horizontal", padding=0, margin=2
        )
        plot.add_layout(legend, "above")


def span_rows(view: RecordView) -> dict[str, Any]:
    """Return what the page tells of a record's spans: totals by reason, and the longest ones."""
    by_reason = view.spans.groupby("reason")["seconds"]
    seconds, counts = by_reason.sum(), by_reason.size()
    longest = view.spans.sort_values("seconds", ascending=False, kind="stable")[:MAX_ROWS]
    return {
        "totals": [
            {
                "reason": reason,
                "color": color,
                "seconds": f"{seconds[reason]:,.1f}",
                "count": f"{counts[reason]:,}",
            }
            for reason, color in SPAN_COLORS.items()
            if reason in counts.index
        ],
        "longest": [
            {
                "reason": span["reason"],
                "color": SPAN_COLORS[span["reason"]],
                "time_s": span["start_s"],
                "moment": view.moment(span["start_s"]),
                "seconds": f"{span['seconds']:,.2f}",
            }
            for span in longest.to_dict("records")
        ],
        "n": len(view.spans),
    }


def unanalysed(view: RecordView) -> str:
    """Say how much of a recording cannot be analysed."""
    seconds = float(view.spans["seconds"].sum())
    if not seconds:
        return "nothing"
    return f"{seconds:,.1f} s ({seconds / view.duration_s:.2%})"
