"""The owner's side: what a worker has offered, and when it lets go of it."""

from __future__ import annotations

import atexit
import errno
import json
import math
import os
import shutil
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import on_gpu
from ..errors import InputError
from . import cuda, host, leases
from .descriptor import Piece

#: Seconds between two looks of the reaper.
_WAKE_S = 1.0


@dataclass
class _Offer:
    """A value that readers may map.

    Attributes
    ----------
    folder
        Folder of the share.
    hold_s
        Seconds that it is kept without a reader.
    value
        What has to be kept alive; None when it is in the folder.
    since
        Time at which it was offered or last seen with a reader, by the monotonic clock.
    """

    folder: Path
    hold_s: float
    value: Any = None
    since: float = math.inf

    def is_over(self) -> bool:
        """Tell whether to let go; from then on nobody can come in."""
        now = time.monotonic()
        if leases.has_readers(self.folder):
            self.since = now
            return False
        if now - self.since < self.hold_s:
            return False
        return self.close()

    def close(self) -> bool:
        """Let no reader in any more; tell whether there is none."""
        self.hold_s = 0.0
        (self.folder / leases.PIECE).unlink(missing_ok=True)
        # A reader that came in just before has its lease by now: it takes it before it looks
        # whether it may.
        return not leases.has_readers(self.folder)


class _Owner:
    """The folder of this process, which is there while anything is offered."""

    def __init__(self) -> None:
        self.folder = leases.share_root() / leases.new_name()
        self.folder.mkdir(mode=0o700)
        self.lock = leases.locked_file(self.folder, leases.OWNER)

    def leave(self) -> None:
        """Remove the folder."""
        leases.remove(self.folder)
        os.close(self.lock)


_owner: _Owner | None = None
_offers: dict[str, _Offer] = {}
_reaper: threading.Thread | None = None
_lock = threading.RLock()


def offer(value: Any, *, hold_s: float = 60.0) -> Piece:
    """Offer an array or a table that this process holds to other processes of this host.

    Runs in the process that holds the value, such as a task on a Dask worker. What lies in GPU
    memory stays where it is (a table is packed into one buffer there first); what lies in the
    host's is written into shared memory once. It is kept until no reader has it and `hold_s` have
    passed since the offer or since the last reader left, whatever becomes of `value`. It is also
    gone when this process is.

    Parameters
    ----------
    value
        An array of NumPy or CuPy of any shape (one that is not C-contiguous is copied once more),
        or a table of pandas or cuDF.
    hold_s
        Seconds, 0 or more.

    Returns
    -------
    The piece of a descriptor that tells of it, which JSON can express.

    Raises
    ------
    InputError
        When the value is of no such kind, when it does not fit into shared memory, or when it
        lies in a pool that other processes cannot map.
    """
    if isinstance(hold_s, bool) or not isinstance(hold_s, int | float) or not hold_s >= 0:
        raise InputError("hold_s", repr(hold_s), "seconds, 0 or more", "Give such a number")
    leases.sweep()
    share, entry = _entered(float(hold_s))
    try:
        entry.value, told = _laid_out(value, entry.folder)
        piece: Piece = {"share": share, **told}
        # Complete when it gets its name: with it the share is open.
        unnamed = entry.folder / f".{leases.PIECE}"
        with os.fdopen(os.open(unnamed, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(piece, file)
        unnamed.rename(entry.folder / leases.PIECE)
    except OSError as error:
        _let_go(share)
        raise _told(error, value, entry.folder) from error
    except BaseException:
        _let_go(share)
        raise
    entry.since = time.monotonic()
    return piece


def withdraw(piece: Piece) -> None:
    """Let go of what was offered: at once when no reader has it, else when the last one leaves.

    Runs in the process that offered it; of what is not there (any more) nothing is said. No reader
    can come in from now on.
    """
    share = str(piece.get("share"))
    with _lock:
        entry = _offers.get(share)
        if entry is not None and entry.close():
            _let_go(share)


def held_here(share: str) -> Any:
    """Return what is kept of a share of this process: None in all others, and of host memory."""
    with _lock:
        entry = _offers.get(share)
        return None if entry is None else entry.value


def _entered(hold_s: float) -> tuple[str, _Offer]:
    """Make the folder of a share and note it; it is not over before it is complete."""
    global _owner, _reaper
    with _lock:
        if _owner is None:
            _owner = _Owner()
        if _reaper is None:
            _reaper = threading.Thread(target=_reap, name="ecg_dask-share", daemon=True)
            _reaper.start()
        name = leases.new_name()
        entry = _Offer(_owner.folder / name, hold_s)
        entry.folder.mkdir(mode=0o700)
        share = f"{_owner.folder.name}/{name}"
        _offers[share] = entry
    return share, entry


def _laid_out(value: Any, folder: Path) -> tuple[Any, Piece]:
    """Make a value ready to be mapped; return what to keep alive, and what to tell."""
    library = type(value).__module__.partition(".")[0]
    is_table = hasattr(value, "columns") and hasattr(value, "dtypes")
    if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray):
        return None, host.lay_out_array(value, folder)
    if is_table and library == "pandas":
        return None, host.lay_out_table(value, folder)
    if on_gpu(value) and hasattr(value, "shape"):
        return cuda.lay_out_array(value)
    if is_table and library == "cudf":
        return cuda.lay_out_table(value, folder)
    raise InputError(
        "value",
        f"{type(value).__name__}",
        "an array of NumPy or CuPy, or a table of pandas or cuDF",
        "Offer such partitions",
    )


def _told(error: OSError, value: Any, folder: Path) -> InputError:
    """Return what to say when a share could not be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM):
        with suppress(OSError):
            free = shutil.disk_usage(leases.share_root()).free
            return InputError(
                "shared memory",
                f"{free:,} bytes free, too little for {type(value).__name__} of "
                f"{getattr(value, 'size', 0):,} values",
                "a value that fits",
                f"Give {leases.share_root().parent} more (docker run --shm-size), or share less",
            )
    return InputError(
        "shared memory",
        f"{folder} cannot be written ({error.strerror or error})",
        "a folder that can be written, and open files left",
        "Raise the limit (ulimit -n), or share fewer partitions",
    )


def _let_go(share: str) -> None:
    """Forget a share; with the last one the folder of this process goes."""
    global _owner
    with _lock:
        entry = _offers.pop(share, None)
        if entry is not None:
            leases.remove(entry.folder)
        if not _offers and _owner is not None:
            _owner.leave()
            _owner = None


def _reap() -> None:
    """Look after the offers as long as there are any."""
    global _reaper
    while True:
        time.sleep(_WAKE_S)
        with _lock:
            for share, entry in list(_offers.items()):
                if entry.is_over():
                    _let_go(share)
            if _owner is None:
                _reaper = None
                return


@atexit.register
def _leave() -> None:
    """Take all back at the end of the process."""
    with _lock:
        if _owner is not None:
            _owner.leave()


def _forget() -> None:
    """Forget in a forked process what its parent owns, and do not seem to be the parent."""
    global _owner, _offers, _reaper, _lock
    if _owner is not None:
        os.close(_owner.lock)
    _owner, _offers, _reaper, _lock = None, {}, None, threading.RLock()


os.register_at_fork(after_in_child=_forget)
