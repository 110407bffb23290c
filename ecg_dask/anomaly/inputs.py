"""What the autoencoder sees of a beat: a fixed number of points, whatever the sampling rate.

Every value is made by elementwise operations in a fixed order, so a beat's input has the same bits
alone, among others, and in any partition.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arrays import namespace
from ..beats import Beats
from ..errors import InputError

#: Points that a window is resampled to, a power of two.
LENGTH = 128

#: A QRS complex begins so many seconds before its R peak, or earlier when it is wide.
ONSET_S = 0.1

#: Height that a record's typical beat has for the network; its standard deviation is then near 1.
HEIGHT = 4.0


def check_alike(name: str, beats: Beats, window: tuple[float, float], n_leads: int) -> None:
    """Refuse beats of another window or number of leads.

    Raises
    ------
    InputError
        When they differ.
    """
    same = all(math.isclose(a, b) for a, b in zip(beats.window, window, strict=True))
    if not same or len(beats.leads) != n_leads:
        raise InputError(
            name,
            f"a window of {beats.window} s and {len(beats.leads)} leads",
            f"a window of {window} s and {n_leads} leads, at any rate",
            "Find the beats with this window, in as many leads",
        )


def resampling(
    n_window: int, fs: float, window: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Return where each of the `LENGTH` points takes its values from, and with what weights.

    The points lie evenly in the window, counted in seconds from the beat, so that they are at the
    same times at every rate. Each is a weighted mean under a triangle that reaches one step of the
    new grid to either side (at least one old sample), which also keeps high frequencies from
    folding.

    Parameters
    ----------
    n_window
        Samples in a window.
    fs
        Sampling rate in Hz.
    window
        Seconds before and after the beat that the window covers.

    Returns
    -------
    index
        int64 of shape (n_taps, LENGTH): samples of the window.
    weight
        float32 of shape (n_taps, LENGTH); each column sums to 1.
    """
    before_s, after_s = window
    step_s = (before_s + after_s) / LENGTH
    # The beat's own sample is number round(before_s * fs) of its window.
    centre = round(before_s * fs) + ((np.arange(LENGTH) + 0.5) * step_s - before_s) * fs
    centre = np.clip(centre, 0, n_window - 1)
    reach = max(1.0, step_s * fs)
    index = np.ceil(centre - reach) + np.arange(math.floor(2 * reach) + 1)[:, None]
    weight = np.maximum(1 - np.abs(index - centre) / reach, 0)
    weight[(index < 0) | (index > n_window - 1)] = 0
    weight /= weight.sum(axis=0)
    return np.clip(index, 0, n_window - 1).astype(np.int64), weight.astype(np.float32)


def selected(array: Any, mask: np.ndarray) -> Any:
    """Return the rows of `array` that a mask on the host keeps: a view where they are one run."""
    (kept,) = np.nonzero(mask)
    if len(kept) and kept[-1] - kept[0] + 1 == len(kept):
        return array[kept[0] : kept[-1] + 1]
    return array[namespace(array).asarray(mask)]


def model_inputs(
    waves: Any, scale: Any, fs: float, window: tuple[float, float], next_s: Any = None
) -> Any:
    """Resample waves to `LENGTH` points, take their mean out, and scale them by record.

    The scale is the record's and not the beat's: a beat that is larger than the others stays so.
    From the onset of the next beat on, the point before it is repeated: an early beat is no part of
    the one before.

    Parameters
    ----------
    waves
        float32 of shape (n_beats, n_leads, n_window), NumPy or CuPy.
    scale
        float32 of shape (n_beats,): what becomes `HEIGHT`, in the unit of `waves`.
    fs
        Sampling rate in Hz.
    window
        Seconds before and after the beat.
    next_s
        Seconds to the next beat, float64 of shape (n_beats,), on the host, NaN where unknown; None
        where no next beat matters.

    Returns
    -------
    array
        float32 of shape (n_beats, n_leads, LENGTH), C-ordered, of mean 0. Not finite where the
        waves are not.
    """
    xp = namespace(waves)
    index, weight = (xp.asarray(part) for part in resampling(waves.shape[-1], fs, window))
    with np.errstate(over="ignore", invalid="ignore"):
        # The first sample goes out first: an offset that the samples represent exactly then
        # leaves no trace.
        x = xp.ascontiguousarray(waves) - waves[..., :1]
        x /= xp.asarray(scale)[:, None, None]
        y = xp.zeros((*waves.shape[:2], LENGTH), dtype=xp.float32)
        for tap in range(index.shape[0]):
            y += xp.take(x, index[tap], axis=-1) * weight[tap]
        if next_s is not None:
            _end_before_next(y, next_s, window)
        y -= _row_mean(y)
        y *= xp.float32(HEIGHT)
        return y


def _end_before_next(y: Any, next_s: Any, window: tuple[float, float]) -> None:
    """Repeat the last point before the onset of the next beat, in place."""
    xp = namespace(y)
    before_s, after_s = window
    step_s = (before_s + after_s) / LENGTH
    last = np.floor((before_s + np.asarray(next_s) - ONSET_S) / step_s - 0.5)
    last = np.clip(np.where(np.isnan(last), LENGTH, last), 0, LENGTH - 1).astype(np.int64)
    (cut,) = np.nonzero(last < LENGTH - 1)
    if len(cut):
        rows = xp.asarray(cut)
        point = xp.minimum(xp.arange(LENGTH), xp.asarray(last[cut])[:, None])
        y[rows] = xp.take_along_axis(y[rows], point[:, None, :], axis=2)


def _row_mean(x: Any) -> Any:
    """Mean over the last axis by halving it, which fixes the order of the additions."""
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        x = x[..., :half] + x[..., half:]
    return x / x.dtype.type(LENGTH)
