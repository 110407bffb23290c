"""Loops over samples and over beats, written twice: for the CPU and for CUDA.

Each function takes arrays of one library and runs there. A missing sample (NaN) ends a run of
samples, as the record's ends do: no sum, comparison or search crosses it. All sums are direct, in
one stated order and in explicit fused multiply-adds, so that a sample's result depends neither on
the block that it was computed in nor on the device.
"""

from __future__ import annotations

import importlib
from typing import Any

from ..arrays import on_gpu


def _twin(array: Any) -> Any:
    return importlib.import_module(".cuda" if on_gpu(array) else ".cpu", __name__)


def response(x: Any, taps: Any) -> Any:
    """Convolve the first difference of `x` with an antisymmetric kernel.

    Parameters
    ----------
    x
        Samples, float32 of shape (n,), NaN where missing.
    taps
        The half of the kernel for lags 0 and later, float32 of shape (k,).

    Returns
    -------
    array
        float32 of shape (n,): sum over m of ``taps[m] * (d[i - m] - d[i + m + 1])`` in the order
        of m, where ``d[j] = x[j] - x[j - 1]`` and is zero outside the run of samples that holds i;
        NaN where `x` is.
    """
    return _twin(x).response(x, taps)


def energy(w: Any, radius: int) -> Any:
    """Sum the squares of `w` over ``i - radius`` to ``i + radius`` within the run of i.

    The order is from the centre outwards, the earlier sample of a pair first. float32 of shape
    (n,), NaN where `w` is.
    """
    return _twin(w).energy(w, radius)


def cell_maxima(e: Any, first: int, cell: int) -> Any:
    """Return the maximum of `e` in each cell of `cell` samples, -1 where it has no sample.

    Cells lie at multiples of `cell` in absolute sample numbers and `first` is that of ``e[0]``;
    the first cell returned is ``first // cell``.
    """
    return _twin(e).cell_maxima(e, first, cell)


def thresholds(maxima: Any, peak_cells: int, median_radius: int, factor: float) -> Any:
    """Return `factor` times a running median of running maxima of cells, a value a cell.

    The running maximum of cell c is over ``c - peak_cells // 2`` and the next ``peak_cells - 1``
    cells, the median (the lower one of an even number) over cells ``c - median_radius`` to
    ``c + median_radius``. Cells without a sample (-1) take no part.
    """
    return _twin(maxima).thresholds(maxima, peak_cells, median_radius, factor)


def peaks(e: Any, floor: Any, first: int, cell: int, radius: int) -> Any:
    """Find the samples where `e` is above its cell's `floor` and the greatest within `radius`.

    Non-maximum suppression: greater than the `radius` samples before it and not less than the
    `radius` samples after it, within its run. int64 indices into `e`, ascending.
    """
    return _twin(e).peaks(e, floor, first, cell, radius)


def strongest(w: Any, index: Any, radius: int) -> tuple[Any, Any]:
    """Find the first sample of greatest ``|w|`` within `radius` of each index and its run.

    Returns
    -------
    position, at_edge
        int64 indices into `w`, and whether the position is the first or last of its run.
    """
    position, at_edge = _twin(w).strongest(w, index, radius)
    return position, at_edge


def measure(
    x: Any, e: Any, peak: Any, position: Any, near: int, far: int, wide: int, plateau: int
) -> tuple[Any, Any]:
    """Measure each beat on the signal.

    Parameters
    ----------
    x, e
        Samples and their energy, float32 of shape (n,).
    peak, position
        Indices of each beat's greatest energy and of the beat, int64 of shape (n_beats,).
    near, far, wide
        Samples from the beat to the near end of its flanks, to the far end of the flanks that
        give the baseline, and to the far end of those that give the noise.
    plateau
        Number of equal samples that count as clipped.

    Returns
    -------
    amplitude, quality
        float32 of shape (n_beats,), from the samples of the beat's run. The amplitude is the mean
        of ``x[position] - x[j]`` over the baseline flanks (NaN without any). The quality is 1
        minus the root of the mean energy in the noise flanks over the beat's, not below 0, times
        the share of the samples within `wide` that the run has, halved for a clipped beat.
    """
    amplitude, quality = _twin(x).measure(x, e, peak, position, near, far, wide, plateau)
    return amplitude, quality
