"""Tell the format of a file by its content, then by its suffix."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ..errors import InputError
from .files import opened, unreadable
from .opensignals import MAGIC as OPENSIGNALS
from .wfdb_records import record_path

#: First bytes of the formats that read() knows.
_READ = {b"PAR1": "parquet", b"\x93NUMPY": "numpy", OPENSIGNALS: "opensignals"}
#: First bytes of formats that it does not, with their names.
_REFUSED = {
    b"ISHNE1.0": "ISHNE",
    b"ANN  1.0": "ISHNE annotations",
    b"\xffBIOSEMI": "BDF",
    b"\x89HDF": "HDF5",
    b"MATLAB": "MATLAB",
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "Zstandard",
}
#: Suffixes of formats that must begin with bytes of their own, which were not found.
_BY_SUFFIX = {
    ".parquet": "Parquet",
    ".npy": "NumPy",
    ".npz": "NumPy",
    ".edf": "EDF",
    ".bdf": "BDF",
    ".ecg": "ISHNE",
}
_ALLOWED = "CSV, OpenSignals text, WFDB, Parquet or NumPy"


def format_of(path: str) -> str:
    """Tell which reader takes a file (a task).

    Returns
    -------
    ``"csv"``, ``"numpy"``, ``"opensignals"``, ``"parquet"`` or ``"wfdb"``

    Raises
    ------
    InputError
        When there is no such file, when it is empty, or when its format is not one of these.
    """
    file = Path(path)
    if Path(f"{path}.hea").is_file() and not file.is_file():
        return "wfdb"
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError):
            raise InputError("path", repr(path), "a path", "Name the file") from None
        raise unreadable(path, error) from None
    if stat.S_ISDIR(mode):
        raise unreadable(path, IsADirectoryError())
    if not stat.S_ISREG(mode):
        raise InputError(path, "no regular file", "a file", "Copy what it gives into a file")
    if file.suffix in (".hea", ".dat") and Path(f"{record_path(path)}.hea").is_file():
        return "wfdb"
    with opened(path) as stream:
        head = stream.read(256)
    if not head:
        raise InputError(path, "an empty file", "a recording", "Choose another file")
    for magic, kind in _READ.items():
        if head.startswith(magic):
            return kind
    for magic, kind in _REFUSED.items():
        if head.startswith(magic):
            raise _refused(path, kind)
    if head.startswith(b"PK\x03\x04") or head.startswith(b"PK\x05\x06"):
        if file.suffix == ".npz":
            return "numpy"
        raise _refused(path, "zip")
    if head.startswith(b"0       ") and len(head) == 256 and b"\n" not in head:
        raise _refused(path, "EDF")
    suffix = file.suffix.lower()
    if suffix in _BY_SUFFIX:
        raise InputError(
            path,
            f"a file that does not begin like {_BY_SUFFIX[suffix]}",
            f"what its suffix {suffix} says",
            "Check that the file is whole, or rename it",
        )
    return "csv"


def _refused(path: str, kind: str) -> InputError:
    packed = kind in ("gzip", "bzip2", "xz", "Zstandard", "zip")
    return InputError(
        path,
        f"the format {kind}",
        _ALLOWED,
        "Unpack it" if packed else "Convert it to one of these, such as CSV or WFDB",
    )
