"""From beats to the rows of the anomaly benchmark's tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from anomaly_baselines import (
    PREMATURITY_WEIGHT,
    distance_to_median,
    isolation_forest,
    nearest_beats,
    pca_error,
    plain_vae,
    prematurity,
)
from anomaly_data import ACROSS, WITHIN, Bools, Floats, Protocol, Record, Selection, selection
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

import ecg_dask
from ecg_dask.arrays import on_host

OURS = "ecg_dask"

#: What stands in the column ``record`` where the beats of all records were counted as one list.
POOLED = "all"

#: Columns of a scored table that add up to the score, where the model tells them.
PARTS = ("shape", "timing", "amplitude")

#: Share of the negatives that may be false alarms.
FALSE_ALARMS = 0.01

#: Beats of DS1 that the slow methods learn from, drawn with `DRAW_SEED`.
MOST_BEATS = 20_000
DRAW_SEED = 0


class Scored(NamedTuple):
    """What a method says of some records.

    Attributes
    ----------
    method
        Its name.
    seed
        None for a method that draws nothing.
    scores
        A score a beat, an array a record; NaN for a beat without one.
    flags
        Which beats are called anomalies, an array a record; none for a method that does not.
    kind
        ``"method"``, or ``"part"`` for a part of our score or the score without it.
    """

    method: str
    seed: int | None
    scores: Sequence[Floats]
    flags: Sequence[Bools] | None = None
    kind: str = "method"


def rows_within(record: Record, seeds: int, epochs: int | None) -> list[dict[str, Any]]:
    """Return the rows of a record by itself; none without enough positives."""
    if not any(selection(record, protocol).enough for protocol in WITHIN):
        return []
    trained = record.points[record.train & record.complete]
    several = [*_seedless([record], trained, trained), *_forests([record], trained, seeds)]
    for seed in range(seeds):
        model = ecg_dask.train(record.beats, epochs=epochs, seed=seed)
        several += by_model(model, [record], seed)
    return [row for protocol in WITHIN for row in protocol_rows(protocol, [record], several)]


def rows_across(
    learnt: Sequence[Record], records: Sequence[Record], seeds: int, epochs: int | None
) -> list[dict[str, Any]]:
    """Return the rows of methods that learn from some records and are tested on others."""
    trained = np.concatenate([record.points[record.train & record.complete] for record in learnt])
    some = trained
    if len(trained) > MOST_BEATS:
        drawn = np.random.default_rng(DRAW_SEED).permutation(len(trained))[:MOST_BEATS]
        some = trained[np.sort(drawn)]
    several = [*_seedless(records, trained, some), *_forests(records, trained, seeds)]
    complete = [record.points[record.complete] for record in records]
    own = [_of_complete(*two) for two in zip(records, map(_from_median, complete), strict=True)]
    several.append(Scored("own_median", None, own))
    beats = [record.beats for record in learnt]
    for seed in range(seeds):
        model = ecg_dask.train(beats, epochs=epochs, seed=seed)
        several += by_model(model, records, seed)
    return [row for protocol in ACROSS for row in protocol_rows(protocol, records, several)]


def by_model(model: ecg_dask.Model, records: Sequence[Record], seed: int) -> Iterator[Scored]:
    """Return our score and its parts, and the plain error of the same network."""
    tables = [on_host(model.score(record.beats).compute()) for record in records]

    def column(name: str) -> list[Floats]:
        return [table[name].to_numpy(dtype=np.float64, na_value=np.nan) for table in tables]

    score = column("score")
    yield Scored(OURS, seed, score, [table["anomaly"].to_numpy(dtype=bool) for table in tables])
    for part in PARTS:
        if f"score_{part}" in tables[0]:
            alone = column(f"score_{part}")
            rest = [total - one for total, one in zip(score, alone, strict=True)]
            yield Scored(part, seed, alone, kind="part")
            yield Scored(f"without {part}", seed, rest, kind="part")
    plain = [_of_complete(one, plain_vae(model, one.points[one.complete])) for one in records]
    yield Scored("vae_error", seed, plain)


def _seedless(records: Sequence[Record], trained: Floats, some: Floats) -> Iterator[Scored]:
    """Score with the methods that draw nothing; the slow one learns from `some` beats only."""
    yield Scored("prematurity", None, [_prematurity(record) for record in records])
    for name, method, learnt in (
        ("median", distance_to_median, trained),
        ("knn", nearest_beats, some),
        ("pca", pca_error, trained),
    ):
        scores = [_of_complete(one, method(learnt, one.points[one.complete])) for one in records]
        yield Scored(name, None, scores)


def _forests(records: Sequence[Record], trained: Floats, seeds: int) -> Iterator[Scored]:
    """Score with isolation forests, alone and with the prematurity."""
    counts = np.cumsum([record.complete.sum() for record in records])[:-1]
    beats = np.concatenate([record.points[record.complete] for record in records])
    for seed in range(seeds):
        scored = np.split(isolation_forest(trained, beats, seed), counts)
        score = [_of_complete(one, part) for one, part in zip(records, scored, strict=True)]
        both = [
            shape + PREMATURITY_WEIGHT * _prematurity(record)
            for record, shape in zip(records, score, strict=True)
        ]
        yield Scored("forest", seed, score)
        yield Scored("forest_prematurity", seed, both)


def _from_median(beats: Floats) -> Floats:
    return distance_to_median(beats, beats)


def _prematurity(record: Record) -> Floats:
    rr_s = record.table["rr_prev_s"].to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(record.complete, prematurity(rr_s), np.nan)


def _of_complete(record: Record, score: Floats) -> Floats:
    """Put the scores of a record's complete beats into the rows of its table."""
    rows = np.full(len(record.label), np.nan)
    rows[record.complete] = score
    return rows


