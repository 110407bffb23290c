"""Waiting for the workers, never for ever."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from distributed import wait
from distributed.client import futures_of
from distributed.utils import TimeoutError

from ..errors import InputError

if TYPE_CHECKING:
    from distributed import Client, Future

#: Seconds between two looks at the cluster, and without a worker before it is given up.
LOOK_S, WITHOUT_WORKERS_S = 1.0, 30.0


def wait_for(client: Client, held: Sequence[Any], what: str) -> int:
    """Wait until what is persisted is in the workers' memory.

    Parameters
    ----------
    client
        Client of the cluster.
    held
        Dask collections that are persisted.
    what
        What is waited for, for the message.

    Returns
    -------
    int
        Bytes that it takes there.

    Raises
    ------
    InputError
        When the cluster has no workers for half a minute, or lost what is waited for. Also what
        computing it raised.
    """
    futures = list({future.key: future for future in futures_of(list(held))}.values())
    seen = time.monotonic()
    while True:
        try:
            wait(futures, timeout=LOOK_S)
            break
        except TimeoutError:
            if client.nthreads():
                seen = time.monotonic()
            elif time.monotonic() - seen > WITHOUT_WORKERS_S:
                raise _refused(what, "a cluster without workers") from None
    for future in futures:
        _check(future, what)
    sizes = client.nbytes([future.key for future in futures], summary=False)
    return sum(sizes.values())


def _check(future: Future, what: str) -> None:
    if future.status == "error":
        future.result()
    if future.status != "finished":
        raise _refused(what, f"tasks that were {future.status}, as when a cluster is restarted")


def _refused(what: str, found: str) -> InputError:
    return InputError(
        what,
        found,
        "workers that compute it and keep it",
        "Start workers (dask worker, dask cuda worker), and do it again",
    )
