"""What the user sees while a run goes on: a bar a stage, with the time left."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distributed import Client, futures_of
from distributed.diagnostics.progressbar import ProgressBar
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Stages:
    """Bars of the stages of one run, and the seconds each took.

    Parameters
    ----------
    client
        The client that the work goes through.
    console
        Where to draw; None draws nothing.
    """

    def __init__(self, client: Client, console: Console | None) -> None:
        self._client = client
        self._bars = Progress(
            TextColumn("{task.description:<8}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=console is None,
        )
        self.seconds: dict[str, float] = {}

    def __enter__(self) -> Stages:
        self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bars.stop()

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """Draw a bar for what is done inside, and note its seconds under `name`."""
        begun = time.perf_counter()
        bar = self._bars.add_task(name, total=None)
        yield Stage(self._client, self._bars, bar)
        self._bars.update(bar, total=1, completed=1)
        self.seconds[name] = time.perf_counter() - begun


class Stage:
    """The bar of one stage."""

    def __init__(self, client: Client, bars: Progress, bar: TaskID) -> None:
        self._client = client
        self._bars = bars
        self._bar = bar

    def draw(self, completed: int, total: int) -> None:
        """Show `completed` of `total` steps."""
        self._bars.update(self._bar, completed=completed, total=total)

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        if not self._bars.disable:
            self._bars.console.print(text)

    def wait(self, *collections: Any) -> None:
        """Wait for persisted collections, and draw how many of their tasks are done.

        Raises
        ------
        Exception
            What a task raised.
        """
        futures = futures_of(collections)
        self._client.sync(_Bar(futures, self).listen)
        for future in futures:
            if future.status == "error":
                future.result()

    @contextmanager
    def following(self, topic: str) -> Iterator[None]:
        """Draw the epochs that a training task tells of while the inside runs."""

        def told(event: tuple[float, Any]) -> None:
            message = event[1]
            self.draw(message["epoch"], message["epochs"])

        self._client.subscribe_topic(topic, told)
        try:
            yield
        finally:
            self._client.unsubscribe_topic(topic)


class _Bar(ProgressBar):  # type: ignore[misc]
    """Dask's progress of keys and all that they depend on, drawn on our bar."""

    def __init__(self, futures: Any, stage: Stage) -> None:
        super().__init__(futures)
        self._stage = stage

    def _draw_bar(self, remaining: int, all: int, **others: Any) -> None:
        self._stage.draw(all - remaining, all)
