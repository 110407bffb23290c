"""Read Parquet files, in groups of rows."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from dask.delayed import delayed

from ..errors import InputError
from ..recording import Recording
from .clock import Clock, Floats, Span, joined, span_of
from .columns import Column, Roles, roles_of
from .files import (
    Leads,
    chosen,
    common_unit,
    fs_needed,
    infinite_note,
    on_workers,
    opened,
    same_fs,
    samples_per_chunk,
    stem,
)
from .gaps import assembled
from .timeline import Timing, timing_of, wrong_step

#: Groups of rows, and rows of each, from which a time column is learnt.
_PROBES = 16
_PROBE_ROWS = 4096


@dataclass(frozen=True)
class Survey:
    """What the file tells: column names, what they are, rows of each group, rate and start."""

    columns: tuple[str, ...]
    roles: Roles
    groups: tuple[int, ...]
    fs: float | None
    start: dt.datetime | None


def read_parquet(
    path: str, *, fs: float | None = None, leads: Leads = None, chunk: int | str | None = None
) -> Recording:
    """Read a Parquet file: numeric columns are leads, nulls are missing samples.

    The rate comes from the key ``fs`` of the schema's metadata, from a time column, or from `fs`.
    A partition is one group of rows or several that make a chunk. See `read` for the parameters.

    Raises
    ------
    InputError
        When the file is no whole Parquet file of numbers, or does not tell its rate.
    """
    (survey,) = on_workers([delayed(survey_parquet)(path, fs)])
    roles = survey.roles
    clock = roles.clock
    if survey.fs is not None:
        fs = same_fs(path, survey.fs, fs)
    if fs is None and (clock is None or not clock.per_second):
        raise fs_needed(path, "no column of time and no key fs in the schema's metadata")
    wanted = chosen(roles.names, leads, stem(path))
    columns = [survey.columns[roles.leads[i]] for i in wanted]
    pieces = _joined_groups(survey.groups, samples_per_chunk(chunk, len(wanted)))
    rows = [sum(survey.groups[i] for i in piece) for piece in pieces]
    times = None if roles.clock_column is None else survey.columns[roles.clock_column]
    looks = on_workers([delayed(look_at)(path, times, clock, columns, piece) for piece in pieces])
    none = np.empty(0, np.int64)
    timing = Timing(fs or 0.0, none, none)
    if clock is not None:
        whole = joined([span for span, _ in looks], clock)
        if whole.wrong is not None:
            raise wrong_step(f"{path}, row {whole.wrong[0] + 1}", clock, whole.wrong[1])
        timing = timing_of(path, clock, whole, fs)
    return Recording(
        assembled(
            [delayed(read_groups)(path, columns, piece) for piece in pieces],
            rows,
            len(columns),
            timing.gap_rows,
            timing.gap_samples,
        ),
        timing.fs,
        leads=tuple(roles.names[i] for i in wanted),
        unit=common_unit([roles.units[i] for i in wanted]),
        start=survey.start,
        name=stem(path),
        source=path,
        notes=(*roles.notes, *timing.notes, *infinite_note(sum(count for _, count in looks))),
    )


def _joined_groups(groups: Sequence[int], samples: int) -> list[tuple[int, ...]]:
    """Join neighbouring groups of rows as long as they stay within a chunk."""
    pieces: list[tuple[int, ...]] = []
    size = 0
    for index, n in enumerate(groups):
        if pieces and size + n <= samples:
            pieces[-1] += (index,)
            size += n
        else:
            pieces.append((index,))
            size = n
    return pieces


@contextmanager
def _file(path: str) -> Iterator[Any]:
    """Open a Parquet file; what cannot be read becomes an InputError."""
    with opened(path) as file:
        try:
            with pq.ParquetFile(file) as parquet:
                yield parquet
        except (pa.ArrowException, OSError) as error:
            raise InputError(
                path,
                f"no whole Parquet file ({str(error)[:100]})",
                "a Parquet file",
                "Copy or write it again",
            ) from None


def survey_parquet(path: str, fs: float | None) -> Survey:
    """Read the schema and look at a few groups of rows (a task)."""
    with _file(path) as parquet:
        schema, metadata = parquet.schema_arrow, parquet.metadata
        groups = tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
        if not sum(groups):
            raise InputError(path, "no rows", "one sample or more", "Choose another file")
        names = tuple(schema.names)
        if len(set(names)) < len(names):
            raise InputError(path, "two columns of one name", "a name a column", "Rename one")
        columns = [
            # An index without a name is no lead by its name, and may count rows.
            Column(i, re.sub(r"^__index_level_\d+__$", "index", name), None, _kind(field.type))
            for i, (name, field) in enumerate(zip(names, schema, strict=True))
        ]
        places = _joined_groups(groups, _PROBE_ROWS)
        places = [places[len(places) * i // _PROBES] for i in range(_PROBES)]

        def probe(column: int, kind: str) -> list[Floats]:
            found = []
            for place in dict.fromkeys(places):
                batches = parquet.iter_batches(
                    _PROBE_ROWS, row_groups=place, columns=[names[column]], use_threads=False
                )
                parts = [_times(batch.column(0), kind) for batch in islice(batches, len(place))]
                whole = [part for part in parts if part is not None]
                if whole and len(whole) == len(parts):
                    found.append(np.concatenate(whole))
            return found

        told = _told_fs(path, schema.metadata or {})
        roles = roles_of(path, columns, probe, told or fs)
        start = None
        if roles.clock is not None and roles.clock.kind == "date":
            nanoseconds = roles.clock.base
            start = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=nanoseconds // 1000)
        return Survey(names, roles, groups, told, start)


def _kind(kind: Any) -> str:
    """Name a column's type as `roles_of` wants it."""
    types = pa.types
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "number"
    if types.is_timestamp(kind):
        return "date"
    return "clock" if types.is_time(kind) else "text"


