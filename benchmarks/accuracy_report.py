"""The results of the accuracy benchmark: a CSV of all rows, and pages made from it alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pandas as pd
from accuracy_rows import GROSS
from noise import KINDS, LEVELS_DB
from peers import PEERS

TITLES = {
    "ecg_dask": "ecg_dask",
    **{name: f"{peer.package}, {peer.title}" for name, peer in PEERS.items()},
}
LEADS = ("first lead", "second lead")

COLUMNS = [
    "detector",
    "record",
    "condition",
    "lead",
    "tolerance_ms",
    "records",
    "hits",
    "false",
    "missed",
    "sensitivity",
    "positive_predictivity",
    "f1",
    "f1_aligned",
    "offset_ms",
    "jitter_median_ms",
    "jitter_p95_ms",
    "quality_auroc",
    "failed",
    "version",
    "measured",
    "machine",
]

HEAD = """# Detection accuracy

MIT-BIH Arrhythmia Database, whole records, one to one, ventricular flutter left out; every
detector with its defaults. `python benchmarks/accuracy.py` makes this page and `accuracy.csv`,
which holds every row; a run of some detectors replaces their rows, so each has its own date. The
last run was

    {command}

- **Se**, **P+**, **F1**: sensitivity, positive predictivity and their harmonic mean in percent, of
  the beats of all records together.
- **offset**: median signed distance of a detector's beats to the annotations, of those within
  150 ms. Where in a QRS complex a beat is put is a convention, so the **jitter** of the hits
  (median, 95th percentile) is measured from there, and **F1 aligned** is counted with the offset
  taken off.
- **Noise** is synthetic and seeded; `benchmarks/noise.py` states its spectra, amplitudes and the
  signal-to-noise ratio, that of the Noise Stress Test. It covers the whole record.
