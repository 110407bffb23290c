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

THREADS = 256

#: Most cells that a running median may span: a thread sorts them in its local memory.
MEDIAN_CELLS = 128


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
    high = namespace(maxima).empty_like(maxima)
    floor = namespace(maxima).empty_like(maxima)
    _launch(_running_maximum, maxima.size, maxima, peak_cells, high)
    _launch(_running_median, maxima.size, high, median_radius, np.float32(factor), floor)
    return floor


@cuda.jit  # type: ignore[untyped-decorator]
def _running_maximum(maxima: Any, peak_cells: int, high: Any) -> None:
    c = cuda.grid(1)
    if c >= maxima.size:
        return
    greatest = float32(-1)
    if maxima[c] >= float32(0):
        begin = c - peak_cells // 2
        for j in range(max(begin, 0), min(begin + peak_cells, maxima.size)):
            greatest = max(greatest, maxima[j])
    high[c] = greatest


@cuda.jit  # type: ignore[untyped-decorator]
def _running_median(high: Any, median_radius: int, factor: Any, floor: Any) -> None:
    c = cuda.grid(1)
    if c >= high.size:
        return
    ordered = cuda.local.array(MEDIAN_CELLS, float32)
    count = 0
    for j in range(max(c - median_radius, 0), min(c + median_radius + 1, high.size)):
        if high[j] >= float32(0):
            place = count
            while place > 0 and ordered[place - 1] > high[j]:
                ordered[place] = ordered[place - 1]
                place -= 1
            ordered[place] = high[j]
            count += 1
    floor[c] = factor * ordered[(count - 1) // 2] if count else float32(-1)


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
