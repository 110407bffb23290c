"""One step about to be done: its parameters, its names, and the store that they are in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Client

    from ..store import Entry, Store


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a step works on.

    Attributes
    ----------
    step
        The step's name.
    parameters
        All its parameters by name, the argument included.
    entries
        The entries that it reads, by kind.
    out
        The name, or the folder, that it makes.
    overwrite
        Whether it may replace what `out` is already.
    recipe
        What its result follows from; see `recipe_of`.
    client, store
        Where the data are.
    """

    step: str
    parameters: Mapping[str, Any]
    entries: Mapping[str, tuple[Entry, ...]]
    out: str
    overwrite: bool
    recipe: Mapping[str, Any]
    client: Client
    store: Store

    def values(self, kind: str) -> list[Any]:
        """Return what the names of a kind stand for, in the order in which they were given."""
        return [self.store.get(entry.name) for entry in self.entries[kind]]

    def value(self, kind: str) -> Any:
        """Return what the only name of a kind stands for."""
        (value,) = self.values(kind)
        return value

    def put(self, value: Any, parameters: Mapping[str, Any] | None = None) -> Entry:
        """Keep the step's result under its name."""
        return self.store.put(
            self.out,
            value,
            overwrite=self.overwrite,
            parameters=parameters,
            made_from=[entry.name for own in self.entries.values() for entry in own],
            made_by=f"ecg-dask stage {self.step}",
            recipe=self.recipe,
        )
