"""What the page knows of one recording."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..beats import empty_spans

_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True, eq=False)
class RecordView:
    """One recording as the page shows it: its facts and its envelope.

    Attributes
    ----------
    name
        Value of the ``record`` column of its beats.
    fs
        Sampling rate in Hz.
    n_samples
        Samples a lead, missing ones included.
    leads
        Lead names; the first is the one drawn.
    low, high
        float32 of shape (n_bins,), in `unit`: bounds of the first lead in bins of `bin_samples`
        samples, NaN where nothing was recorded. `envelope` makes them.
    bin_samples
        Samples a bin.
    unit
        Unit of the samples; None when unknown.
    start
        Time of day of the first sample, in the year 1900 when the day is not told; None when
        unknown.
    source
        Where the samples come from.
    notes
        What was changed or lost on the way in, a sentence each.
    missing
        Missing samples.
    gaps
        Runs of missing samples.
    pruned
        Candidates that were found and dropped.
    spans
        Its rows of ``Beats.spans``: what cannot be analysed.
    """

    name: str
    fs: float
    n_samples: int
    leads: tuple[str, ...]
    low: npt.NDArray[np.float32]
    high: npt.NDArray[np.float32]
    bin_samples: int
    unit: str | None = None
    start: datetime | None = None
    source: str | None = None
    notes: tuple[str, ...] = ()
    missing: int = 0
    gaps: int = 0
    pruned: int = 0
    spans: pd.DataFrame = field(default_factory=empty_spans)

    @property
    def duration_s(self) -> float:
        """Length in seconds."""
        return self.n_samples / self.fs

    @property
    def bin_s(self) -> float:
        """Length of a bin in seconds."""
        return self.bin_samples / self.fs

    @property
    def start_ms(self) -> float:
        """Place of the first sample on the time axis.

        Milliseconds of the recorder's own clock since 1970, or 0 when the start is unknown.
        """
        if self.start is None:
            return 0.0
        return (self.start.replace(tzinfo=None) - _EPOCH) / timedelta(milliseconds=1)

    @property
    def midnight_ms(self) -> float:
        """Midnight before the first sample on the time axis; 0 when the start is unknown."""
        return self.start_ms // 86_400_000 * 86_400_000

    @property
    def start_text(self) -> str:
        """The start in words; the year 1900 stands for a day that is not told."""
        if self.start is None:
            return "unknown"
        if self.start.year == 1900:
            return f"{self.start:%H:%M:%S}, day unknown"
        return f"{self.start:%Y-%m-%d %H:%M:%S}"

    @property
    def amplitude_unit(self) -> str:
        """The unit, or the words for a missing one."""
        return self.unit or "unit unknown"

    def moment(self, time_s: float) -> str:
        """Write a moment as time of day when the start is known, else as time since the start.

        Days after the first are told as ``(+1 d)``.
        """
        if self.start is None:
            return elapsed(time_s, decimals=1)
        since_midnight_s = (self.start_ms - self.midnight_ms) / 1000 + time_s
        days, rest_s = divmod(round(since_midnight_s, 1), 86_400)
        text = elapsed(rest_s, decimals=1).rjust(10, "0")
        return f"{text} (+{days:.0f} d)" if days else text


def elapsed(seconds: float, decimals: int = 0) -> str:
    """Write a duration as h:mm:ss, with decimals of a second when asked for."""
    ticks = round(seconds * 10**decimals)
    whole, fraction = divmod(ticks, 10**decimals)
    text = f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
    return f"{text}.{fraction:0{decimals}d}" if decimals else text
