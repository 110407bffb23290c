"""Byte ranges of a table in a text file: their lines, their rows, and the numbers in them.

A range owns the lines that start in it, so any cut of a file into ranges gives every line once.
`columns_of` is the only place that turns text into numbers.
"""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from ..errors import InputError
from .files import opened

#: A line longer than this is no line of a table of samples.
MAX_LINE_BYTES = 2**20
#: Bytes read at a range's ends, which mostly hold an end of a line.
_LOOK_AHEAD = 4096
#: Bytes that are counted at a time.
_SLICE_BYTES = 2**18

#: Cells that stand for a missing sample, in any case of letters.
MISSING = frozenset(["", "-", "nan", "-nan", "na", "n/a", "#n/a", "null", "none"])
_NULLS = sorted({form(word) for word in MISSING for form in (str, str.upper, str.title)} | {"NaN"})
_NUMBER = re.compile(
    r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|infinity)", re.ASCII | re.IGNORECASE
)
_INFINITE = re.compile(rb"(?<![a-z])inf", re.IGNORECASE)
_CLOCK = re.compile(r"(\d+:)?\d+:\d{1,2}([.,]\d+)?", re.ASCII)
_DATE_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?", re.ASCII
)
_SKIPPED = {
    tab: re.compile(rb"^[ %s]*(?:#[^\n]*)?\n" % blank, re.MULTILINE)
    for tab, blank in ((True, b""), (False, b"\t"))
}


class BadCell(Exception):
    """A cell or a line that cannot be read, at a line counted from 0 within its text.

    Parameters
    ----------
    line
        Lines before it in the same text.
    column
        Index of its column; None when the whole line is wrong.
    found, allowed
        What stands there and what may.
    """

    def __init__(self, line: int, column: int | None, found: str, allowed: str) -> None:
        super().__init__(line, column, found, allowed)
        self.line, self.column, self.found, self.allowed = line, column, found, allowed

    def error(self, path: str, first_line: int, names: Sequence[str]) -> InputError:
        """Name the file, the line (the text's own first one is `first_line`) and the column."""
        column = "" if self.column is None else f", column {names[self.column]}"
        return InputError(
            f"{path}, line {first_line + self.line}{column}",
            self.found,
            self.allowed,
            "Correct the line, or delete it",
        )


@dataclass(frozen=True)
class Layout:
    """How a table stands in its file.

    Attributes
    ----------
    separator
        Between cells; a blank stands for any run of blanks and tabs.
    decimal
        ``"."`` or ``","``.
    names
        A name a column, for messages.
    start
        Byte at which the first row's line starts.
    first_line
        Number of that line, from 1.
    """

    separator: str
    decimal: str
    names: tuple[str, ...]
    start: int
    first_line: int

    @property
    def n_columns(self) -> int:
        """Number of cells in a line."""
        return len(self.names)


