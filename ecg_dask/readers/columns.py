"""Tell what the columns of a table are: a time, a counter of rows, leads, or text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..errors import InputError
from .clock import UNITS_PER_SECOND, Clock, Floats, learn_steps, plausible_unit
from .files import unique_names

_TIME_UNITS = {
    "s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s",
    "ms": "ms", "msec": "ms", "msecs": "ms", "milli": "ms", "millis": "ms", "millisecond": "ms",
    "milliseconds": "ms",
    "us": "us", "µs": "us", "μs": "us", "usec": "us", "micro": "us", "micros": "us",
    "microsecond": "us", "microseconds": "us",
    "ns": "ns", "nsec": "ns", "nano": "ns", "nanos": "ns", "nanosecond": "ns", "nanoseconds": "ns",
    "min": "min", "mins": "min", "minute": "min", "minutes": "min",
    "h": "h", "hr": "h", "hrs": "h", "hour": "h", "hours": "h",
}  # fmt: skip
#: Units that are taken only when the header tells them; a column named min alone is none of them.
_LONG_UNITS = {"min": 1 / 60, "h": 1 / 3600}
_VOLTS = {
    "v": "V", "volt": "V", "volts": "V", "mv": "mV", "millivolt": "mV", "millivolts": "mV",
    "uv": "uV", "µv": "uV", "μv": "uV", "microvolt": "uV", "microvolts": "uV", "nv": "nV",
    "adu": "adu", "adc": "adu", "counts": "adu", "lsb": "adu",
}  # fmt: skip
_IN_BRACKETS = re.compile(r"(.*?)[\s_]*[(\[]\s*([^()\[\]]*?)\s*[)\]]")
_TIME_NAME = re.compile(
    r"t|(elapsed|unix|epoch|utc|local|system|device|sample|sampling)?[ _-]?(time|timestamp)s?"
    r"|time[ _-]?(stamp|of[ _-]?day)s?|date|date[ _-]?time|elapsed|clock|epoch|utc|uhrzeit|zeit"
    r"|zeitstempel"
)
_COUNTER_NAME = re.compile(
    r"(sample|row|frame|seq|sequence|n)?[ _-]?(#|no\.?|nr\.?|num|number|index|idx|id|count|counter)"
    r"|samples?|rows?|n|nseq|seq|unnamed: 0"
)
_LEAD_NAME = re.compile(
    r".*(ecg|ekg|lead|mlii|signal|value|channel|volt|adc|measure|raw)\w*.*|ch[ _-]?\d+"
    r"|i{1,3}|av[rlf]|v\d+r?|[xyz]|data"
)
#: Fewest rows from which a column's content tells what it is.
_FEWEST_ROWS = 4


@dataclass(frozen=True)
class Column:
    """A column as its header and its first cells show it.

    Attributes
    ----------
    index
        Its place in the table.
    name
        From the header, as written; None without a header.
    unit
        From a row of units; None without one.
    kind
        By `kind_of`; ``"missing"`` when its first cells are all empty.
    """

    index: int
    name: str | None
    unit: str | None
    kind: str


@dataclass(frozen=True)
class Roles:
    """Which columns are leads, and which one is the clock.

    Attributes
    ----------
    leads, names, units
        Index, name and unit of each lead.
    clock_column, clock
        Index and manner of the column that tells time or counts rows; None when there is none.
    notes
        What was left out, a sentence each.
    """

    leads: tuple[int, ...]
    names: tuple[str, ...]
    units: tuple[str | None, ...]
    clock_column: int | None
    clock: Clock | None
    notes: tuple[str, ...] = ()


#: Gives the values of a column at a few fixed places of the file, by its index and kind.
Probe = Callable[[int, str], Sequence[Floats]]


def roles_of(path: str, columns: Sequence[Column], probe: Probe, fs: float | None) -> Roles:
    """Tell what the columns are.

    The time is the first column that is named like one, or whose cells are times; without such a
    column, the first one that has no name of a lead and increases evenly. A column that counts
    rows in steps of one is neither time nor lead, but what it skips is missing.

    Parameters
    ----------
    path
        The file's name, for messages.
    columns
        The table's columns.
    probe
        Gives values of one of them.
    fs
        The rate that was given, which helps to tell the unit of time.

    Raises
    ------
    InputError
        When no column is left for a lead, or when the unit of time cannot be told.
    """
    numeric = [column for column in columns if column.kind == "number"]
    if not numeric:
        raise InputError(path, "no column of numbers", "one lead or more", "Choose another file")
    notes: list[str] = []
    left_out: set[int] = set()
    named = [column for column in columns if _is_time(column)]
    if named and named[0].kind == "number" and len(numeric) == 1:
        named = []
    clock_column, clock = None, None
    if named:
        clock_column = named[0].index
        clock = _time_clock(path, named[0], probe, fs)
        left_out.update(column.index for column in named)
        notes += [_left_out(column, "another time") for column in named[1:]]
    spare = [column for column in numeric if column.index not in left_out]
    for column in spare if len(spare) > 1 else []:
        if clock is not None and clock.kind != "counter" and not _counts(column):
            continue
        found, counts = _by_content(column, probe)
        if found is None:
            if counts:
                left_out.add(column.index)
                notes.append(_left_out(column, "it counts rows, but not one by one"))
            continue
        left_out.add(column.index)
        # A time tells more than a count of rows.
        if clock is not None and (clock.kind != "counter" or found.kind == "counter"):
            continue
        clock_column = column.index
        clock = found if found.kind == "counter" else _time_clock(path, column, probe, fs)
    leads: list[int] = []
    names: list[str] = []
    units: list[str | None] = []
    for column in columns:
        if column.index in left_out:
            continue
        if column.kind in ("number", "missing"):
            if column.kind == "missing" and not column.name:
                # A separator at the end of each line.
                continue
            name, unit = _name_and_unit(column)
            leads.append(column.index)
            names.append(name or f"lead{len(names)}")
            units.append(_VOLTS.get(unit.lower(), unit) if unit else None)
        else:
            notes.append(_left_out(column, "no numbers"))
    if not leads:
        raise InputError(
            path,
            f"no column but {', '.join(_title(column) for column in columns)}",
            "one lead or more beside the time",
            "Choose another file",
        )
    return Roles(tuple(leads), unique_names(names), tuple(units), clock_column, clock, tuple(notes))


def _title(column: Column) -> str:
    return column.name or f"{column.index + 1}"


def _left_out(column: Column, why: str) -> str:
    return f"Column {_title(column)} was left out: {why}"


def _name_and_unit(column: Column) -> tuple[str, str | None]:
    """Split ``ECG (mV)`` into a name and a unit; a unit is one of volts or of time."""
    name = (column.name or "").strip()
    known = _VOLTS.keys() | _TIME_UNITS.keys()
    if column.unit:
        return name, column.unit.strip("()[] ")
    if (found := _IN_BRACKETS.fullmatch(name)) and found[2].lower() in known:
        return found[1].strip(), found[2]
    return name, None


def _time_unit(column: Column) -> str | None:
    """Return the unit of time that the header tells."""
    name, unit = _name_and_unit(column)
    if unit and unit.lower() in _TIME_UNITS:
        return _TIME_UNITS[unit.lower()]
    last = re.split(r"[\s_-]", name.lower())[-1]
    return _TIME_UNITS.get(last)


def _is_time(column: Column) -> bool:
    if column.kind in ("clock", "date", "zoned"):
        return True
    if column.kind != "number" or column.name is None:
        return False
    name, unit = _name_and_unit(column)
    bare = re.sub(r"[\s_-]+$", "", name.lower())
    words = re.split(r"[\s_-]", bare)
    if last := _TIME_UNITS.get(words[-1]):
        before = " ".join(words[:-1])
        if _TIME_NAME.fullmatch(before) or (not before and last not in _LONG_UNITS):
            return True
    in_time = bool(unit) and str(unit).lower() in _TIME_UNITS
    return bool(_TIME_NAME.fullmatch(bare)) or (in_time and not _LEAD_NAME.fullmatch(bare))


def _counts(column: Column) -> bool:
    """Tell whether a column is named like a counter of rows."""
    return column.name is not None and bool(_COUNTER_NAME.fullmatch(column.name.strip().lower()))


def _by_content(column: Column, probe: Probe) -> tuple[Clock | None, bool]:
    """Tell a counter or an evenly increasing column by its values.

    Returns
    -------
    The clock, None when the column is none; and whether it counts rows in steps other than one.
    """
    if column.name and _LEAD_NAME.fullmatch(_name_and_unit(column)[0].lower()):
        return None, False
    steps = np.concatenate(
        [np.empty(0), *(np.diff(part) for part in probe(column.index, "number"))]
    )
    named = _counts(column)
    if steps.size < (1 if named else _FEWEST_ROWS - 1):
        return None, False
    ones = float(np.mean(steps == 1))
    if not (steps > 0).all() and not (named and ones >= 0.9):
        return None, False
    whole = bool((steps == np.rint(steps)).all())
    if whole and ones >= 0.9:
        return Clock("counter", _title(column)), False
    if whole and named:
        return None, True
    even = np.abs(steps - np.median(steps)) <= 0.5 * np.median(steps)
    return (Clock("number", _title(column)) if np.mean(even) >= 0.9 else None), False


def _time_clock(path: str, column: Column, probe: Probe, fs: float | None) -> Clock:
    clock = Clock(column.kind, _title(column))
    if column.kind == "clock":
        clock = replace(clock, per_second=1.0, modulo=86_400)
    elif column.kind in ("date", "zoned"):
        clock = replace(clock, per_second=UNITS_PER_SECOND["ns"])
    elif unit := _time_unit(column):
        clock = replace(clock, per_second=(UNITS_PER_SECOND | _LONG_UNITS)[unit])
    probes = [part for part in probe(column.index, column.kind) if part.size]
    if column.kind in ("date", "zoned") and probes:
        clock = replace(clock, base=int(probes[0][0]))
        probes = [part - clock.base for part in probes]
    learnt = learn_steps(clock, probes)
    if learnt is None:
        # One row, or rows that all share one time: no rate, but no harm either.
        return replace(clock, per_second=clock.per_second or 1.0, repeats=True, low=0.0)
    if learnt.per_second:
        return learnt
    step = _row_step(learnt, probes)
    guessed = plausible_unit(step, fs)
    if guessed is None:
        raise InputError(
            f"{path}, column {_title(column)}",
            f"a usual step of {step:.6g} in an unknown unit of time",
            "a step that means 20 to 20,000 Hz in s, ms, us or ns",
            "Name the unit in the header, as in time_ms, or delete the column and give fs",
        )
    return replace(learnt, per_second=UNITS_PER_SECOND[guessed])


def _row_step(clock: Clock, probes: Sequence[Floats]) -> float:
    """Return the usual step from row to row, also when rows share times."""
    if not clock.repeats:
        return clock.tick
    steps = np.concatenate([np.diff(part) for part in probes])
    return float(steps[(steps >= 0) & (steps <= clock.high)].mean())
