"""Time columns: the sampling rate that they tell, and the samples that are missing in them.

A column is read in blocks. Each block gives a `Span`: its first and last time and the few steps
that stand out. Which steps stand out is decided beforehand, from probes at fixed places of the
file, so that the answer does not depend on how the file is cut into blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

#: A jump longer than this, in seconds, is no pause in a recording but a clock that was set.
LONGEST_JUMP_S = 7 * 86_400
#: Rates in Hz that make a unit of time plausible, and the units in the order they are tried in.
PLAUSIBLE_FS = (20.0, 20_000.0)
UNITS_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


@dataclass(frozen=True)
class Clock:
    """How to read one column of times or of counted rows.

    Attributes
    ----------
    kind
        ``"number"``, ``"clock"``, ``"date"`` or ``"zoned"`` as in `columns_of`, or ``"counter"``.
    name
        The column's name, for messages.
    per_second
        How many of the column's units make a second; 0 for a counter.
    modulo
        Where the column begins again: 86400 for the time of day, 16 for a counter of 4 bits; 0 for
        a column that never does.
    base
        Subtracted from dates, so that floats hold their differences exactly.
    low, high
        Steps outside of these stand out.
    tick
        The usual step.
    spread
        Width of the jitter of a single time, the column's resolution included.
    repeats
        Whether several rows share a time, as when seconds are all that the column tells.
    """

    kind: str
    name: str
    per_second: float = 0
    modulo: int = 0
    base: int = 0
    low: float = 1
    high: float = 1
    tick: float = 1
    spread: float = 0
    repeats: bool = False


@dataclass(frozen=True)
class Change:
    """A row whose time differs from the row's before; `turns` counts the clock's turns so far."""

    row: int
    time: float
    turns: int


def _no_rows() -> Rows:
    return np.empty(0, np.int64)


def _no_steps() -> Floats:
    return np.empty(0)


@dataclass(frozen=True, eq=False)
class Span:
    """What a run of rows tells of its time column.

    Attributes
    ----------
    rows
        Number of rows.
    first, last
        First and last time, as written.
    turns
        How often the clock turned between them.
    changes
        The first and the last change; kept where rows share times.
    event_rows, event_steps
        The steps that stand out, and the rows they lead to.
    wrong
        Row and step of the first step that no clock takes: back, or more than seven days.
    """

    rows: int
    first: float = np.nan
    last: float = np.nan
    turns: int = 0
    changes: tuple[Change, ...] = ()
    event_rows: Rows = field(default_factory=_no_rows)
    event_steps: Floats = field(default_factory=_no_steps)
    wrong: tuple[int, float] | None = None


def resolution(values: Floats) -> float:
    """Return the largest power of ten of which all values are multiples; 0 when there is none."""
    largest = float(np.abs(values).max(initial=0))
    for exponent in range(9, -10, -1):
        scaled = values / 10.0**exponent
        noise = 4 * np.finfo(float).eps * largest / 10.0**exponent
        if noise < 0.01 and (np.abs(scaled - np.rint(scaled)) <= noise).all():
            return float(10.0**exponent)
    return 0.0


def steps_of(times: Floats, clock: Clock) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return the steps between times, and where the clock turned within one."""
    steps = np.diff(times)
    if clock.kind == "counter":
        if clock.modulo:
            steps = np.mod(steps - 1, clock.modulo) + 1
        return steps, np.zeros(len(steps), bool)
    turned = steps < -clock.modulo / 2 if clock.modulo else np.zeros(len(steps), bool)
    return steps + turned * float(clock.modulo), turned


