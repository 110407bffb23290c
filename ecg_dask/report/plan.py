"""Which beats the page shows and compares them with, told by the table alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..anomaly import group_facts
from ..anomaly.context import record_scale
from ..anomaly.scoring import PARTS

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
Times = npt.NDArray[np.float64]


class Kind(NamedTuple):
    """What the beats of one recording have in common.

    Attributes
    ----------
    fs
        Sampling rate in Hz.
    times_s
        Seconds from the beat, of shape (n_window,).
    """

    fs: float
    times_s: Times


class Shown(NamedTuple):
    """What one picture shows.

    Attributes
    ----------
    rows
        Rows of the table that it is made of, ascending: one, or those of a template.
    record
        The record whose median beat lies beside it.
    facts
        What is known without the waves.
    kind
        What the beats have in common.
    """

    rows: Rows
    record: str
    facts: dict[str, Any]
    kind: Kind


@dataclass(frozen=True, eq=False)
class Plan:
    """What to fetch and to show.

    Attributes
    ----------
    rows
        All rows of the table to fetch, ascending.
    worst
        The beats with the highest scores, highest first.
    next_s
        Of each of these the seconds to the next beat, NaN where unknown.
    groups
        The groups, largest first.
    medians
        By record, the rows that its median beat is made of.
    scales
        By record, the height that the network takes for `HEIGHT`, in the unit of its waves.
    """

    rows: Rows
    worst: list[Shown]
    next_s: list[float]
    groups: list[Shown]
    medians: dict[str, Rows]
    scales: dict[str, float]


def plan_of(
    scored: pd.DataFrame,
    kinds: Sequence[Kind],
    owner: Rows,
    n: int,
    n_median: int,
    n_template: int,
) -> Plan:
    """Make the plan.

    Parameters
    ----------
    scored
        All rows of the scored tables.
    kinds
        Of each recording.
    owner
        Number of each row's recording, int64 of shape (n_beats,).
    n
        How many of the worst beats to show.
    n_median, n_template
        Beats that a median beat and a template are made of, at most.
    """
    worst = _worst(scored, kinds, owner, n)
    groups = _groups(scored, kinds, owner, n_template)
    complete = scored["complete"].to_numpy(dtype=bool)
    height = np.abs(scored["amplitude"].to_numpy(dtype=np.float32, na_value=np.nan))
    next_s = scored["rr_next_s"].to_numpy(dtype=np.float64, na_value=np.nan)
    record = scored["record"].to_numpy()
    medians, scales = {}, {}
    for name in dict.fromkeys(shown.record for shown in [*worst, *groups]):
        own = np.flatnonzero(complete & (record == name))
        medians[name], scales[name] = _evenly(own, n_median), record_scale(height[own])
    wanted = [*(shown.rows for shown in [*worst, *groups]), *medians.values()]
    return Plan(
        rows=np.unique(np.concatenate([np.empty(0, np.int64), *wanted])),
        worst=worst,
        next_s=[next_s[shown.rows[0]] for shown in worst],
        groups=groups,
        medians=medians,
        scales=scales,
    )


def _worst(scored: pd.DataFrame, kinds: Sequence[Kind], owner: Rows, n: int) -> list[Shown]:
    score = scored["score"].to_numpy(dtype=np.float64, na_value=np.nan)
    usable = np.flatnonzero(scored["complete"].to_numpy(dtype=bool) & np.isfinite(score))
    rows = usable[np.argsort(-score[usable], kind="stable")[:n]]
    beats = scored.iloc[rows].to_dict("records")
    return [
        Shown(
            rows=rows[i : i + 1],
            record=str(beat["record"]),
            facts={
                "sample": int(beat["sample"]),
                "time_s": float(beat["time_s"]),
                "score": float(beat["score"]),
                "parts": {part: float(beat[f"score_{part}"]) for part in PARTS},
            },
            kind=kinds[owner[rows[i]]],
        )
        for i, beat in enumerate(beats)
    ]


def _groups(
    scored: pd.DataFrame, kinds: Sequence[Kind], owner: Rows, n_template: int
) -> list[Shown]:
    record, time_s = scored["record"].to_numpy(), scored["time_s"].to_numpy()
    number = scored["group"].to_numpy(dtype=np.int64, na_value=0)
    shown = []
    for facts in group_facts(scored):
        # Of one record: others may have another rate, unit or lead, and usual beats of their own.
        name = next(iter(facts["records"]))
        own = np.flatnonzero((number == facts["group"]) & (record == name))
        shown.append(
            Shown(
                rows=_evenly(own, n_template),
                record=name,
                facts={"facts": facts, "time_s": float(time_s[own[0]])},
                kind=kinds[owner[own[0]]],
            )
        )
    return shown


def _evenly(rows: Rows, n: int) -> Rows:
    """Return `n` of the rows, or all of fewer, the first and the last among them."""
    even: Rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), n)).astype(np.int64)]
    return even
