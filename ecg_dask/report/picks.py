"""The beats that the page shows: those with the highest scores, and a template of each group.

One pass of tasks fetches the waves of both, and of the median beats to compare them with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from dask.delayed import Delayed, delayed

from ..arrays import on_host
from ..beats import Beats
from .plan import Floats, Kind, Plan, Rows, Times, plan_of
from .reconstruction import points_s, reconstructions

#: Beats of a record, evenly spread over it, that its median beat is made of; and of a group, that
#: its template is made of.
MEDIAN_BEATS, TEMPLATE_BEATS = 400, 200


@dataclass(frozen=True, eq=False)
class WorstBeat:
    """A beat with a high score, as the page shows it.

    Attributes
    ----------
    record
        Name of its record.
    sample
        Its sample, counted from the record's first.
    time_s
        Seconds from the record's first sample.
    score
        Its anomaly score.
    parts
        The parts of the score by name: shape, timing, amplitude.
    wave
        float32 of shape (n_window,): its first lead, in the record's unit.
    median_wave
        float32 of shape (n_window,): median of `n_median` beats of the record.
    n_median
        Complete beats, evenly spread over the record, that the median was made of.
    times_s
        Seconds from the beat, of shape (n_window,).
    reconstruction
        float32 of shape (n_points,): what the network makes of the wave, in the record's unit.
    points_s
        Seconds from the beat, of shape (n_points,).
    """

    record: str
    sample: int
    time_s: float
    score: float
    parts: dict[str, float]
    wave: Floats
    median_wave: Floats
    n_median: int
    times_s: Times
    reconstruction: Floats
    points_s: Times


@dataclass(frozen=True, eq=False)
class GroupTemplate:
    """A group of anomalies, as the page shows it.

    Attributes
    ----------
    facts
        What `group_facts` tells of the group.
    wave
        float32 of shape (n_window,): median of the first lead of `n_wave` beats of the group.
    n_wave
        Beats of one record, evenly spread over its beats of the group, that it was made of.
    record
        This record, the one that most beats of the group are of.
    time_s
        Seconds from its first sample to its first beat of the group.
    median_wave
        float32 of shape (n_window,): median of `n_median` beats of this record.
    n_median
        Complete beats, evenly spread over the record, that the median was made of.
    times_s
        Seconds from the beat, of shape (n_window,).
    """

    facts: dict[str, Any]
    wave: Floats
    n_wave: int
    record: str
    time_s: float
    median_wave: Floats
    n_median: int
    times_s: Times


class Picked(NamedTuple):
    """The beats that the page shows.

    Attributes
    ----------
    worst
        Those with the highest scores, highest first.
    groups
        The groups of anomalies, largest first.
    """

    worst: Sequence[WorstBeat] = ()
    groups: Sequence[GroupTemplate] = ()


def pick_beats(
    beats: Sequence[Beats],
    scored: pd.DataFrame,
    lengths: Sequence[int],
    model: Any,
    *,
    n: int = 12,
    n_median: int = MEDIAN_BEATS,
    n_template: int = TEMPLATE_BEATS,
) -> Delayed:
    """Pick the beats that the page shows, with their waves, on the workers.

    Only partitions that hold a wanted beat get a task, and it returns only the wanted waves. Which
    beats are picked depends on the table, not on its partitions.

    Parameters
    ----------
    beats
        The beats in the order of `scored`. A record lies in one of them only.
    scored
        All rows of the scored tables, columns as in ``beats.parquet``.
    lengths
        Rows of each partition of `beats`, one after another.
    model
        The model that scored them.
    n
        How many of the complete beats with the highest scores to pick; fewer when fewer have a
        score. Of equal scores the first is taken.
    n_median
        Complete beats of a record, evenly spread over it, to make its median beat of.
    n_template
        Beats of a group, of the record that most are of, to make its template of.

    Returns
    -------
    Delayed
        A `Picked`.
    """
    blocks = [block for part in beats for _, block in part.partitions()]
    owners = np.repeat(np.arange(len(beats)), [part.waves.numblocks[0] for part in beats])
    stops = np.cumsum(lengths, dtype=np.int64)
    if len(lengths) != len(blocks) or (stops[-1] if len(stops) else 0) != len(scored):
        raise ValueError("lengths must hold the rows of every partition of the scored table")
    owner = np.repeat(owners, np.asarray(lengths, dtype=np.int64))
    plan = plan_of(scored, list(map(_kind, beats)), owner, n, n_median, n_template)
    partition_of = np.searchsorted(stops, plan.rows, side="right")
    whole = np.isin(plan.rows, [beat.rows[0] for beat in plan.worst])
    fetched = []
    for partition in np.unique(partition_of).tolist():
        here = partition_of == partition
        own = plan.rows[here] - (stops[partition] - lengths[partition])
        fetched.append(delayed(_fetch)(blocks[partition], own, own[whole[here]]))
    whole_plan, whole_model = (delayed(value, traverse=False) for value in (plan, model))
    return delayed(_assemble)(fetched, whole_plan, whole_model)


def _kind(beats: Beats) -> Kind:
    offsets = np.arange(beats.waves.shape[2]) - round(beats.window[0] * beats.fs)
    return Kind(beats.fs, offsets / beats.fs)


class _Fetched(NamedTuple):
    """Waves of a partition, on the host: the first lead of some, and all leads of few."""

    first: Floats
    whole: Floats


def _fetch(block: Any, rows: Rows, whole: Rows) -> _Fetched:
    """Copy the first lead of some waves, and all leads of others, to the host."""
    return _Fetched(on_host(block[rows, 0]), on_host(block[whole]))


def _assemble(fetched: Sequence[_Fetched], plan: Plan, model: Any) -> Picked:
    waves = [wave for part in fetched for wave in part.first]
    whole = [wave for part in fetched for wave in part.whole]

    def median(rows: Rows) -> Floats:
        own = np.stack([waves[i] for i in np.searchsorted(plan.rows, rows)])
        middle: Floats = np.median(own, axis=0).astype(np.float32)
        return middle

    medians = {name: median(rows) for name, rows in plan.medians.items()}
    # The waves come in the order of their rows, and the worst beats stand in that of their scores.
    place = np.argsort(np.argsort([beat.rows[0] for beat in plan.worst])).tolist()
    made = reconstructions(
        [whole[i] for i in place],
        [plan.scales[beat.record] for beat in plan.worst],
        plan.next_s,
        [beat.kind.fs for beat in plan.worst],
        model,
    )
    worst = [
        WorstBeat(
            record=beat.record,
            **beat.facts,
            wave=whole[i][0],
            median_wave=medians[beat.record],
            n_median=len(plan.medians[beat.record]),
            times_s=beat.kind.times_s,
            reconstruction=one,
            points_s=points_s(model.window),
        )
        for beat, i, one in zip(plan.worst, place, made, strict=True)
    ]
    groups = [
        GroupTemplate(
            record=group.record,
            **group.facts,
            wave=median(group.rows),
            n_wave=len(group.rows),
            median_wave=medians[group.record],
            n_median=len(plan.medians[group.record]),
            times_s=group.kind.times_s,
        )
        for group in plan.groups
    ]
    return Picked(worst, groups)
