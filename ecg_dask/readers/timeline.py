"""Settle the sampling rate and the missing samples from what a whole time column tells."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..errors import InputError
from .clock import LONGEST_JUMP_S, Change, Clock, Floats, Rows, Span
from .files import counted, fs_needed

#: Late and early time stamps this many rows apart may belong to one stall of the clock.
_STALL_ROWS = 16


@dataclass(frozen=True, eq=False)
class Timeline:
    """What a whole time column tells.

    Attributes
    ----------
    fs
        Slope of the column in Hz, jumps left out; None for a counter, or with too few rows.
    uncertainty
        Of that slope, in Hz.
    jump_rows, jump_lengths
        The row after each jump, and the jump's length beyond the usual step, in the column's units.
    """

    fs: float | None
    uncertainty: float
    jump_rows: Rows
    jump_lengths: Floats


@dataclass(frozen=True, eq=False)
class Timing:
    """The rate in Hz, the samples missing before rows, and the notes about both."""

    fs: float
    gap_rows: Rows
    gap_samples: Rows
    notes: tuple[str, ...] = ()


def timing_of(path: str, clock: Clock, span: Span, given: float | None) -> Timing:
    """Settle the rate and the gaps of a recording from its whole time column.

    Parameters
    ----------
    path
        The file's name, for messages.
    clock, span
        The column, and what all its rows tell.
    given
        The rate in Hz that the user or a header gives; None when neither does.

    Raises
    ------
    InputError
        When there is no rate or when the given one is another, or when the column is no clock.
    """
    told = timeline(span, clock)
    fs, notes = settled_fs(path, clock, told, given)
    if fs is None:
        raise fs_needed(path, f"too few rows in the time column {clock.name}")
    samples = missing_samples(path, clock, told, fs, span.rows)
    column = "time column" if clock.per_second else f"counter {clock.name}"
    return Timing(fs, told.jump_rows, samples, notes + jumps_note(samples, column))


def wrong_step(where: str, clock: Clock, step: float) -> InputError:
    """Say that a clock went back, or jumped by more than seven days, at a place in a file."""
    if clock.kind == "counter":
        found = f"a counter that steps by {step:g}"
        allowed = "a counter that grows by one each row, or by more where samples are missing"
    elif step < 0:
        found = f"a time {-step / clock.per_second:.6g} s before the one above"
        allowed = "times that do not go back"
    else:
        found = f"a time {step / clock.per_second / 86_400:.4g} days after the one above"
        allowed = "jumps of at most 7 days"
    return InputError(
        f"{where}, column {clock.name}",
        found,
        allowed,
        "Correct the column, cut the file there, or delete the column and give fs",
    )


def timeline(span: Span, clock: Clock) -> Timeline:
    """Find the rate and the jumps of a whole column.

    A late time stamp whose followers catch up again is no jump: what stands out is summed over a
    stall before it counts.
    """
    if clock.kind == "counter":
        return Timeline(None, 0.0, span.event_rows, span.event_steps - 1)
    lengths: dict[int, float] = {}
    jump, debt, debt_row = -_STALL_ROWS - 1, 0.0, -_STALL_ROWS - 1
    for row, step in zip(span.event_rows.tolist(), span.event_steps.tolist(), strict=True):
        beyond = step - clock.tick
        owed = debt if row - debt_row <= _STALL_ROWS else 0.0
        if beyond > 0:
            lengths[row], jump, debt = beyond + owed, row, 0.0
        elif row - jump <= _STALL_ROWS:
            lengths[jump] += beyond
        else:
            debt, debt_row = owed + beyond, row
    # A row with a time of its own is late by half a sample before a missing one is likelier.
    least = 0.0 if clock.repeats else 0.5 * clock.tick
    rows = np.array([row for row, length in lengths.items() if length >= least], np.int64)
    kept = np.array([lengths[row] for row in rows.tolist()], np.float64)

    start, stop = Change(0, span.first, 0), Change(span.rows - 1, span.last, span.turns)
    if clock.repeats and span.changes:
        start, stop = span.changes
    n_steps = stop.row - start.row
    length = stop.time - start.time + clock.modulo * (stop.turns - start.turns)
    jumps = np.isin(span.event_rows, rows) & (span.event_rows > start.row)
    length -= float(span.event_steps[jumps].sum())
    if clock.repeats:
        length += clock.tick * int(jumps.sum())
    else:
        n_steps -= int(jumps.sum())
    if n_steps < 1 or length <= 0:
        return Timeline(None, 0.0, rows, kept)
    fs = n_steps * clock.per_second / length
    # Each step that is left out takes the jitter of two times with it.
    uncertainty = fs * clock.spread * math.sqrt(1 + int(jumps.sum())) / length
    return Timeline(fs, uncertainty, rows, kept)


def settled_fs(
    path: str, clock: Clock, told: Timeline, given: float | None
) -> tuple[float | None, tuple[str, ...]]:
    """Settle the rate between a time column and the one that was given, with notes.

    The column's own rate is taken as a whole number of Hz where its uncertainty allows. A given
    rate within 1 % of it (or within its uncertainty) is taken instead.

    Raises
    ------
    InputError
        When the given rate is another one.
    """
    if told.fs is None:
        return given, ()
    fs = told.fs
    if round(fs) and abs(fs - round(fs)) <= told.uncertainty:
        fs = float(round(fs))
    if given is None:
        exact = fs == round(fs)
        note = f"fs of {fs:.6g} Hz is the slope of the time column {clock.name}"
        return fs, () if exact else (note,)
    if abs(given - fs) > max(0.01 * fs, told.uncertainty):
        raise InputError(
            f"fs of {path}",
            f"{given:g} Hz given and {fs:.6g} Hz in the time column {clock.name}",
            "a rate within 1 % of the time column's",
            "Leave fs out, or correct the unit of time in the column's name",
        )
    note = f"fs is {given:g} Hz as given; the time column {clock.name} says {fs:.6g} Hz"
    return given, () if given == fs else (note,)


def missing_samples(path: str, clock: Clock, told: Timeline, fs: float, n_rows: int) -> Rows:
    """Return how many samples each jump lost.

    Raises
    ------
    InputError
        When there are so many jumps that the column is no clock of single samples, or when a
        counter skips more than seven days.
    """
    counts = told.jump_lengths * (fs / clock.per_second if clock.per_second else 1.0)
    samples = np.maximum(1, np.rint(counts).astype(np.int64))
    if samples.size >= 8 and samples.size > 0.01 * n_rows and samples.sum() > n_rows:
        raise InputError(
            f"{path}, column {clock.name}",
            f"{samples.size} jumps in {n_rows} rows, as when rows arrive in bursts",
            "a time for each sample",
            "Delete the column and give fs",
        )
    if samples.size and samples.max() > LONGEST_JUMP_S * fs:
        raise InputError(
            f"{path}, column {clock.name}",
            f"a jump of {samples.max()} samples",
            "jumps of at most 7 days",
            "Cut the file there",
        )
    return samples


def jumps_note(samples: Rows, column: str) -> tuple[str, ...]:
    """Return the note about the jumps in a column, none when there are none."""
    if not samples.size:
        return ()
    return (
        f"{counted(samples.size, 'jump')} in the {column} became "
        f"{counted(int(samples.sum()), 'missing sample')}",
    )
