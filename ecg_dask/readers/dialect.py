"""Find out how a table stands in a text file: separator, decimal mark, header, first row."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import InputError
from .files import counted
from .text_blocks import Layout, cells_of, kind_of

#: Bytes and lines at the start of a file that are looked at.
HEAD_BYTES = 2**18
HEAD_LINES = 300

#: Separator and decimal mark, tried in this order; of equally good ones the first is taken. A
#: decimal comma beside a comma as separator needs quotes around the numbers.
_CANDIDATES = [
    (",", "."), (";", "."), ("\t", "."), ("|", "."), (" ", "."),
    (";", ","), ("\t", ","), ("|", ","), (" ", ","), (",", ","),
]  # fmt: skip
_DAMAGED_NUMBER = re.compile(r"[+-]?[.,]?\d")
_DECIMAL_COMMA = re.compile(r"-?\d+,\d+")


@dataclass(frozen=True)
class Head:
    """What the first lines of a table tell.

    Attributes
    ----------
    layout
        How the rows stand.
    names
        Name of each column, from the header; None without a header.
    units
        Cells of a row of units below the names; None without such a row.
    kinds
        What each column holds, by `kind_of`; ``missing`` when all its cells are empty.
    rows
        Cells of the first rows.
    skipped
        Number of lines above the header that are no comments.
    """

    layout: Layout
    names: tuple[str, ...] | None
    units: tuple[str, ...] | None
    kinds: tuple[str, ...]
    rows: list[list[str]]
    skipped: int


@dataclass(frozen=True)
class _Line:
    offset: int
    number: int
    text: str


class _Tried(NamedTuple):
    """Lines split in one way.

    Attributes
    ----------
    separator, decimal
        The way.
    cells
        Cells of each line.
    found
        What each cell is, by `kind_of`.
    width
        Usual number of cells a line.
    kinds
        What each column mostly holds.
    """

    separator: str
    decimal: str
    cells: list[list[str]]
    found: list[list[str]]
    width: int
    kinds: tuple[str, ...]


def read_head(path: str, head: bytes, whole: bool) -> Head:
    """Find out the layout of a table from its first bytes.

    Parameters
    ----------
    path
        The file's name, for messages.
    head
        The first bytes of the file.
    whole
        Whether these are all its bytes.

    Raises
    ------
    InputError
        When they are no table of numbers.
    """
    lines, comments = _lines(path, head, whole)
    best = max((_tried(lines, *candidate) for candidate in _candidates(lines)), key=_score)
    separator, decimal, width, kinds = best.separator, best.decimal, best.width, best.kinds
    first = _first_row(best)
    if first is None:
        raise InputError(
            path,
            f"no line of numbers; it begins {lines[0].text[:40]!r}",
            "rows of numbers, under a header or not",
            "Check that the file is a recording and not empty below its header",
        )
    rows = [cells for cells in best.cells[first:] if len(cells) == width]
    names, units, skipped = _header(path, lines[:first], comments, lines[first], separator, rows)
    if names is None and separator == "," and width == 2:
        _refuse_decimal_comma(path, lines[first:])
    shown = names or tuple(f"{i + 1}" for i in range(width))
    layout = Layout(
        separator=separator,
        decimal=decimal,
        names=tuple(name or f"{i + 1}" for i, name in enumerate(shown)),
        start=lines[first].offset,
        first_line=lines[first].number,
    )
    return Head(layout, names, units, kinds, rows, skipped)


def _lines(path: str, head: bytes, whole: bool) -> tuple[list[_Line], list[_Line]]:
    """Split the head into lines with something on them, and comments."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(path, "UTF-16 text", "UTF-8 or ASCII text", "Save it as UTF-8")
    if b"\n" not in head and b"\r" in head:
        raise InputError(
            path, "lines that end in CR alone", "LF or CR LF", "Convert the ends of its lines"
        )
    if b"\0" in head or (b"\n" not in head and not whole):
        raise InputError(
            path,
            "binary data of no known format",
            "CSV, OpenSignals text, WFDB, Parquet or NumPy",
            "Convert it to one of these",
        )
    pieces = head.split(b"\n")
    if not whole:
        pieces.pop()
    offset, lines, comments = 0, [], []
    for number, raw in enumerate(pieces, 1):
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            text = raw.decode("latin-1")
        text = text.replace("\r", "").replace("'", "")
        bom = 3 if number == 1 and raw.startswith(b"\xef\xbb\xbf") else 0
        line = _Line(offset + bom, number, text)
        offset += len(raw) + 1
        if text.strip().startswith("#"):
            comments.append(line)
        elif text.strip():
            lines.append(line)
        if len(lines) == HEAD_LINES:
            break
    if not lines:
        raise InputError(
            path, "no lines but comments", "rows of numbers", "Check that the file is a recording"
        )
    return lines, comments


def _candidates(lines: Sequence[_Line]) -> list[tuple[str, str]]:
    """Leave out what cannot be better: absent separators are all alike, as are absent commas."""
    text = "\n".join(line.text for line in lines)
    kept: list[tuple[str, str]] = []
    alike = set()
    for separator, decimal in _CANDIDATES:
        if decimal == "," and "," not in text:
            continue
        if separator not in text:
            if decimal in alike:
                continue
            alike.add(decimal)
        kept.append((separator, decimal))
    return kept


