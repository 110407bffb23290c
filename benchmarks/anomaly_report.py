"""The results of the anomaly benchmark: a CSV of all rows, and a page made of them."""

from __future__ import annotations

import os
import subprocess
from datetime import date
from importlib.metadata import version
from pathlib import Path

import pandas as pd
from anomaly_baselines import COMPONENTS, NEIGHBOURS, PREMATURITY_WEIGHT
from anomaly_data import FEWEST_POSITIVES
from anomaly_rows import MOST_BEATS, OURS, POOLED
from timings import table

TITLES = {
    OURS: "ecg_dask",
    "forest": "isolation forest",
    "forest_prematurity": f"isolation forest + {PREMATURITY_WEIGHT:g} prematurity",
    "prematurity": "prematurity",
    "median": "distance to the median beat",
    "own_median": "distance to the record's own median beat",
    "knn": f"distance to the {NEIGHBOURS} nearest",
    "pca": f"PCA({COMPONENTS}) error",
    "vae_error": "plain VAE error",
}

PROTOCOLS = {
    "a": "Each record by itself: V, E, F",
    "b": "Each record by itself: A, a, J, S, e, j",
    "c": "DS1 to DS2: V, E, F",
}

MEASURES = {"auroc": "AUROC", "auprc": "AUPRC", "recall_at_1": "recall at 1 %"}

#: What the mean AUROC over the records shall be at least, and in (a) that of every record.
MEAN_GOALS = {"a": 0.988, "b": 0.95, "c": 0.93}
LOWEST_GOAL = 0.90

HEAD = """# Beats that do not belong

MIT-BIH Arrhythmia Database, first lead, on the beats that ecg_dask finds, defaults only; no method
sees a label. `python benchmarks/anomaly.py` makes this page and the CSV file beside it, which
holds every row.

{host}, scikit-learn {sklearn}, commit {commit}, {day}, {minutes:.1f} minutes.

    {command}

- **What counts**: a detected beat that is complete and lies within 150 ms of an annotated beat, one
  to one, outside ventricular flutter. Annotated positives that were not detected or whose window
  is not complete are lost to every method alike; the tables by record count them.
- **(a)** Each record by itself, learnt from the first 75 % of its beats and tested on the rest.
  Positives are V, E, F; A, a, J, S, e, j are left out; all others are negatives, paced and
  unclassifiable beats too. **(b)** The same with A, a, J, S, e, j as positives and V, E, F left
  out. **(c)** Learnt from de Chazal's DS1 (the first 75 % of each record), tested on all beats of
  DS2; positives as in (a).
- **Records** with at least {fewest} positives among the beats that count. *Pooled* is all of DS2 as
  one list.
- **±** is the standard deviation over the seeds of the mean over the records. The **lowest** record
  is that with the lowest mean over the seeds.
- **Recall at 1 %** is the share of the positives found when at most 1 % of the negatives are.
- **Baselines** work on the model's inputs, beats of 128 points, and learn from the beats that the
  model learns from; in (c) the nearest beats are sought among {most:,} drawn of them. Prematurity
  is max(0, -log(interval before / median of 31 intervals around)). The plain VAE error is that of
  the same trained network.
"""


def write_report(rows: pd.DataFrame, text: str, folder: Path, suffix: str) -> None:
    """Write the rows and the page, each beside its place and then renamed."""
    folder.mkdir(parents=True, exist_ok=True)
    csv = rows.astype({"seed": "Int64"}).to_csv(
        index=False, float_format="%.6f", lineterminator="\n"
    )
    for name, content in ((f"anomaly_records{suffix}.csv", csv), (f"anomaly{suffix}.md", text)):
        unfinished = folder / f".{name}"
        unfinished.write_text(content, encoding="utf-8")
        os.replace(unfinished, folder / name)


def page(rows: pd.DataFrame, host: str, command: str, seconds: float) -> str:
    """Return the whole page in Markdown."""
    head = HEAD.format(
        host=host,
        sklearn=version("scikit-learn"),
        commit=_commit(),
        day=date.today(),
        minutes=seconds / 60,
        command=command,
        fewest=FEWEST_POSITIVES,
        most=MOST_BEATS,
    )
    lines = [head, "## Goals", "", *_goals(rows), ""]
    for name, own in rows.groupby("protocol"):
        single = own[own["record"] != POOLED]
        n = single["record"].nunique()
        lines += [f"## ({name}) {PROTOCOLS[str(name)]}", "", f"{n} records.", ""]
        lines += [*_method_table(own[own["kind"] == "method"]), ""]
        if (own["kind"] == "part").any():
            both = own[(own["kind"] == "part") | (own["method"] == OURS)]
            lines += ["Parts of the score:", "", *_method_table(both), ""]
    lines += ["## The anomaly flag", "", *_flag_table(rows), ""]
    for name, own in rows[rows["kind"] == "method"].groupby("protocol"):
        lines += [f"## ({name}) by record, AUROC", "", *_record_table(own), ""]
    return "\n".join(lines)


