"""The scored table, with all columns of beats.parquet, on the workers."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import dask.dataframe as dd
import pandas as pd
from dask.delayed import Delayed, delayed

from ..anomaly import Model, group_anomalies
from ..arrays import on_host
from ..beats import Beats
from ..errors import InputError
from ..result import insert_group


def scored(beats: Sequence[Beats], model: Model) -> dd.DataFrame:
    """Score beats, and group the anomalies of all of them.

    Nothing is computed here. The grouping looks at the whole table in one task on a worker.

    Parameters
    ----------
    beats
        Whole records, each in one of them only.
    model
        The model.

    Returns
    -------
    dask.dataframe.DataFrame
        A row a beat, in the order of `beats` and in their partitions, with all columns of
        ``beats.parquet``.

    Raises
    ------
    InputError
        When a record is in two of `beats`, or their window or number of leads are not the model's.
    """
    names = [name for one in beats for name in one.names]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                "in",
                f"the record {name} in two of the beats",
                "each record once",
                "Load the recordings under names that differ (--record)",
            )
    joined, metas = [], []
    for one in beats:
        scores = model.score(one)
        metas.append(_joined(one.table._meta, scores._meta))
        rows = [rows for rows, _ in one.partitions()]
        parts = scores.to_delayed(optimize_graph=False)
        joined += [delayed(_joined)(*pair) for pair in zip(rows, parts, strict=True)]
    groups = delayed(_groups)([delayed(_to_group)(part) for part in joined])
    parts = [delayed(_grouped)(part, groups, i) for i, part in enumerate(joined)]
    meta = _grouped(metas[0], [pd.array([], dtype="Int16")], 0)
    return dd.from_delayed(parts, meta=meta, verify_meta=False)


def counts(part: Delayed) -> Delayed:
    """Return, delayed, the beats and the anomalies of a partition of a scored table."""
    return delayed(_counts)(part)


def _counts(part: Any) -> tuple[int, int]:
    return len(part), int(part["anomaly"].sum())


def _joined(table: Any, scores: Any) -> Any:
    return table.assign(**{name: scores[name] for name in scores.columns})


def _to_group(part: Any) -> pd.DataFrame:
    """Copy the columns that groups are told by to the host."""
    coordinates = [name for name in part.columns if name[:1] == "z" and name[1:].isdecimal()]
    parts = [name for name in part.columns if name.startswith("score_")]
    table: pd.DataFrame = on_host(part[["record", "sample", "anomaly", *parts, *coordinates]])
    return table


def _groups(parts: Sequence[pd.DataFrame]) -> list[Any]:
    """Group the anomalies of all partitions, and return the groups of each."""
    group = group_anomalies(pd.concat(parts, ignore_index=True)).array
    own, start = [], 0
    for part in parts:
        own.append(group[start : start + len(part)])
        start += len(part)
    return own


def _grouped(part: Any, groups: Sequence[Any], number: int) -> Any:
    """Put the groups of a partition into its table, pandas or cuDF."""
    table, group = part.copy(), groups[number]
    if hasattr(table, "to_pandas"):
        group = importlib.import_module("cudf").from_pandas(pd.Series(group))
        group.index = table.index
    insert_group(table, group)
    return table
