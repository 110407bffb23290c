"""The reader's side: what another process offered, mapped without a copy."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from ..errors import InputError
from . import cuda, host, leases
from .descriptor import FORMS, Piece, agreed, parse
from .owner import held_here


class _Held(NamedTuple):
    """A piece that this process may read, as its owner wrote it down."""

    piece: Piece
    folder: Path
    lease: leases.Lease


class Shared:
    """Data of another process of this host, and of its GPU, in that process's memory.

    Arrays and tables are mapped when they are first asked for. They are read-only: arrays of NumPy
    and columns of pandas refuse to be written; of those of CuPy and cuDF it is the contract, as it
    is of a tensor made of any (writing to one in the host's memory ends the process). What is
    written must be a copy.

    The owner keeps the data until this object is closed *and* nothing that it gave is referred to
    any more, so nothing is pulled away from under an array, a view of it, or a tensor made of it.
    When the owner ends, data in the host's memory stay for those that have mapped them; data in a
    GPU's may not be used any more, and each access says so.

    Attributes
    ----------
    name, kind
        Name of the data in its store, and what it is, such as ``"beats"``.
    fs
        Sampling rate in Hz; None when it has none.
    info
        What else the descriptor tells.
    """

    def __init__(self, descriptor: str | Mapping[str, Any]) -> None:
        told = parse(descriptor)
        self.name, self.kind, self.fs, self.info = told.name, told.kind, told.fs, told.info
        self._held: list[dict[str, _Held]] | None = [
            {
                part: _entered(f"pieces[{i}].{part}", self.name, piece)
                for part, piece in parts.items()
            }
            for i, parts in enumerate(told.pieces)
        ]
        self._mapped: dict[str, tuple[Any, ...]] = {}

    @property
    def signal(self) -> tuple[Any, ...]:
        """Samples of a recording, an array of shape (n_samples, n_leads) a partition."""
        return self._partitions("signal")

    @property
    def table(self) -> tuple[Any, ...]:
        """The table, of pandas or cuDF, one a partition."""
        return self._partitions("table")

    @property
    def waves(self) -> tuple[Any, ...]:
        """Waves of beats, an array of shape (n_beats, n_leads, n_window) a partition."""
        return self._partitions("waves")

    def check(self) -> None:
        """Look whether the data may be used.

        Raises
        ------
        InputError
            When this object was closed, or when a process that owns the data is gone.
        """
        folders = {held.folder.parent: held.folder for held in self._open()}
        for folder in folders.values():
            _look(self.name, folder)

    def close(self) -> None:
        """Ask for nothing more. What was given stays usable, and the data with it."""
        self._held = None
        self._mapped = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._held is None else f"{len(self._held)} partitions"
        return f"<Shared {self.kind} {self.name!r}, {state}>"

    def _partitions(self, part: str) -> tuple[Any, ...]:
        self.check()
        if part not in self._mapped:
            parts = self._held or []
            if parts and part not in parts[0]:
                raise InputError(
                    f"share {self.name}, {part}",
                    "nothing",
                    " and ".join(sorted(parts[0])),
                    "Ask for what it has",
                )
            self._mapped[part] = tuple(_map(self.name, FORMS[part], held[part]) for held in parts)
        return self._mapped[part]

    def _open(self) -> list[_Held]:
        if self._held is None:
            raise InputError(
                f"share {self.name}",
                "one that was closed",
                "an open one",
                "Attach to the descriptor again",
            )
        return [held for parts in self._held for held in parts.values()]


def attach(descriptor: str | Mapping[str, Any]) -> Shared:
    """Map data of another process without a copy.

    Needs no Dask and no connection to a cluster, only the owner's host and user, and for data in
    GPU memory its GPU.

    Parameters
    ----------
    descriptor
        What ``Store.share`` or `describe` gave, as it is or as JSON.

    Returns
    -------
    Shared
        An open one; use it in a ``with`` statement, or close it.

    Raises
    ------
    InputError
        When the descriptor is none, when the data or their owner are gone, or when this process is
        not where they are.
    """
    return Shared(descriptor)


def _entered(where: str, name: str, piece: Piece) -> _Held:
    """Take a lease on a piece, and check what the descriptor tells of it."""
    folder = leases.find(piece.get("share"))
    if folder is None:
        raise _not_there(name)
    _look(name, folder)
    with _told(name):
        agreed(where, piece, told := _read(folder))
        lease = leases.Lease(folder)
        # The owner may have let go in between: it looks for leases only after it has closed.
        (folder / leases.PIECE).lstat()
    return _Held(told, folder, lease)


def _read(folder: Path) -> Piece:
    """Return what the owner wrote down of a share."""
    descriptor = os.open(folder / leases.PIECE, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(descriptor) as file:
        told: Piece = json.load(file)
    return told


def _map(name: str, form: str, held: _Held) -> Any:
    piece, folder, lease = held
    with _told(name):
        if piece["memory"] == "cuda":
            # CUDA opens no block in the process that it belongs to.
            flat = held_here(piece["share"])
            flat = cuda.mapped(piece, lease) if flat is None else flat
            if form == "array":
                return cuda.map_array(piece, flat)
            return cuda.map_table(piece, flat, folder)
        if form == "array":
            return host.map_array(piece, folder, lease)
        return host.map_table(piece, folder, lease)


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Say in words that files of a share are not there, or cannot be used."""
    try:
        yield
    except FileNotFoundError as error:
        raise _not_there(name) from error
    except OSError as error:
        raise InputError(
            f"share {name}",
            f"files that cannot be opened or mapped ({error.strerror})",
            "those that the owner made, and open files and memory left",
            "Raise the limit (ulimit -n), or share fewer partitions",
        ) from error


def _look(name: str, folder: Path) -> None:
    """Look whether the owner of a share lives; what a dead one left is removed."""
    if leases.has_owner(folder):
        return
    leases.remove(folder.parent)
    raise InputError(
        f"share {name}",
        "that the process which held the data is gone",
        "one whose owner lives",
        "Share the name again",
    )


def _not_there(name: str) -> InputError:
    return InputError(
        f"share {name}",
        "none of this user on this host, or one that was withdrawn or waited too long for a reader",
        "one that is held",
        "Share the name again, and attach on the same host as the same user",
    )