def over_seeds(rows: pd.DataFrame, measure: str, digits: int = 3) -> str:
    """Return a measure, averaged over the records of each seed, and its spread, as a cell."""
    by_seed = rows.groupby("seed", dropna=False)[measure].mean()
    spread = f" ± {by_seed.std():.{digits}f}" if len(by_seed) > 1 else ""
    return f"{by_seed.mean():.{digits}f}{spread}"


def by_record(rows: pd.DataFrame) -> pd.Series:
    """Return each record's AUROC, its mean over the seeds."""
    return rows[rows["record"] != POOLED].groupby("record")["auroc"].mean()


def best_baseline(rows: pd.DataFrame) -> str:
    """Return the method other than ours with the highest mean AUROC over a protocol's records."""
    others = rows[(rows["kind"] == "method") & (rows["method"] != OURS)]
    means = {name: by_record(own).mean() for name, own in others.groupby("method")}
    return str(max(means, key=lambda name: means[name]))


def _method_table(rows: pd.DataFrame) -> list[str]:
    """Return a row a method: what it reaches on the mean of the records, and on all of them."""
    head = ["method", "AUROC", "lowest", *list(MEASURES.values())[1:]]
    pooled = (rows["record"] == POOLED).any()
    head += [f"{title}, pooled" for title in MEASURES.values()] if pooled else []
    lines = []
    for name in rows["method"].unique():
        own = rows[rows["method"] == name]
        single, all_records = own[own["record"] != POOLED], own[own["record"] == POOLED]
        lowest = by_record(single)
        cells = [over_seeds(single, measure) for measure in MEASURES]
        cells.insert(1, f"{lowest.min():.3f} ({lowest.idxmin()})")
        cells += [over_seeds(all_records, measure) for measure in MEASURES] if pooled else []
        lines.append((lowest.mean(), [TITLES.get(name, name), *cells]))
    lines.sort(key=lambda line: -line[0])
    return table(head, [cells for _, cells in lines])


def _flag_table(rows: pd.DataFrame) -> list[str]:
    """Return precision and recall of the flag, of the records' beats as one list."""
    lines = []
    for name, own in rows[rows["method"] == OURS].groupby("protocol"):
        pooled = own[own["record"] == POOLED]
        listed = own if pooled.empty else pooled
        counts = ["positives", "flagged_positives", "flagged_negatives"]
        summed = listed.groupby("seed")[counts].sum()
        right, false = summed["flagged_positives"], summed["flagged_negatives"]
        measured = {"precision": right / (right + false), "recall": right / summed["positives"]}
        cells = [over_seeds(pd.DataFrame(measured).reset_index(), one) for one in measured]
        lines.append([f"({name})", *cells, over_seeds(listed, "share_flagged", 4)])
    return table(["protocol", "precision", "recall", "share flagged"], lines)


def _record_table(rows: pd.DataFrame) -> list[str]:
    """Return a row a record: ours beside the best baseline of all records and of this one."""
    best = best_baseline(rows)
    rows = rows[rows["record"] != POOLED]
    head = ["record", "positives", "negatives", "lost", TITLES[OURS], "lowest seed", TITLES[best]]
    lines = []
    for record, own in rows.groupby("record"):
        first, ours = own.iloc[0], own[own["method"] == OURS]["auroc"]
        means = own[own["method"] != OURS].groupby("method")["auroc"].mean()
        lines.append(
            [
                str(record),
                *(f"{first[name]:,}" for name in ("positives", "negatives", "lost")),
                *(f"{value:.3f}" for value in (ours.mean(), ours.min(), means[best])),
                f"{means.max():.3f} ({TITLES[str(means.idxmax())]})",
            ]
        )
    return table([*head, "best there"], lines)


def _goals(rows: pd.DataFrame) -> list[str]:
    """Return a row a goal: what was wanted, what was found, and whether that reaches it."""
    lines = []

    def add(goal: str, wanted: str, found: str, *, reached: bool) -> None:
        lines.append([goal, wanted, found, "yes" if reached else "no"])

    for name, least in MEAN_GOALS.items():
        own = rows[rows["protocol"] == name]
        if own.empty:
            continue
        ours = own[own["method"] == OURS]
        single = by_record(ours)
        goal, found, mean = f"({name}) mean AUROC", f"{single.mean():.4f}", single.mean()
        add(goal, f"at least {least:g}", found, reached=mean >= least)
        if name == "a":
            best = best_baseline(own)
            theirs = by_record(own[own["method"] == best]).mean()
            add(goal, f"above {theirs:.4f}, {TITLES[best]}", found, reached=mean > theirs)
            of_seed = ours.sort_values("auroc").iloc[0]
            found = f"{single.min():.4f} ({single.idxmin()})"
            found += f"; of one seed {of_seed['auroc']:.4f} ({of_seed['record']})"
            add(
                "(a) lowest record",
                f"at least {LOWEST_GOAL:.2f}",
                found,
                reached=single.min() >= LOWEST_GOAL,
            )
    return table(["goal", "wanted", "found", "reached"], lines, words=4)


def _commit() -> str:
    """Return the commit of this checkout, marked when files differ from it."""
    command = ["git", "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
