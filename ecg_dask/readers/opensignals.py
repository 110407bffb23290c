"""Read OpenSignals text: a JSON header in comment lines over a table of text."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
from typing import Any

from dask.delayed import delayed

from ..errors import InputError
from ..recording import Recording
from .clock import Clock
from .columns import Roles
from .csv import Survey, probe_texts, read_table, row_bytes
from .files import Leads, on_workers, opened, same_fs, unique_names
from .gaps import NO_SAMPLES
from .text_blocks import Layout

#: First line of such a file.
MAGIC = b"# OpenSignals Text File Format"
_END = b"# EndOfHeader"
_HEADER_BYTES = 2**18


def read_opensignals(
    path: str,
    *,
    fs: float | None = None,
    leads: Leads = None,
    chunk: int | str | None = None,
    meta: Any = NO_SAMPLES,
) -> Recording:
    """Read an OpenSignals text file of one device.

    The leads are the header's channels, in counts of the converter. A skip in the sequence counter
    becomes missing samples; a counter of 4 bits tells them modulo 16. See `read` for the
    parameters; `meta` is as for `read_table`.

    Raises
    ------
    InputError
        When the header is not complete, tells several devices, or tells another rate than `fs`.
    """
    (survey,) = on_workers([delayed(survey_opensignals)(path)])
    same_fs(path, survey.fs or 0.0, fs)
    return read_table(path, survey, fs=fs, leads=leads, chunk=chunk, meta=meta)


def survey_opensignals(path: str) -> Survey:
    """Read the header (a task)."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(_HEADER_BYTES)
    end = head.find(b"\n", head.find(_END) if _END in head else len(head)) + 1
    above = head[:end].decode("utf-8", "replace").splitlines()
    try:
        devices = json.loads(above[1].lstrip("# "))
        device = _only(path, devices)
        names = [str(name) for name in device["column"]]
        labels = [str(name) for name in device["label"]]
        leads = tuple(names.index(label) for label in labels)
        fs = float(device["sampling rate"])
        if not leads or not 0 < fs < math.inf:
            raise ValueError(f"label {labels}, sampling rate {fs:g}")
        counter = names.index("nSeq") if "nSeq" in names else None
        modulo = 2 ** int(device["resolution"][counter]) if counter is not None else 0
    except (IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            path,
            f"an OpenSignals header that cannot be read ({type(error).__name__}: {error})",
            "the three header lines, with column, label, sampling rate and resolution",
            "Export the recording again",
        ) from None
    # Rows end in a tab.
    rest = head[end:].partition(b"\n")[0].rstrip(b"\r")
    width = len(names) + rest.endswith(b"\t")
    layout = Layout(
        separator="\t",
        decimal=".",
        names=(*names, "")[:width],
        start=end,
        first_line=len(above) + 1,
    )
    probes = probe_texts(path, layout, size)
    return Survey(
        size=size,
        layout=layout,
        roles=Roles(
            leads=leads,
            names=unique_names(labels),
            units=(None,) * len(leads),
            clock_column=counter,
            clock=None if counter is None else Clock("counter", "nSeq", modulo=modulo),
        ),
        row_bytes=row_bytes(probes, layout),
        start=_start(device),
        fs=fs,
    )


def _only(path: str, devices: dict[str, Any]) -> dict[str, Any]:
    if len(devices) != 1:
        raise InputError(
            path,
            f"{len(devices)} devices ({', '.join(devices)})",
            "one device a file",
            "Export each device by itself",
        )
    device: dict[str, Any] = next(iter(devices.values()))
    return device


def _start(device: dict[str, Any]) -> dt.datetime | None:
    """Return the header's date and time; its numbers are written without leading zeros."""
    try:
        year, month, day = (int(part) for part in str(device["date"]).split("-"))
        hours, minutes, seconds = str(device["time"]).split(":")
        since = dt.timedelta(hours=int(hours), minutes=int(minutes), seconds=float(seconds))
        return dt.datetime(year, month, day) + since
    except (KeyError, ValueError):
        return None
