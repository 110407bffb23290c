"""The kernels that work on candidates, for NumPy arrays; the twins of `cuda_beats`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .cpu import Floats, Integers, _convolve, _differences, cell_maxima, summits, usual_maxima
from .rules import APART, FAR_FLANK, NEAR_FLANK, PER_CELL, QUIET, ROOM, STRONG

Flags = NDArray[np.bool_]

# Typed, so that no product becomes a float64.
_STRONG, _QUIET, _APART, _ROOM = (np.float32(value) for value in (STRONG, QUIET, APART, ROOM))


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def cell_middles(value: Floats, first: int, cell: int) -> Floats:
    """Return the middle of the crests in each cell of `cell` sub-cells, -1 where there is none.

    Of an even number it is the greater one of the two in the middle. Cells and `first` as in
    `cell_maxima`.
    """
    n_cells = (first + value.size - 1) // cell - first // cell + 1 if value.size else 0
    middles = np.full(n_cells, np.float32(-1), np.float32)
    ordered = np.empty(cell, np.float32)
    for c in range(n_cells):
        count = 0
        begin = max((first // cell + c) * cell - first, 0)
        end = min((first // cell + c + 1) * cell - first, value.size)
        for i in range(begin, end):
            if value[i] >= 0:
                place = count
                while place > 0 and ordered[place - 1] > value[i]:
                    ordered[place] = ordered[place - 1]
                    place -= 1
                ordered[place] = value[i]
                count += 1
        if count:
            middles[c] = ordered[count // 2]
    return middles


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _run_around(x: Floats, at: int, reach: int) -> tuple[int, int]:
    """Return the half-open run of recorded samples around `at`, followed for `reach` samples."""
    start = at
    while start > max(at - reach, 0) and x[start - 1] == x[start - 1]:
        start -= 1
    stop = at + 1
    while stop < min(at + reach + 1, x.size) and x[stop] == x[stop]:
        stop += 1
    return start, stop


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _greatest(w: Floats) -> int:
    best = 0
    for i in range(1, w.size):
        if abs(w[i]) > abs(w[best]):
            best = i
    return best


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def look(
    x: Floats, narrow: Floats, taps: Floats, wide: Floats, at: Integers, radius: int
) -> tuple[Floats, Integers, Flags]:
    """See `ecg_dask.kernels.look`."""
    sharpness = np.empty(at.size, np.float32)
    position = np.empty(at.size, np.int64)
    at_edge = np.empty(at.size, np.bool_)
    k = max(narrow.size, taps.size, wide.size)
    room = 2 * radius + 1
    d = np.empty(room + 2 * k, np.float32)
    w = np.empty(room, np.float32)
    for b in range(at.size):
        start, stop = _run_around(x, at[b], radius + k)
        low, high = max(start, at[b] - radius), min(stop, at[b] + radius + 1)
        responses = w[: high - low]
        around = d[: high - low + 2 * k - 1]
        _differences(x, start, stop, low - k + 1, around)
        _convolve(around[k - narrow.size : around.size - k + narrow.size], narrow, responses)
        steep = abs(responses[_greatest(responses)])
        _convolve(around[k - taps.size : around.size - k + taps.size], taps, responses)
        usual = abs(responses[_greatest(responses)])
        _convolve(around[k - wide.size : around.size - k + wide.size], wide, responses)
        s = low + _greatest(responses)
        ratio = steep / usual if usual > 0 else np.float32(0)
        sharpness[b] = ratio * ratio
        position[b] = s
        at_edge[b] = s == 0 or s == x.size - 1 or x[s - 1] != x[s - 1] or x[s + 1] != x[s + 1]
    return sharpness, position, at_edge


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _standing(
    value: Floats, level: Floats, noise: Floats, summit: Integers, head: int, sharpness: Floats
) -> tuple[Floats, Floats]:
    """Return each candidate's share of the level, and its merit as far as it stands alone."""
    share = np.empty(summit.size, np.float32)
    alone = np.empty(summit.size, np.float32)
    one = np.float32(1)
    for b in range(summit.size):
        s = summit[b]
        cell = (head + s) // PER_CELL
        # Where all around is silent, the candidate is its own measure.
        full = level[cell] if level[cell] > 0 else value[s]
        flank = np.float32(0)
        for distance in range(NEAR_FLANK, FAR_FLANK + 1):
            if s - distance >= 0:
                flank = max(flank, value[s - distance])
            if s + distance < value.size:
                flank = max(flank, value[s + distance])
        quiet = max(noise[cell], np.float32(0)) / full + _QUIET
        share[b] = value[s] / full
        sharp = np.float32(math.sqrt(min(sharpness[b], one)))
        crowd = one + np.float32(math.sqrt(flank / full))
        alone[b] = share[b] * sharp / (np.float32(math.sqrt(quiet)) * crowd)
    return share, alone


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _among_neighbours(
    at: Integers, strength: Floats, least: Any, sharpness: Floats, alone: Floats, reach: int
) -> Floats:
    """Return each candidate's merit among those whose strength exceeds `least`."""
    merit = np.empty(at.size, np.float32)
    one = np.float32(1)
    begin = 0
    for b in range(at.size):
        while at[b] - at[begin] > reach:
            begin += 1
        count, first, last = 0, at[b], at[b]
        before, behind = reach, reach
        total = np.float32(0)
        j = begin
        while j < at.size and at[j] - at[b] <= reach:
            if strength[j] > least:
                if count == 0:
                    first = at[j]
                last = at[j]
                count += 1
                total += sharpness[j]
                if j < b:
                    before = at[b] - at[j]
                elif j > b and behind == reach:
                    behind = at[j] - at[b]
            j += 1
        merit[b] = alone[b]
        if count > 1:
            mean = np.float32(last - first) / np.float32(count - 1)
            merit[b] *= min(np.float32(min(before, behind)) / mean, _APART)
            merit[b] *= min(np.float32(before + behind) / mean, _ROOM)
        if total > 0:
            likeness = min(sharpness[b] * np.float32(count) / total, one)
            root = np.float32(math.sqrt(likeness))
            merit[b] *= root * np.float32(math.sqrt(root))
    return merit


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def merits(
    value: Floats,
    level: Floats,
    noise: Floats,
    summit: Integers,
    at: Integers,
    sharpness: Floats,
    head: int,
    reach: int,
    sure: float,
) -> Floats:
    """See `ecg_dask.kernels.merits`."""
    share, alone = _standing(value, level, noise, summit, head, sharpness)
    merit: Floats = _among_neighbours(at, share, _STRONG, sharpness, alone, reach)
    merit = _among_neighbours(at, merit, np.float32(sure), sharpness, alone, reach)
    return merit


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def prune(
    accepted: Flags, position: Integers, energy: Floats, refractory: int
) -> tuple[Flags, Flags]:
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
    kept = accepted.copy()
    last = -1
    for b in range(position.size):
        if accepted[b]:
            if last >= 0 and position[b] - position[last] < refractory:
                if energy[last] >= energy[b]:
                    kept[b] = False
                else:
                    kept[last] = False
            last = b
    return kept, accepted & ~kept


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def measure(
    x: Floats,
    position: Integers,
    margin: Floats,
    near: int,
    far: int,
    wide: int,
    plateau: int,
) -> tuple[Floats, Floats]:
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
    amplitude = np.empty(position.size, np.float32)
    quality = np.empty(position.size, np.float32)
    for b in range(position.size):
        s = position[b]
        begin, stop = _run_around(x, s, wide)
        height, count = np.float32(0), 0
        for j in range(max(begin, s - far), min(stop, s + far + 1)):
            if abs(j - s) >= near:
                height += x[s] - x[j]
                count += 1
        amplitude[b] = height / np.float32(count) if count else np.float32(np.nan)
        good = np.float32(1) - np.float32(1) / margin[b]
        good *= np.float32(stop - begin) / np.float32(2 * wide + 1)
        first = last = s
        while first > max(s - plateau, 0) and x[first - 1] == x[s]:
            first -= 1
        while last < min(s + plateau, x.size - 1) and x[last + 1] == x[s]:
            last += 1
        if last - first + 1 >= plateau:
            good *= np.float32(0.5)
        quality[b] = good
    return amplitude, quality


