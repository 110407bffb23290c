"""What the store knows of a name."""

from __future__ import annotations

import getpass
import os
import secrets
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

#: Where a name's data is: in the workers' memory, in files, or nowhere any more.
MEMORY, DISK, GONE = "memory", "disk", "gone"


@dataclass(frozen=True)
class Entry:
    """A name in the store and what is known of it.

    Attributes
    ----------
    name
        The name.
    id
        Text of its own for each time that something is put under the name.
    kind
        ``"recording"``, ``"beats"``, ``"table"`` or ``"model"``.
    schema
        Types by name: of a table's columns, of beats' columns and ``waves``, of a recording's
        leads; of a model its parameters.
    fs
        Sampling rate in Hz; None of what has none.
    parameters
        What it was made with.
    n_bytes
        Bytes that it takes in the workers' memory, or took.
    made_by
        Who made it: user, machine and program.
    made_from
        The names that it was made from, with their `id` then.
    created
        When it was put, in ISO 8601, UTC.
    used
        When it was last put, or got while the store has a limit.
    expires
        When it goes by itself; None for never.
    state
        ``"memory"``, ``"disk"`` (it is read back when it is got), or ``"gone"``: the workers that
        held it were restarted, and nothing is left to compute it from.
    recipe
        What a step was told, by which a later run finds it up to date; None of what no step made.
    device
        ``"cpu"`` or ``"gpu"``: whose memory it lives in.
    """

    name: str
    id: str
    kind: str
    schema: Mapping[str, str]
    fs: float | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    n_bytes: int = 0
    made_by: str = ""
    made_from: Mapping[str, str] = field(default_factory=dict)
    created: str = ""
    used: str = ""
    expires: str | None = None
    state: str = MEMORY
    recipe: Mapping[str, Any] | None = None
    device: str = "cpu"


def new_id() -> str:
    """Return an id that no other entry has."""
    return secrets.token_hex(8)


def now(later_s: float = 0.0) -> str:
    """Return the time, or the time in some seconds, as entries have it."""
    return (datetime.now(UTC) + timedelta(seconds=later_s)).isoformat(timespec="milliseconds")


def this_program() -> str:
    """Return user, machine and program of this process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a number that has no name.
        user = str(os.getuid())
    program = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"
    return f"{user}@{socket.gethostname()}: {program}"
