"""Beats as WFDB annotation files, one a record."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

#: Suffix of the annotation files, WFDB's annotator name.
ANNOTATOR = "beats"


def file_names(records: Iterable[str]) -> dict[str, str]:
    """Give each record a file stem that WFDB accepts: letters, digits, ``-`` and ``_``.

    Other characters become ``_``; stems that would be equal get ``-2``, ``-3``, ... added.
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for record in records:
        safe = re.sub(r"[^-\w]", "_", record, flags=re.ASCII)
        stem, number = safe, 1
        # Some file systems hold names that differ in case for equal.
        while stem.lower() in taken:
            number += 1
            stem = f"{safe}-{number}"
        taken.add(stem.lower())
        names[record] = stem
    return names


def write_annotations(directory: Path, stem: str, table: pd.DataFrame, fs: float) -> Path | None:
    """Write one record's beats: ``N``, or ``?`` for an anomaly.

    Parameters
    ----------
    directory
        Where to write ``STEM.beats``.
    stem
        Name that WFDB accepts.
    table
        The record's rows, with ``sample`` and, once scored, ``anomaly``.
    fs
        Sampling rate in Hz.

    Returns
    -------
    Path or None
        The file; None where there are no beats, since WFDB writes no empty file.
    """
    if table.empty:
        return None
    import wfdb

    anomaly = table["anomaly"].to_numpy() if "anomaly" in table else np.zeros(len(table), bool)
    wfdb.wrann(
        stem,
        ANNOTATOR,
        table["sample"].to_numpy(),
        np.where(anomaly, "?", "N").tolist(),
        fs=fs,
        write_dir=str(directory),
    )
    return directory / f"{stem}.{ANNOTATOR}"
