"""What is asked for, and what is found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..gpu.devices import Gpu


@dataclass(frozen=True)
class Case:
    """What a user wants to run with, and the GPUs that are there.

    Attributes
    ----------
    device
        ``"auto"``, ``"cpu"`` or ``"gpu"``.
    protocol
        ``"tcp"``, ``"ucx"``, ``"tls"``, or None.
    pool
        Size of the memory pool a GPU, or None.
    workers
        Number of worker processes, or None.
    workers_per_gpu
        Workers that share a GPU.
    scheduler
        Address of a running scheduler, or None.
    gpus
        The GPUs that this process may use.
    """

    device: str = "auto"
    protocol: str | None = None
    pool: str | None = None
    workers: int | None = None
    workers_per_gpu: int = 1
    scheduler: str | None = None
    gpus: tuple[Gpu, ...] = ()

    @property
    def wants_gpu(self) -> bool:
        """Whether a GPU of this machine was asked for."""
        return self.device == "gpu" and self.scheduler is None

    @property
    def has_gpu(self) -> bool:
        """Whether there is a GPU that a run would want to use."""
        return bool(self.gpus) and self.device != "cpu"


class Finding(NamedTuple):
    """One line of what is found.

    Attributes
    ----------
    name
        What was looked at.
    state
        ``"ok"``; ``"note"``, which is worth knowing and stops nothing; ``"missing"`` or
        ``"wrong"``.
    found
        What was found there.
    do
        What to do about it, a sentence without its full stop; empty when it is ok.
    asked
        Whether what is missing or wrong was asked for.
    """

    name: str
    state: str
    found: str
    do: str = ""
    asked: bool = False

    @property
    def fails(self) -> bool:
        """Whether something asked for is not there."""
        return self.asked and self.state in ("missing", "wrong")


def ok(name: str, found: str) -> Finding:
    """Return a finding that needs nothing."""
    return Finding(name, "ok", found)


def note(name: str, found: str, do: str) -> Finding:
    """Return a finding that is worth knowing and stops nothing."""
    return Finding(name, "note", found, do)


def missing(name: str, found: str, do: str, *, asked: bool = False) -> Finding:
    """Return a finding of something that is not there."""
    return Finding(name, "missing", found, do, asked)


def wrong(name: str, found: str, do: str, *, asked: bool = False) -> Finding:
    """Return a finding of something that is there and does not work."""
    return Finding(name, "wrong", found, do, asked)
