"""From detected samples to the rows of the accuracy benchmark's tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

import ecg_dask

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.floating[Any]]

TOLERANCES_S = (0.15, 0.05)
#: What stands in the column ``record`` where all records were counted together.
GROSS = "all"


class Condition(NamedTuple):
    """What a record is measured under: the lead's index, the kind of noise and its level."""

    lead: int
    kind: str = "clean"
    snr_db: int | None = None

    @property
    def name(self) -> str:
        """Name without the lead, such as ``"clean"`` and ``"muscle-6"``."""
        return self.kind if self.snr_db is None else f"{self.kind}-{self.snr_db}"


class Reference(NamedTuple):
    """A record's annotation: rate in Hz, samples of the beats, half-open spans to leave out."""

    fs: float
    beats: Integers
    spans: list[tuple[int, int]]


class Detected(NamedTuple):
    """What a detector found in a record; `failed` tells how it failed, which counts as nothing."""

    detector: str
    record: str
    condition: Condition
    sample: Integers
    quality: Floats | None = None
    failed: str | None = None


def table_rows(
    measured: Sequence[Detected], references: dict[str, Reference]
) -> list[dict[str, Any]]:
    """Return the rows of one detector under one condition: all records, then each by itself.

    Hits, false and missed are those of `ecg_dask.evaluate`. A detector's offset is the median
    signed distance of its hits within 150 ms over all records: where in a QRS complex a detector
    puts its beats is a convention and no error. The jitter is measured from there, and
    ``f1_aligned`` counts again with the offset taken off, to the nearest sample.
    """
    rows = []
    distances_s = [_distances_s(one, references[one.record], TOLERANCES_S[0]) for one in measured]
    pooled_s = np.concatenate(distances_s)
    offset_s = float(np.median(pooled_s)) if len(pooled_s) else 0.0
    for tolerance_s in TOLERANCES_S:
        distances_s = [_distances_s(one, references[one.record], tolerance_s) for one in measured]
        counts = [_counts(one, references[one.record], tolerance_s) for one in measured]
        aligned = [_counts(one, references[one.record], tolerance_s, offset_s) for one in measured]
        for name, chosen in [
            (GROSS, range(len(measured))),
            *((one.record, [i]) for i, one in enumerate(measured)),
        ]:
            hits, false, missed = np.sum([counts[i] for i in chosen], axis=0).tolist()
            jitter_ms = 1e3 * np.abs(np.concatenate([distances_s[i] for i in chosen]) - offset_s)
            rows.append(
                {
                    "detector": measured[0].detector,
                    "record": name,
                    "condition": measured[0].condition.name,
                    "lead": measured[0].condition.lead,
                    "tolerance_ms": round(1e3 * tolerance_s),
                    "records": len({measured[i].record for i in chosen}),
                    "hits": hits,
                    "false": false,
                    "missed": missed,
                    "sensitivity": _ratio(hits, hits + missed),
                    "positive_predictivity": _ratio(hits, hits + false),
                    "f1": _f1(hits, false, missed),
                    "f1_aligned": _f1(*np.sum([aligned[i] for i in chosen], axis=0).tolist()),
                    "offset_ms": 1e3 * offset_s,
                    "jitter_median_ms": _percentile(jitter_ms, 50),
                    "jitter_p95_ms": _percentile(jitter_ms, 95),
                    "failed": sum(measured[i].failed is not None for i in chosen),
                }
            )
    return rows


def quality_auroc(
    measured: Sequence[Detected], references: dict[str, Reference]
) -> tuple[float, int, int]:
    """Return how well the quality column tells correct from false detections.

    Returns
    -------
    auroc
        Probability that a correct detection (paired with a beat within 150 ms) has a higher
        quality than a false one, ties counted as half; nan when one kind is missing.
    n_correct, n_false
        Numbers of detections outside the spans that are left out.
    """
    quality, correct = [], []
    for one in measured:
        reference = references[one.record]
        is_correct = np.zeros(len(one.sample), bool)
        is_correct[pair(one.sample, reference.beats, TOLERANCES_S[0] * reference.fs)[:, 0]] = True
        counted = ~_inside(one.sample, reference.spans)
        quality.append(np.asarray(one.quality)[counted])
        correct.append(is_correct[counted])
    return auroc(np.concatenate(quality), np.concatenate(correct))


