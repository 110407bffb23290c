"""Recipes: what a step's result follows from, so that an equal one need not be made again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..errors import InputError

if TYPE_CHECKING:
    from distributed import Client

#: The environment variable that tells a user's own module the recipe of what it makes.
RECIPE = "ECG_DASK_RECIPE"

#: Seconds to wait for a worker to look at a file.
LOOK_TIMEOUT_S = 60

#: Suffixes of the files that a WFDB record is made of.
_WFDB = (".hea", ".dat")


def recipe_of(
    step: str,
    parameters: Mapping[str, Any],
    inputs: Mapping[str, str],
    files: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, Any]:
    """Return what a result follows from, as JSON has it.

    Parameters
    ----------
    step
        The step's name.
    parameters
        All its parameters.
    inputs
        The names that it reads, with the ids of their entries.
    files
        The files that it reads, with their sizes and times; see `stamps`.
    """
    recipe = {
        "step": step,
        "parameters": dict(parameters),
        "inputs": dict(inputs),
        "files": dict(files or {}),
        "version": __version__,
    }
    plain: dict[str, Any] = json.loads(json.dumps(recipe, sort_keys=True))
    return plain


def stamps(paths: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return the size in bytes and the time of the last change in ns of the files among `paths`."""
    found = {}
    for path in map(Path, paths):
        if path.is_file():
            told = path.stat()
            found[str(path)] = (told.st_size, told.st_mtime_ns)
    return found


def recording_stamps(name: str) -> dict[str, tuple[int, int]]:
    """Return the `stamps` of a recording's file, or of the files of a WFDB record (a task)."""
    path = Path(name)
    if path.suffix in _WFDB:
        path = path.with_suffix("")
    beside = [f"{path}{suffix}" for suffix in _WFDB]
    return stamps(sorted({name, *beside}))


def recording_stamps_on_worker(client: Client, name: str) -> dict[str, tuple[int, int]]:
    """Return `recording_stamps` as a worker sees them: the client may not see the file.

    Raises
    ------
    InputError
        When no worker answers.
    """
    asked = client.submit(recording_stamps, name, pure=False)
    try:
        told: dict[str, tuple[int, int]] = asked.result(timeout=LOOK_TIMEOUT_S)
    except TimeoutError as error:
        raise InputError(
            name,
            f"no worker that looked at it within {LOOK_TIMEOUT_S} s",
            "a worker that is free",
            "Look at the dashboard of the scheduler for what the workers do",
        ) from error
    return told
