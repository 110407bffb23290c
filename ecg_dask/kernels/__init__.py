"""Loops over samples and over beats, written twice: for the CPU and for CUDA.

Each function takes arrays of one library and runs there. A missing sample (NaN) ends a run of
samples, as the record's ends do: no sum or search over samples crosses it. All sums are direct, in
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


def _on_cpu() -> Any:
    return importlib.import_module(".cpu_beats", __name__)


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


def levels(
    value: Any, head: int, peak_cells: int, level_radius: int, noise_radius: int
) -> tuple[Any, Any]:
    """Find how high the signal and the noise usually are around each cell of crests.

    Parameters
    ----------
    value
        What `crests` gave, float32 of shape (n_sub_cells,).
    head
        Sub-cells of the first cell that lie before the first one.
    peak_cells
        Cells of the running maximum.
    level_radius, noise_radius
        Cells on either side of a cell that the medians are over.

    Returns
    -------
    level, noise
        float32 of shape (n_cells,): the running median of the running maxima of the cells, and
        that of their middles, -1 without any; see `cell_maxima`, `cell_middles` and `thresholds`.
    """
    level, noise = _beats_twin(value).levels(value, head, peak_cells, level_radius, noise_radius)
    return level, noise


def candidates(
    value: Any, index: Any, level: Any, share: float, head: int, sub: int, spacing: int
) -> tuple[Any, Any, Any]:
    """Find the crests above `share` of the level that no crest nearby exceeds.

    Parameters
    ----------
    value, index
        What `crests` gave.
    level
        What `levels` gave.
    share
        Fraction of the level.
    head
        Sub-cells of the first cell that lie before the first one.
    sub
        Samples a sub-cell.
    spacing
        As in `summits`.

    Returns
    -------
    summit, at, energy
        int64, int64 and float32 of shape (n_candidates,): indices of the sub-cells, ascending,
        and what they have in `index` and in `value`.
    """
    summit, at, energy = _beats_twin(value).candidates(
        value, index, level, share, head, sub, spacing
    )
    return summit, at, energy


def cell_maxima(e: Any, first: int, cell: int) -> Any:
    """Return the maximum of `e` in each cell of `cell` samples, -1 where it has no sample.

    Cells lie at multiples of `cell` in absolute sample numbers and `first` is that of ``e[0]``;
    the first cell returned is ``first // cell``. Of sub-cells, cells are made in the same way:
    ``cell_maxima(value, first // sub, per_cell)``.

    A part of `levels`, for NumPy arrays alone.
    """
    return _on_cpu().cell_maxima(e, first, cell)


def thresholds(maxima: Any, peak_cells: int, median_radius: int, factor: float) -> Any:
    """Return `factor` times a running median of running maxima of cells, a value a cell.

    The running maximum of cell c is over ``c - peak_cells // 2`` and the next ``peak_cells - 1``
    cells, the median (the lower one of an even number) over cells ``c - median_radius`` to
    ``c + median_radius``. Cells without a sample (-1) take no part.

    A part of `levels`, for NumPy arrays alone.
    """
    return _on_cpu().thresholds(maxima, peak_cells, median_radius, factor)


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

    A part of `candidates`, for NumPy arrays alone.

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
    return _on_cpu().summits(value, index, floor, first, sub, per_cell, spacing)


def cell_middles(value: Any, first: int, cell: int) -> Any:
    """Return the middle of the crests in each cell of `cell` sub-cells, -1 where there is none.

    Of an even number it is the greater one of the two in the middle. Cells and `first` as in
    `cell_maxima`.

    A part of `levels`, for NumPy arrays alone.
    """
    return _on_cpu().cell_middles(value, first, cell)


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
        strong candidates within reach, itself included. Strong is, in the first round, whose value
        exceeds `STRONG`, and in the second, whose merit of the first exceeds `sure`. Without two
        strong ones the second line is 1, without any the third. Where the level is not positive the
        candidate's own energy stands for it, and noise that is not known is none. The constants are
        those of `ecg_dask.kernels.rules`.
    """
    return _beats_twin(value).merits(value, level, noise, summit, at, sharpness, head, reach, sure)


def choose(
    x: Any,
    merit: Any,
    threshold: float,
    position: Any,
    at_edge: Any,
    energy: Any,
    refractory: int,
    first: int,
    core: tuple[int, int],
    after: int,
    near: int,
    far: int,
    wide: int,
    plateau: int,
) -> tuple[Any, Any, Any, Any, int]:
    """Choose the beats among the candidates, and measure those in the core.

    Parameters
    ----------
    x
        Samples, float32 of shape (n,), NaN where missing.
    merit
        What `merits` gave.
    threshold
        Merit that a beat exceeds.
    position, at_edge
        What `look` gave; the positions ascend. No beat is at an edge.
    energy
        What `candidates` gave.
    refractory
        As in `prune`.
    first
        Sample number of ``x[0]``.
    core
        Sample numbers ``[start, stop)``.
    after
        Samples within which the next beat is told.
    near, far, wide, plateau
        As in `measure`.

    Returns
    -------
    sample, following
        int64 of shape (n_beats,): sample numbers of the beats in the core, and of the beat that
        follows each, in the core or not, where it is nearer than `after`, else the greatest int64.
    amplitude, quality
        What `measure` says of them.
    pruned
        Number of candidates in the core that exceed the threshold and are no beats.
    """
    sample, following, amplitude, quality, pruned = _beats_twin(x).choose(
        x,
        merit,
        threshold,
        position,
        at_edge,
        energy,
        refractory,
        first,
        core,
        after,
        near,
        far,
        wide,
        plateau,
    )
    return sample, following, amplitude, quality, pruned


def prune(accepted: Any, position: Any, energy: Any, refractory: int) -> tuple[Any, Any]:
    """Drop of two accepted neighbours nearer than `refractory` the one of less energy.

    Of equal ones the later is dropped. Each is compared with the accepted ones next to it,
    dropped or not.

    A part of `choose`, for NumPy arrays alone.

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
    kept, dropped = _on_cpu().prune(accepted, position, energy, refractory)
    return kept, dropped


def measure(
    x: Any, position: Any, margin: Any, near: int, far: int, wide: int, plateau: int
) -> tuple[Any, Any]:
    """Measure each beat on the signal.

    A part of `choose`, for NumPy arrays alone.

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
    amplitude, quality = _on_cpu().measure(x, position, margin, near, far, wide, plateau)
    return amplitude, quality
