"""Offering what the workers hold to processes outside Dask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dask.dataframe as dd
from distributed import wait
from distributed.utils import TimeoutError

from ..beats import Beats, unaliased
from ..errors import InputError
from ..recording import Recording
from ..share import offer

if TYPE_CHECKING:
    from distributed import Client

#: Seconds in which the workers must have offered everything.
LIMIT_S = 60.0


def parts_of(name: str, value: Any) -> list[dict[str, Any]]:
    """Return the parts of a thing, delayed, a mapping a partition.

    Raises
    ------
    InputError
        When it has no parts that can be shared.
    """
    if isinstance(value, Recording):
        return [{"signal": block} for block in value.signal.to_delayed(optimize_graph=False).flat]
    if isinstance(value, Beats):
        return [{"table": rows, "waves": waves} for rows, waves in value.partitions()]
    if isinstance(value, dd.DataFrame):
        return [{"table": rows} for rows in value.to_delayed(optimize_graph=False)]
    raise InputError(
        f"name {name}",
        "a model, whose weights are small",
        "a recording, beats or a table",
        "Get it, or write it to a file (Model.save)",
    )


def offered(
    client: Client, name: str, parts: Sequence[Mapping[str, Any]], hold_s: float
) -> list[dict[str, Any]]:
    """Let the workers offer what they hold, each its own, and return the pieces.

    Raises
    ------
    InputError
        When a worker cannot, or does not within a minute.
    """
    # What the store holds is a future behind its names, which need no task of their own.
    firsts = [unaliased(value) for part in parts for value in part.values()]
    kept = [first.__dask_graph__()[first.key] for first in firsts]
    try:
        wait(kept, timeout=LIMIT_S)
        places = client.who_has(kept)
        tasks = [
            client.submit(offer, one, hold_s=hold_s, workers=places[one.key], pure=False)
            for one in kept
        ]
        pieces = iter([task.result(timeout=LIMIT_S) for task in tasks])
    except TimeoutError as error:
        raise InputError(
            f"name {name}",
            f"workers that did not offer it within {LIMIT_S:g} s",
            "workers that hold it",
            "Look at the cluster's dashboard, and share it again",
        ) from error
    return [{which: next(pieces) for which in part} for part in parts]
