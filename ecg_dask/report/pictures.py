"""The pictures of single beats: a template of each group of anomalies, and the worst beats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .charts import plain_figure
from .picks import GroupTemplate, WorstBeat
from .style import ALARM, MUTED, SIGNAL
from .view import RecordView

#: Records that a group's caption names.
MAX_RECORDS = 3

#: What it means that a part is the highest of a score.
_WHY = {
    "shape": "mostly shape",
    "timing": "mostly timing, early",
    "amplitude": "mostly amplitude",
}


@dataclass(frozen=True)
class Pictures:
    """A section of pictures.

    Attributes
    ----------
    anchor, title
        Of the section.
    text
        Below the pictures; without any, instead of them.
    key
        What the lines are: a class of the style sheet and its meaning, each.
    figures
        By name.
    captions
        Of each figure: ``title``, ``before``, the beat that a button leads to (``series``,
        ``time_s``, ``moment``), ``after`` and ``why``.
    """

    anchor: str
    title: str
    text: str
    key: Sequence[tuple[str, str]]
    figures: Mapping[str, Any]
    captions: Sequence[Mapping[str, Any]]


def worst_pictures(worst: Sequence[WorstBeat], records: Sequence[RecordView]) -> Pictures:
    """Draw each beat and what the network makes of it before its record's median beat."""
    places = {view.name: (i, view) for i, view in enumerate(records)}
    figures, captions = {}, []
    for i, beat in enumerate(worst):
        series, view = places[beat.record]
        plot = _beat_figure(beat, view)
        plot.line(
            beat.points_s, beat.reconstruction, line_color=SIGNAL, line_width=1.6, line_dash=[5, 3]
        )
        figures[f"worst{i}"] = plot
        captions.append(
            {
                "title": f"{i + 1}. {beat.record}",
                "before": "",
                "series": series,
                "time_s": beat.time_s,
                "moment": view.moment(beat.time_s),
                "after": f"score {beat.score:.4g}, {_WHY[_main(beat.parts)]}",
                "why": ", ".join(f"{part} {value:.1f}" for part, value in beat.parts.items()),
            }
        )
    title = "The worst beats" if len(worst) != 1 else "The worst beat"
    if len(worst) > 1:
        title = f"The {'twelve' if len(worst) == 12 else len(worst)} worst beats"
    text = "No complete beat has a score, so there is no worst one."
    if worst:
        text = (
            "Complete beats with the highest scores, highest first, each with its record, its "
            "time, its score and the three parts of which that is the sum. Where the network makes "
            "something else of a beat, it has not learned this shape; of the next beat, where one "
            "begins within the window, it sees nothing. The median beat of a record is made of "
            f"{_many(worst)} complete beats evenly spread over it. The amplitude axes "
            "differ. The time leads to the beat in the whole series."
        )
    key = [
        ("beat", "the beat"),
        ("made", "what the network makes of it"),
        ("usual", "median beat of its record"),
    ]
    return Pictures("worst", title, text, key, figures, captions)


def group_pictures(groups: Sequence[GroupTemplate], records: Sequence[RecordView]) -> Pictures:
    """Draw the template of each group before the median beat of a record."""
    places = {view.name: (i, view) for i, view in enumerate(records)}
    figures, captions = {}, []
    for group in groups:
        series, view = places[group.record]
        facts = group.facts
        figures[f"group{facts['group']}"] = _beat_figure(group, view)
        beats = "1 beat" if facts["beats"] == 1 else f"{facts['beats']:,} beats"
        captions.append(
            {
                "title": f"Group {facts['group']}: {beats}, {facts['share']:.1%} of the anomalies",
                "before": _records(facts["records"]) + "; first at",
                "series": series,
                "time_s": group.time_s,
                "moment": view.moment(group.time_s),
                "after": f"of {group.record}" if len(facts["records"]) > 1 else "",
                "why": _main_reason(facts["reasons"], facts["beats"]),
            }
        )
    text = "No beat is an anomaly, so there are no groups."
    if groups:
        text = (
            "Anomalies that lie close to each other in latent space and by the parts of their "
            "scores, each told from its record's usual beats, largest group first; the column "
            "group of the table has the numbers. "
            "A template is the median of "
            f"{_span([group.n_wave for group in groups])} beats, evenly chosen, of the record that "
            "most of its group are of. Beside it lies the median beat of this record, made of "
            f"{_many(groups)} complete beats. The amplitude axes differ. The time leads to the "
            "first beat of the group in this record."
        )
    key = [("beat", "template of the group"), ("usual", "median beat of the record")]
    return Pictures("groups", "Groups of anomalies", text, key, figures, captions)


def _beat_figure(beat: WorstBeat | GroupTemplate, view: RecordView) -> Any:
    """Draw a wave, thin and dark, before a median beat, broad and light: told apart in grey."""
    plot = plain_figure(height=190)
    plot.toolbar_location = None
    plot.min_border_left = 58
    plot.line(beat.times_s, beat.median_wave, line_color=MUTED, line_width=5)
    plot.line(beat.times_s, beat.wave, line_color=ALARM, line_width=1.8)
    plot.xaxis.axis_label = "Time from the beat (s)"
    plot.yaxis.axis_label = f"Amplitude ({view.amplitude_unit})"
    plot.xaxis.ticker.desired_num_ticks = 5
    plot.yaxis.ticker.desired_num_ticks = 4
    plot.x_range.range_padding = 0
    return plot


def _main(parts: Mapping[str, float]) -> str:
    return max(parts, key=parts.__getitem__)


def _main_reason(reasons: Mapping[str, int], n: int) -> str:
    main = _main(reasons)
    if reasons[main] == n:
        return _WHY[main]
    counts = ", ".join(f"{part} {count:,}" for part, count in reasons.items() if count)
    return f"{_WHY[main]} ({counts})"


def _records(counts: Mapping[str, int]) -> str:
    """Name the records that most beats of a group are of, with their counts."""
    if len(counts) == 1:
        return next(iter(counts))
    told = [f"{name} ({count:,})" for name, count in list(counts.items())[:MAX_RECORDS]]
    more = len(counts) - len(told)
    return ", ".join(told) + (f" and {more} more" if more else "")


def _many(shown: Sequence[WorstBeat | GroupTemplate]) -> str:
    return _span([one.n_median for one in shown])


def _span(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
