"""One step from its names to its result, on a cluster that is already there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..command_line import SCHEDULER
from ..errors import InputError
from .job import Job
from .recipe import recipe_of, recording_stamps_on_worker
from .steps import FOLDER, Step

if TYPE_CHECKING:
    from distributed import Client

    from ..store import Entry, Store

#: Seconds to wait for the first worker, such as one that is started again.
WORKER_TIMEOUT_S = 20


@contextmanager
def opened(scheduler: str | None, scheduler_file: str | None) -> Iterator[tuple[Client, Store]]:
    """Give a client of a running scheduler, and the store on its workers.

    Raises
    ------
    InputError
        When no scheduler is named, it does not answer, or it has no workers.
    """
    if scheduler is None and scheduler_file is None:
        raise InputError(
            "scheduler",
            "no address",
            f"--scheduler, --scheduler-file or the environment variable {SCHEDULER}",
            "Start dask scheduler and dask worker, and name the scheduler's address",
        )
    from ..cluster import connect
    from ..store import Store

    # A file that is asked for has the say over an address from the environment.
    address = scheduler if scheduler_file is None else None
    with connect(address, scheduler_file=scheduler_file) as client:
        try:
            client.wait_for_workers(1, timeout=WORKER_TIMEOUT_S)
        except TimeoutError as error:
            raise InputError(
                "scheduler",
                f"no worker at {client.scheduler.address} within {WORKER_TIMEOUT_S} s",
                "a scheduler with one worker or more",
                f"Start dask worker {client.scheduler.address}",
            ) from error
        yield client, Store(client)


def perform(
    step: Step,
    client: Client,
    store: Store,
    *,
    names: Sequence[str],
    parameters: Mapping[str, Any],
    out: str,
    overwrite: bool,
) -> str:
    """Do a step, and return the line that tells of it.

    Parameters
    ----------
    step
        The step.
    client, store
        Where the data are.
    names
        The names that it is to read, in any order of kinds.
    parameters
        All its parameters.
    out
        The name, or the folder, that it is to make.
    overwrite
        Whether it may replace what `out` is already.

    Raises
    ------
    InputError
        When the names are not what the step reads, `out` may not be replaced, or the step cannot
        be done.
    """
    entries = entries_of(step, store, names, parameters)
    if step.output != FOLDER:
        # Before hours of training, and not behind them.
        store.check_free(out, overwrite=overwrite)
    recipe = recipe_now(step, client, entries, parameters)
    job = Job(
        step=step.name,
        parameters=parameters,
        entries=entries,
        out=out,
        overwrite=overwrite,
        recipe=recipe,
        client=client,
        store=store,
    )
    return step.work(job)


def entries_of(
    step: Step, store: Store, names: Sequence[str], parameters: Mapping[str, Any]
) -> dict[str, tuple[Entry, ...]]:
    """Return the entries that a step reads, by kind.

    Raises
    ------
    InputError
        When a name is not in the store, or they are not what the step reads.
    """
    if step.named_in_argument and step.argument is not None:
        from ..store.querying import names_of, schemas_of

        names = names_of(parameters[step.argument.name], schemas_of(store.list()))
    entries = {name: store.entry(name) for name in names}
    kinds: dict[str, str | None] = {name: entry.kind for name, entry in entries.items()}
    return {
        kind: tuple(entries[name] for name in own)
        for kind, own in step.by_kind(kinds, f"in of {step.name}").items()
    }


def recipe_now(
    step: Step,
    client: Client,
    entries: Mapping[str, Sequence[Entry]],
    parameters: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the recipe of what a step would make now."""
    inputs = {entry.name: entry.id for own in entries.values() for entry in own}
    files = recording_stamps_on_worker(client, parameters["file"]) if step.name == "load" else {}
    return recipe_of(step.name, parameters, inputs, files)
