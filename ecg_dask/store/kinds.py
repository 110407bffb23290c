"""The four kinds of things that a store holds, and how each is kept on the workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import dask
import dask.dataframe as dd
import pandas as pd
from dask.delayed import Delayed, delayed
from dask.utils import format_bytes

from ..arrays import on_gpu
from ..beats import Beats
from ..errors import InputError
from ..recording import Recording
from .by_value import taken_along
from .entry import new_id

RECORDING, BEATS, TABLE, MODEL = "recording", "beats", "table", "model"

#: Most bytes of a table or a model of this process that may go into a graph, which the scheduler
#: keeps.
MOST_LOCAL = 32 * 2**20


class Kept(NamedTuple):
    """A thing of which all is on the workers, or on its way there.

    Attributes
    ----------
    value
        The thing: a `Recording`, `Beats`, dask.dataframe; of a `Model` the delayed value.
    held
        The Dask collections that it consists of.
    """

    value: Any
    held: list[Any]


def kind_of(name: str, value: Any) -> str:
    """Return the kind of a thing.

    Raises
    ------
    InputError
        When it is none that a store can hold.
    """
    kinds = ((Recording, RECORDING), (Beats, BEATS), (dd.DataFrame | pd.DataFrame, TABLE))
    for of_type, kind in kinds:
        if isinstance(value, of_type):
            return kind
    # PyTorch takes seconds to import, which most that is put does not need.
    from ..anomaly import Model

    if isinstance(value, Model):
        return MODEL
    raise InputError(
        f"value of {name}",
        f"a {type(value).__module__}.{type(value).__qualname__}",
        "a Recording, Beats, a dask.dataframe, a pandas table or a Model",
        "Put one of these",
    )


def keep(name: str, kind: str, value: Any) -> Kept:
    """Compute a thing on the workers and keep it there.

    Parameters
    ----------
    name
        Name that it gets.
    kind
        Its kind.
    value
        The thing; a model may be delayed.

    Raises
    ------
    InputError
        When it lies in this process and is too large for a graph.
    """
    if kind == RECORDING:
        (signal,) = _persisted([value.signal])
        return Kept(replace(value, signal=signal), [signal])
    if kind == BEATS:
        kept = value.persisted_with(taken_along())
        return Kept(kept, [*kept.table_parts().rows, kept.waves, kept.records, kept.spans])
    if kind == MODEL:
        if not isinstance(value, Delayed):
            _check_local(name, "a model", sum(part.nbytes for part in value.weights.values()))
            value = delayed(value, traverse=False, name=f"model-{new_id()}")
        (model,) = _persisted([value])
        return Kept(model, [model])
    if isinstance(value, pd.DataFrame):
        _check_local(name, "a table", int(value.memory_usage(deep=True).sum()))
        value = dd.from_delayed([delayed(value)], meta=value.iloc[:0], verify_meta=False)
    rows = list(_persisted(value.to_delayed()))
    table = dd.from_delayed(
        rows, meta=value._meta, divisions=tuple(value.divisions), verify_meta=False
    )
    return Kept(table, rows)


def parts_of(value: Any) -> dict[str, list[Delayed]]:
    """Return the partitions of a thing, delayed, by what they are of; nothing of a model."""
    if isinstance(value, Recording):
        return {"signal": list(value.signal.to_delayed(optimize_graph=False).flat)}
    if isinstance(value, Beats):
        rows, waves = zip(*value.partitions(), strict=True)
        return {"table": list(rows), "waves": list(waves)}
    if isinstance(value, dd.DataFrame):
        return {"table": list(value.to_delayed(optimize_graph=False))}
    return {}


def schema_of(value: Any) -> dict[str, str]:
    """Return the types of what a thing consists of, by name."""
    if isinstance(value, Recording):
        return {lead: str(value.signal.dtype) for lead in value.leads or ()}
    if isinstance(value, Beats):
        columns = _columns(value.table_parts().meta)
        return columns | {
            "waves": f"{value.waves.dtype}[{len(value.leads)}, {value.waves.shape[2]}]"
        }
    if isinstance(value, dd.DataFrame):
        return _columns(value._meta)
    return {
        part.name: str(getattr(value, part.name))
        for part in fields(value)
        if part.name in ("window", "n_leads", "latent", "threshold", "n_train")
    }


def device_of(value: Any) -> str:
    """Return whose memory a thing lives in."""
    if isinstance(value, Recording):
        return "gpu" if on_gpu(value.signal._meta) else "cpu"
    if isinstance(value, Beats):
        return "gpu" if on_gpu(value.waves._meta) else "cpu"
    module = type(value._meta).__module__ if isinstance(value, dd.DataFrame) else ""
    return "gpu" if module.startswith("cudf") else "cpu"


def rate_of(value: Any) -> float | None:
    """Return the sampling rate in Hz of a thing, where it has one."""
    return float(value.fs) if isinstance(value, Recording | Beats) else None


def _columns(meta: Any) -> dict[str, str]:
    return {str(name): str(kind) for name, kind in meta.dtypes.items()}


def _persisted(parts: Sequence[Any]) -> Sequence[Any]:
    """Compute collections on the workers, in one graph, and keep them there."""
    kept: Sequence[Any] = dask.persist(*parts, *taken_along())[: len(parts)]
    return kept


def _check_local(name: str, what: str, n_bytes: int) -> None:
    if n_bytes > MOST_LOCAL:
        raise InputError(
            f"value of {name}",
            f"{what} of {format_bytes(n_bytes)} in this process",
            f"up to {format_bytes(MOST_LOCAL)}, for the scheduler keeps it so that workers can get "
            "it again",
            "Write it to a file that the workers see, and put what Dask reads from there "
            "(dask.dataframe.read_parquet)",
        )
