"""A recording: the sampled signal of one or more leads, in partitions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import dask.array as da
import numpy as np

from .errors import InputError


@dataclass(frozen=True, eq=False)
class Recording:
    """An ECG in partitions along time, wherever its samples live.

    Nothing is computed when a recording is made: the signal stays a Dask array until a step needs
    it, and its blocks may be NumPy or CuPy arrays.

    Parameters
    ----------
    signal
        Samples of shape (n_samples, n_leads), floats in `unit`, with known chunk sizes. NaN marks
        a missing sample. The leads are brought into one chunk; chunks along time are kept.
    fs
        Sampling rate in Hz.
    leads
        Lead names, one a column; ``lead0``, ``lead1``, ... when not given.
    unit
        Unit of the samples, such as ``"mV"``; None when unknown.
    start
        Time of day of the first sample; None when unknown.
    name
        Name of the recording, the value of the ``record`` column of its beats.
    source
        Where the samples come from, such as a path.
    notes
        What was changed or lost on the way in, a sentence each.

    Raises
    ------
    InputError
        When an argument is not as described.
    """

    signal: da.Array
    fs: float
    leads: tuple[str, ...] | None = None
    unit: str | None = None
    start: datetime | None = None
    name: str = "recording"
    source: str | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        signal = _validated(self.signal)
        object.__setattr__(self, "signal", signal)
        try:
            fs = float(self.fs)
        except (TypeError, ValueError):
            fs = math.nan
        if not (math.isfinite(fs) and fs > 0):
            raise InputError(
                "fs", repr(self.fs), "a positive number of Hz", "Give the sampling rate"
            )
        object.__setattr__(self, "fs", fs)
        n_leads = signal.shape[1]
        leads = self.leads
        leads = tuple(f"lead{i}" for i in range(n_leads)) if leads is None else tuple(leads)
        if len(leads) != n_leads or len(set(leads)) != n_leads:
            raise InputError(
                "leads",
                f"the names {leads} for {n_leads} columns",
                "one name a column, no name twice",
                "Name each lead",
            )
        object.__setattr__(self, "leads", leads)
        if not self.name:
            raise InputError("name", "an empty name", "a name of one letter or more", "Name it")

    @property
    def n_samples(self) -> int:
        """Number of samples a lead."""
        return int(self.signal.shape[0])

    @property
    def duration_s(self) -> float:
        """Length in seconds, missing samples included."""
        return self.n_samples / self.fs

    def select(self, leads: str | int | Sequence[str | int]) -> Recording:
        """Return the recording with the given leads only, in the given order.

        Parameters
        ----------
        leads
            A lead's name or its index from 0, several of them, or ``"all"``.

        Raises
        ------
        InputError
            When the recording has no such lead.
        """
        names = self.leads or ()
        if leads == "all":
            return self
        wanted = [leads] if isinstance(leads, str | int) else list(leads)
        columns = []
        for lead in wanted:
            if isinstance(lead, str) and lead in names:
                columns.append(names.index(lead))
            elif str(lead).isdecimal() and int(lead) < len(names):
                columns.append(int(lead))
            else:
                raise InputError(
                    f"lead of {self.name}",
                    repr(lead),
                    f"one of {', '.join(names)}, an index from 0 to {len(names) - 1}, or all",
                    "Choose one of these",
                )
        if not columns:
            raise InputError(
                f"lead of {self.name}", "no lead", "one lead or more", "Choose at least one"
            )
        return replace(
            self,
            signal=self.signal[:, columns],
            leads=tuple(names[column] for column in columns),
        )


def _validated(signal: da.Array) -> da.Array:
    if not isinstance(signal, da.Array) or signal.ndim != 2:
        raise InputError(
            "signal",
            f"{type(signal).__name__} of shape {getattr(signal, 'shape', None)}",
            "a 2-D Dask array of shape (n_samples, n_leads)",
            "Wrap a NumPy or CuPy array x in dask.array.from_array(x[:, None])",
        )
    if not np.issubdtype(signal.dtype, np.floating):
        raise InputError(
            "signal", f"samples of type {signal.dtype}", "floats", 'Call .astype("float32") on it'
        )
    if any(math.isnan(size) for axis in signal.chunks for size in axis):
        raise InputError(
            "signal",
            "chunks of unknown size",
            "known chunk sizes",
            "Call .compute_chunk_sizes() on it",
        )
    if signal.shape[1] == 0:
        raise InputError("signal", "no leads", "one lead or more", "Give at least one column")
    return signal if signal.numblocks[1] == 1 else signal.rechunk({1: -1})
