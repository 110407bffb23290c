"""The beats of one or more recordings: a table and the waves cut around each beat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Never, overload
from uuid import uuid4

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask._task_spec import Alias
from dask.base import tokenize
from dask.delayed import Delayed, delayed
from dask.highlevelgraph import HighLevelGraph

from .arrays import namespace
from .errors import InputError

#: Columns of ``Beats.table`` and their types.
BEAT_COLUMNS = {
    "record": "str",
    "sample": "int64",
    "time_s": "float64",
    "rr_prev_s": "float64",
    "rr_next_s": "float64",
    "amplitude": "float32",
    "quality": "float32",
    "complete": "bool",
    "span": "str",
    "split": "str",
}

#: Columns of ``Beats.spans`` and their types.
SPAN_COLUMNS = {
    "record": "str",
    "reason": "str",
    "start": "int64",
    "stop": "int64",
    "start_s": "float64",
    "seconds": "float64",
}


def empty_table() -> pd.DataFrame:
    """Return a beat table without rows, as Dask's meta."""
    return pd.DataFrame({name: pd.Series([], dtype=kind) for name, kind in BEAT_COLUMNS.items()})


def span_table(
    record: str, reason: Sequence[str], start: Any, stop: Any, fs: float
) -> pd.DataFrame:
    """Return a table of spans with the columns of `SPAN_COLUMNS`.

    Parameters
    ----------
    record
        Name of the record.
    reason
        Why each span cannot be analysed.
    start, stop
        Sample numbers of each span, half open, int64 of shape (n_spans,).
    fs
        Sampling rate in Hz.
    """
    values = {
        "record": [record] * len(reason),
        "reason": reason,
        "start": start,
        "stop": stop,
        "start_s": start / fs,
        "seconds": (stop - start) / fs,
    }
    return pd.DataFrame(
        {name: pd.Series(values[name], dtype=kind) for name, kind in SPAN_COLUMNS.items()}
    )


def empty_spans() -> pd.DataFrame:
    """Return a table of spans without rows."""
    nothing = np.empty(0, np.int64)
    return span_table("", [], nothing, nothing, 1.0)


class TableParts(NamedTuple):
    """The partitions of a table, delayed, and a table of their kind without rows."""

    rows: Sequence[Delayed]
    meta: Any


class _Table:
    """The table of some `Beats`: Dask's, which is made of its partitions when it is asked for.

    Dask takes as long to make one as a GPU to find a hundred thousand beats, and many steps want
    the partitions alone.
    """

    @overload
    def __get__(self, beats: None, owner: type) -> Never: ...
    @overload
    def __get__(self, beats: Beats, owner: type) -> dd.DataFrame: ...
    def __get__(self, beats: Beats | None, owner: type) -> dd.DataFrame:
        if beats is None:
            # This tells the dataclass that there is no default.
            raise AttributeError("table")
        own = vars(beats)
        if "_frame" not in own:
            parts = own["_parts"]
            own["_frame"] = dd.from_delayed(list(parts.rows), meta=parts.meta)
        return own["_frame"]

    def __set__(self, beats: Beats, value: dd.DataFrame | TableParts) -> None:
        vars(beats)["_parts" if isinstance(value, TableParts) else "_frame"] = value


