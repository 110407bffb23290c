"""A name that goes by itself when its time is over, although no process looks after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dask.utils import stringify
from distributed.diagnostics.plugin import SchedulerPlugin


class Expiry(SchedulerPlugin):  # type: ignore[misc]
    """Dask scheduler plugin that unpublishes datasets when their time is over.

    Parameters
    ----------
    id
        Id of the entry that goes; what is put later under its name has another.
    datasets
        Keys of the published datasets, first the one that has the id.
    seconds
        Time until then.
    """

    def __init__(self, id: str, datasets: Sequence[tuple[str, ...]], seconds: float) -> None:
        self.name = f"ecg_dask-expiry-{id}"
        self.datasets = datasets
        self.seconds = seconds

    def start(self, scheduler: Any) -> None:
        """Begin to wait."""
        scheduler.loop.call_later(self.seconds, self._end, scheduler)

    def _end(self, scheduler: Any) -> None:
        published = scheduler.extensions["publish"].datasets
        if self.datasets[0] in published:
            for key in self.datasets:
                dataset = published.pop(key)
                scheduler.client_releases_keys(dataset["keys"], f"published-{stringify(key)}")
        scheduler.plugins.pop(self.name, None)
