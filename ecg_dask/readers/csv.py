"""Read tables of text, CSV above all, in ranges of bytes.

The file is read three times by tasks and never by the client: a survey of its head and of a few
fixed places, a count of the rows (and a look at the time column) range by range, and the reading
itself, which happens when the samples are needed.
"""

from __future__ import annotations

import datetime as dt
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import dask
import numpy as np
import numpy.typing as npt
from dask.delayed import delayed

from ..errors import InputError
from ..gpu.pool import on_device, pool_here
from ..recording import Recording
from .clock import Clock, Floats, Span, joined, span_of
from .columns import Column, Roles, roles_of
from .dialect import HEAD_BYTES, Head, read_head
from .files import (
    Leads,
    chosen,
    common_unit,
    counted,
    fs_needed,
    infinite_note,
    on_workers,
    opened,
    ranges,
    samples_per_chunk,
    stem,
    values_of,
)
from .gaps import NO_SAMPLES, assembled
from .text_blocks import (
    BadCell,
    Layout,
    columns_of,
    count_lines,
    has_infinite,
    owned_lines,
    row_lines,
)
from .text_gpu import read_plain
from .timeline import Timing, timing_of, wrong_step

#: Bytes of text a partition, when no chunk is asked for. A task holds the text, its columns and
#: the array at once, about five times as much, so two tasks a worker stay near 160 MB; a day of one
#: lead at 250 Hz (230 MB) gives 14 partitions, enough to keep a few workers evenly busy.
DEFAULT_TEXT_BYTES = 16 * 2**20
#: Places of the file at which a column is looked at, and bytes at each.
_PROBES = 16
_PROBE_BYTES = 2**14


@dataclass(frozen=True)
class Survey:
    """What is known of a table before its rows are counted.

    Attributes
    ----------
    size
        Bytes of the file.
    layout
        How the table stands.
    roles
        Which columns are leads, and which the clock.
    row_bytes
        Mean bytes a row.
    start
        Time of the first row; None when unknown.
    fs
        Rate in Hz that a header tells; None when it tells none.
    notes
        What was skipped, a sentence each.
    """

    size: int
    layout: Layout
    roles: Roles
    row_bytes: float
    start: dt.datetime | None = None
    fs: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Block:
    """What a range of bytes holds: lines, infinite values, and the rows with their times.

    `skipped` are the lines that are no rows: blank ones and comments.
    `bad` is the first line that cannot be read, when the look at the rows found one.
    """

    lines: int
    infinite: int
    span: Span
    skipped: int = 0
    bad: BadCell | None = None


class Plan(NamedTuple):
    """Which columns of a table are read, and in which ranges of bytes.

    Attributes
    ----------
    wanted
        Indexes of the leads among those of the table.
    columns
        Their columns.
    pieces
        Ranges of bytes, a partition each.
    n_bytes
        Estimated bytes of the signal as float32; infinite where times tell what is missing.
    """

    wanted: tuple[int, ...]
    columns: tuple[int, ...]
    pieces: list[tuple[int, int]]
    n_bytes: float

    def fits(self, room: int) -> bool:
        """Tell whether the signal may be read while its rows are counted."""
        return 0 < self.n_bytes <= room


def read_csv(
    path: str,
    *,
    fs: float | None = None,
    leads: Leads = None,
    chunk: int | str | None = None,
    survey: Survey | None = None,
    room: int = 0,
    meta: Any = NO_SAMPLES,
    held: tuple[Any, Block] | None = None,
) -> Recording:
    """Read a table of text: CSV and what resembles it.

    Separator, decimal mark, header, and the time column are found out. Rows are samples; an
    empty cell is a missing sample. See `read` for the parameters; `chunk` is kept on average,
    since a partition is a range of bytes. `survey` is that of `survey_csv`, if it was made already;
    `room`, `meta` and `held` are as for `read_table`.

    Raises
    ------
    InputError
        When the file cannot be read as a table of samples, or does not tell its rate.
    """
    if survey is None:
        (survey,) = on_workers([delayed(survey_csv)(path, fs)])
    return read_table(
        path, survey, fs=fs, leads=leads, chunk=chunk, room=room, meta=meta, held=held
    )


