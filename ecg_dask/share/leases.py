"""The folders of shares on this host, and the locked files in them that tell who lives.

A folder a user (mode 0700), in it one a process that owns data, in that one a share::

    /dev/shm/ecg_dask-UID/OWNER/owner              locked while the owner lives
    /dev/shm/ecg_dask-UID/OWNER/SHARE/piece.json   what is there; without it nobody may come in
    /dev/shm/ecg_dask-UID/OWNER/SHARE/data
    /dev/shm/ecg_dask-UID/OWNER/SHARE/reader-...   locked while a reader lives

The kernel gives the lock of a process back whatever ended it, so what a file says is true after
SIGKILL as well. Containers that share no ``/dev/shm`` name another folder that they do share, best
one in memory, by the environment variable ``ECG_DASK_SHARE_DIR``, owner and reader alike.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
import weakref
from contextlib import suppress
from pathlib import Path

from ..errors import InputError

#: Names of the files.
OWNER, PIECE, DATA = "owner", "piece.json", "data"

_READER = "reader-"

#: The variable that names the folder in which the users' folders are.
FOLDER = "ECG_DASK_SHARE_DIR"

#: Where they are without it on Linux, POSIX shared memory; elsewhere with the temporary files.
_SHARED_MEMORY = Path("/dev/shm")

#: Age in seconds at which a folder that has no owner is no longer taken for one in the making.
_FORGOTTEN_S = 60.0

_SHARE = re.compile(r"[0-9a-f]{16}/[0-9a-f]{16}")


def share_root() -> Path:
    """Return the folder of this user's shares on this host, which is made where it is missing.

    Raises
    ------
    InputError
        When it cannot be made, or when others may look into what stands there.
    """
    base = Path(os.environ.get(FOLDER) or _SHARED_MEMORY)
    if base == _SHARED_MEMORY and not base.is_dir():
        base = Path(tempfile.gettempdir())
    root = base / f"ecg_dask-{os.getuid()}"
    try:
        with suppress(FileExistsError):
            root.mkdir(mode=0o700)
        is_private = _is_own_folder(root) and not stat.S_IMODE(root.lstat().st_mode) & 0o077
    except OSError as error:
        raise InputError(
            f"folder of shares {root}",
            f"a place that cannot be written ({error.strerror})",
            "a folder that can be made there",
            f"Make {base} writable, or name another folder ({FOLDER})",
        ) from error
    if not is_private:
        raise InputError(
            f"folder of shares {root}",
            "something that is not this user's alone",
            "a folder of this user with mode 0700",
            "Remove it",
        )
    return root


def new_name() -> str:
    """Return a name that nobody guesses, for an owner or a share."""
    return secrets.token_hex(8)


def locked_file(folder: Path, name: str) -> int:
    """Make a file that this process holds locked until it closes it or ends.

    Nobody sees it by its name before it is locked.

    Returns
    -------
    The file's descriptor.
    """
    hidden = folder / f".{new_name()}"
    descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        hidden.rename(folder / name)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def is_locked(path: Path) -> bool:
    """Tell whether a file is there and the process that made it lives."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def has_owner(folder: Path) -> bool:
    """Tell whether the owner of a share's folder lives."""
    return is_locked(folder.parent / OWNER)


def has_readers(folder: Path) -> bool:
    """Tell whether a living process reads a share; what dead ones left is removed."""
    found = False
    for path in folder.glob(f"{_READER}*"):
        if is_locked(path):
            found = True
        else:
            path.unlink(missing_ok=True)
    return found


def remove(folder: Path) -> None:
    """Remove a folder, which another process may be removing too."""
    shutil.rmtree(folder, ignore_errors=True)


def sweep() -> None:
    """Remove what owners left on this host that were killed."""
    for folder in share_root().iterdir():
        with suppress(FileNotFoundError):
            if (folder / OWNER).exists():
                is_left = not is_locked(folder / OWNER)
            else:
                is_left = time.time() - folder.lstat().st_mtime > _FORGOTTEN_S
            if is_left:
                remove(folder)


def find(share: object) -> Path | None:
    """Return the folder of a share by its name in a descriptor; None where there is none."""
    if not isinstance(share, str) or not _SHARE.fullmatch(share):
        return None
    root = share_root()
    owner, _, own = share.partition("/")
    for folder in (root / owner, root / owner / own):
        if not _is_own_folder(folder):
            return None
    return root / share


def _is_own_folder(path: Path) -> bool:
    """Tell whether a path is a folder of this user, and not a link to one."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


class Lease:
    """A reader's hold on a share: the owner keeps the data as long as this object is there.

    Parameters
    ----------
    folder
        The share's.

    Raises
    ------
    FileNotFoundError
        When the folder is gone.
    """

    def __init__(self, folder: Path) -> None:
        name = f"{_READER}{new_name()}"
        descriptor = locked_file(folder, name)
        weakref.finalize(self, _let_go, descriptor, folder / name, os.getpid())


def _let_go(descriptor: int, path: Path, pid: int) -> None:
    # A process that was forked from the reader has its objects, and not its leases.
    if os.getpid() == pid:
        path.unlink(missing_ok=True)
    os.close(descriptor)