@dataclass(frozen=True, eq=False, kw_only=True)
class Beats:
    """Heartbeats, on the workers that found them.

    Attributes
    ----------
    table
        A row a beat with the columns of `BEAT_COLUMNS`. ``sample`` counts from the recording's
        first sample, which is 0, and is strictly increasing within a record; ``time_s`` is seconds
        from there. ``rr_prev_s`` and ``rr_next_s`` are the intervals in seconds to the neighbour
        beats, null at the ends of a record and across a gap. ``amplitude`` is signed, in the
        recording's unit. ``quality`` is between 0 and 1. ``complete`` tells whether every sample
        of the beat's window was recorded. ``span`` is the reason of the span of `spans` that holds
        the beat, null where none does. ``split`` is ``"train"`` for the first three quarters of
        a record's rows and ``"test"`` for the rest. Every row counts as a detection.
    waves
        float32 of shape (n_beats, n_leads, n_window) in the recording's unit; partitions and order
        are the table's. Samples that are missing or past an end are zero.
    fs
        Sampling rate in Hz.
    window
        Seconds before and after the beat's sample that a wave covers.
    leads
        Names of the leads in `waves`; the beats were found on the first.
    unit
        Unit of `waves` and ``amplitude``; None when unknown.
    records
        Delayed pandas table, a row a record: ``record``, ``samples``, ``seconds``, ``missing``
        (samples), ``gaps`` (runs of them), ``beats`` found and ``pruned`` candidates.
    names
        Names of the records.
    spans
        Delayed pandas table, a row a span of the lead on which the beats were found that cannot be
        analysed: ``record``, ``reason`` (``"missing"``, ``"flat"``, ``"clipped"`` or
        ``"noise"``), ``start`` and ``stop`` (samples, half open), ``start_s`` and ``seconds``.
        The spans of a record are ascending and do not overlap. Beats within them are kept.
    """

    table: _Table = _Table()
    waves: da.Array
    fs: float
    window: tuple[float, float]
    leads: tuple[str, ...]
    unit: str | None
    records: Delayed
    names: tuple[str, ...] = ()
    spans: Delayed = field(default_factory=delayed(empty_spans))

    def partitions(self) -> list[tuple[Delayed, Delayed]]:
        """Return the table and the waves of each partition, as delayed values.

        What is computed from both in one go finds the beats once; `table` and `waves`, which Dask
        optimizes apart from each other, would each find them anew.

        Raises
        ------
        InputError
            When table and waves have different numbers of partitions.
        """
        parts = self.table_parts()
        blocks = [unaliased(block) for block in self.waves.to_delayed(optimize_graph=False).flat]
        if len(parts.rows) != len(blocks):
            raise InputError(
                "beats",
                f"{len(parts.rows)} partitions of the table and {len(blocks)} blocks of the waves",
                "as many of one as of the other",
                "Cut both in the same places, each block with all leads and the whole window",
            )
        return list(zip(parts.rows, blocks, strict=True))

    def table_parts(self) -> TableParts:
        """Return the table's partitions, delayed, as they were made where that is known."""
        parts: TableParts | None = vars(self).get("_parts")
        if parts is None:
            parts = TableParts(self.table.to_delayed(optimize_graph=False), self.table._meta)
        return parts

    def persist(self, *, waves: bool = True) -> Beats:
        """Find the beats once, and keep them on the workers that did.

        Parameters
        ----------
        waves
            Keep the waves as well, which take about as much memory as the signal. Without them a
            later step cuts the waves that it needs.

        Returns
        -------
        Beats
            The same, of results that are there or on their way; Dask computes again what a dead
            worker held.
        """
        return self.persisted_with((), waves=waves)

    def persisted_with(self, others: Sequence[Any], *, waves: bool = True) -> Beats:
        """Persist it together with other collections, in one graph (see `persist`)."""
        rows, blocks = (list(part) for part in zip(*self.partitions(), strict=True))
        rows, blocks, records, spans, *_ = dask.persist(
            rows, blocks if waves else [], self.records, self.spans, *others
        )
        kept = stack_waves(blocks, self.waves.shape[1:], self.waves._meta) if waves else self.waves
        # Under their old names Dask would take these for the ones that are not computed.
        held = TableParts(_renamed(rows, f"held-{uuid4().hex}"), self.table_parts().meta)
        return replace(self, table=held, waves=kept, records=records, spans=spans)

    def where(self, predicate: Callable[[Any], Any]) -> Beats:
        """Keep the beats for which `predicate` holds, table and waves together.

        Parameters
        ----------
        predicate
            Takes a partition of the table (pandas or cuDF) and returns a boolean a row.
        """
        table, waves = [], []
        for part, block in self.partitions():
            mask = delayed(_mask)(part, predicate)
            table.append(delayed(_take_rows)(part, mask))
            waves.append(delayed(_take_waves)(block, mask))
        flat = one_layer([*table, *waves], f"where-{tokenize([part.key for part in table])}")
        kept = stack_waves(flat[len(table) :], self.waves.shape[1:], self.waves._meta)
        rows = TableParts(flat[: len(table)], self.table_parts().meta)
        return replace(self, table=rows, waves=kept)

    @staticmethod
    def concat(parts: Sequence[Beats]) -> Beats:
        """Join the beats of several recordings that share rate, window and number of leads.

        Raises
        ------
        InputError
            When there is nothing to join, when they do not share these, or when two have a record
            of the same name.
        """
        parts = list(parts)
        if not parts:
            raise InputError("parts", "no beats", "one Beats or more", "Give at least one")
        first = parts[0]
        for part in parts[1:]:
            if (part.fs, part.window, len(part.leads)) != (
                first.fs,
                first.window,
                len(first.leads),
            ):
                raise InputError(
                    "parts",
                    f"fs {part.fs:g} Hz, window {part.window} s and {len(part.leads)} leads beside "
                    f"fs {first.fs:g} Hz, window {first.window} s and {len(first.leads)} leads",
                    "one rate, window and number of leads",
                    "Hand them to train() as a list, which takes several rates, or find the beats "
                    "with the same window and leads",
                )
        names = [name for part in parts for name in part.names]
        for name in names:
            if names.count(name) > 1:
                raise InputError(
                    "parts",
                    f"the record {name} in two of them",
                    "each record once",
                    "Give the recordings names that differ: Recording(..., name=...)",
                )
        return replace(
            first,
            names=tuple(names),
            table=dd.concat([part.table for part in parts]),
            waves=da.concatenate([part.waves for part in parts], allow_unknown_chunksizes=True),
            unit=first.unit if all(part.unit == first.unit for part in parts) else None,
            records=delayed(pd.concat)([part.records for part in parts], ignore_index=True),
            spans=delayed(pd.concat)([part.spans for part in parts], ignore_index=True),
        )


