"""What of an envelope goes into the page: few bytes, its gaps, and the amplitudes to show."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .view import RecordView

#: Gaps that are shaded; the longest ones when there are more.
MAX_GAPS = 5_000
#: What a missing bin is in an envelope of 16-bit integers; the page's script knows it too.
MISSING = -32_768
_LEVELS = 65_000


def pack(view: RecordView) -> tuple[dict[str, npt.NDArray[Any]], float, float]:
    """Return the envelope in as few bytes as keep its detail, and how to read it.

    Bins of one sample have one bound, ``low``, others ``low`` and ``high``. The amplitude is
    ``offset + scale * stored``.

    Returns
    -------
    arrays, scale, offset
        int16 with `MISSING`, or float32 with NaN where 16 bits would not do.
    """
    bounds = {"low": view.low} if view.bin_samples == 1 else {"low": view.low, "high": view.high}
    least, most = float(np.nanmin(view.low)), float(np.nanmax(view.high))
    lower, upper = _usual(view)
    # One artefact a hundred times the signal would leave too few of the 16-bit steps to the rest.
    if most - least > 100 * (upper - lower):
        return dict(bounds), 1.0, 0.0
    scale = (most - least) / _LEVELS or 1.0
    offset = (most + least) / 2
    packed = {}
    for name, values in bounds.items():
        steps = np.rint((values.astype(np.float64) - offset) / scale)
        packed[name] = np.where(np.isnan(steps), MISSING, steps).astype(np.int16)
    return packed, scale, offset


def gaps(view: RecordView) -> tuple[npt.NDArray[Any], npt.NDArray[Any], str]:
    """Return starts and stops of the gaps that the envelope sees, in ms, and words about them."""
    missing = np.concatenate([[False], np.isnan(view.low), [False]])
    edges = np.flatnonzero(missing[1:] != missing[:-1])
    starts, stops = edges[::2], edges[1::2]
    seen = len(starts)
    text = "Gaps are shaded grey." if view.gaps else ""
    if seen < view.gaps:
        text += (
            f" Not drawn, since shorter than the page can tell: {view.gaps - seen:,} of "
            f"{view.gaps:,} gaps."
        )
    if seen > MAX_GAPS:
        longest = np.sort(np.argsort(starts - stops, kind="stable")[:MAX_GAPS])
        starts, stops = starts[longest], stops[longest]
        text += f" Only the {MAX_GAPS:,} longest are shaded."
    bin_ms = view.bin_s * 1000
    last_ms = view.duration_s * 1000
    return (
        view.start_ms + starts * bin_ms,
        view.start_ms + np.minimum(stops * bin_ms, last_ms),
        text,
    )


def amplitudes(view: RecordView) -> tuple[float, float, str]:
    """Choose the bounds of the amplitude axis, and say when the signal reaches beyond them."""
    least, most = float(np.nanmin(view.low)), float(np.nanmax(view.high))
    lower, upper = _usual(view)
    usual = upper - lower
    text = ""
    if most - least > 3 * usual > 0:
        lower, upper = max(least, lower - usual / 2), min(most, upper + usual / 2)
        unit = f" {view.unit}" if view.unit else ""
        text = (
            f"The axis leaves out rare extremes, which reach from {least:.3g} to {most:.3g}{unit}; "
            "the button fit amplitude shows those in view."
        )
    else:
        lower, upper = least, most
    span = upper - lower or abs(upper) or 1.0
    # Room above for the marks of anomalies, below for those of beats.
    return lower - 0.08 * span, upper + 0.15 * span, text


def _usual(view: RecordView) -> tuple[float, float]:
    """Return bounds that all but the most extreme seconds keep.

    Seconds and not samples are counted, since the peak of a beat is rare among its samples.
    """
    first = np.arange(0, len(view.low), max(1, round(1 / view.bin_s)))
    lows, highs = np.fmin.reduceat(view.low, first), np.fmax.reduceat(view.high, first)
    # Without interpolation, which would mix the only extreme of a short recording in.
    return (
        float(np.nanpercentile(lows, 2, method="higher")),
        float(np.nanpercentile(highs, 98, method="lower")),
    )
