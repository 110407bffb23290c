"""The kernels that look for spans, for CuPy arrays; the twins of `cpu_spans`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cuda, float32, float64, int32

from ..arrays import namespace
from .cuda_device import device
from .cuda_noise import noisy
from .cuda_select import add_up
from .launch import launch

__all__ = ["noisy", "plateaus", "rails"]

#: Threads a block; each has one cell, or one cell's level.
THREADS = 128


def rails(
    low: Any, high: Any, begin: Any, length: int, upper: Any, lower: Any, share: float
) -> Any:
    """See `ecg_dask.kernels.rails`."""
    rail = namespace(low).empty(begin.size, np.int8)
    blocks = -(-begin.size // THREADS)
    few = np.float32(share)
    launch(_rails, blocks, THREADS, low, high, begin, length, upper, lower, few, rail)
    return rail


@cuda.jit  # type: ignore[untyped-decorator]
def _rails(
    low: Any, high: Any, begin: Any, length: int, upper: Any, lower: Any, share: Any, rail: Any
) -> None:
    b = cuda.grid(1)
    if b >= begin.size:
        return
    first, end = max(begin[b], 0), min(begin[b] + length, low.size)
    top, bottom = upper[b], lower[b]
    highest, lowest = True, True
    some, at_top, at_bottom = int32(0), int32(0), int32(0)
    c = first
    while c < end and (highest or lowest):
        least, most = low[c], high[c]
        highest = highest and not most > top
        lowest = lowest and not least < bottom
        if least < most:
            some += int32(1)
            if most >= top:
                at_top += int32(1)
            if least <= bottom:
                at_bottom += int32(1)
        c += 1
    few = share * float32(some)
    told = 0
    if highest and some > 0 and float32(at_top) <= few:
        told += 1
    if lowest and some > 0 and float32(at_bottom) <= few:
        told += 2
    rail[b] = told


def plateaus(
    x: Any,
    first: int,
    cell: int,
    upper: Any,
    lower: Any,
    rail: Any,
    plateau: int,
    entry: int,
    steep: float,
) -> Any:
    """See `ecg_dask.kernels.plateaus`."""
    xp = namespace(x)
    blocks = -(-2 * rail.size // THREADS)
    own, count = xp.empty(blocks * THREADS, np.int32), xp.empty(blocks, np.int64)
    asked = x, first, cell, upper, lower, rail, plateau
    launch(_count, blocks, THREADS, *asked, own, count)
    before, total = add_up(count)
    found = xp.empty(4 * total, np.float64)
    steps = np.float32(steep)
    launch(_write, blocks if total else 0, THREADS, *asked, entry, steps, own, before, total, found)
    return found.reshape(4, total)


@device
def _next_part(x: Any, level: Any, i: int, end: int, plateau: int) -> tuple[int, int]:
    """Return the next part of a plateau at `level` in ``x[i:end]``; it is empty without any."""
    while i < end:
        if x[i] == level:
            # The samples at the level are followed only as far as tells whether they are enough.
            first, stop = i, i + 1
            while first > max(i - plateau + 1, 0) and x[first - 1] == level:
                first -= 1
            while stop < min(end + plateau - 1, x.size) and x[stop] == level:
                stop += 1
            if stop - first >= plateau:
                return i, min(stop, end)
            i = stop
        i += 1
    return end, end


@cuda.jit  # type: ignore[untyped-decorator]
def _count(
    x: Any,
    first: int,
    cell: int,
    upper: Any,
    lower: Any,
    rail: Any,
    plateau: int,
    own: Any,
    count: Any,
) -> None:
    """Count the parts in each cell, a thread those at its upper or at its lower level."""
    parts = cuda.shared.array(THREADS, int32)
    t = cuda.threadIdx.x
    k = cuda.grid(1)
    n = int32(0)
    if k < 2 * rail.size:
        side = k // rail.size
        c = k - side * rail.size
        if rail[c] & (1 << side):
            level = lower[c] if side else upper[c]
            begin = first + c * cell
            end = min(begin + cell, x.size)
            start, stop = _next_part(x, level, begin, end, plateau)
            while start < stop:
                n += int32(1)
                start, stop = _next_part(x, level, stop, end, plateau)
    own[k] = n
    parts[t] = n
    cuda.syncthreads()
    if t == 0:
        total = int32(0)
        for i in range(THREADS):
            total += parts[i]
        count[cuda.blockIdx.x] = total


@device
def _left(x: Any, level: Any, beside: int, away: int, height: Any) -> bool:
    """Tell whether the signal leaves its level at `beside`, and is far from it at `away`."""
    if beside >= 0 and beside < x.size and x[beside] == level:
        return False
    return away >= 0 and away < x.size and abs(x[away] - level) >= height


@cuda.jit  # type: ignore[untyped-decorator]
def _write(
    x: Any,
    first: int,
    cell: int,
    upper: Any,
    lower: Any,
    rail: Any,
    plateau: int,
    entry: int,
    steep: Any,
    own: Any,
    before: Any,
    total: int,
    found: Any,
) -> None:
    """Write the parts that were counted, those of a block behind those before it."""
    parts = cuda.shared.array(THREADS, int32)
    t = cuda.threadIdx.x
    k = cuda.grid(1)
    left = own[k]
    parts[t] = left
    cuda.syncthreads()
    if left == 0:
        return
    n = before[cuda.blockIdx.x]
    for i in range(t):
        n += parts[i]
    side = k // rail.size
    c = k - side * rail.size
    level = lower[c] if side else upper[c]
    begin = first + c * cell
    end = min(begin + cell, x.size)
    around = plateau + entry
    least = float32(math.inf)
    for i in range(max(begin - around, 0) + 1, min(begin + cell + around, x.size)):
        step = abs(x[i] - x[i - 1])
        if step > float32(0) and step < least:
            least = step
    height = steep * least
    stop = begin
    for i in range(n, n + left):
        start, stop = _next_part(x, level, stop, end, plateau)
        is_steep = _left(x, level, start - 1, start - entry, height)
        is_steep = is_steep or _left(x, level, stop, stop - 1 + entry, height)
        found[i] = float64(start)
        found[total + i] = float64(stop)
        found[2 * total + i] = float64(level)
        found[3 * total + i] = float64(1) if is_steep else float64(0)