"""


def read_rows(folder: Path) -> pd.DataFrame:
    """Read the rows of earlier runs; none where there are none."""
    path = folder / "accuracy.csv"
    if not path.exists():
        return pd.DataFrame(columns=COLUMNS)
    return pd.read_csv(path, dtype={"record": str}, keep_default_na=True)


def merge(old: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    """Replace the rows of what was measured again, and leave the others.

    Rows that pool the levels of noise go when one of their levels was measured again and the new
    rows do not pool them.
    """
    measured = set(zip(new["detector"], new["condition"], new["lead"], strict=True))
    for detector, condition, lead in list(measured):
        kind, _, level = condition.rpartition("-")
        if level and kind in KINDS:
            measured |= {(detector, kind, lead), (detector, "noise", lead)}
    keys = zip(old["detector"], old["condition"], old["lead"], strict=True)
    kept = old[[key not in measured for key in keys]]
    both = [part for part in (kept, new) if len(part)]
    rows = pd.concat(both, ignore_index=True).reindex(columns=COLUMNS)
    order = {name: i for i, name in enumerate(_conditions())}
    rank = pd.DataFrame(
        {
            "detector": rows["detector"].map(list(TITLES).index),
            "condition": rows["condition"].map(order),
            "lead": rows["lead"],
            "gross": rows["record"] != GROSS,
            "record": rows["record"],
            "tolerance": -rows["tolerance_ms"],
        }
    )
    return rows.loc[rank.sort_values(list(rank.columns)).index].reset_index(drop=True)


def write_report(rows: pd.DataFrame, folder: Path, command: str) -> None:
    """Write ``accuracy.csv`` and ``accuracy.md``, each beside its place and then renamed."""
    folder.mkdir(parents=True, exist_ok=True)
    table = rows.to_csv(index=False, float_format="%.6f", lineterminator="\n")
    for name, text in (("accuracy.csv", table), ("accuracy.md", page(rows, command))):
        unfinished = folder / f".{name}"
        unfinished.write_text(text, encoding="utf-8")
        os.replace(unfinished, folder / name)


def page(rows: pd.DataFrame, command: str) -> str:
    """Return the whole page in Markdown."""
    gross = rows[rows["record"] == GROSS]
    detectors = [name for name in TITLES if name in set(rows["detector"])]
    parts = [HEAD.format(command=command)]
    parts.append("## Measured with\n")
    facts = rows[["detector", "version", "measured", "machine"]].drop_duplicates()
    lines = [
        [row.detector, TITLES[row.detector], row.version, row.measured, row.machine]
        for row in facts.itertuples()
    ]
    parts.append(_markdown(["detector", "what it is", "version", "measured", "machine"], lines))
    absent = [name for name in TITLES if name not in detectors]
    if absent:
        parts.append(f"Not measured: {', '.join(absent)}.\n")
    failed = gross[gross["failed"] > 0]
    parts += [
        f"{row.detector} ended in an error on {row.failed} records ({row.condition}, "
        f"{LEADS[row.lead]}): counted as nothing found.\n"
        for row in failed.drop_duplicates(["detector", "condition", "lead"]).itertuples()
    ]
    for lead, title in enumerate(LEADS):
        for tolerance_ms in (150, 50):
            chosen = _pick(gross, "clean", lead, tolerance_ms)
            if len(chosen):
                parts.append(f"## {title.capitalize()}, {tolerance_ms} ms\n")
                parts.append(_markdown(*_detector_lines(chosen)))
    noisy = gross[gross["condition"].isin(_noises())]
    if len(noisy):
        parts += _noise_parts(noisy, detectors)
        parts += _quality_parts(gross)
    parts += _record_parts(rows[rows["record"] != GROSS])
    return "\n".join(parts)


def readme_tables(rows: pd.DataFrame) -> str:
    """Return the README's two tables in Markdown: without noise, and F1 with noise."""
    gross = rows[rows["record"] == GROSS]
    lines, noise_lines = [], []
    for name in TITLES:
        own = gross[gross["detector"] == name]
        first, near = (_pick(own, "clean", 0, tolerance_ms) for tolerance_ms in (150, 50))
        second = _pick(own, "clean", 1, 150)
        if not len(first) or not len(near):
            continue
        wide, close = first.iloc[0], near.iloc[0]
        lines.append(
            [
                TITLES[name],
                f"{wide.hits:,}",
                f"{wide.false:,}",
                f"{wide.missed:,}",
                _percent(wide.sensitivity),
                _percent(wide.positive_predictivity),
                f"{_percent(close.f1)} ({_percent(close.f1_aligned)})",
                _percent(second.iloc[0].f1) if len(second) else "",
                f"{wide.jitter_median_ms:.1f}, {wide.jitter_p95_ms:.1f}",
            ]
        )
        f1 = {
            (kind, level): _pick(own, f"{kind}-{level}", 0, 150)["f1"].tolist()
            for kind in KINDS
            for level in LEVELS_DB
        }
        if all(f1.values()):
            cells = [
                " / ".join(f"{100 * f1[kind, level][0]:.1f}" for level in LEVELS_DB)
                for kind in KINDS
            ]
            noise_lines.append([TITLES[name], *cells])
    head = ["detector", "hits", "false", "missed", "Se %", "P+ %", "F1 % at 50 ms (aligned)"]
    head += ["second lead, F1 %", "jitter, ms (median, 95 %)"]
    text = _markdown(head, lines)
    if noise_lines:
        levels = " / ".join(str(level) for level in LEVELS_DB)
        kinds = [f"{kind}, {levels} dB" for kind in KINDS]
        text += "\n" + _markdown(["F1 % with noise", *kinds], noise_lines)
    return text


