"""The levels of signal and noise on CUDA: running medians over cells, found on chip."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba import cuda, float32, int32, int64, uint32

from ..arrays import namespace
from .cuda_device import constant, device
from .launch import launch
from .rules import PER_CELL

#: Threads a block, and most cells a thread. An odd number of cells keeps the threads of a warp out
#: of each other's bank of shared memory.
THREADS, CELLS = 128, 7

#: Cells whose crests a thread loads together.
BATCH = 2
ROOM_LOADED = BATCH * PER_CELL

_NONE, _ONE, _PER_CELL = constant(0), constant(1), constant(PER_CELL)


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


@device
def _exchange(s: Any, size: int, p: int, r: int, d: int) -> None:
    """Put those pairs of `size` values in order, `d` apart, whose first has bit p as r has it."""
    if d > 0:
        rest = (size - d) & (2 * p - 1)
        pairs = ((size - d - rest) >> 1) + min(max(rest - r, 0), p)
        for k in range(pairs):
            # The k-th number that has the bit so; an unsigned one is known not to be negative.
            i = uint32(2 * k - (k & (p - 1)) + r)
            j = uint32(i + d)
            low, high = s[i], s[j]
            s[i] = min(low, high)
            s[j] = max(low, high)


@device
def _merge(s: Any, size: int, p: int) -> None:
    """Sort by steps of p, at most 64, what is sorted by steps of twice that.

    Of the distances those that are not positive, or too great, have no pairs.
    """
    _exchange(s, size, p, _NONE, p)
    _exchange(s, size, p, p, 64 - p)
    _exchange(s, size, p, p, 32 - p)
    _exchange(s, size, p, p, 16 - p)
    _exchange(s, size, p, p, 8 - p)
    _exchange(s, size, p, p, 4 - p)
    _exchange(s, size, p, p, 2 - p)


@device
def _sort_few(s: Any, size: int) -> None:
    """Sort 8 values at most; see `_sort`."""
    _merge(s, size, 4 * _ONE)
    _merge(s, size, 2 * _ONE)
    _merge(s, size, _ONE)


@device
def _sort(s: Any, size: int) -> None:
    """Sort a local array of `size` values, 128 at most: Batcher's merge exchange.

    Which values are compared does not depend on them, so that the array may be in registers; what
    is not read of the result is not computed.
    """
    _merge(s, size, 64 * _ONE)
    _merge(s, size, 32 * _ONE)
    _merge(s, size, 16 * _ONE)
    _merge(s, size, 8 * _ONE)
    _sort_few(s, size)


@device
def _replace(e: Any, rest: int, old: Any, new: Any) -> None:
    """Take a value out of `rest` sorted ones and put another one in."""
    below = float32(-math.inf)
    for i in range(rest - 1):
        here = e[i + 1] if e[i] >= old else e[i]
        e[i] = max(below, min(here, new))
        below = here
    e[rest - 1] = max(below, new)


@functools.cache
def _running_medians(most_common: int) -> Any:
    """Return a function for the medians of cells; `most_common` is the most that windows share.

    The windows of `own` neighbouring cells have most values in common. These are sorted once; the
    others, as many in each window, are kept sorted from one window to the next. Of two sorted
    arrays the value of a given rank is the least one of the maxima of pairs.

    Where one of the windows has cells without a value, which are -1, the threads count instead
    how many values are below each one.
    """

    @device
    def full(high: Any, out: Any, low: int, radius: int, own: int) -> Any:
        """Find `own` medians from `low` on if no value is missing, and tell whether."""
        c = cuda.local.array(most_common, float32)
        e = cuda.local.array(CELLS, float32)
        rest, window = own - 1, 2 * radius + 1
        common = window - rest
        least = float32(math.inf)
        for i in range(common):
            c[i] = high[low + rest + i]
            least = min(least, c[i])
        for i in range(rest):
            e[i] = high[low + i]
            least = min(least, min(e[i], high[low + window + i]))
        if least < float32(0):
            return False
        _sort(c, common)
        _sort_few(e, rest)
        for i in range(own):
            median = c[radius]
            for j in range(rest):
                median = min(median, max(c[radius - 1 - j], e[j]))
            out[low + i] = median
            if i < rest:
                _replace(e, rest, high[low + i], high[low + window + i])
        return True

    @device
    def medians(
        high: Any, out: Any, left: Any, t: int, n_cells: int, radius: int, own: int, groups: int
    ) -> None:
        """Find those of `n_cells` cells in groups; `left` is room for a number more than groups."""
        window = 2 * radius + 1
        if t == 0:
            left[0] = 0
        cuda.syncthreads()
        for group in range(t, groups, THREADS):
            if group * own < n_cells and not full(high, out, group * own, radius, own):
                left[cuda.atomic.add(left, 0, 1) + 1] = group
        cuda.syncthreads()
        for n in range(t, left[0] * own * window, THREADS):
            cell, place = n // window, n % window
            p = left[cell // own + 1] * own + cell % own
            value = high[p + place]
            less, same, missing = int64(0), int64(0), int64(0)
            for i in range(window):
                other = high[p + i]
                less += other < value
                same += other == value
                missing += other < float32(0)
            # What is missing lies below, and the lower median in the middle of the others.
            rank = missing + (window - missing - 1) // 2
            if (less <= rank) & (rank < less + same):
                out[p] = value
        cuda.syncthreads()

    return medians


@device
def _middle_of_some(value: Any, begin: int, end: int) -> Any:
    """Return the upper median of the recorded sub-cells, -1 without any."""
    count = int64(0)
    for i in range(begin, end):
        count += value[i] >= float32(0)
    for i in range(begin, end):
        less, same = int64(0), int64(0)
        for j in range(begin, end):
            if value[j] >= float32(0) and value[j] < value[i]:
                less += 1
            same += value[j] == value[i]
        if value[i] >= float32(0) and less <= count // 2 and count // 2 < less + same:
            return value[i]
    return float32(-1)


@functools.cache
def levels_kernel(peak_cells: int, level_radius: int, noise_radius: int) -> tuple[Any, int]:
    """Return the kernel for these widths, and how many cells a block finds.

    A block takes the greatest and the middle value of its cells, and of those around that its
    medians look at, from device memory into shared memory. Then the array of the maxima becomes
    that of the running maxima, and their medians and those of the middles are found.
    """
    level_own, noise_own = min(CELLS, level_radius + 1), min(CELLS, noise_radius + 1)
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
    medians = _running_medians(
        max(2 * level_radius + 2 - level_own, 2 * noise_radius + 2 - noise_own)
    )
    level_reach, level_together = constant(level_radius), constant(level_own)
    noise_reach, noise_together = constant(noise_radius), constant(noise_own)
    level_turns, noise_turns = constant(THREADS), constant(noise_groups)

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
                inside = (begin >= 0) & (begin + PER_CELL <= value.size) & (p < width)
                for i in range(PER_CELL):
                    loaded[n * PER_CELL + i] = value[begin + i] if inside else float32(-1)
            for n in range(BATCH):
                p = low + n * THREADS
                if p < width:
                    for i in range(PER_CELL):
                        s[i] = loaded[n * PER_CELL + i]
                    _sort_few(s, _PER_CELL)
                    greatest = s[PER_CELL - 1]
                    middle = s[PER_CELL // 2]
                    if s[0] < float32(0):
                        begin = (first - before + p) * PER_CELL - head
                        end = min(begin + PER_CELL, value.size)
                        begin = max(begin, 0)
                        for i in range(begin, end):
                            greatest = max(greatest, value[i])
                        middle = _middle_of_some(value, begin, end)
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
        medians(high, maxima, left, t, level.size - first, level_reach, level_together, level_turns)
        for p in range(t, min(cells, level.size - first), THREADS):
            level[first + p] = maxima[p]
        around = middles[before - noise_radius :]
        medians(around, high, left, t, level.size - first, noise_reach, noise_together, noise_turns)
        for p in range(t, min(cells, noise.size - first), THREADS):
            noise[first + p] = high[p]

    return kernel, cells
