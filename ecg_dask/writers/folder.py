"""The folder of a result: its files, and how they come into their places."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import InputError
from .annotations import ANNOTATOR

TABLE, SPANS, SUMMARY = "beats.parquet", "spans.parquet", "summary.json"
MODEL, REPORT = "model.pt", "report.html"

#: How the name of the folder begins in which a result's files are written before all are renamed.
UNFINISHED = ".unfinished-"

#: Age in seconds at which such a folder is taken for one that a killed run left.
FORGOTTEN_S = 7 * 86_400


@contextmanager
def result_folder(out: Path, overwrite: bool) -> Iterator[Path]:
    """Give a folder to write in whose files are renamed into `out` when all went well."""
    created = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        _held(out, overwrite)
        for left in out.glob(f"{UNFINISHED}*"):
            # What a killed run left; a younger one may belong to a run that goes on.
            if time.time() - left.stat().st_mtime > FORGOTTEN_S:
                shutil.rmtree(left, ignore_errors=True)
        unfinished = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=out))
    except OSError as error:
        raise InputError(
            f"out {out}",
            f"a place that cannot be written ({error.strerror})",
            "a folder that can be made and written",
            "Choose another folder",
        ) from error
    try:
        yield unfinished
        stale = _held(out, overwrite)
        # Each file replaces its predecessor at once; the summary comes last.
        for path in sorted(unfinished.iterdir(), key=lambda path: path.name == SUMMARY):
            path.replace(out / path.name)
            stale.discard(path.name)
        for name in stale:
            (out / name).unlink()
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        if created:
            with suppress(OSError):
                out.rmdir()


def _held(out: Path, overwrite: bool) -> set[str]:
    """Return the names of a result's files in `out`, and refuse what may not be replaced."""
    ours = [path for path in out.iterdir() if _is_ours(path)]
    names = ", ".join(sorted(path.name for path in ours))
    if ours and not overwrite:
        raise InputError(
            f"out {out}",
            f"a result already ({names})",
            "an empty or new folder",
            "Choose another folder, or overwrite (--overwrite)",
        )
    if any(path.is_dir() for path in ours):
        raise InputError(
            f"out {out}",
            f"a folder among {names}",
            "files in these places, or nothing",
            "Choose another folder, or move it away",
        )
    return {path.name for path in ours}


def _is_ours(path: Path) -> bool:
    return path.name in (TABLE, SPANS, SUMMARY, MODEL, REPORT) or path.suffix == f".{ANNOTATOR}"
