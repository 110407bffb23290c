"""Loops over samples, beats and cells, written twice: for the CPU and for CUDA.

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
from .spans import noisy, plateaus, rails

__all__ = [
    "candidates",
    "choose",
    "crests",
    "energy_crests",
    "levels",
    "look",
    "merits",
    "noisy",
    "plateaus",
    "rails",
    "response",
]


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
        that of their middles, -1 without any; the loops of `ecg_dask.kernels.cpu` say how.
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
        Samples within which no other crest may be greater, or equal and earlier, whatever is
        missing between them.

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
        Samples within which the accepted one of less energy is dropped, of equal ones the later.
    first
        Sample number of ``x[0]``.
    core
        Sample numbers ``[start, stop)``.
    after
        Samples within which the next beat is told.
    near, far, wide, plateau
        As in `ecg_dask.kernels.cpu_beats.measure`.

    Returns
    -------
    sample, following
        int64 of shape (n_beats,): sample numbers of the beats in the core, and of the beat that
        follows each, in the core or not, where it is nearer than `after`, else the greatest int64.
    amplitude, quality
        float32 of shape (n_beats,): what `ecg_dask.kernels.cpu_beats.measure` says of them.
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
