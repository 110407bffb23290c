"""The page: sections, texts and figures put together into one HTML file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from bokeh.document import Document
from bokeh.embed import components
from bokeh.events import DocumentReady
from bokeh.models import CustomJS
from bokeh.resources import Resources
from bokeh.themes import Theme
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from .charts import Panel, numbers
from .facts import lead_sentence, mean_rate, model_facts, record_facts, run_facts
from .figures import beat_lengths, training_curve, worst_beat
from .latent import latent_space, score_counts
from .picks import WorstBeat
from .series import series
from .spans import span_rows
from .style import THEME
from .view import RecordView, elapsed

_FOLDER = Path(__file__).parent
#: Spans that a button shows, in seconds.
_SPANS = {"1 h": 3600, "10 min": 600, "1 min": 60, "10 s": 10}
_SECTIONS = [
    ("recordings", "Recordings and model"),
    ("series", "Whole series"),
    ("lengths", "Beat lengths"),
    ("training", "Training"),
    ("latent", "Latent space and scores"),
    ("worst", "Worst beats"),
    ("parameters", "Versions and parameters"),
]


def write_report(
    path: str | os.PathLike[str],
    *,
    records: Sequence[RecordView],
    scored: pd.DataFrame,
    model: Any,
    worst: Sequence[WorstBeat],
    summary: Mapping[str, Any],
) -> None:
    """Write the report, one HTML file that opens offline.

    The file is written beside its place and renamed, so that a killed run leaves no half page.

    Parameters
    ----------
    path
        Where to write.
    records
        The recordings, in the order of the page.
    scored
        The scored beats of all of them, columns as in ``beats.parquet``. Without scores (no model)
        the columns ``score`` and ``anomaly`` may be missing.
    model
        The model, or None. Used: ``history`` (a dict an epoch with epoch, loss, reconstruction,
        kl, kl_weight, validation), ``threshold``, ``threshold_rule``, ``latent``, ``n_train``,
        ``n_held_out``, ``notes``.
    worst
        Beats with the highest scores, highest first; `worst_beats` picks them.
    summary
        Versions, parameters and whatever else is to be told of the run. ``records`` and ``model``
        are left out, since the page tells of them in its own words.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(
            _page(records, _with_scores(scored), model, worst, summary), encoding="utf-8"
        )
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _with_scores(scored: pd.DataFrame) -> pd.DataFrame:
    missing = {"score": np.nan, "anomaly": False}
    return scored.assign(**{k: v for k, v in missing.items() if k not in scored.columns})


def _page(
    records: Sequence[RecordView],
    scored: pd.DataFrame,
    model: Any,
    worst: Sequence[WorstBeat],
    summary: Mapping[str, Any],
) -> str:
    roots: dict[str, Any] = {}
    scripts: list[dict[str, Any]] = []
    shown = [_record(i, view, scored, roots, scripts) for i, view in enumerate(records)]
    panels = [
        ("lengths", "Beat lengths", beat_lengths(scored)),
        ("training", "Training", _training(model)),
        ("latent", "Latent space of the held-out beats, and scores", _latent(scored, model)),
    ]
    for _, _, panel in panels:
        roots |= panel.figures
    beats = _worst(worst, records, roots)
    divs, script = _embedded(roots, scripts)
    title = "ECG report: " + (
        records[0].name if len(records) == 1 else f"{len(records)} recordings"
    )
    page: str = _template().render(
        title=title,
        css=Markup(_read("page.css")),
        js=Markup(_read("page.js")),
        bokeh=Markup(Resources(mode="inline", components=["bokeh"]).render()),
        script=Markup(script),
        lead=lead_sentence(records, scored),
        parts=[{"anchor": anchor, "title": text} for anchor, text in _SECTIONS],
        records=[record | {"div": Markup(divs.get(record["key"], ""))} for record in shown],
        model_facts=[] if model is None else model_facts(model),
        any_score=bool(np.isfinite(numbers(scored["score"])).any()),
        model_notes=list(getattr(model, "notes", None) or []),
        panels=[
            {
                "anchor": anchor,
                "title": text,
                "text": panel.text,
                "divs": [Markup(divs[name]) for name in panel.figures],
            }
            for anchor, text, panel in panels
        ],
        worst_title=_worst_title(len(worst)),
        worst=[beat | {"div": Markup(divs[beat["key"]])} for beat in beats],
        worst_text=_worst_text(worst),
        run_facts=run_facts(summary),
    )
    return page


