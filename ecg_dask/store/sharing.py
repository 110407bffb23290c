"""Offering what the workers hold to processes outside Dask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distributed import wait
from distributed.utils import TimeoutError

from ..beats import unaliased
from ..errors import InputError
from ..share import offer
from .kinds import parts_of

if TYPE_CHECKING:
    from distributed import Client

#: Seconds in which the workers must have offered everything.
LIMIT_S = 60.0


def offered(client: Client, name: str, value: Any, hold_s: float) -> list[dict[str, Any]]:
    """Let the workers offer a thing, each what it holds, and return the pieces of each partition.

    Raises
    ------
    InputError
        When the thing has no parts that can be shared, or when a worker cannot, or does not within
        a minute.
    """
    parts = parts_of(value)
    if not parts:
        raise InputError(
            f"name {name}",
            "a model, whose weights are small",
            "a recording, beats or a table",
            "Get it, or write it to a file (Model.save)",
        )
    # What the store holds is a future behind its names, which need no task of their own.
    firsts = [unaliased(block) for blocks in parts.values() for block in blocks]
    kept = [first.__dask_graph__()[first.key] for first in firsts]
    try:
        wait(kept, timeout=LIMIT_S)
        places = client.who_has(kept)
        tasks = [
            client.submit(offer, one, hold_s=hold_s, workers=places[one.key], pure=False)
            for one in kept
        ]
        told = iter([task.result(timeout=LIMIT_S) for task in tasks])
    except TimeoutError as error:
        raise InputError(
            f"name {name}",
            f"workers that did not offer it within {LIMIT_S:g} s",
            "workers that hold it",
            "Look at the cluster's dashboard, and share it again",
        ) from error
    pieces = {which: [next(told) for _ in blocks] for which, blocks in parts.items()}
    return [dict(zip(pieces, some, strict=True)) for some in zip(*pieces.values(), strict=True)]
