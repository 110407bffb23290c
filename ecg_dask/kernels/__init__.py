"""Loops over samples and over beats, written twice: for the CPU and for CUDA.

Each function takes arrays of one library and runs there. A missing sample (NaN) ends a run of
samples, as the record's ends do: no sum, comparison or search crosses it. All sums are direct, in
one stated order and in explicit fused multiply-adds, so that a sample's result depends neither on
the block that it was computed in nor on the device.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ..arrays import on_gpu


def _twin(array: Any) -> Any:
    return importlib.import_module(".cuda" if on_gpu(array) else ".cpu", __name__)


def _beats_twin(array: Any) -> Any:
    return importlib.import_module(".cuda_beats" if on_gpu(array) else ".cpu_beats", __name__)


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


def crests(x: Any, taps: Any, radius: int, first: int, sub: int) -> tuple[Any, Any]:
    """Find the greatest energy of the response in each sub-cell, in one pass over `x`.

    Parameters
    ----------
    x
        Samples, float32 of shape (n,), NaN where missing.
    taps
        As in `response`.
    radius
        The energy of sample i is the sum of the squares of the response over ``i - radius`` to
        ``i + radius``, those outside the run of i being zero.
    first
        Sample number of ``x[0]``.
    sub
        Samples a sub-cell. Sub-cells lie at multiples of `sub` in absolute sample numbers; the
        first one returned is ``first // sub``.

    Returns
    -------
    value, index
        float32 and int64 of shape (n_sub_cells,): each sub-cell's greatest energy, and the index
        into `x` of the first sample that has it; -1 where no sample is recorded.

    Notes
    -----
    The order of the sum: the window is cut into blocks whose lengths are the powers of two in the
    binary number ``2 * radius + 1``, the shortest one first; a block is the sum of its two halves,
    each made the same way; the blocks are added up in their order.
    """
    value, index = _twin(x).crests(x, taps, radius, first, sub)
    return value, index


def energy_crests(w: Any, radius: int, first: int, sub: int) -> tuple[Any, Any]:
    """Find the greatest energy in each sub-cell of a given response, as `crests` does.

    `w` is float32 of shape (n,), NaN where the signal is.
    """
    value, index = _twin(w).crests(w, np.empty(0, np.float32), radius, first, sub)
    return value, index


def cell_maxima(e: Any, first: int, cell: int) -> Any:
    """Return the maximum of `e` in each cell of `cell` samples, -1 where it has no sample.

    Cells lie at multiples of `cell` in absolute sample numbers and `first` is that of ``e[0]``;
    the first cell returned is ``first // cell``. Of sub-cells, cells are made in the same way:
    ``cell_maxima(value, first // sub, per_cell)``.
    """
    return _twin(e).cell_maxima(e, first, cell)


def thresholds(maxima: Any, peak_cells: int, median_radius: int, factor: float) -> Any:
    """Return `factor` times a running median of running maxima of cells, a value a cell.

    The running maximum of cell c is over ``c - peak_cells // 2`` and the next ``peak_cells - 1``
    cells, the median (the lower one of an even number) over cells ``c - median_radius`` to
    ``c + median_radius``. Cells without a sample (-1) take no part.
    """
    return _twin(maxima).thresholds(maxima, peak_cells, median_radius, factor)


def summits(
    value: Any,
    index: Any,
    floor: Any,
    first: int,
    sub: int,
    per_cell: int,
    spacing: int,
) -> Any:
    """Find the crests above their cell's `floor` that no crest nearby exceeds.

    Parameters
    ----------
    value, index
        What `crests` gave for `first` and `sub`.
    floor
        float32, a value for each cell of `per_cell` sub-cells, from cell
        ``first // sub // per_cell`` on.
    first, sub
        As in `crests`.
    per_cell
        Sub-cells a cell; cells lie at multiples of it in absolute sub-cell numbers.
    spacing
        Samples within which no other crest may be greater, or equal and earlier, whatever is
        missing between them.

    Returns
    -------
    array
        int64 indices of the sub-cells, ascending.
    """
    return _twin(value).summits(value, index, floor, first, sub, per_cell, spacing)


def cell_middles(value: Any, first: int, cell: int) -> Any:
    """Return the middle of the crests in each cell of `cell` sub-cells, -1 where there is none.

    Of an even number it is the greater one of the two in the middle. Cells and `first` as in
    `cell_maxima`.
    """
    return _beats_twin(value).cell_middles(value, first, cell)


def look(x: Any, narrow: Any, taps: Any, wide: Any, at: Any, radius: int) -> tuple[Any, Any, Any]:
    """Look at each candidate with a narrower and a wider wavelet.

    Parameters
    ----------
    x
        Samples, float32 of shape (n,), NaN where missing.
    narrow, taps, wide
        Halves of kernels as in `response`.
    at
        Indices into `x`, int64 of shape (n_candidates,), ascending.
    radius
        Samples on either side, within the run, that are looked at.

    Returns
    -------
    sharpness
        float32: the square of the greatest absolute response to `narrow` over that to `taps`.
    position
        int64: the first index of the greatest absolute response to `wide`.
    at_edge
        bool: whether the position is the first or last sample of its run.
    """
    sharpness, position, at_edge = _beats_twin(x).look(x, narrow, taps, wide, at, radius)
    return sharpness, position, at_edge


def merits(
    value: Any,
    level: Any,
    noise: Any,
    summit: Any,
    at: Any,
    sharpness: Any,
    head: int,
    reach: int,
    sure: float,
) -> Any:
    """Weigh each candidate by its height, its shape, the noise around it and its place in time.

    Parameters
    ----------
    value
        Crests, float32 of shape (n_sub_cells,).
    level, noise
        float32 of shape (n_cells,): the cells' usual maximum and their usual middle.
    summit, at
        Indices of the candidates' sub-cells and samples, int64 of shape (n_candidates,), ascending.
    sharpness
        What `look` gave.
    head
        Sub-cells of the first cell that lie before the first one.
    reach
        Samples on either side within which candidates are neighbours.
    sure
        Merit above which a candidate of the first round counts as a neighbour in the second.

    Returns
    -------
    array
        float32 of shape (n_candidates,). With energies as shares of the level, the merit is the
        product of ::

            value * sqrt(min(sharpness, 1)) / (sqrt(noise + QUIET) * (1 + sqrt(flank)))
            min(nearest / interval, APART) * min((before + behind) / interval, ROOM)
            min(sharpness / usual sharpness, 1) ** 0.75

        where `flank` is the greatest crest an eighth to a quarter second away, `before` and
        `behind` are the distances to the next strong candidates on either side (at most `reach`),
        `nearest` is the lesser of the two, and `interval` and `usual sharpness` are means over the
        strong candidates within reach. Strong is, in the first round, whose value exceeds
        `STRONG`, and in the second, whose merit of the first exceeds `sure`. The constants are
        those of `ecg_dask.kernels.rules`.
    """
    return _beats_twin(value).merits(value, level, noise, summit, at, sharpness, head, reach, sure)


def prune(accepted: Any, position: Any, energy: Any, refractory: int) -> tuple[Any, Any]:
    """Drop of two accepted neighbours nearer than `refractory` the one of less energy.

    Of equal ones the later is dropped. Each is compared with the accepted ones next to it,
    dropped or not.

    Parameters
    ----------
    accepted
        bool of shape (n_candidates,).
    position, energy
        int64 and float32 of shape (n_candidates,).
    refractory
        Samples.

    Returns
    -------
    kept, dropped
        bool of shape (n_candidates,).
    """
    kept, dropped = _beats_twin(position).prune(accepted, position, energy, refractory)
    return kept, dropped


def measure(
    x: Any, position: Any, margin: Any, near: int, far: int, wide: int, plateau: int
) -> tuple[Any, Any]:
    """Measure each beat on the signal.

    Parameters
    ----------
    x
        Samples, float32 of shape (n,), NaN where missing.
    position
        Indices of the beats, int64 of shape (n_beats,).
    margin
        float32 of shape (n_beats,): each beat's merit as a multiple of the least accepted one.
    near, far, wide
        Samples from the beat to the near and far end of the flanks that give the baseline, and to
        the end of its surroundings.
    plateau
        Number of equal samples that count as clipped.

    Returns
    -------
    amplitude, quality
        float32 of shape (n_beats,), from the samples of the beat's run. The amplitude is the mean
        of ``x[position] - x[j]`` over the flanks (NaN without any). The quality is 1 minus the
        inverse of the margin, times the share of the samples within `wide` that the run has, halved
        for a clipped beat.
    """
    amplitude, quality = _beats_twin(x).measure(x, position, margin, near, far, wide, plateau)
    return amplitude, quality