def _tried(lines: Sequence[_Line], separator: str, decimal: str) -> _Tried:
    """Split lines, and tell the usual number of cells and what each column mostly holds."""
    cells = [_split(line.text, separator) for line in lines]
    if separator == decimal == "," and not any('"' in line.text for line in lines):
        cells = [[] for _ in lines]
    found = [[kind_of(cell, decimal) for cell in row] for row in cells]
    rows = [row for row in found if "number" in row]
    if not rows:
        return _Tried(separator, decimal, cells, found, 0, ())
    width = Counter(map(len, rows)).most_common(1)[0][0]
    kinds = []
    for column in range(width):
        counts = Counter(row[column] for row in rows if len(row) == width)
        counts.pop("missing", None)
        if counts["text"] <= sum(counts.values()) / 2 and len(counts) > 1:
            # A bad cell here and there does not make a column of text.
            counts.pop("text", None)
        kinds.append(counts.most_common(1)[0][0] if counts else "missing")
    return _Tried(separator, decimal, cells, found, width, tuple(kinds))


def _score(tried: _Tried) -> tuple[int, int]:
    """Count the lines, and the cells, that are wholly numbers when they are split like this."""
    good_lines = good_cells = 0
    for row in tried.found:
        if len(row) == tried.width:
            good = sum(map(_fits, row, tried.kinds))
            good_cells += good
            good_lines += good == tried.width and "number" in tried.kinds
    return (good_lines, good_cells)


def _split(text: str, separator: str) -> list[str]:
    try:
        return cells_of(text, separator)
    except csv.Error:
        return []


def _fits(here: str, kind: str) -> bool:
    return here != "text" and here in (kind, "missing")


def _first_row(tried: _Tried) -> int | None:
    """Return the index of the first line that is a row, None when most below it are none."""
    good = [
        len(cells) == tried.width
        and "number" in tried.kinds
        and all(
            kind == "missing"
            or _fits(here, kind)
            # Words between blanks are prose.
            or (kind == "text" and (tried.separator != " " or re.search(r"\d", cell)))
            for cell, here, kind in zip(cells, row, tried.kinds, strict=True)
        )
        for cells, row in zip(tried.cells, tried.found, strict=True)
    ]
    if True not in good:
        return None
    first = good.index(True)
    return first if 2 * sum(good) >= len(good) - first else None


def _header(
    path: str,
    above: Sequence[_Line],
    comments: Sequence[_Line],
    first: _Line,
    separator: str,
    rows: Sequence[Sequence[str]],
) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None, int]:
    """Return names, units and the number of lines above them, from what stands over the rows."""
    width = len(rows[0])
    # A separator at the end of each row need not stand in the header.
    trailing = width > 1 and all(not cells[-1] for cells in rows)
    widths = {width, width - 1} if trailing else {width}
    if not above:
        if comments and comments[-1].number == first.number - 1 and width - trailing > 1:
            cells = _split(comments[-1].text.strip().lstrip("# "), separator)
            if len(cells) in widths and all(kind_of(cell, ".") == "text" for cell in cells if cell):
                return _padded(cells, width), None, 0
        return None, None, 0
    split = [_split(line.text, separator) for line in above]
    if len(split[-1]) not in widths and separator in " \t":
        # Rows between blanks may stand under names that something else separates.
        for other in ",\t ":
            if len(cells := _split(above[-1].text, other)) in widths:
                split[-1] = cells
                break
    if len(split[-1]) not in widths:
        raise InputError(
            f"{path}, line {above[-1].number}",
            f"{counted(len(split[-1]), 'cell')} ({above[-1].text[:40]!r}) above rows of "
            f"{width} cells ({first.text[:40]!r})",
            "a name for each column, or a comment line that begins with #",
            "Correct the header; a decimal comma needs another separator, such as ;",
        )
    for line, cells in zip(above[-2:], split[-2:], strict=True):
        for cell in cells:
            if _DAMAGED_NUMBER.match(cell) and kind_of(cell, ".") == "text" and line is above[-1]:
                raise InputError(
                    f"{path}, line {line.number}",
                    repr(cell[:40]),
                    "a number, or a name that does not begin like one",
                    "Correct the line, or delete it",
                )
    if len(split) > 1 and len(split[-2]) in widths and _are_units(split[-1]):
        return _padded(split[-2], width), _padded(split[-1], width), len(above) - 2
    return _padded(split[-1], width), None, len(above) - 1


def _padded(cells: Sequence[str], width: int) -> tuple[str, ...]:
    return tuple(cell.strip(" \"'") for cell in cells) + ("",) * (width - len(cells))


def _are_units(cells: Sequence[str]) -> bool:
    """Tell a row of units, such as ``(s),(mV)`` or ``hh:mm:ss.mmm,mV``, from a row of names."""
    return all(
        re.fullmatch(r"[(\[].*[)\]]|[numµμ]?[Vv]|[numµμ]?s|sec|[hms:.]+|", cell.strip())
        for cell in cells
    )


def _refuse_decimal_comma(path: str, lines: Sequence[_Line]) -> None:
    """Refuse ``0,05``: as two columns it would be read wrongly without a word."""
    texts = [line.text.strip() for line in lines]
    if not all(_DECIMAL_COMMA.fullmatch(text) for text in texts):
        return
    decimals = [text.partition(",")[2] for text in texts]
    if any(len(decimal) > 1 and decimal[0] == "0" for decimal in decimals):
        raise InputError(
            path,
            f"{texts[0]!r}, which is a decimal comma or two columns",
            "a decimal point, or a header that names the columns",
            "Write the numbers with a point, or add a header",
        )