def owned_range(path: str, layout: Layout, start: int, stop: int) -> tuple[int, int]:
    """Return where the lines that start in the bytes [start, stop) begin and end in the file."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        low = start if start == layout.start else _next_line(file, path, start, size)
        return low, max(low, _next_line(file, path, stop, size))


def _next_line(file: BinaryIO, path: str, at: int, size: int) -> int:
    """Return where the first line starts that starts at byte `at` or behind it."""
    # The byte before tells whether a line starts right there.
    file.seek(at - 1)
    position = at - 1
    while position < size and (more := file.read(_LOOK_AHEAD)):
        end = more.find(b"\n") + 1
        if end:
            return position + end
        position += len(more)
        if position - at > MAX_LINE_BYTES:
            raise InputError(
                path,
                f"no end of line in a million bytes after byte {at}",
                "lines of text",
                "Check that the file is a whole text file",
            )
    return size


def owned_lines(path: str, layout: Layout, start: int, stop: int) -> bytes:
    """Return the lines that start in the bytes [start, stop), the last one to its end."""
    low, high = owned_range(path, layout, start, stop)
    with opened(path) as file:
        file.seek(low)
        return file.read(high - low)


def tidied(text: bytes, layout: Layout) -> bytes:
    r"""Leave rows, each ended by ``\n``, and empty lines: no comments, no lines of blanks.

    Each step looks first whether it is needed, since most files need none.
    """
    if not text:
        return text
    if b"\r" in text:
        text = text.replace(b"\r", b"")
    if not text.endswith(b"\n"):
        text += b"\n"
    if b"'" in text:
        text = text.replace(b"'", b"")
    if layout.separator == " ":
        text = text.replace(b"\t", b" ")
        while b"  " in text:
            text = text.replace(b"  ", b" ")
        text = text.replace(b"\n ", b"\n").replace(b" \n", b"\n").removeprefix(b" ")
    begins = b"# " if layout.separator == "\t" else b"# \t"
    for begin in (begins[i : i + 1] for i in range(len(begins))):
        if begin in text and (b"\n" + begin in text or text.startswith(begin)):
            return _SKIPPED[layout.separator == "\t"].sub(b"", text)
    return text


def count_lines(text: bytes, layout: Layout) -> tuple[int, int]:
    """Count the ends of lines, and the rows, in whole lines of text."""
    rows = tidied(text, layout)
    codes = np.frombuffer(rows, np.uint8)
    n_ends = empty = 0
    # NumPy counts a byte as frequent as this one faster than bytes.count does, in slices that
    # stay in the cache.
    for start in range(0, codes.size, _SLICE_BYTES):
        ends = codes[max(0, start - 1) : start + _SLICE_BYTES] == ord("\n")
        n_ends += int(np.count_nonzero(ends[1 if start else 0 :]))
        empty += int(np.count_nonzero(ends[1:] & ends[:-1]))
    empty += rows.startswith(b"\n")
    return n_ends if rows is text else text.count(b"\n"), n_ends - empty


def has_infinite(text: bytes) -> bool:
    """Tell whether a cell may be infinite."""
    return (b"i" in text or b"I" in text) and _INFINITE.search(text) is not None


def columns_of(
    text: bytes, layout: Layout, kinds: dict[int, str]
) -> list[npt.NDArray[np.float32 | np.float64]]:
    """Turn whole lines of text into numbers.

    Parameters
    ----------
    text
        Whole lines, as `owned_lines` gives them.
    layout
        How they stand.
    kinds
        What to read of which column: ``"value"`` (float32, NaN for an empty cell), ``"number"``
        (float64), ``"clock"`` (a time such as 07:03:47.29; seconds, float64), ``"date"``
        (a date with a time; nanoseconds since 1970 as int64) or ``"zoned"`` (the same with an
        offset from UTC).

    Returns
    -------
    list of arrays of shape (n_rows,), in the order of `kinds`

    Raises
    ------
    BadCell
        For the first line that is not as described.
    """
    rows = tidied(text, layout)
    if not rows[:99].strip(b"\n") and not rows.strip(b"\n"):
        return [
            np.empty(0, np.float32 if kind == "value" else np.float64) for kind in kinds.values()
        ]
    try:
        try:
            table = _parsed(rows, layout, kinds)
        except pa.ArrowInvalid:
            # Blanks around empty cells are the one thing that the parser takes amiss.
            table = _parsed(re.sub(rb" *([^ \w.+-]) *", rb"\1", rows), layout, kinds)
        columns = [
            _TO_NUMPY[kind](column)
            for kind, column in zip(kinds.values(), table.columns, strict=True)
        ]
    except (pa.ArrowInvalid, ValueError) as error:
        raise first_bad_cell(text, layout, kinds) or BadCell(
            0, None, f"an unreadable line here or below ({str(error)[:100]})", "rows of numbers"
        ) from None
    for kind, column in zip(kinds.values(), columns, strict=True):
        # An infinite value may be written so, or be a number too large for float32, which is bad.
        # A time must be there.
        odd = np.isinf(column) if kind == "value" else ~np.isfinite(column)
        if odd.any():
            bad = first_bad_cell(text, layout, kinds)
            if bad is not None:
                raise bad
    return columns


def _parsed(rows: bytes, layout: Layout, kinds: dict[int, str]) -> Any:
    names = [str(i) for i in range(layout.n_columns)]
    wanted = [names[i] for i in kinds]
    return pacsv.read_csv(
        pa.BufferReader(rows),
        read_options=pacsv.ReadOptions(
            use_threads=False, column_names=names, block_size=2 * MAX_LINE_BYTES
        ),
        parse_options=pacsv.ParseOptions(
            delimiter=layout.separator, quote_char='"' if b'"' in rows else False
        ),
        convert_options=pacsv.ConvertOptions(
            include_columns=wanted,
            column_types={
                name: _TYPES[kind] for name, kind in zip(wanted, kinds.values(), strict=True)
            },
            null_values=_NULLS,
            strings_can_be_null=False,
            quoted_strings_can_be_null=True,
            decimal_point=layout.decimal,
            check_utf8=False,
        ),
    )


_TYPES = {
    "value": pa.float32(),
    "number": pa.float64(),
    "clock": pa.string(),
    "date": pa.timestamp("ns"),
    "zoned": pa.timestamp("ns", "UTC"),
}


def _floats(column: Any) -> npt.NDArray[np.float32 | np.float64]:
    floats: npt.NDArray[np.float32 | np.float64] = column.to_numpy()
    return floats


def _nanoseconds(column: Any) -> npt.NDArray[np.float64]:
    if column.null_count:
        raise ValueError("an empty time")
    return np.asarray(column.to_numpy().astype("datetime64[ns]").view(np.int64))


def _seconds_of_day(column: Any) -> npt.NDArray[np.float64]:
    times = pc.replace_substring(column.combine_chunks(), ",", ".")
    # Elapsed times may be written without hours until there is one.
    short = pc.equal(pc.count_substring(times, ":"), 1)
    times = pc.if_else(short, pc.binary_join_element_wise("0", times, ":"), times)
    parts = pc.split_pattern(times, ":")
    if not pc.all(pc.equal(pc.list_value_length(parts), 3)).as_py():
        raise ValueError("not a time")
    fields = pc.cast(pc.list_flatten(parts), pa.float64()).to_numpy().reshape(-1, 3)
    seconds: npt.NDArray[np.float64] = fields @ np.array([3600.0, 60.0, 1.0])
    return seconds


_TO_NUMPY = {
    "value": _floats,
    "number": _floats,
    "clock": _seconds_of_day,
    "date": _nanoseconds,
    "zoned": _nanoseconds,
}


def row_lines(text: bytes, layout: Layout) -> Iterator[tuple[int, str]]:
    """Give each row's line, with the number of lines before it in the text."""
    for number, raw in enumerate(text.split(b"\n")):
        line = raw.replace(b"\r", b"").replace(b"'", b"").decode("utf-8", "replace")
        bare = line.strip(" " if layout.separator == "\t" else " \t")
        if bare and not bare.startswith("#"):
            yield number, line


