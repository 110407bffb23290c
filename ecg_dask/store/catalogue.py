"""Names on the scheduler, as Dask's published datasets.

A name is two datasets: its entry, which every list reads, with the keys of the tasks that hold its
data; and the thing itself, which makes the scheduler keep these tasks, what they were made of
included, so that Dask can compute them again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from distributed.client import futures_of

from ..errors import InputError
from .entry import GONE, MEMORY, Entry
from .expiry import Expiry

if TYPE_CHECKING:
    from distributed import Client

#: What the keys of published datasets begin with.
_ENTRY, _VALUE, _SETTINGS = "ecg_dask-entry", "ecg_dask-value", "ecg_dask-settings"

#: States of tasks on the scheduler that are there or will be.
_ALIVE = {"memory", "processing", "waiting", "no-worker", "queued"}


@dataclass(frozen=True)
class Settings:
    """What the store does by itself, on one scheduler for all processes.

    Attributes
    ----------
    limit
        Most bytes of all names in the workers' memory; None for no limit.
    ttl_s
        Seconds after which a name goes; None for never.
    folder
        Folder that all workers see, for what is beyond the limit.
    """

    limit: int | None = None
    ttl_s: float | None = None
    folder: str | None = None


class _Published:
    """A thing with what holds it, as one: Dask takes lists and dicts apart when it sends them.

    It is a Dask collection of all futures of the thing, which Dask binds to the client that gets
    it.
    """

    def __init__(self, value: Any, held: Sequence[Any]) -> None:
        self.value = value
        self.held = list(held)

    def __dask_graph__(self) -> dict[Any, Any]:
        return {future.key: future for future in futures_of(self.held)}


class Catalogue:
    """The names of a cluster.

    Parameters
    ----------
    client
        Client of the cluster.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def settings(self) -> Settings:
        """Return the settings."""
        return self.find("")[1]

    def find(self, name: str) -> tuple[Entry | None, Settings]:
        """Return a name's entry as it was written, None where there is none, and the settings."""
        found, settings = self._found(name)
        return None if found is None else Entry(**found["entry"]), settings

    def set(self, settings: Settings) -> None:
        """Keep settings, instead of those before."""
        self._client.publish_dataset({(_SETTINGS,): vars(settings)}, override=True)

    def entries(self) -> list[Entry]:
        """Return all entries, oldest first, each with its state as it is now."""
        names = [key for key in self._client.list_datasets() if _is_entry(key)]
        found = self._client.get_dataset(names, default=None) if names else []
        # Others may drop one in between.
        found = [one for one in found if one is not None]
        states, _ = self._client.sync(self._asked, [key for one in found for key in one["keys"]])
        entries = [_with_state(one, states) for one in found]
        return sorted(entries, key=lambda entry: entry.created)

    def look(self, name: str) -> tuple[Entry, Settings, bool]:
        """Return a name's entry as it is now, the settings, and whether there are workers.

        Raises
        ------
        InputError
            When there is no such name.
        """
        found, settings = self._found(name)
        if found is None:
            raise InputError(
                f"name {name}",
                "no such name in the store",
                _listed([entry.name for entry in self.entries()]),
                "Choose one of these, put it, or restore a snapshot (a scheduler that was started "
                "anew has no names)",
            )
        states, workers = self._client.sync(self._asked, found["keys"])
        return _with_state(found, states), settings, bool(workers)

    def entry(self, name: str) -> Entry:
        """Return a name's entry as it is now (see `look`)."""
        return self.look(name)[0]

    def value(self, entry: Entry) -> Any:
        """Return what is published of an entry; no data moves.

        Raises
        ------
        InputError
            When it was dropped since.
        """
        found = self._client.get_dataset(_value_key(entry), default=None)
        if found is None:
            # Says that there is no such name, or that another is there now.
            self.entry(entry.name)
            raise InputError(
                f"name {entry.name}",
                "something that is being put anew",
                "a name that stays while it is read",
                "Get it again",
            )
        return found.value

    def publish(
        self, entry: Entry, value: Any, held: Sequence[Any], *, before: Entry | None
    ) -> None:
        """Publish a thing under its entry's name, all at once.

        Parameters
        ----------
        entry
            What is known of it.
        value, held
            The thing, and the Dask collections that it consists of.
        before
            What may be replaced under the name; None for nothing.

        Raises
        ------
        InputError
            When there is something else of that name.
        """
        published = _Published(value, held)
        both = {
            _entry_key(entry): _raw(entry, list(published.__dask_graph__())),
            _value_key(entry): published,
        }
        try:
            self._client.publish_dataset(both, override=before is not None)
        except KeyError as error:
            raise taken(self.entry(entry.name)) from error
        if before is not None and before.id != entry.id:
            self._client.unpublish_dataset(_value_key(before))

    def change(self, entry: Entry) -> None:
        """Change what is said of a thing, and nothing of its data."""
        key = _entry_key(entry)
        found = self._client.get_dataset(key, default=None)
        if found is not None and found["entry"]["id"] == entry.id:
            self._client.publish_dataset({key: _raw(entry, found["keys"])}, override=True)

    def drop(self, entry: Entry) -> None:
        """Let go of a name; its data goes when nobody else holds it."""
        self._client.unpublish_dataset([_entry_key(entry), _value_key(entry)])

    def let_expire(self, entry: Entry, seconds: float) -> None:
        """Let a name go by itself."""
        datasets = [_value_key(entry), _entry_key(entry)]
        self._client.register_plugin(Expiry(entry.id, datasets, seconds))

    def has_workers(self) -> bool:
        """Tell whether the cluster has workers."""
        return bool(self._client.nthreads())

    def _found(self, name: str) -> tuple[Any, Settings]:
        """Return what is published of an entry, and the settings, by one message."""
        found, kept = self._client.get_dataset([(_ENTRY, name), (_SETTINGS,)], default=None)
        return found, Settings() if kept is None else Settings(**kept)

    async def _asked(self, keys: Sequence[Any]) -> tuple[dict[Any, str | None], dict[str, int]]:
        """Return the states of tasks, and the workers, by two messages at once."""
        scheduler = self._client.scheduler
        states, workers = await asyncio.gather(
            scheduler.get_task_status(keys=list(keys)), scheduler.ncores()
        )
        return states, workers


def taken(entry: Entry) -> InputError:
    """Return the error of a name that is taken."""
    return InputError(
        f"name {entry.name}",
        f"{entry.kind} of that name already, of {entry.created}, by {entry.made_by}",
        "a new name",
        "Choose another, drop it, or overwrite it (overwrite=True, --overwrite)",
    )


def _entry_key(entry: Entry) -> tuple[str, ...]:
    return (_ENTRY, entry.name)


def _value_key(entry: Entry) -> tuple[str, ...]:
    return (_VALUE, entry.name, entry.id)


def _is_entry(key: Any) -> bool:
    return isinstance(key, tuple) and len(key) == 2 and key[0] == _ENTRY


def _raw(entry: Entry, keys: Sequence[Any]) -> dict[str, Any]:
    return {"entry": asdict(entry), "keys": list(keys)}


def _with_state(found: Mapping[str, Any], states: Mapping[Any, str | None]) -> Entry:
    entry = Entry(**found["entry"])
    if entry.state == MEMORY and any(states.get(key) not in _ALIVE for key in found["keys"]):
        return replace(entry, state=GONE)
    return entry


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if names else "no name yet"