def learn_steps(clock: Clock, probes: Sequence[Floats]) -> Clock | None:
    """Learn from probes which steps of a time column are usual ones.

    A step stands out when it is longer than 1.5 usual ones and farther from them than the column's
    resolution and five times the usual lateness (the 90th percentile) together.

    Returns
    -------
    Clock, or None when no probe has a step in it.
    """
    steps = np.concatenate([np.empty(0), *(steps_of(probe, clock)[0] for probe in probes)])
    steps = steps[steps >= 0]
    longer = steps[steps > 0]
    if not longer.size:
        return None
    values = np.concatenate(probes)
    noise = 8 * np.finfo(float).eps * float(np.abs(values).max())
    written = resolution(values)
    median = float(np.median(longer))
    early, late = np.quantile(longer, [0.1, 0.9]).tolist()
    repeats = longer.size < 0.95 * steps.size
    even = float(np.mean(np.abs(longer - median) <= noise)) >= 0.98
    usual = longer[longer < 1.75 * median]
    tick = median if even else float(usual.mean())
    step = 0.0 if even else min(written, tick)
    return replace(
        clock,
        low=0.0
        if repeats
        else min(0.5 * tick, tick - step - 5 * max(0.0, tick - early - step)) - noise,
        high=max(1.5 * tick, tick + step + 5 * max(0.0, late - tick - step)) + noise,
        tick=tick,
        spread=float(np.quantile(usual, 0.95) - np.quantile(usual, 0.05)) + written + noise,
        repeats=repeats,
    )


def span_of(times: Floats, clock: Clock) -> Span:
    """Summarise the times of neighbouring rows."""
    if not times.size:
        return Span(0)
    steps, turned = steps_of(times, clock)
    changes = np.flatnonzero(steps)[[0, -1]] if clock.repeats and steps.any() else _no_rows()
    limit = LONGEST_JUMP_S * clock.per_second or np.inf
    back = steps < (1 if clock.kind == "counter" else 0)
    wrong = np.flatnonzero(back | (steps > limit))
    events = np.flatnonzero(~back & ((steps > clock.high) | (steps < clock.low)))
    return Span(
        rows=len(times),
        first=float(times[0]),
        last=float(times[-1]),
        turns=int(turned.sum()),
        changes=tuple(
            Change(int(i) + 1, float(times[i + 1]), int(turned[: i + 1].sum())) for i in changes
        ),
        event_rows=events + 1,
        event_steps=steps[events],
        wrong=(int(wrong[0]) + 1, float(steps[wrong[0]])) if wrong.size else None,
    )


def joined(spans: Sequence[Span], clock: Clock) -> Span:
    """Join the spans of neighbouring blocks into the span that one block would have given."""
    parts: list[tuple[int, int, Span]] = []
    rows = turns = 0
    last: Span | None = None
    for span in spans:
        if not span.rows:
            continue
        if last is not None:
            seam = span_of(np.array([last.last, span.first]), clock)
            parts.append((rows - 1, turns, seam))
            turns += seam.turns
        parts.append((rows, turns, span))
        rows, turns, last = rows + span.rows, turns + span.turns, span
    if last is None:
        return Span(0)
    changes = [
        Change(row + change.row, change.time, turned + change.turns)
        for row, turned, span in parts
        for change in span.changes
    ]
    wrongs = [(row + span.wrong[0], span.wrong[1]) for row, _, span in parts if span.wrong]
    return Span(
        rows=rows,
        first=parts[0][2].first,
        last=last.last,
        turns=turns,
        changes=(changes[0], changes[-1]) if changes else (),
        event_rows=np.concatenate([row + span.event_rows for row, _, span in parts]),
        event_steps=np.concatenate([span.event_steps for _, _, span in parts]),
        wrong=wrongs[0] if wrongs else None,
    )


def plausible_unit(step: float, given: float | None) -> str | None:
    """Guess the unit of a time column from its usual step.

    The first of s, ms, us, ns in which the step means the given rate, or, without one, a rate
    between 20 and 20,000 Hz.
    """
    for unit, per_second in UNITS_PER_SECOND.items():
        fs = per_second / step
        if given is not None:
            if abs(fs - given) <= 0.01 * given:
                return unit
        elif 0.999 * PLAUSIBLE_FS[0] <= fs <= 1.001 * PLAUSIBLE_FS[1]:
            return unit
    if given is not None:
        return plausible_unit(step, None)
    return None
