"""The beats with the highest scores, their waves, and the median beat to compare them with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from dask.delayed import Delayed, delayed

from ..arrays import on_host
from ..beats import Beats

#: Beats of a record, evenly spread over it, that its median beat is made of.
MEDIAN_BEATS = 400

_Floats = npt.NDArray[np.float32]
_Rows = npt.NDArray[np.int64]


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
    wave
        float32 of shape (n_window,): its first lead, in the record's unit.
    median_wave
        float32 of shape (n_window,): median of `n_median` beats of the record.
    n_median
        Complete beats, evenly spread over the record, that the median was made of.
    times_s
        Seconds from the beat, of shape (n_window,).
    """

    record: str
    sample: int
    time_s: float
    score: float
    wave: _Floats
    median_wave: _Floats
    n_median: int
    times_s: npt.NDArray[np.float64]


def worst_beats(
    beats: Sequence[Beats],
    scored: pd.DataFrame,
    lengths: Sequence[int],
    *,
    n: int = 12,
    n_median: int = MEDIAN_BEATS,
) -> Delayed:
    """Pick the complete beats with the highest scores, with their waves, on the workers.

    Only partitions that hold a wanted beat get a task, and it returns only the wanted waves. Which
    beats are picked depends on the table, not on its partitions.

    Parameters
    ----------
    beats
        The beats in the order of `scored`. A record lies in one of them only.
    scored
        All rows of the scored tables, with ``record``, ``sample``, ``time_s``, ``complete`` and
        ``score``.
    lengths
        Rows of each partition of `beats`, one after another.
    n
        How many to pick; fewer when fewer have a score. Of equal scores the first is taken.
    n_median
        Complete beats of a record, evenly spread over it, to make its median beat of.

    Returns
    -------
    Delayed
        List of `WorstBeat`, highest score first.
    """
    blocks = [block for part in beats for _, block in part.partitions()]
    owners = [i for i, part in enumerate(beats) for _ in range(part.waves.numblocks[0])]
    stops = np.cumsum(lengths, dtype=np.int64)
    if len(lengths) != len(blocks) or (stops[-1] if len(stops) else 0) != len(scored):
        raise ValueError("lengths must hold the rows of every partition of the scored table")
    plan = _plan(scored, n, n_median)
    partition_of = np.searchsorted(stops, plan.rows, side="right")
    picked, times_s = [], []
    for partition in np.unique(partition_of).tolist():
        own = plan.rows[partition_of == partition] - (stops[partition] - lengths[partition])
        picked.append(delayed(_pick)(blocks[partition], own))
        part = beats[owners[partition]]
        offsets = np.arange(part.waves.shape[2]) - round(part.window[0] * part.fs)
        times_s += [offsets / part.fs] * len(own)
    return delayed(_assemble)(picked, plan, [times_s[i] for i in plan.worst])


@dataclass(frozen=True, eq=False)
class _Plan:
    """Which rows to fetch: `rows` of the table; `worst` and `samples` index into `rows`."""

    rows: _Rows
    worst: _Rows
    samples: dict[str, _Rows]
    facts: list[tuple[str, int, float, float]]


def _plan(scored: pd.DataFrame, n: int, n_median: int) -> _Plan:
    complete = scored["complete"].to_numpy(dtype=bool)
    score = scored["score"].to_numpy(dtype=np.float64, na_value=np.nan)
    usable = np.flatnonzero(complete & np.isfinite(score))
    worst = usable[np.argsort(-score[usable], kind="stable")[:n]]
    record = scored["record"].to_numpy()
    facts = [
        (str(record[row]), int(sample), float(time_s), float(score[row]))
        for row, sample, time_s in zip(
            worst.tolist(), scored["sample"].iloc[worst], scored["time_s"].iloc[worst], strict=True
        )
    ]
    samples: dict[str, _Rows] = {}
    for name in dict.fromkeys(fact[0] for fact in facts):
        own = np.flatnonzero(complete & (record == name))
        even = np.linspace(0, len(own) - 1, min(len(own), n_median)).astype(np.int64)
        samples[name] = own[even]
    rows = np.unique(np.concatenate([worst, *samples.values()]))
    return _Plan(
        rows=rows,
        worst=np.searchsorted(rows, worst),
        samples={name: np.searchsorted(rows, own) for name, own in samples.items()},
        facts=facts,
    )


def _pick(block: Any, rows: _Rows) -> list[_Floats]:
    """Copy the first lead of some waves to the host."""
    waves = block[rows, 0]
    return list(on_host(waves))


def _assemble(
    picked: Sequence[Sequence[_Floats]], plan: _Plan, times_s: Sequence[npt.NDArray[np.float64]]
) -> list[WorstBeat]:
    waves = [wave for part in picked for wave in part]
    medians = {
        name: np.median([waves[i] for i in own], axis=0).astype(np.float32)
        for name, own in plan.samples.items()
    }
    return [
        WorstBeat(
            record=record,
            sample=sample,
            time_s=time_s,
            score=score,
            wave=waves[i],
            median_wave=medians[record],
            n_median=len(plan.samples[record]),
            times_s=times,
        )
        for i, (record, sample, time_s, score), times in zip(
            plan.worst.tolist(), plan.facts, times_s, strict=True
        )
    ]
