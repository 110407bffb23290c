"""The levels of signal and noise on CUDA: running medians over cells, found on chip."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba import cuda, float32, int32

from ..arrays import namespace
from .launch import launch
from .rules import PER_CELL

#: Threads a block, and most cells a thread. An odd number of cells keeps the threads of a warp out
#: of each other's bank of shared memory.
THREADS, CELLS = 128, 7

#: Cells whose crests a thread loads together.
BATCH = 2
ROOM_LOADED = BATCH * PER_CELL


def levels(
    value: Any, head: int, peak_cells: int, level_radius: int, noise_radius: int
) -> tuple[Any, Any]:
    """See `ecg_dask.kernels.levels`."""
    xp = namespace(value)
    n_cells = (head + value.size - 1) // PER_CELL + 1 if value.size else 0
    level = xp.empty(n_cells, np.float32)
    noise = xp.empty(n_cells, np.float32)
    kernel, cells = levels_kernel(peak_cells, level_radius, noise_radius)
    launch(kernel, -(-n_cells // cells), THREADS, value, head, level, noise)
    return level, noise


def _then(first: Any, second: Any) -> Any:
    @cuda.jit(device=True)  # type: ignore[untyped-decorator]
    def both(s: Any) -> None:
        first(s)
        second(s)

    return both


def _exchange(size: int, p: int, r: int, d: int) -> Any:
    """Return a function that puts those pairs in order, `d` apart, whose first has bit p as r."""
    count = sum(i & p == r for i in range(size - d))

    @cuda.jit(device=True)  # type: ignore[untyped-decorator]
    def exchange(s: Any) -> None:
        for k in range(count):
            i = (k // p) * (2 * p) + k % p + r
            lesser = min(s[i], s[i + d])
            s[i + d] = max(s[i], s[i + d])
            s[i] = lesser

    return exchange


@functools.cache
def sorter(size: int) -> Any:
    """Return a function that sorts a local array: Batcher's merge exchange.

    Which elements are compared does not depend on their values, so that the array may be in
    registers; what is not read of the result is not computed.
    """
    steps = []
    top = 1 << max((size - 1).bit_length() - 1, 0)
    p = top
    while p:
        q, r, d = top, 0, p
        while True:
            steps.append(_exchange(size, p, r, d))
            if q == p:
                break
            d, q, r = q - p, q // 2, p
        p //= 2
    return functools.reduce(_then, steps)


@functools.cache
def _running_medians(radius: int) -> tuple[Any, int]:
    """Return a function for the medians of neighbouring cells, and of how many.

    Their windows have most values in common. These are sorted once; the others, as many in each
    window, are kept sorted from one window to the next. Of two sorted arrays the value of a given
    rank is the least one of the maxima of pairs.

    Where one of the windows has cells without a value, which are -1, the threads count instead
    how many values are below each one.
    """
    own = min(CELLS, radius + 1)
    rest = own - 1
    common, window = 2 * radius + 1 - rest, 2 * radius + 1
    sort_common, sort_rest = sorter(common), sorter(max(rest, 1))
    room = max(rest, 1)

    @cuda.jit(device=True)  # type: ignore[untyped-decorator]
    def replace(e: Any, old: Any, new: Any) -> None:
        for i in range(rest - 1):
            e[i] = e[i + 1] if e[i] >= old else e[i]
        e[rest - 1] = max(e[rest - 2], new) if rest > 1 else new
        for k in range(rest - 2):
            i = rest - 2 - k
            e[i] = max(e[i - 1], min(e[i], new))
        if rest > 1:
            e[0] = min(e[0], new)

    @cuda.jit(device=True)  # type: ignore[untyped-decorator]
    def full(high: Any, low: int, out: Any) -> Any:
        """Find the medians from `low` on if no value is missing, and tell whether."""
        c = cuda.local.array(common, float32)
        e = cuda.local.array(room, float32)
        least = float32(math.inf)
        for i in range(common):
            c[i] = high[low + rest + i]
            least = min(least, c[i])
        for i in range(rest):
            e[i] = high[low + i]
            least = min(least, min(e[i], high[low + window + i]))
        if least < float32(0):
            return False
        sort_common(c)
        if rest > 1:
            sort_rest(e)
        for i in range(own):
            median = c[radius]
            for j in range(rest):
                median = min(median, max(c[radius - 1 - j], e[j]))
            out[low + i] = median
            if i < rest:
                replace(e, high[low + i], high[low + window + i])
        return True

    @cuda.jit(device=True)  # type: ignore[untyped-decorator]
    def medians(high: Any, t: int, groups: int, n_cells: int, out: Any, left: Any) -> None:
        """Find those of `n_cells` cells in groups; `left` is room for a number more than groups."""
        if t == 0:
            left[0] = 0
        cuda.syncthreads()
        for group in range(t, groups, THREADS):
            if group * own < n_cells and not full(high, group * own, out):
                left[cuda.atomic.add(left, 0, 1) + 1] = group
        cuda.syncthreads()
        for n in range(t, left[0] * own * window, THREADS):
            cell, place = n // window, n % window
            p = left[cell // own + 1] * own + cell % own
            value = high[p + place]
            less, same, missing = 0, 0, 0
            for i in range(window):
                less += 1 if high[p + i] < value else 0
                same += 1 if high[p + i] == value else 0
                missing += 1 if high[p + i] < float32(0) else 0
            # What is missing lies below, and the lower median in the middle of the others.
            rank = missing + (window - missing - 1) // 2 if missing < window else 0
            if less <= rank and rank < less + same:
                out[p] = value
        cuda.syncthreads()

    return medians, own


@functools.cache
def levels_kernel(peak_cells: int, level_radius: int, noise_radius: int) -> tuple[Any, int]:
    """Return the kernel for these widths, and how many cells a block finds.

    A block takes the greatest and the middle value of its cells, and of those around that its
    medians look at, from device memory into shared memory. Then the array of the maxima becomes
    that of the running maxima, and their medians and those of the middles are found.
    """
    level_medians, level_own = _running_medians(level_radius)
    noise_medians, noise_own = _running_medians(noise_radius)
    cells = THREADS * level_own
    noise_groups = -(-cells // noise_own)
    peak_before = peak_cells // 2
    before = max(level_radius + peak_before, noise_radius)
    behind = max(level_radius + peak_cells - 1 - peak_before, noise_radius)
    width = before + cells + behind
    n_high = cells + 2 * level_radius
    # Of the last group that medians of noise are found of, some may lie behind the block's cells.
    room = max(width, before + noise_groups * noise_own + noise_radius)
    room_left = max(THREADS, noise_groups) + 1
    sort_cell = sorter(PER_CELL)

    @cuda.jit(device=True)  # type: ignore[untyped-decorator]
    def middle_of_some(value: Any, begin: int, end: int) -> Any:
        """Return the upper median of the recorded sub-cells, -1 without any."""
        count = 0
        for i in range(begin, end):
            count += 1 if value[i] >= float32(0) else 0
        for i in range(begin, end):
            less, same = 0, 0
            for j in range(begin, end):
                less += 1 if value[j] >= float32(0) and value[j] < value[i] else 0
                same += 1 if value[j] == value[i] else 0
            if value[i] >= float32(0) and less <= count // 2 and count // 2 < less + same:
                return value[i]
        return float32(-1)

    @cuda.jit  # type: ignore[untyped-decorator]
    def kernel(value: Any, head: int, level: Any, noise: Any) -> None:
        maxima = cuda.shared.array(room, float32)
        middles = cuda.shared.array(room, float32)
        high = cuda.shared.array(room, float32)
        left = cuda.shared.array(room_left, int32)
        t = cuda.threadIdx.x
        first = cuda.blockIdx.x * cells
        loaded = cuda.local.array(ROOM_LOADED, float32)
        s = cuda.local.array(PER_CELL, float32)
        for low in range(t, width, BATCH * THREADS):
            # All loads first, so that they are under way together.
            for n in range(BATCH):
                p = low + n * THREADS
                begin = (first - before + p) * PER_CELL - head
                inside = begin >= 0 and begin + PER_CELL <= value.size and p < width
                for i in range(PER_CELL):
                    loaded[n * PER_CELL + i] = value[begin + i] if inside else float32(-1)
            for n in range(BATCH):
                p = low + n * THREADS
                if p < width:
                    for i in range(PER_CELL):
                        s[i] = loaded[n * PER_CELL + i]
                    sort_cell(s)
                    greatest = s[PER_CELL - 1]
                    middle = s[PER_CELL // 2]
                    if s[0] < float32(0):
                        begin = (first - before + p) * PER_CELL - head
                        end = min(begin + PER_CELL, value.size)
                        begin = max(begin, 0)
                        for i in range(begin, end):
                            greatest = max(greatest, value[i])
                        middle = middle_of_some(value, begin, end)
                    maxima[p] = greatest
                    middles[p] = middle
        for p in range(width + t, room, THREADS):
            middles[p] = float32(-1)
        cuda.syncthreads()

        for p in range(t, n_high, THREADS):
            c = p + before - level_radius
            greatest = float32(-1)
            if maxima[c] >= float32(0):
                for j in range(peak_cells):
                    greatest = max(greatest, maxima[c - peak_before + j])
            high[p] = greatest
        cuda.syncthreads()
        # No one reads the maxima any more.
        level_medians(high, t, THREADS, level.size - first, maxima, left)
        for p in range(t, min(cells, level.size - first), THREADS):
            level[first + p] = maxima[p]
        noise_medians(
            middles[before - noise_radius :], t, noise_groups, level.size - first, high, left
        )
        for p in range(t, min(cells, noise.size - first), THREADS):
            noise[first + p] = high[p]

    return kernel, cells