def _detector_lines(rows: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    head = ["detector", "hits", "false", "missed", "Se", "P+", "F1", "F1 aligned", "offset ms"]
    head += ["jitter ms, median", "95 %"]
    lines = [
        [
            row.detector,
            f"{row.hits:,}",
            f"{row.false:,}",
            f"{row.missed:,}",
            _percent(row.sensitivity),
            _percent(row.positive_predictivity),
            _percent(row.f1),
            _percent(row.f1_aligned),
            f"{row.offset_ms:.1f}",
            f"{row.jitter_median_ms:.1f}",
            f"{row.jitter_p95_ms:.1f}",
        ]
        for row in rows.itertuples()
    ]
    return head, lines


def _noise_parts(rows: pd.DataFrame, detectors: Sequence[str]) -> list[str]:
    """Return a table a measure: a row a kind and level, a column a detector, the best in bold."""

    def f1(row: pd.Series) -> str:
        return _percent(row.f1)

    def both(row: pd.Series) -> str:
        return f"{_percent(row.sensitivity)} / {_percent(row.positive_predictivity)}"

    measures: list[tuple[str, int, Callable[[pd.Series], str]]] = [
        ("First lead with noise, F1 at 150 ms", 150, f1),
        ("First lead with noise, F1 at 50 ms", 50, f1),
        ("First lead with noise, Se / P+ at 150 ms", 150, both),
    ]
    parts = []
    for title, tolerance_ms, show in measures:
        lines = []
        for condition in _noises():
            chosen = _pick(rows, condition, 0, tolerance_ms).set_index("detector")
            if not len(chosen):
                continue
            best = chosen["f1"].max()
            cells = []
            for name in detectors:
                cell = show(chosen.loc[name]) if name in chosen.index else ""
                bold = cell and show is f1 and chosen.loc[name].f1 == best
                cells.append(f"**{cell}**" if bold else cell)
            lines.append([f"{condition.replace('-', ', ')} dB", *cells])
        parts += [f"## {title}\n", _markdown(["noise", *detectors], lines)]
    return parts


def _quality_parts(rows: pd.DataFrame) -> list[str]:
    shown = rows[rows["quality_auroc"].notna() & (rows["tolerance_ms"] == 150)]
    if not len(shown):
        return []
    lines = [
        [
            _noise_title(row.condition),
            f"{row.hits:,}",
            f"{row.false:,}",
            f"{row.quality_auroc:.4f}",
        ]
        for row in shown.itertuples()
    ]
    said = (
        "Area under the ROC curve of the table's `quality` for correct (within 150 ms) against "
        "false detections of ecg_dask.\n"
    )
    return ["## Quality\n", said, _markdown(["noise", "hits", "false", "AUROC"], lines)]


def _record_parts(rows: pd.DataFrame) -> list[str]:
    parts = []
    for (detector, lead), own in rows.groupby(["detector", "lead"], sort=False):
        wide = own[own["tolerance_ms"] == 150].set_index("record")
        near = own[own["tolerance_ms"] == 50].set_index("record")
        lines = [
            [
                record,
                f"{row.hits:,}",
                f"{row.false:,}",
                f"{row.missed:,}",
                _percent(row.sensitivity),
                _percent(row.positive_predictivity),
                _percent(row.f1),
                _percent(near.loc[record].f1),
                f"{row.jitter_median_ms:.1f}",
                f"{row.jitter_p95_ms:.1f}",
            ]
            for record, row in wide.iterrows()
        ]
        head = ["record", "hits", "false", "missed", "Se", "P+", "F1", "F1 at 50 ms"]
        head += ["jitter ms, median", "95 %"]
        parts += [f"## {detector} by record, {LEADS[lead]}, 150 ms\n", _markdown(head, lines)]
    return parts


def _pick(rows: pd.DataFrame, condition: str, lead: int, tolerance_ms: int) -> pd.DataFrame:
    return rows[
        (rows["condition"] == condition)
        & (rows["lead"] == lead)
        & (rows["tolerance_ms"] == tolerance_ms)
    ]


def _noises() -> list[str]:
    return [f"{kind}-{level}" for kind in KINDS for level in LEVELS_DB]


def _conditions() -> list[str]:
    pooled = [(*(f"{kind}-{level}" for level in LEVELS_DB), kind) for kind in KINDS]
    return ["clean", *(name for names in pooled for name in names), "noise"]


def _noise_title(condition: str) -> str:
    kind, _, level = condition.rpartition("-")
    if kind:
        return f"{kind}, {level} dB"
    return "all kinds and levels" if level == "noise" else f"{level}, all levels"


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"


def _markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
