"""What each part of the anomaly score adds: the tables of `anomaly.py` without it.

    python benchmarks/anomaly_ablation.py [--data DIR] [--records NAME ...] [--epochs N]
                                          [--jobs N] [--out DIR]

One seed, the protocols of `anomaly.py`. A variant sets constants of the package, or silences a view
of the beats, whose surprise is then that of a usual beat. Variants that leave the training alone
score with the network of the whole score. A run over all records writes anomaly_ablation.csv and
anomaly_ablation.md to benchmarks/results.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pandas as pd
from anomaly import RESULTS, chosen, mapping, parse
from anomaly_data import ACROSS, DS1, DS2, WITHIN, Record, read_record, selection
from anomaly_report import MEASURES, POOLED, by_record
from anomaly_rows import OURS, by_model, protocol_rows
from machine import machine
from timings import table

import ecg_dask

WHOLE = "the whole score"

#: Columns of `ecg_dask.anomaly.profile.Views.logs`.
TYPE, NETWORK, OTHER_P, NO_P = range(4)


@dataclass(frozen=True)
class Variant:
    """A way to score.

    Attributes
    ----------
    constants
        Values of ``"module.NAME"`` in `ecg_dask.anomaly`.
    silenced
        Views without a say.
    trains
        Whether the network is another one.
    """

    constants: Mapping[str, Any] = field(default_factory=dict)
    silenced: tuple[int, ...] = ()
    trains: bool = False


def all_complete(on_time: Any, complete: Any, train: Any) -> Any:
    """Take every complete beat of the training part for a usual one."""
    return complete & train


VARIANTS = {
    WHOLE: Variant(),
    "without the network: its residual, and types in its space": Variant(
        {"scoring.RESIDUAL": 0.0, "profile.TYPES": 1}
    ),
    "without the network's residual": Variant({"scoring.RESIDUAL": 0.0}),
    "one typical beat a record": Variant({"profile.TYPES": 1}),
    "types need not be apart": Variant({"profile.APART": 0.0}),
    "without the distance from the typical beat": Variant(silenced=(TYPE,)),
    "without the P wave": Variant(silenced=(OTHER_P, NO_P)),
    "without a P wave of another shape": Variant(silenced=(OTHER_P,)),
    "without a P wave that is missing": Variant(silenced=(NO_P,)),
    "the next beat stays in the window": Variant({"inputs.ONSET_S": -9.0}, trains=True),
    "all complete beats are usual": Variant({"context.usual_beats": all_complete}, trains=True),
    "trained on what is rare as well": Variant({"fit.TRIMMED": 0.0}, trains=True),
    "divergence with weight 1": Variant({"fit.KL_WEIGHT": 1.0}, trains=True),
    "latent size 4": Variant({"training.LATENT": 4}, trains=True),
    "latent size 16": Variant({"training.LATENT": 16}, trains=True),
}


@contextmanager
def in_force(variant: Variant) -> Iterator[None]:
    """Change the package while inside."""
    scoring = importlib.import_module("ecg_dask.anomaly.scoring")
    changes: dict[tuple[Any, str], Any] = {}
    for place, value in variant.constants.items():
        module, _, name = place.partition(".")
        changes[importlib.import_module(f"ecg_dask.anomaly.{module}"), name] = value
    if variant.silenced:
        changes[scoring, "views"] = partial(_silenced, scoring.views, variant.silenced)
    before = {place: getattr(*place) for place in changes}
    try:
        for (module, name), value in changes.items():
            setattr(module, name, value)
        yield
    finally:
        for (module, name), value in before.items():
            setattr(module, name, value)


def _silenced(views: Callable[..., Any], silenced: Sequence[int], *arguments: Any) -> Any:
    """Make some views of beats those of a usual beat."""
    seen, profile = views(*arguments), arguments[2]
    for column in silenced:
        seen.logs[:, column] = profile.middle[column]
    return seen


def variant_rows(
    learnt: Sequence[Record], records: Sequence[Record], protocols: Any, epochs: int | None
) -> list[dict[str, Any]]:
    """Return the rows of all variants, learnt from some records and tested on others."""
    rows = []
    whole = None
    for name, variant in VARIANTS.items():
        with in_force(variant):
            model = whole
            if model is None or variant.trains:
                model = ecg_dask.train([record.beats for record in learnt], epochs=epochs)
            whole = whole or model
            scored = [one for one in by_model(model, records, 0) if one.method == OURS]
            for protocol in protocols:
                rows += [
                    row | {"variant": name} for row in protocol_rows(protocol, records, scored)
                ]
    return rows


def of_record(record: Record, epochs: int | None) -> list[dict[str, Any]]:
    """Return the rows of a record by itself; none without enough positives."""
    if not any(selection(record, protocol).enough for protocol in WITHIN):
        return []
    return variant_rows([record], [record], WITHIN, epochs)


def page_lines(rows: pd.DataFrame) -> list[str]:
    """Return a table: a row a variant."""
    head, lines = ["variant"], []
    protocols = sorted(rows["protocol"].unique())
    for protocol in protocols:
        head += [f"({protocol}) AUROC", "lowest", *list(MEASURES.values())[1:]]
    pooled = rows[rows["record"] == POOLED].set_index("variant")["auroc"]
    head += ["(c) AUROC, pooled"] if len(pooled) else []
    for name in VARIANTS:
        own = rows[rows["variant"] == name]
        cells = [name]
        for protocol in protocols:
            single = own[(own["protocol"] == protocol) & (own["record"] != POOLED)]
            lowest = by_record(single)
            cells += [f"{single['auroc'].mean():.4f}", f"{lowest.min():.3f} ({lowest.idxmin()})"]
            cells += [f"{single[measure].mean():.3f}" for measure in list(MEASURES)[1:]]
        if len(pooled):
            cells.append(f"{pooled[name]:.4f}")
        lines.append(cells)
    return table(head, lines)


def main() -> None:
    options = parse(sys.argv[1:])
    paths = chosen(options)
    begun = time.perf_counter()
    rows: list[dict[str, Any]] = []
    with mapping(options.jobs or os.cpu_count() or 1) as spread:
        read = partial(read_record, device="cpu")
        records = list(spread(read, paths))
        for made in spread(partial(of_record, epochs=options.epochs), records):
            rows += made
    learnt = [record for record in records if record.name in DS1]
    others = [record for record in records if record.name in DS2]
    if learnt and others:
        rows += variant_rows(learnt, others, ACROSS, options.epochs)
    if not rows:
        sys.exit("Nothing to measure: no record has enough beats of either kind")
    found = pd.DataFrame(rows)
    minutes = (time.perf_counter() - begun) / 60
    text = [
        "# What each part of the anomaly score adds",
        "",
        "MIT-BIH Arrhythmia Database, protocols and measures as in anomaly.md, seed 0. "
        "`python benchmarks/anomaly_ablation.py` makes this page.",
        "",
        f"{machine(gpu=False)}, {minutes:.1f} minutes.",
        "",
        *page_lines(found),
        "",
    ]
    print("\n".join(text))
    out = options.out or (None if options.records else RESULTS)
    if out:
        out.mkdir(parents=True, exist_ok=True)
        found.to_csv(out / "anomaly_ablation.csv", index=False, float_format="%.6f")
        (out / "anomaly_ablation.md").write_text("\n".join(text), encoding="utf-8")


if __name__ == "__main__":
    main()