def cells_of(line: str, separator: str) -> list[str]:
    """Split a line into its cells."""
    if separator == " ":
        return [cell.strip('"') for cell in line.split()]
    if '"' in line:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=separator))]
    return [cell.strip() for cell in line.split(separator)]


def kind_of(cell: str, decimal: str) -> str:
    """Tell what a cell is: ``missing``, ``number``, ``clock``, ``date``, ``zoned`` or ``text``."""
    if cell.lower() in MISSING:
        return "missing"
    if decimal == "," and "." not in cell:
        if _NUMBER.fullmatch(cell.replace(",", ".", 1)) and not cell.endswith(","):
            return "number"
    elif decimal == "." and _NUMBER.fullmatch(cell):
        return "number"
    if _CLOCK.fullmatch(cell):
        return "clock"
    if found := _DATE_TIME.fullmatch(cell):
        return "zoned" if found[3] else "date"
    return "text"


def first_bad_cell(text: bytes, layout: Layout, kinds: dict[int, str]) -> BadCell | None:
    """Look line by line for the first one that cannot be read."""
    largest = float(np.finfo(np.float32).max)
    for number, line in row_lines(text, layout):
        cells = cells_of(line, layout.separator)
        if len(cells) != layout.n_columns:
            found = f"{len(cells)} cell{'s' * (len(cells) != 1)} ({line.strip()[:40]!r})"
            return BadCell(number, None, found, f"{layout.n_columns} in every line")
        for column, kind in kinds.items():
            cell = cells[column]
            here = kind_of(cell, layout.decimal)
            found = repr(cell[:40])
            if kind == "value":
                if here not in ("number", "missing"):
                    return BadCell(
                        number, column, found, "a number, or an empty cell for a missing sample"
                    )
                if here == "number" and "inf" not in cell.lower():
                    value = float(cell.replace(",", "."))
                    if not math.isfinite(value) or abs(value) > largest:
                        return BadCell(number, column, found, f"at most {largest:.3g}")
            elif here != kind or "inf" in cell.lower():
                allowed = "a number" if kind == "number" else "a time as in the lines above"
                return BadCell(number, column, found, allowed)
    return None