def protocol_rows(
    protocol: Protocol, records: Sequence[Record], several: Sequence[Scored]
) -> list[dict[str, Any]]:
    """Return a row a method, seed and record with enough positives, and of all in one list.

    The last is for a model across records only: scores of different models are not of one scale.
    """
    chosen = [selection(record, protocol) for record in records]
    groups = [(record.name, [i]) for i, record in enumerate(records) if chosen[i].enough]
    everything = list(range(len(records)))
    if protocol.across and any(test.enough for test in chosen):
        groups.append((POOLED, everything))
    return [
        {
            "protocol": protocol.name,
            "kind": scored.kind,
            "method": scored.method,
            "record": name,
            "seed": scored.seed,
            **_measures(
                [chosen[i] for i in which],
                [scored.scores[i] for i in which],
                [scored.flags[i] for i in which] if scored.flags else None,
            ),
        }
        for scored in several
        for name, which in groups
    ]


def _measures(
    several: Sequence[Selection], scores: Sequence[Floats], flags: Sequence[Bools] | None
) -> dict[str, Any]:
    """Count and measure the tested beats of some records as one list."""
    counted, positive, part = (
        np.concatenate([getattr(test, name) for test in several])
        for name in ("counted", "positive", "part")
    )
    row = {
        "positives": int(positive.sum()),
        "negatives": int((counted & ~positive).sum()),
        "lost": sum(test.lost for test in several),
        **ranking(np.concatenate(scores)[counted], positive[counted]),
    }
    if flags is None:
        return row
    flagged = np.concatenate(flags)
    right, false = int((flagged & positive).sum()), int((flagged & counted & ~positive).sum())
    return row | {
        "flagged_positives": right,
        "flagged_negatives": false,
        "precision": right / (right + false) if right + false else np.nan,
        "recall": right / row["positives"],
        "share_flagged": float(flagged[part].mean()),
    }


def ranking(score: Floats, positive: Bools) -> dict[str, float]:
    """Return how well a score tells positives from negatives, both of which there must be.

    Returns
    -------
    dict
        ``auroc``, ``auprc`` (average precision), and ``recall_at_1``: the share of the positives
        at or above the lowest threshold that at most 1 % of the negatives reach.
    """
    known = np.isfinite(score)
    # A beat that a method cannot score is the last that it would point at.
    lowest = score[known].min(initial=0.0) - 1
    score = np.where(known, score, lowest)
    # The points that scikit-learn drops by default may be the last one that is allowed.
    false, right, _ = roc_curve(positive, score, drop_intermediate=False)
    return {
        "auroc": float(roc_auc_score(positive, score)),
        "auprc": float(average_precision_score(positive, score)),
        "recall_at_1": float(right[false <= FALSE_ALARMS].max()),
    }