def one_layer(parts: Sequence[Delayed], name: str) -> list[Delayed]:
    """Give delayed values one graph of one layer, so that what is built on them stays linear.

    Each call of a delayed function makes a layer and merges those of its arguments; n partitions
    that depend on each other would otherwise cost n layers for each further call.
    """
    merged = HighLevelGraph.merge(*(part.__dask_graph__() for part in parts))
    graph = HighLevelGraph({name: merged.to_dict()}, {name: set()})
    return [Delayed(part.key, graph, layer=name) for part in parts]


def _renamed(values: Sequence[Delayed], name: str) -> list[Delayed]:
    """Give delayed values other names, ``(name, 0)``, ``(name, 1)``, ..."""
    tasks = {(name, i): Alias((name, i), value.key) for i, value in enumerate(values)}
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=values)
    return [Delayed(key, graph, layer=name) for key in tasks]


def unaliased(value: Delayed) -> Delayed:
    """Return a delayed value by its first name: each further one would be a task of its own."""
    graph, key = value.__dask_graph__(), value.key
    while isinstance(graph[key], Alias):
        key = graph[key].target
    if key == value.key:
        return value
    (layer, *_) = (name for name, tasks in graph.layers.items() if key in tasks)
    return Delayed(key, graph, layer=layer)


def stack_waves(blocks: Sequence[Delayed], shape: tuple[int, int], meta: Any) -> da.Array:
    """Make a Dask array of delayed blocks of shape (unknown, n_leads, n_window)."""
    name = f"waves-{tokenize([block.key for block in blocks])}"
    tasks = {(name, i, 0, 0): Alias((name, i, 0, 0), block.key) for i, block in enumerate(blocks)}
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=blocks)
    chunks = ((np.nan,) * len(blocks), *((size,) for size in shape))
    return da.Array(graph, name, chunks, meta=meta)


def _mask(part: Any, predicate: Callable[[Any], Any]) -> Any:
    mask = predicate(part)
    return getattr(mask, "values", mask)


def _take_rows(part: Any, mask: Any) -> Any:
    return part[mask]


def _take_waves(block: Any, mask: Any) -> Any:
    return block[namespace(block).asarray(mask, dtype=bool)]