def read_table(
    path: str,
    survey: Survey,
    *,
    fs: float | None,
    leads: Leads,
    chunk: int | str | None,
    room: int = 0,
    meta: Any = NO_SAMPLES,
    held: tuple[Any, Block] | None = None,
) -> Recording:
    """Count the rows of a surveyed table and make a Recording of it.

    Without a column of time, a signal of at most `room` bytes as float32 is read while its rows are
    counted, and stays on the workers. `meta` is an empty array of the kind that the workers read.
    `held` is what `load_block` gave of the only range of bytes, where that was read already.
    """
    roles, layout = survey.roles, survey.layout
    clock = roles.clock
    wanted, columns, pieces, _ = plan = plan_of(path, survey, fs=fs, leads=leads, chunk=chunk)
    samples: list[Any] = []
    blocks: list[Block]
    if held is not None:
        samples, blocks = [held[0]], [held[1]]
    elif plan.fits(room):
        load = delayed(load_block, nout=2)
        both = [load(path, layout, columns, *piece) for piece in pieces]
        samples, looks = dask.persist([one[0] for one in both], [one[1] for one in both])
        blocks = values_of(looks)
    else:
        look = delayed(look_at)
        looks = [look(path, layout, roles.clock_column, clock, columns, *piece) for piece in pieces]
        blocks = on_workers(looks)
    lines = np.cumsum([layout.first_line, *(block.lines for block in blocks)]).tolist()
    for first_line, block in zip(lines, blocks, strict=False):
        if block.bad is not None:
            raise block.bad.error(path, first_line, layout.names)
    rows = [block.span.rows for block in blocks]
    n_rows = sum(rows)
    if not n_rows:
        raise InputError(path, "no samples", "one sample or more", "Choose another file")
    notes = [*survey.notes, *roles.notes]
    skipped = sum(block.skipped for block in blocks)
    if clock is None and skipped > 0:
        lines_were = "line without a value was" if skipped == 1 else "lines without a value were"
        notes.append(
            f"{skipped} {lines_were} skipped, and no time tells whether samples are missing"
        )
    none = np.empty(0, np.int64)
    timing = Timing(survey.fs or fs or 0.0, none, none)
    if clock is not None:
        whole = joined([block.span for block in blocks], clock)
        if whole.wrong is not None:
            line = _line_of(path, layout, whole.wrong[0], rows, pieces, lines)
            raise wrong_step(f"{path}, line {line}", clock, whole.wrong[1])
        timing = timing_of(path, clock, whole, survey.fs or fs)
    notes += timing.notes
    notes += infinite_note(sum(block.infinite for block in blocks))
    signal = assembled(
        samples
        or [
            delayed(read_block)(path, layout, columns, *piece, n, first_line)
            for piece, n, first_line in zip(pieces, rows, lines, strict=False)
        ],
        rows,
        len(columns),
        timing.gap_rows,
        timing.gap_samples,
        meta,
    )
    return Recording(
        signal,
        timing.fs,
        leads=tuple(roles.names[i] for i in wanted),
        unit=common_unit([roles.units[i] for i in wanted]),
        start=survey.start,
        name=stem(path),
        source=path,
        notes=tuple(notes),
    )


def plan_of(
    path: str, survey: Survey, *, fs: float | None, leads: Leads, chunk: int | str | None
) -> Plan:
    """Choose the columns and the ranges of bytes that are read.

    Raises
    ------
    InputError
        When the table has no such lead, or neither it nor `fs` tells a rate.
    """
    roles, layout = survey.roles, survey.layout
    if fs is None and survey.fs is None and (roles.clock is None or not roles.clock.per_second):
        raise fs_needed(path, "no column of time")
    wanted = tuple(chosen(roles.names, leads, stem(path)))
    columns = tuple(roles.leads[i] for i in wanted)
    size = text_bytes(chunk, survey.row_bytes, len(columns))
    n_bytes = 4 * len(columns) * (survey.size - layout.start) / max(survey.row_bytes, 1)
    return Plan(
        wanted,
        columns,
        ranges(layout.start, survey.size, size),
        n_bytes if roles.clock is None else math.inf,
    )


def text_bytes(chunk: int | str | None, row_bytes: float, n_leads: int) -> int:
    """Return how many bytes of text make a partition."""
    if chunk is None:
        return DEFAULT_TEXT_BYTES
    return max(1, round(samples_per_chunk(chunk, n_leads) * row_bytes))


