"""What the record's table says of a beat: its scale, how early it comes, and which beats are usual.

It needs the intervals of a whole record, which are a few numbers a beat, and no wave.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from dask.delayed import Delayed, delayed
from scipy.ndimage import median_filter, percentile_filter

from ..arrays import namespace, on_host
from ..beats import one_layer
from .inputs import model_inputs, selected

#: Beats of the running rhythm, about 25 s, whose median outlasts fifteen early beats in a row; and
#: beats, about 50 s, by which the spread of the intervals and the longest usual ones are judged.
RUN, NEAR = 31, 61

#: Percentile of the intervals nearby that stands for the longest usual ones.
LONG = 90

#: A beat that comes more than 18 % earlier than those is not sure to be on time: a logarithm.
ON_TIME = 0.2

#: Earliness is told in units of 5 %, as much as breathing makes, and of a quarter of the spread
#: nearby, which in atrial fibrillation is large: there no beat is early.
UNIT, SHARE = 0.05, 0.25

#: Beats that are usual by their time below which all complete ones of the training part are; and
#: with fewer of these, all complete ones.
FEWEST_USUAL = 20

#: Usual beats of a record that its statistics are made of; more would change them little.
LARGEST_SAMPLE = 2048

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


class Told(NamedTuple):
    """What a partition tells of its beats, on the host.

    Attributes
    ----------
    runs
        Names of its records in their order, with the number of rows of each.
    height
        Absolute amplitudes, float32 of shape (n_beats,).
    rr_s, next_s
        Seconds from the beat before, and to the next, float64 of shape (n_beats,), NaN where
        unknown.
    complete, train
        Which beats are complete, and which are of the training part, bool of shape (n_beats,).
    """

    runs: tuple[tuple[str, int], ...]
    height: npt.NDArray[np.float32]
    rr_s: Floats
    next_s: Floats
    complete: Mask
    train: Mask


class Context(NamedTuple):
    """What the score of a partition's beats needs of their records, on the host.

    Attributes
    ----------
    runs
        As in `Told`.
    scale
        Median height of the record's complete beats, 1 where that is not positive, float32 of shape
        (n_beats,), in the unit of the waves.
    next_s
        As in `Told`.
    early
        How early each beat comes, in robust units, float64 of shape (n_beats,); 0 where unknown.
    on_time
        Which beats come on time, bool of shape (n_beats,).
    usual
        Complete beats that stand for the record's usual ones, bool of shape (n_beats,).
    sample
        At most `LARGEST_SAMPLE` of these a record, evenly chosen, bool of shape (n_beats,).
    """

    runs: tuple[tuple[str, int], ...]
    scale: npt.NDArray[np.float32]
    next_s: Floats
    early: Floats
    on_time: Mask
    usual: Mask
    sample: Mask


#: Of a partition without rows.
NO_CONTEXT = Context((), np.empty(0, np.float32), *(np.empty(0),) * 2, *(np.empty(0, bool),) * 3)


def told(table: Any) -> Told:
    """Take what others need from a partition of the beat table (a task)."""
    records = table["record"]
    if len(records) and bool((records == records.iloc[0]).all()):
        # Nearly always, and names by the hundred thousand are slow to look at one by one.
        runs: tuple[tuple[str, int], ...] = ((str(records.iloc[0]), len(records)),)
    else:
        names = groupby(records.to_numpy().tolist())
        runs = tuple((name, sum(1 for _ in rows)) for name, rows in names)
    return Told(
        runs=runs,
        height=np.abs(table["amplitude"].to_numpy(dtype=np.float32, na_value=np.nan)),
        rr_s=table["rr_prev_s"].to_numpy(dtype=np.float64, na_value=np.nan),
        next_s=table["rr_next_s"].to_numpy(dtype=np.float64, na_value=np.nan),
        complete=table["complete"].to_numpy(dtype=bool),
        train=(table["split"] == "train").to_numpy(dtype=bool),
    )


def contexts(parts: Sequence[Told]) -> list[Context]:
    """Return the `Context` of each partition (a task)."""
    scale = [np.ones(len(part.rr_s), np.float32) for part in parts]
    early = [np.zeros(len(part.rr_s)) for part in parts]
    punctual, usual, sample = ([np.zeros(len(part.rr_s), bool) for part in parts] for _ in range(3))
    for places in _records(parts):
        height, rr_s, complete, train = (
            np.concatenate([getattr(parts[i], name)[rows] for i, rows in places])
            for name in ("height", "rr_s", "complete", "train")
        )
        how_early, on_time = timing(rr_s)
        kept = usual_beats(on_time, complete, train)
        some = np.zeros_like(kept)
        (number,) = np.nonzero(kept)
        some[number[:: max(-(-number.size // LARGEST_SAMPLE), 1)]] = True
        one = record_scale(height[complete])
        at = 0
        for i, rows in places:
            stop = at + rows.stop - rows.start
            scale[i][rows], early[i][rows] = one, how_early[at:stop]
            punctual[i][rows] = on_time[at:stop]
            usual[i][rows], sample[i][rows] = kept[at:stop], some[at:stop]
            at = stop
    runs, next_s = [part.runs for part in parts], [part.next_s for part in parts]
    return list(map(Context, runs, scale, next_s, early, punctual, usual, sample))


def delayed_contexts(tables: Sequence[Delayed]) -> Delayed:
    """Return the `contexts` of delayed partitions, as one task's result."""
    found = delayed(contexts)([delayed(told)(table) for table in tables])
    return one_layer([found], f"contexts-{found.key}")[0]