def _told_fs(path: str, metadata: dict[bytes, bytes]) -> float | None:
    if b"fs" not in metadata:
        return None
    text = metadata[b"fs"].decode("utf-8", "replace")
    try:
        fs = float(text)
    except ValueError:
        fs = math.nan
    if not (fs > 0 and math.isfinite(fs)):
        raise InputError(
            f"fs in the metadata of {path}",
            repr(text[:40]),
            "a positive number of Hz",
            "Write the file again with the right rate",
        )
    return fs


def _times(column: Any, kind: str) -> Floats | None:
    """Turn a column into times as `columns_of` gives them; None when one is missing."""
    if kind == "date":
        ticks = pc.cast(column, pa.timestamp("ns", column.type.tz)).cast(pa.int64())
    elif kind == "clock":
        ticks = pc.divide(pc.cast(column, pa.time64("ns")).cast(pa.int64()).cast(pa.float64()), 1e9)
    else:
        ticks = pc.cast(column, pa.float64())
    times: Floats = np.asarray(ticks)
    return None if column.null_count or not np.isfinite(times).all() else times


def look_at(
    path: str,
    times: str | None,
    clock: Clock | None,
    columns: Sequence[str],
    groups: Sequence[int],
) -> tuple[Span, int]:
    """Look at the times of groups of rows, and count infinite values (a task)."""
    with _file(path) as parquet:
        infinite = 0
        if _may_be_infinite(parquet.metadata, columns, groups):
            infinite = int(np.isinf(_values(parquet, columns, groups)).sum())
        if times is None or clock is None:
            return Span(0), infinite
        table = parquet.read_row_groups(list(groups), columns=[times], use_threads=False)
        kind = "number" if clock.kind == "counter" else clock.kind
        column = _times(table.column(0).combine_chunks(), kind)
    if column is None:
        raise InputError(
            f"{path}, column {clock.name}",
            "a row without a time",
            "a time in each row",
            "Fill it, or delete the column and give fs",
        )
    return span_of((column - clock.base).astype(np.float64), clock), infinite


def _may_be_infinite(metadata: Any, columns: Sequence[str], groups: Sequence[int]) -> bool:
    """Tell by the file's own statistics, so that most files need no look at their values."""
    largest = float(np.finfo(np.float32).max)
    for group in groups:
        chunks = metadata.row_group(group)
        for i in range(chunks.num_columns):
            chunk = chunks.column(i)
            if chunk.path_in_schema not in columns or chunk.physical_type not in (
                "FLOAT",
                "DOUBLE",
            ):
                continue
            found = chunk.statistics
            if found is None or not found.has_min_max:
                return True
            if not (-largest <= found.min and found.max <= largest):
                return True
    return False


def _values(parquet: Any, columns: Sequence[str], groups: Sequence[int]) -> npt.NDArray[np.float32]:
    table = parquet.read_row_groups(list(groups), columns=list(columns), use_threads=False)
    block = np.empty((table.num_rows, len(columns)), np.float32)
    with np.errstate(over="ignore"):
        for i, name in enumerate(columns):
            column = table.column(name)
            if not pa.types.is_floating(column.type):
                column = pc.cast(column, pa.float64())
            block[:, i] = column.to_numpy()
    return block


def read_groups(
    path: str, columns: Sequence[str], groups: Sequence[int]
) -> npt.NDArray[np.float32]:
    """Read some columns of groups of rows (a task): float32 of shape (n_rows, n_leads)."""
    with _file(path) as parquet:
        block = _values(parquet, columns, groups)
    block[np.isinf(block)] = np.nan
    return block