def survey_csv(path: str, fs: float | None) -> Survey:
    """Look at the head of a table and at a few places in it (a task)."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        first = file.read(HEAD_BYTES)
    head = read_head(path, first, whole=len(first) == size)
    probes = probe_texts(path, head.layout, size)
    names, units = head.names, head.units
    columns = [
        Column(i, names[i] if names else None, units[i] if units else None, kind)
        for i, kind in enumerate(head.kinds)
    ]

    def probe(column: int, kind: str) -> list[Floats]:
        found: list[Any] = []
        for text in probes:
            try:
                found += columns_of(text, head.layout, {column: kind})
            except BadCell:
                # The look at all rows will name the line.
                continue
        return [part for part in found if part.size]

    roles = roles_of(path, columns, probe, fs)
    skipped = counted(head.skipped, "line") + " above the header was skipped"
    return Survey(
        size=size,
        layout=head.layout,
        roles=roles,
        row_bytes=row_bytes(probes, head.layout),
        start=_start(head, roles),
        notes=(skipped.replace("s above the header was", "s above the header were"),)
        if head.skipped
        else (),
    )


def probe_texts(path: str, layout: Layout, size: int) -> list[bytes]:
    """Return lines from a few fixed places, all lines when the file is short."""
    length = size - layout.start
    if length <= _PROBES * _PROBE_BYTES:
        return [owned_lines(path, layout, layout.start, size)]
    starts = [layout.start + length * i // _PROBES for i in range(_PROBES)]
    return [owned_lines(path, layout, start, start + _PROBE_BYTES) for start in starts]


def row_bytes(probes: Sequence[bytes], layout: Layout) -> float:
    """Return the mean bytes a row."""
    return sum(map(len, probes)) / max(1, sum(count_lines(text, layout)[1] for text in probes))


def _start(head: Head, roles: Roles) -> dt.datetime | None:
    """Return the time of the first row; 1900-01-01 stands for a day that is not told."""
    if roles.clock is None or roles.clock_column is None:
        return None
    cell = head.rows[0][roles.clock_column]
    if roles.clock.kind in ("date", "zoned"):
        return dt.datetime.fromisoformat(cell)
    if (
        roles.clock.kind == "clock"
        and cell.count(":") == 2
        and "elapsed" not in (roles.clock.name.lower())
    ):
        hours, minutes, seconds = cell.replace(",", ".").split(":")
        since = dt.timedelta(hours=int(hours), minutes=int(minutes), seconds=float(seconds))
        # A clock that begins at zero counts from the start of the recording.
        if since:
            return dt.datetime(1900, 1, 1) + since
    return None


def look_at(
    path: str,
    layout: Layout,
    clock_column: int | None,
    clock: Clock | None,
    columns: Sequence[int],
    start: int,
    stop: int,
) -> Block:
    """Count the rows of a range of bytes and look at its times (a task)."""
    text = owned_lines(path, layout, start, stop)
    lines, n_rows = count_lines(text, layout)
    skipped = lines + (not text.endswith(b"\n") and text != b"") - n_rows
    try:
        infinite = 0
        if has_infinite(text):
            values = columns_of(text, layout, dict.fromkeys(columns, "value"))
            infinite = sum(int(np.isinf(column).sum()) for column in values)
        if clock is None or clock_column is None:
            return Block(lines, infinite, Span(n_rows), skipped)
        kind = "number" if clock.kind == "counter" else clock.kind
        (times,) = columns_of(text, layout, {clock_column: kind})
    except BadCell as bad:
        return Block(lines, 0, Span(0), bad=bad)
    span = span_of((times - clock.base).astype(np.float64), clock)
    return Block(lines, infinite, span, skipped)


def load_block(
    path: str, layout: Layout, columns: Sequence[int], start: int, stop: int
) -> tuple[Any, Block]:
    """Look at a range of bytes and read its leads at once (a task); None for what cannot be read.

    Returns
    -------
    samples
        float32 of shape (n_rows, n_leads), CuPy on a worker with a GPU; None with a bad line.
    block
        What `look_at` tells.
    """
    if pool_here() is not None:
        plain = read_plain(path, layout, columns, start, stop)
        if plain is not None:
            return plain.samples, Block(plain.lines, 0, Span(len(plain.samples)))
    told = look_at(path, layout, None, None, columns, start, stop)
    if told.bad is not None:
        return None, told
    try:
        return on_device(_samples(path, layout, columns, start, stop)), told
    except BadCell as bad:
        return None, Block(told.lines, 0, Span(0), bad=bad)


def read_block(
    path: str,
    layout: Layout,
    columns: Sequence[int],
    start: int,
    stop: int,
    n_rows: int,
    first_line: int,
) -> Any:
    """Read the leads of a range of bytes (a task).

    Returns
    -------
    float32 of shape (n_rows, n_leads), CuPy on a worker with a GPU
    """
    plain = None if pool_here() is None else read_plain(path, layout, columns, start, stop)
    try:
        block = _samples(path, layout, columns, start, stop) if plain is None else plain.samples
    except BadCell as bad:
        raise bad.error(path, first_line, layout.names) from None
    if len(block) != n_rows:
        raise InputError(
            path,
            f"{len(block)} rows after byte {start} where {n_rows} were counted",
            "a file that stays as it is while it is read",
            "Wait until it is written, and read it again",
        )
    return on_device(block)


def _samples(
    path: str, layout: Layout, columns: Sequence[int], start: int, stop: int
) -> npt.NDArray[np.float32]:
    """Return the leads of a range of bytes as an array on the host."""
    text = owned_lines(path, layout, start, stop)
    values = columns_of(text, layout, dict.fromkeys(columns, "value"))
    block = np.empty((len(values[0]), len(columns)), np.float32)
    for i, column in enumerate(values):
        block[:, i] = column
    block[np.isinf(block)] = np.nan
    return block


def _line_of(
    path: str,
    layout: Layout,
    row: int,
    rows: Sequence[int],
    pieces: Sequence[tuple[int, int]],
    lines: Sequence[int],
) -> int:
    """Return the number of a row's line in the file, from 1."""
    stops = np.cumsum(rows)
    index = int(np.searchsorted(stops, row, side="right"))
    row -= int(stops[index]) - rows[index]
    (line,) = on_workers([delayed(line_of_row)(path, layout, *pieces[index], row)])
    return lines[index] + int(line)


def line_of_row(path: str, layout: Layout, start: int, stop: int, row: int) -> int:
    """Return how many lines of a range of bytes stand above one of its rows (a task)."""
    found: list[Any] = [
        number for number, _ in row_lines(owned_lines(path, layout, start, stop), layout)
    ]
    return int(found[row])
