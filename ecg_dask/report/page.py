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
from .figures import beat_lengths, training_curve
from .latent import latent_space, score_counts
from .picks import Picked
from .pictures import Pictures, group_pictures, worst_pictures
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
    ("groups", "Groups of anomalies"),
    ("worst", "Worst beats"),
    ("parameters", "Versions and parameters"),
]


def write_report(
    path: str | os.PathLike[str],
    *,
    records: Sequence[RecordView],
    scored: pd.DataFrame,
    model: Any,
    picked: Picked,
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
    picked
        The groups of anomalies and the beats with the highest scores; `pick_beats` picks them.
    summary
        Versions, parameters and whatever else is to be told of the run. ``records``, ``model`` and
        ``groups`` are left out, since the page tells of them in its own words.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(
            _page(records, _with_scores(scored), model, picked, summary), encoding="utf-8"
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
    picked: Picked,
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
    pictures = [group_pictures(picked.groups, records), worst_pictures(picked.worst, records)]
    for section in pictures:
        roots.update(section.figures)
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
        pictures=[_section(section, divs) for section in pictures],
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


def _section(pictures: Pictures, divs: Mapping[str, str]) -> dict[str, Any]:
    return {
        "anchor": pictures.anchor,
        "title": pictures.title,
        "text": pictures.text,
        "key": pictures.key,
        "beats": [
            {**caption, "div": Markup(divs[name])}
            for name, caption in zip(pictures.figures, pictures.captions, strict=True)
        ],
    }


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