def auroc(score: Floats, positive: npt.NDArray[np.bool_]) -> tuple[float, int, int]:
    """Return the area under the ROC curve, and the numbers of positives and negatives."""
    n_positive, n_negative = int(np.sum(positive)), int(np.sum(~positive))
    if not n_positive or not n_negative:
        return float("nan"), n_positive, n_negative
    above = rankdata(score)[positive].sum() - n_positive * (n_positive + 1) / 2
    return float(above / (n_positive * n_negative)), n_positive, n_negative


def pair(found: Integers, true: Integers, tolerance: float) -> Integers:
    """Pair detections with beats one to one, those first that are each other's nearest.

    Parameters
    ----------
    found, true
        Samples in ascending order.
    tolerance
        Largest distance in samples, itself allowed.

    Returns
    -------
    ndarray
        Indices into `found` and `true`, of shape (n_pairs, 2). `ecg_dask.evaluate` pairs as many
        as it can, which differs only where detections crowd around two beats.
    """
    left, right = np.arange(len(found)), np.arange(len(true))
    pairs = [np.zeros((0, 2), np.int64)]
    while len(left) and len(right):
        ours, theirs = found[left], true[right]
        to_true, to_found = _nearest(ours, theirs), _nearest(theirs, ours)
        # 0.15 s at 250 Hz is 37.5 samples, and at 100 Hz 15.000000000000002.
        near = np.abs(ours - theirs[to_true]) <= tolerance + 1e-6
        mutual = near & (to_found[to_true] == np.arange(len(ours)))
        if not mutual.any():
            break
        pairs.append(np.column_stack([left[mutual], right[to_true[mutual]]]))
        right = np.delete(right, to_true[mutual])
        left = left[~mutual]
    return np.concatenate(pairs)


def _nearest(of: Integers, among: Integers) -> Integers:
    """Return the index of the nearest of `among` for each of `of`, the earlier of two alike."""
    after = np.clip(np.searchsorted(among, of), 1, max(1, len(among) - 1))
    if len(among) == 1:
        return np.zeros(len(of), np.int64)
    return after - (of - among[after - 1] <= among[after] - of)


def _distances_s(one: Detected, reference: Reference, tolerance_s: float) -> Floats:
    pairs = pair(one.sample, reference.beats, tolerance_s * reference.fs)
    beats = reference.beats[pairs[:, 1]]
    counted = ~_inside(beats, reference.spans)
    distances: Floats = (one.sample[pairs[:, 0]] - beats)[counted] / reference.fs
    return distances


def _counts(
    one: Detected, reference: Reference, tolerance_s: float, offset_s: float = 0.0
) -> tuple[int, int, int]:
    result = ecg_dask.evaluate(
        one.sample - round(offset_s * reference.fs),
        reference.beats,
        fs=reference.fs,
        tolerance_s=tolerance_s,
        exclude=reference.spans,
    )
    return result.hits, result.false, result.missed


def _inside(sample: Integers, spans: Sequence[tuple[int, int]]) -> npt.NDArray[np.bool_]:
    inside = np.zeros(len(sample), bool)
    for start, stop in spans:
        inside |= (sample >= start) & (sample < stop)
    return inside


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def _f1(hits: int, false: int, missed: int) -> float:
    return _ratio(2 * hits, 2 * hits + false + missed)


def _percentile(values: Floats, percent: float) -> float:
    return float(np.percentile(values, percent)) if len(values) else float("nan")
