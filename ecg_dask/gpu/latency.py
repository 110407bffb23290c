"""Small messages without delay: on a GPU a stage is a few tasks of milliseconds, one after another.

Distributed holds messages back for up to 10 ms to send several as one, which pays for thousands of
tasks a second. Of a day's recording on one GPU half of the time would be spent on that.
"""

from __future__ import annotations

from typing import Any

from distributed import Client
from distributed.diagnostics.plugin import SchedulerPlugin

#: Seconds for which messages are held back.
HELD_BACK_S = 0.0002

#: Distributed's settings for a cluster whose tasks take milliseconds: its profiler, which stops the
#: others of its process each time, looks ten times a second instead of a hundred times.
SETTINGS = {"distributed.worker.profile.interval": "100ms"}


def send_soon(stream: Any) -> None:
    """Shorten the time for which a `distributed.batched.BatchedSend` holds messages back."""
    stream.interval = HELD_BACK_S


class SendSoon(SchedulerPlugin):  # type: ignore[misc]
    """Makes a scheduler send to its workers and clients without delay."""

    name = "ecg_dask-send-soon"
    idempotent = True

    async def start(self, scheduler: Any) -> None:
        """Shorten the delay to the workers and clients that are there."""
        for stream in (*scheduler.stream_comms.values(), *scheduler.client_comms.values()):
            send_soon(stream)

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """Shorten the delay to a new worker."""
        send_soon(scheduler.stream_comms[worker])

    def add_client(self, scheduler: Any, client: str) -> None:
        """Shorten the delay to a new client, once its stream is there."""
        scheduler.loop.add_callback(self._answer_soon, scheduler, client)

    def _answer_soon(self, scheduler: Any, client: str) -> None:
        if client in scheduler.client_comms:
            send_soon(scheduler.client_comms[client])


def hurry(client: Client) -> None:
    """Make a client and its scheduler send without delay; workers do by their own plugin."""
    client.register_plugin(SendSoon())
    send_soon(client.scheduler_comm)
