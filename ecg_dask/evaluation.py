"""How well detected beats agree with reference beats."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from operator import index
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from .errors import InputError

Integers = npt.NDArray[np.int64]

#: End of a span that runs to the end of the record, wherever that is.
END = int(np.iinfo(np.int64).max)


class Evaluation(NamedTuple):
    """Detected beats against reference beats.

    Attributes
    ----------
    hits
        Number of reference beats that have a detection of their own.
    false
        Number of detections that belong to no reference beat.
    missed
        Number of reference beats without a detection.
    sensitivity
        hits / (hits + missed); nan when no reference beat counts.
    positive_predictivity
        hits / (hits + false); nan when no detection counts.
    f1
        2 hits / (2 hits + false + missed), the harmonic mean of both; nan when nothing counts.
    jitter_median_s
        Median of abs(detected - reference) in seconds over the hits; nan without hits.
    jitter_p95_s
        95th percentile of abs(detected - reference - offset) in seconds over the hits, where the
        offset is the median of detected - reference: where in the QRS a detector puts its beats is
        no jitter. nan without hits.
    """

    hits: int
    false: int
    missed: int
    sensitivity: float
    positive_predictivity: float
    f1: float
    jitter_median_s: float
    jitter_p95_s: float


def evaluate(
    detected: npt.ArrayLike,
    reference: npt.ArrayLike,
    *,
    fs: float,
    tolerance_s: float = 0.15,
    exclude: Iterable[tuple[int, int]] = (),
) -> Evaluation:
    """Compare detected beats with reference beats, one to one and in order.

    Detections and reference beats are matched so that the number of pairs is as large as it can
    be. What lies in `exclude` takes part in the matching and is then left out of the counts: a
    hit or a missed beat counts when its reference beat is outside every span, a false detection
    when it is outside itself.

    Parameters
    ----------
    detected, reference
        Samples of the beats, 1-D arrays of whole numbers in ascending order.
    fs
        Sampling rate of both in Hz.
    tolerance_s
        Largest distance of a pair in seconds, itself allowed.
    exclude
        Half-open spans ``(start, stop)`` of samples; they may overlap.

    Raises
    ------
    InputError
        When an argument is not as described.

    Notes
    -----
    150 ms is the tolerance of ANSI/AAMI EC57. Time is linear in the number of beats. A detection
    that could belong to several beats, or a beat to several detections, is paired with the
    earliest, then moved to a free later one that is nearer.
    """
    found, true = _samples("detected", detected), _samples("reference", reference)
    _positive("fs", fs, "a positive number of Hz")
    if not (math.isfinite(tolerance_s) and tolerance_s >= 0):
        raise InputError(
            "tolerance_s", repr(tolerance_s), "a number of seconds of at least 0", "Change it"
        )
    spans = _merged(exclude)
    # A tolerance of 0.29 s at 100 Hz is 28.999999999999996 samples and means 29.
    pairs = _match(found, true, math.floor(tolerance_s * fs + 1e-6))

    counted, spurious = ~_inside(true, spans), ~_inside(found, spans)
    spurious[pairs[:, 0]] = False
    paired = np.zeros(len(true), bool)
    paired[pairs[:, 1]] = True
    missed = int(np.sum(counted & ~paired))
    false = int(np.sum(spurious))
    kept = pairs[counted[pairs[:, 1]]]
    hits = len(kept)
    distance_s = (found[kept[:, 0]] - true[kept[:, 1]]) / fs
    centred_s = distance_s - np.median(distance_s) if hits else distance_s
    return Evaluation(
        hits,
        false,
        missed,
        _ratio(hits, hits + missed),
        _ratio(hits, hits + false),
        _ratio(2 * hits, 2 * hits + false + missed),
        float(np.median(np.abs(distance_s))) if hits else math.nan,
        float(np.percentile(np.abs(centred_s), 95)) if hits else math.nan,
    )


def flutter_spans(sample: npt.ArrayLike, symbol: Sequence[str]) -> list[tuple[int, int]]:
    """Return the spans of ventricular flutter or fibrillation of a WFDB annotation.

    Parameters
    ----------
    sample
        Samples of all annotations, ascending.
    symbol
        Their WFDB codes: ``"["`` begins a span, ``"]"`` ends it.

    Returns
    -------
    list of (start, stop)
        Half-open. A span that nothing ends runs to the end of the record (`END`), and one that
        nothing begins, from its start.
    """
    spans = []
    start: int | None = None
    for at, code in zip(np.asarray(sample).tolist(), symbol, strict=True):
        if code == "[" and start is None:
            start = at
        elif code == "]":
            if start is not None:
                spans.append((start, at))
            elif not spans:
                spans.append((0, at))
            start = None
    if start is not None:
        spans.append((start, END))
    return spans


def evaluate_directory(
    directory: str | Path,
    reference: str | Path,
    *,
    extension: str = "atr",
    record: str | None = None,
    tolerance_s: Sequence[float] = (0.15, 0.05),
) -> pd.DataFrame:
    """Compare the beats in an output folder with a WFDB annotation.

    Spans of flutter, from ``[`` to ``]``, are left out.

    Parameters
    ----------
    directory
        Output folder with ``beats.parquet`` and ``summary.json``.
    reference
        Path of a WFDB record, with or without suffix; the annotation lies beside it.
    extension
        Suffix of the annotation file.
    record
        Name of the record in the output folder; the last part of `reference` when None.
    tolerance_s
        Tolerances in seconds.

    Returns
    -------
    pandas.DataFrame
        A row a tolerance: ``record``, ``tolerance_s`` and the fields of `Evaluation`.

    Raises
    ------
    InputError
        When a file is missing or not as expected, when the folder has no such record, or when the
        annotation and the folder state different sampling rates.
    """
    # Imported here, for it loads wfdb.
    from .readers.wfdb_records import BEAT_SYMBOLS, read_annotations

    directory, reference = Path(directory), Path(reference)
    if reference.suffix in (".hea", ".dat", f".{extension}"):
        reference = reference.with_suffix("")
    record = reference.name if record is None else record
    recorded_fs, n_samples = _recorded(directory / "summary.json", record)
    detected = _detected(directory / "beats.parquet", record)
    annotations = read_annotations(reference, extension)
    rates = [fs for fs in (annotations.fs, recorded_fs) if fs is not None]
    # A rate that was found from times, or kept as text, differs in its last digits.
    if not rates or not math.isclose(rates[0], rates[-1], rel_tol=1e-6):
        raise InputError(
            f"fs of {record}",
            f"{rates[0]:g} Hz in the annotation and {rates[1]:g} Hz in {directory}"
            if rates
            else "no sampling rate",
            "one rate, in the annotation, in summary.json or the same in both",
            "Choose the annotation of the recording that was run",
        )
    last = int(max(annotations.sample, default=0))
    if n_samples is not None and last > n_samples:
        raise InputError(
            f"{reference}.{extension}",
            f"an annotation at sample {last:,}, where {record} has {n_samples:,} samples",
            "annotations of the recording that was run",
            "Name its annotation file",
        )
    is_beat = np.array([code in BEAT_SYMBOLS for code in annotations.symbol], bool)
    true = np.asarray(annotations.sample)[is_beat]
    spans = flutter_spans(annotations.sample, annotations.symbol)
    rows = [
        {
            "record": record,
            "tolerance_s": tolerance,
            **evaluate(detected, true, fs=rates[0], tolerance_s=tolerance, exclude=spans)._asdict(),
        }
        for tolerance in tolerance_s
    ]
    return pd.DataFrame(rows, columns=["record", "tolerance_s", *Evaluation._fields])


def _positive(what: str, value: object, allowed: str) -> float:
    if not isinstance(value, int | float | np.number) or isinstance(value, bool):
        raise InputError(what, repr(value), allowed, "Change it")
    number = float(value)
    if not (math.isfinite(number) and number > 0):
        raise InputError(what, repr(value), allowed, "Change it")
    return number


def _samples(what: str, values: npt.ArrayLike) -> Integers:
    allowed = "a 1-D array of whole numbers of samples in ascending order"
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InputError(what, str(error), allowed, "Give a NumPy array") from error
    if array.ndim != 1:
        raise InputError(what, f"an array of shape {array.shape}", allowed, "Give one dimension")
    if not len(array):
        return np.zeros(0, np.int64)
    if array.dtype.kind not in "iuf":
        raise InputError(what, f"values of type {array.dtype}", allowed, "Give integers")
    # Beyond 2**53 a float no longer tells whole numbers apart; this also catches inf.
    whole = (array == np.trunc(array)) & (np.abs(array) < 2.0**53)
    if not whole.all():
        found = f"{array[np.argmin(whole)]} at index {np.argmin(whole)}"
        raise InputError(what, found, allowed, "Give samples, not seconds, and no missing values")
    samples = array.astype(np.int64)
    descending = np.diff(samples) < 0
    if descending.any():
        at = int(np.argmax(descending))
        found = f"{samples[at + 1]} after {samples[at]} at index {at + 1}"
        raise InputError(what, found, allowed, "Sort it")
    return samples


def _merged(spans: Iterable[tuple[int, int]]) -> Integers:
    """Return the spans in order, those that touch joined."""
    merged: list[list[int]] = []
    try:
        ordered = sorted((index(start), index(stop)) for start, stop in spans)
        if not all(-END <= start <= stop <= END for start, stop in ordered):
            raise ValueError("a span that stops before it starts, or beyond any sample")
    except (TypeError, ValueError) as error:
        allowed = "pairs (start, stop) of samples, start at most stop"
        raise InputError("exclude", str(error), allowed, "Give such pairs") from error
    for start, stop in ordered:
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], stop)
        else:
            merged.append([start, stop])
    return np.array(merged, np.int64).reshape(-1, 2)


def _inside(samples: Integers, spans: Integers) -> npt.NDArray[np.bool_]:
    started = np.searchsorted(spans[:, 0], samples, side="right")
    stopped = np.searchsorted(spans[:, 1], samples, side="right")
    return np.asarray(started > stopped)


def _match(detected: Integers, reference: Integers, tolerance: int) -> Integers:
    """Pair the most beats within `tolerance` samples; return a row (detected, reference) a pair."""
    found, true = detected.tolist(), reference.tolist()
    pairs: list[list[int]] = []
    i = j = 0
    while i < len(found) and j < len(true):
        distance = found[i] - true[j]
        if abs(distance) <= tolerance:
            pairs.append([i, j])
            i, j = i + 1, j + 1
        elif distance < 0:
            i += 1
        else:
            j += 1
    # Each pair has the earliest that it can have. What is free up to the next pair may be nearer.
    next_i, next_j = len(found), len(true)
    for pair in reversed(pairs):
        i, j = pair
        while i + 1 < next_i and abs(found[i + 1] - true[j]) < abs(found[i] - true[j]):
            i += 1
        while j + 1 < next_j and abs(found[i] - true[j + 1]) < abs(found[i] - true[j]):
            j += 1
        pair[:] = next_i, next_j = i, j
    return np.array(pairs, np.int64).reshape(-1, 2)


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else math.nan


def _recorded(path: Path, record: str) -> tuple[float | None, int | None]:
    """Read a record's rate and number of samples from a summary; None where it states none."""
    remedy = "Give the folder that ecg-dask run has written"
    allowed = 'the summary of a run, with the facts of each record under "records"'
    try:
        summary: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(str(path), "no such file", allowed, remedy) from error
    except (OSError, ValueError) as error:
        raise InputError(str(path), str(error), allowed, remedy) from error
    records = summary.get("records") if isinstance(summary, dict) else None
    if not isinstance(records, dict):
        raise InputError(str(path), 'no "records"', allowed, remedy)
    if record not in records:
        names = ", ".join(records) or "none"
        remedy = "Name the record that belongs to the reference"
        raise InputError(str(path), f"no record {record!r}", f"a record of: {names}", remedy)
    facts = records[record] if isinstance(records[record], dict) else {}
    fs, samples = facts.get("fs"), facts.get("samples")
    if fs is not None:
        fs = _positive(f"fs of {record} in {path}", fs, "a positive number")
    return fs, samples if isinstance(samples, int) else None


def _detected(path: Path, record: str) -> Integers:
    import pyarrow
    from pyarrow import parquet

    allowed = 'a Parquet file with the columns "record" and "sample"'
    remedy = "Give the folder that ecg-dask run has written, past its segment stage"
    if not path.exists():
        raise InputError(str(path), "no such file", allowed, remedy)
    try:
        table = parquet.read_table(path, columns=["sample"], filters=[("record", "==", record)])
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(str(path), str(error), allowed, remedy) from error
    if "sample" not in table.column_names:
        raise InputError(str(path), 'no column "sample"', allowed, remedy)
    # Files of one data set are not read in the order of their rows.
    return _samples(f"sample of {path}", np.sort(table["sample"].to_numpy()))
