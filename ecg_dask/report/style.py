"""Colours and sizes that the figures share."""

from __future__ import annotations

SIGNAL = "#2f4b6e"
ALARM = "#c5281c"
RATE = "#4a6b3a"
GAP = "#dcdcdc"
#: What cannot be analysed, by reason.
SPAN_COLORS = {"missing": GAP, "flat": "#7fb7d6", "clipped": "#b58fd0", "noise": "#f0b95b"}
TICK = "#8a94a0"
MUTED = "#b4bcc6"
INK = "#222222"

#: Pixels left of the frame, so that figures above each other line up.
LEFT_BORDER = 76

THEME = {
    "attrs": {
        "Plot": {
            "background_fill_color": "#ffffff",
            "border_fill_color": "#ffffff",
            "outline_line_color": "#c8c8c8",
        },
        "Axis": {
            "axis_label_text_font_style": "normal",
            "axis_label_text_font_size": "12px",
            "axis_label_text_color": INK,
            "axis_label_standoff": 6,
            "major_label_text_font_size": "12px",
            "major_label_text_color": INK,
            "axis_line_color": "#9a9a9a",
            "major_tick_line_color": "#9a9a9a",
            "minor_tick_line_color": None,
        },
        "Grid": {"grid_line_color": "#ececec"},
        "Legend": {
            "label_text_font_size": "12px",
            "border_line_color": None,
            "background_fill_alpha": 0.85,
            "padding": 4,
            "margin": 4,
        },
        "Toolbar": {"logo": None},
    }
}
