"""The kernels for CuPy arrays, compiled by Numba; the twins of `ecg_dask.kernels.cpu`.

A thread works on one sample, one cell or one beat. Under Numba's simulator the functions take
NumPy arrays.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cuda, float32

from ..arrays import namespace
from .cuda_crests import crests, summits

__all__ = [
    "cell_maxima",
    "crests",
    "energy",
    "measure",
    "peaks",
    "response",
    "strongest",
    "summits",
    "thresholds",
]

THREADS = 256

#: Threads a block of the running median, cells a thread, and most cells that it may span.
MEDIAN_THREADS, CELLS_A_THREAD, MEDIAN_CELLS = 64, 16, 128


def _launch(kernel: Any, n_threads: int, *arguments: Any) -> None:
    if n_threads:
        threads = min(THREADS, n_threads)
        kernel[-(-n_threads // threads), threads](*arguments)


def response(x: Any, taps: Any) -> Any:
    """See `ecg_dask.kernels.response`."""
    w = namespace(x).empty_like(x)
    _launch(_response, x.size, x, namespace(x).asarray(taps), w)
    return w


@cuda.jit  # type: ignore[untyped-decorator]
def _response(x: Any, taps: Any, w: Any) -> None:
    i = cuda.grid(1)
    if i >= x.size:
        return
    if x[i] != x[i]:
        w[i] = x[i]
        return
    left, right = True, True
    total = float32(0)
    for m in range(taps.size):
        before, after = float32(0), float32(0)
        j = i - m
        left = left and j > 0 and x[j - 1] == x[j - 1]
        if left:
            before = x[j] - x[j - 1]
        j = i + m + 1
        right = right and j < x.size and x[j] == x[j]
        if right:
            after = x[j] - x[j - 1]
        total = cuda.fma(taps[m], before - after, total)
    w[i] = total


def energy(w: Any, radius: int) -> Any:
    """See `ecg_dask.kernels.energy`."""
    e = namespace(w).empty_like(w)
    _launch(_energy, w.size, w, radius, e)
    return e


@cuda.jit  # type: ignore[untyped-decorator]
def _energy(w: Any, radius: int, e: Any) -> None:
    i = cuda.grid(1)
    if i >= w.size:
        return
    total = w[i] * w[i]
    left, right = total == total, total == total
    for m in range(1, radius + 1):
        left = left and i - m >= 0 and w[i - m] == w[i - m]
        if left:
            total = cuda.fma(w[i - m], w[i - m], total)
        right = right and i + m < w.size and w[i + m] == w[i + m]
        if right:
            total = cuda.fma(w[i + m], w[i + m], total)
    e[i] = total


def cell_maxima(e: Any, first: int, cell: int) -> Any:
    """See `ecg_dask.kernels.cell_maxima`."""
    n_cells = (first + e.size - 1) // cell - first // cell + 1 if e.size else 0
    maxima = namespace(e).empty(n_cells, np.float32)
    _launch(_cell_maxima, n_cells, e, first, cell, maxima)
    return maxima


@cuda.jit  # type: ignore[untyped-decorator]
def _cell_maxima(e: Any, first: int, cell: int, maxima: Any) -> None:
    c = cuda.grid(1)
    if c >= maxima.size:
        return
    greatest = float32(-1)
    begin = max((first // cell + c) * cell - first, 0)
    end = min((first // cell + c + 1) * cell - first, e.size)
    for i in range(begin, end):
        if e[i] > greatest:
            greatest = e[i]
    maxima[c] = greatest


def thresholds(maxima: Any, peak_cells: int, median_radius: int, factor: float) -> Any:
    """See `ecg_dask.kernels.thresholds`."""
    floor = namespace(maxima).empty_like(maxima)
    if maxima.size:
        blocks = -(-maxima.size // (MEDIAN_THREADS * CELLS_A_THREAD))
        _thresholds[blocks, MEDIAN_THREADS](
            maxima, peak_cells, median_radius, np.float32(factor), floor
        )
    return floor


#: Running maxima that a block keeps in shared memory, one unused after those of a thread.
_ROOM = (MEDIAN_THREADS * CELLS_A_THREAD + MEDIAN_CELLS) * (CELLS_A_THREAD + 1) // CELLS_A_THREAD


@cuda.jit  # type: ignore[untyped-decorator]
def _thresholds(maxima: Any, peak_cells: int, radius: int, factor: Any, floor: Any) -> None:
    high = cuda.shared.array(_ROOM, float32)
    t = cuda.threadIdx.x
    first = cuda.blockIdx.x * MEDIAN_THREADS * CELLS_A_THREAD
    for p in range(t, MEDIAN_THREADS * CELLS_A_THREAD + 2 * radius, MEDIAN_THREADS):
        c = first - radius + p
        greatest = float32(-1)
        if c >= 0 and c < maxima.size and maxima[c] >= float32(0):
            begin = c - peak_cells // 2
            for j in range(max(begin, 0), min(begin + peak_cells, maxima.size)):
                greatest = max(greatest, maxima[j])
        high[p + p // CELLS_A_THREAD] = greatest
    cuda.syncthreads()

    # The median of a cell is sought from that of the cell before it: `less` and `same` count the
    # window's values below and equal to `median`.
    low = t * CELLS_A_THREAD
    median = high[low + radius + (low + radius) // CELLS_A_THREAD]
    count, less, same = 0, 0, 0
    for p in range(low, low + 2 * radius):
        value = high[p + p // CELLS_A_THREAD]
        count += value >= float32(0)
        less += value >= float32(0) and value < median
        same += value >= float32(0) and value == median
    for p in range(low, low + CELLS_A_THREAD):
        if p > low:
            value = high[p - 1 + (p - 1) // CELLS_A_THREAD]
            count -= value >= float32(0)
            less -= value >= float32(0) and value < median
            same -= value >= float32(0) and value == median
        value = high[p + 2 * radius + (p + 2 * radius) // CELLS_A_THREAD]
        count += value >= float32(0)
        less += value >= float32(0) and value < median
        same += value >= float32(0) and value == median
        rank = (count - 1) // 2
        while count > 0 and less > rank:
            lower = float32(-1)
            same = 0
            for j in range(p, p + 2 * radius + 1):
                value = high[j + j // CELLS_A_THREAD]
                if value < median and value > lower:
                    lower = value
                    same = 0
                same += value == lower
            median = lower
            less -= same
        while count > 0 and less + same <= rank:
            higher = float32(math.inf)
            less += same
            same = 0
            for j in range(p, p + 2 * radius + 1):
                value = high[j + j // CELLS_A_THREAD]
                if value > median and value < higher:
                    higher = value
                    same = 0
                same += value == higher
            median = higher
        if first + p < floor.size:
            floor[first + p] = factor * median if count > 0 else float32(-1)


def peaks(e: Any, floor: Any, first: int, cell: int, radius: int) -> Any:
    """See `ecg_dask.kernels.peaks`."""
    is_peak = namespace(e).empty(e.size, bool)
    _launch(_peaks, e.size, e, floor, first, cell, radius, is_peak)
    return namespace(e).flatnonzero(is_peak)


@cuda.jit  # type: ignore[untyped-decorator]
def _peaks(e: Any, floor: Any, first: int, cell: int, radius: int, is_peak: Any) -> None:
    i = cuda.grid(1)
    if i >= e.size:
        return
    greatest = e[i] > floor[(first + i) // cell - first // cell]
    j = i - 1
    while greatest and j >= max(i - radius, 0) and e[j] == e[j]:
        greatest = e[j] < e[i]
        j -= 1
    j = i + 1
    while greatest and j <= min(i + radius, e.size - 1) and e[j] == e[j]:
        greatest = e[j] <= e[i]
        j += 1
    is_peak[i] = greatest


def strongest(w: Any, index: Any, radius: int) -> tuple[Any, Any]:
    """See `ecg_dask.kernels.strongest`."""
    position = namespace(w).empty_like(index)
    at_edge = namespace(w).empty(index.size, bool)
    _launch(_strongest, index.size, w, index, radius, position, at_edge)
    return position, at_edge


@cuda.jit  # type: ignore[untyped-decorator]
def _strongest(w: Any, index: Any, radius: int, position: Any, at_edge: Any) -> None:
    b = cuda.grid(1)
    if b >= index.size:
        return
    begin = index[b]
    end = index[b]
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
        best == 0 or best == w.size - 1 or w[best - 1] != w[best - 1] or w[best + 1] != w[best + 1]
    )


def measure(
    x: Any, e: Any, peak: Any, position: Any, near: int, far: int, wide: int, plateau: int
) -> tuple[Any, Any]:
    """See `ecg_dask.kernels.measure`."""
    amplitude = namespace(x).empty(position.size, np.float32)
    quality = namespace(x).empty(position.size, np.float32)
    _launch(
        _measure, position.size, x, e, peak, position, near, far, wide, plateau, amplitude, quality
    )
    return amplitude, quality


@cuda.jit  # type: ignore[untyped-decorator]
def _measure(
    x: Any,
    e: Any,
    peak: Any,
    position: Any,
    near: int,
    far: int,
    wide: int,
    plateau: int,
    amplitude: Any,
    quality: Any,
) -> None:
    b = cuda.grid(1)
    if b >= position.size:
        return
    s = position[b]
    begin = s
    end = s
    while begin > max(s - wide, 0) and x[begin - 1] == x[begin - 1]:
        begin -= 1
    while end < min(s + wide, x.size - 1) and x[end + 1] == x[end + 1]:
        end += 1
    height, noise = float32(0), float32(0)
    n_height, n_noise = 0, 0
    for j in range(begin, end + 1):
        distance = abs(j - s)
        if distance >= near:
            noise += e[j]
            n_noise += 1
            if distance <= far:
                height += x[s] - x[j]
                n_height += 1
    amplitude[b] = height / float32(n_height) if n_height else float32(math.nan)
    good = float32(0)
    if n_noise:
        share = noise / float32(n_noise) / e[peak[b]]
        good = max(float32(0), float32(1) - float32(math.sqrt(share)))
    good *= float32(end - begin + 1) / float32(2 * wide + 1)
    begin = s
    end = s
    while begin > max(s - plateau, 0) and x[begin - 1] == x[s]:
        begin -= 1
    while end < min(s + plateau, x.size - 1) and x[end + 1] == x[s]:
        end += 1
    if end - begin + 1 >= plateau:
        good *= float32(0.5)
    quality[b] = good
