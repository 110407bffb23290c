"""The kernels for NumPy arrays, compiled by Numba; the twins of `ecg_dask.kernels.cuda`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

#: Samples that are worked on while they stay in the first-level cache.
TILE = 1024


@intrinsic  # type: ignore[untyped-decorator]
def fma(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    """Multiply and add in float32 with one rounding, as ``numba.cuda.fma`` does."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float32(types.float32, types.float32, types.float32), lower


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _run_stop(x: Floats, start: int) -> int:
    """Return where the run of samples that begins at `start` ends."""
    stop = start
    while stop < x.size and x[stop] == x[stop]:
        stop += 1
    return stop


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def response(x: Floats, taps: Floats) -> Floats:
    """See `ecg_dask.kernels.response`."""
    n, k = x.size, taps.size
    w = np.full(n, np.float32(np.nan), np.float32)
    start = 0
    while start < n:
        stop = _run_stop(x, start)
        # The run's first difference with k zeros before and behind: the run as a whole record.
        d = np.zeros(stop - start + 2 * k + 1, np.float32)
        for i in range(start + 1, stop):
            d[i - start + k] = x[i] - x[i - 1]
        for low in range(start, stop, TILE):
            high = min(low + TILE, stop)
            for i in range(low, high):
                w[i] = np.float32(0)
            for m in range(k):
                tap = taps[m]
                for i in range(low, high):
                    j = i - start + k
                    w[i] = fma(tap, d[j - m] - d[j + m + 1], w[i])
        start = stop + 1
    return w


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def energy(w: Floats, radius: int) -> Floats:
    """See `ecg_dask.kernels.energy`."""
    n = w.size
    e = np.full(n, np.float32(np.nan), np.float32)
    start = 0
    while start < n:
        stop = _run_stop(w, start)
        v = np.zeros(stop - start + 2 * radius, np.float32)
        v[radius : radius + stop - start] = w[start:stop]
        for low in range(start, stop, TILE):
            high = min(low + TILE, stop)
            for i in range(low, high):
                e[i] = w[i] * w[i]
            for m in range(1, radius + 1):
                for i in range(low, high):
                    j = i - start + radius
                    e[i] = fma(v[j + m], v[j + m], fma(v[j - m], v[j - m], e[i]))
        start = stop + 1
    return e


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def cell_maxima(e: Floats, first: int, cell: int) -> Floats:
    """See `ecg_dask.kernels.cell_maxima`."""
    n_cells = (first + e.size - 1) // cell - first // cell + 1 if e.size else 0
    maxima = np.full(n_cells, np.float32(-1), np.float32)
    for c in range(n_cells):
        begin = max((first // cell + c) * cell - first, 0)
        end = min((first // cell + c + 1) * cell - first, e.size)
        for i in range(begin, end):
            if e[i] > maxima[c]:
                maxima[c] = e[i]
    return maxima


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def thresholds(maxima: Floats, peak_cells: int, median_radius: int, factor: float) -> Floats:
    """See `ecg_dask.kernels.thresholds`."""
    n = maxima.size
    high = np.full(n, np.float32(-1), np.float32)
    for c in range(n):
        if maxima[c] >= 0:
            begin = c - peak_cells // 2
            for j in range(max(begin, 0), min(begin + peak_cells, n)):
                high[c] = max(high[c], maxima[j])
    floor = np.full(n, np.float32(-1), np.float32)
    ordered = np.empty(2 * median_radius + 1, np.float32)
    for c in range(n):
        count = 0
        for j in range(max(c - median_radius, 0), min(c + median_radius + 1, n)):
            if high[j] >= 0:
                place = count
                while place > 0 and ordered[place - 1] > high[j]:
                    ordered[place] = ordered[place - 1]
                    place -= 1
                ordered[place] = high[j]
                count += 1
        if count:
            floor[c] = np.float32(factor) * ordered[(count - 1) // 2]
    return floor


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _is_greatest(e: Floats, i: int, radius: int) -> bool:
    """Tell whether e[i] is the first greatest value within `radius` and its run."""
    for j in range(i - 1, max(i - radius, 0) - 1, -1):
        if e[j] != e[j]:
            break
        if e[j] >= e[i]:
            return False
    for j in range(i + 1, min(i + radius + 1, e.size)):
        if e[j] != e[j]:
            break
        if e[j] > e[i]:
            return False
    return True


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def peaks(e: Floats, floor: Floats, first: int, cell: int, radius: int) -> Integers:
    """See `ecg_dask.kernels.peaks`."""
    n_runs = 1
    for i in range(1, e.size):
        if e[i] == e[i] and e[i - 1] != e[i - 1]:
            n_runs += 1
    # Peaks of one run are more than `radius` samples apart.
    found = np.empty(e.size // (radius + 1) + n_runs, np.int64)
    count = 0
    for c in range(floor.size):
        begin = max((first // cell + c) * cell - first, 0)
        end = min((first // cell + c + 1) * cell - first, e.size)
        for i in range(begin, end):
            if e[i] > floor[c] and _is_greatest(e, i, radius):
                found[count] = i
                count += 1
    return found[:count].copy()


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def strongest(w: Floats, index: Integers, radius: int) -> tuple[Integers, NDArray[np.bool_]]:
    """See `ecg_dask.kernels.strongest`."""
    position = np.empty(index.size, np.int64)
    at_edge = np.empty(index.size, np.bool_)
    for b in range(index.size):
        begin = end = index[b]
        while begin > max(index[b] - radius, 0) and w[begin - 1] == w[begin - 1]:
            begin -= 1
        while end < min(index[b] + radius, w.size - 1) and w[end + 1] == w[end + 1]:
            end += 1
        best = begin
        for i in range(begin + 1, end + 1):
            if abs(w[i]) > abs(w[best]):
                best = i
        position[b] = best
        at_edge[b] = (
            best == 0
            or best == w.size - 1
            or w[best - 1] != w[best - 1]
            or w[best + 1] != w[best + 1]
        )
    return position, at_edge


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def measure(
    x: Floats,
    e: Floats,
    peak: Integers,
    position: Integers,
    near: int,
    far: int,
    wide: int,
    plateau: int,
) -> tuple[Floats, Floats]:
    """See `ecg_dask.kernels.measure`."""
    amplitude = np.empty(position.size, np.float32)
    quality = np.empty(position.size, np.float32)
    for b in range(position.size):
        s = position[b]
        begin = end = s
        while begin > max(s - wide, 0) and x[begin - 1] == x[begin - 1]:
            begin -= 1
        while end < min(s + wide, x.size - 1) and x[end + 1] == x[end + 1]:
            end += 1
        height, noise = np.float32(0), np.float32(0)
        n_height = n_noise = 0
        for j in range(begin, end + 1):
            distance = abs(j - s)
            if distance >= near:
                noise += e[j]
                n_noise += 1
                if distance <= far:
                    height += x[s] - x[j]
                    n_height += 1
        amplitude[b] = height / np.float32(n_height) if n_height else np.float32(np.nan)
        good = np.float32(0)
        if n_noise:
            share = noise / np.float32(n_noise) / e[peak[b]]
            good = max(np.float32(0), np.float32(1) - np.float32(math.sqrt(share)))
        good *= np.float32(end - begin + 1) / np.float32(2 * wide + 1)
        begin = end = s
        while begin > max(s - plateau, 0) and x[begin - 1] == x[s]:
            begin -= 1
        while end < min(s + plateau, x.size - 1) and x[end + 1] == x[s]:
            end += 1
        if end - begin + 1 >= plateau:
            good *= np.float32(0.5)
        quality[b] = good
    return amplitude, quality