def levels(
    value: Floats, head: int, peak_cells: int, level_radius: int, noise_radius: int
) -> tuple[Floats, Floats]:
    """See `ecg_dask.kernels.levels`."""
    maxima = cell_maxima(value, head, PER_CELL)
    middles = cell_middles(value, head, PER_CELL)
    level = usual_maxima(maxima, peak_cells, level_radius)
    return level, usual_maxima(middles, 1, noise_radius)


def candidates(
    value: Floats, index: Integers, level: Floats, share: float, head: int, sub: int, spacing: int
) -> tuple[Integers, Integers, Floats]:
    """See `ecg_dask.kernels.candidates`."""
    floor = np.float32(share) * level
    summit = summits(value, index, floor, head * sub, sub, PER_CELL, spacing)
    return summit, index[summit], value[summit]


def choose(
    x: Floats,
    merit: Floats,
    threshold: float,
    position: Integers,
    at_edge: Flags,
    energy: Floats,
    refractory: int,
    first: int,
    core: tuple[int, int],
    after: int,
    near: int,
    far: int,
    wide: int,
    plateau: int,
) -> tuple[Integers, Integers, Floats, Floats, int]:
    """See `ecg_dask.kernels.choose`."""
    sample = position + first
    owned = (sample >= core[0]) & (sample < core[1])
    accepted = merit > np.float32(threshold)
    kept, dropped = prune(accepted & ~at_edge, position, energy, refractory)
    pruned = int(((dropped | (accepted & at_edge)) & owned).sum())

    sample, owned = sample[kept], owned[kept]
    never = np.full(1, np.iinfo(np.int64).max)
    following = np.concatenate([sample[1:], never])
    following = np.where(following - sample < after, following, never)
    margin = merit[kept][owned] / np.float32(threshold)
    amplitude, quality = measure(x, sample[owned] - first, margin, near, far, wide, plateau)
    return sample[owned], following[owned], amplitude, quality, pruned