def _record(
    index: int,
    view: RecordView,
    scored: pd.DataFrame,
    roots: dict[str, Any],
    scripts: list[dict[str, Any]],
) -> dict[str, Any]:
    rows = scored[(scored["record"] == view.name).to_numpy(dtype=bool)]
    anomalies = int(rows["anomaly"].to_numpy(dtype=bool).sum())
    key = f"series{index}"
    drawn = series(view, rows, index)
    if drawn is not None:
        roots[key] = drawn.layout
        scripts.append(drawn.args)
    return {
        "key": key,
        "view": view,
        "facts": record_facts(view, rows),
        "row": [
            view.start_text,
            elapsed(view.duration_s),
            f"{view.fs:g}",
            f"{view.spans['seconds'].sum():,.1f}",
            f"{len(rows):,}",
            mean_rate(rows).removesuffix(" beats/min"),
            f"{anomalies:,}",
        ],
        "anomalies": anomalies,
        "spans": [
            ("whole", view.duration_s * 1000),
            *((text, s * 1000) for text, s in _SPANS.items() if s < view.duration_s),
        ],
        "text": drawn.text if drawn else "",
        "unanalysed": span_rows(view),
    }


def _training(model: Any) -> Panel:
    if model is None:
        return Panel({}, "No model was trained.")
    return training_curve(model)


def _latent(scored: pd.DataFrame, model: Any) -> Panel:
    latent, scores = latent_space(scored), score_counts(scored, model)
    text = latent.text
    if scores.figures and latent.figures:
        text += " The other figure counts the scores of all beats, with the threshold."
    return Panel({**latent.figures, **scores.figures}, text)


def _worst(
    worst: Sequence[WorstBeat], records: Sequence[RecordView], roots: dict[str, Any]
) -> list[dict[str, Any]]:
    places = {view.name: (i, view) for i, view in enumerate(records)}
    shown = []
    for i, beat in enumerate(worst):
        index, view = places[beat.record]
        key = f"worst{i}"
        roots[key] = worst_beat(beat, view.amplitude_unit)
        shown.append(
            {
                "key": key,
                "record": beat.record,
                "series": index,
                "time_s": beat.time_s,
                "moment": view.moment(beat.time_s),
                "score": f"{beat.score:.4g}",
            }
        )
    return shown


def _worst_title(n: int) -> str:
    if n > 1:
        return f"The {'twelve' if n == 12 else n} worst beats"
    return "The worst beat" if n else "The worst beats"


def _worst_text(worst: Sequence[WorstBeat]) -> str:
    if not worst:
        return "No complete beat has a score, so there is no worst one."
    used = sorted({beat.n_median for beat in worst})
    many = f"{used[0]:,}" if len(used) == 1 else f"{used[0]:,} to {used[-1]:,}"
    return (
        "Complete beats with the highest scores, highest first, each in red with its record, its "
        "time and its score. Behind it in grey lies the median beat of its record, made of "
        f"{many} complete beats evenly spread over it. The amplitude axes differ. The time leads "
        "to the beat in the whole series."
    )


def _embedded(
    roots: Mapping[str, Any], scripts: Sequence[dict[str, Any]]
) -> tuple[dict[str, str], str]:
    """Return a place for each figure, and the script that fills all of them."""
    if not roots:
        return {}, ""
    document = Document(theme=Theme(json=THEME))
    # Every root that is added makes a document look through all of its models, unless it waits.
    with document.models.freeze():
        for root in roots.values():
            document.add_root(root)
    start = CustomJS(args={"list": list(scripts)}, code="EcgReport.start(list)")
    document.js_on_event(DocumentReady, start)
    script, divs = components(dict(roots))
    return divs, script


def _template() -> Any:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.from_string(_read("page.html"))


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