def _records(parts: Sequence[Told]) -> list[list[tuple[int, slice]]]:
    """Return for each record the partitions and rows that hold its beats, in order."""
    places: dict[str, list[tuple[int, slice]]] = {}
    for i, part in enumerate(parts):
        start = 0
        for name, count in part.runs:
            places.setdefault(name, []).append((i, slice(start, start + count)))
            start += count
    return list(places.values())


def record_scale(height: npt.NDArray[np.float32]) -> float:
    """Return the median height of a record's complete beats; 1 where it is not positive."""
    known = height[np.isfinite(height)]
    median = float(np.median(known)) if known.size else 0.0
    return median if median > 0 else 1.0


def timing(rr_s: Floats) -> tuple[Floats, Mask]:
    """Tell how early each beat of a record comes, and which are surely on time.

    Parameters
    ----------
    rr_s
        Seconds from the beat before, float64 of shape (n_beats,), NaN where unknown.

    Returns
    -------
    early
        float64 of shape (n_beats,): logarithm of the running median of `RUN` intervals over this
        one, divided by ``UNIT + SHARE * spread``, the spread being 1.4826 times the running median
        of `NEAR` absolute logarithms. 0 where the interval is unknown.
    on_time
        bool of shape (n_beats,): whether the interval is at least ``exp(-ON_TIME)`` of the `LONG`
        th percentile of the `NEAR` intervals around it. Where every second beat is early, as in
        bigeminy, the median is no measure of the usual interval and the long ones are.
    """
    known = np.isfinite(rr_s) & (rr_s > 0)
    typical = np.median(rr_s[known]) if known.any() else 1.0
    log = np.log(np.where(known, rr_s, typical))
    if not log.size:
        return log, known
    ahead = np.where(known, median_filter(log, RUN, mode="nearest") - log, 0.0)
    spread = 1.4826 * median_filter(np.abs(ahead), NEAR, mode="nearest")
    longest = percentile_filter(log, LONG, size=NEAR, mode="nearest")
    return ahead / (UNIT + SHARE * spread), longest - log < ON_TIME


def usual_beats(on_time: Mask, complete: Mask, train: Mask) -> Mask:
    """Choose the beats of a record that stand for its usual ones, without labels."""
    for rows in (complete & train & on_time, complete & train):
        if rows.sum() >= FEWEST_USUAL:
            return rows
    return complete


def runs_of(runs: Sequence[tuple[str, int]], kept: Mask) -> tuple[tuple[str, int], ...]:
    """Return the runs of the rows that are kept; none of a record that loses them all."""
    left, start = [], 0
    for name, count in runs:
        left.append((name, int(kept[start : start + count].sum())))
        start += count
    return tuple((name, count) for name, count in left if count)


def split_runs(rows: Any, runs: Sequence[tuple[str, int]]) -> list[tuple[str, Any]]:
    """Cut an array, a row a beat, into the parts of the records."""
    parts, start = [], 0
    for name, count in runs:
        parts.append((name, rows[start : start + count]))
        start += count
    return parts


def inputs_of(
    waves: Any, context: Context, rows: Any, fs: float, window: tuple[float, float]
) -> Any:
    """Return some beats of a partition as the network sees them; see `model_inputs`.

    Parameters
    ----------
    waves
        Waves of these beats.
    context
        Of the partition.
    rows
        Mask or numbers, on the host, of the beats in the partition.
    fs
        Sampling rate in Hz.
    window
        Seconds before and after the beat.
    """
    return model_inputs(waves, context.scale[rows], fs, window, context.next_s[rows])


def finite_inputs(
    waves: Any, context: Context, rows: Mask, fs: float, window: tuple[float, float]
) -> tuple[Any, Mask]:
    """Return those of some beats that the network can see, and which they are.

    Finite samples can still overflow; such beats are scored as null and teach nothing. Parameters
    are those of `inputs_of`, but `waves` are those of the whole partition.
    """
    inputs = inputs_of(selected(waves, rows), context, rows, fs, window)
    finite = on_host(namespace(inputs).isfinite(inputs).all(axis=(1, 2)))
    kept = rows.copy()
    kept[kept] = finite
    return selected(inputs, finite), kept
