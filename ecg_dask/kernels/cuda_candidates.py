"""The crests that stand out, on CUDA."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import cuda, float32, int32, uint32

from ..arrays import namespace
from .cuda_device import constant, device
from .cuda_select import add_up, marks, marks_before
from .launch import launch
from .rules import PER_CELL

#: Sub-cells a block and a thread of the kernel that marks.
SPAN, OWN = 2048, 8

#: Words of marks a block, and threads a block of the kernel that gathers.
WORDS, GATHERING = 64, 96
ROOM = WORDS + 1
_WORDS = constant(WORDS)

#: Steps in which maxima are found in registers, and most sub-cells that they are of.
STEPS = 5
MOST_SURE = 2**STEPS


def candidates(
    value: Any, index: Any, level: Any, share: float, head: int, sub: int, spacing: int
) -> tuple[Any, Any, Any]:
    """See `ecg_dask.kernels.candidates`."""
    xp = namespace(value)
    words, count = marks(value, value.size, SPAN)
    mark = mark_kernel(sub, spacing)
    launch(
        mark, count.size, SPAN // OWN, value, index, level, np.float32(share), head, words, count
    )
    before, total = add_up(count)
    summit = xp.empty(total, np.int64)
    at = xp.empty(total, np.int64)
    energy = xp.empty(total, np.float32)
    blocks = count.size if total else 0
    launch(_gather, blocks, GATHERING, words, before, value, index, summit, at, energy)
    return summit, at, energy


@cuda.jit  # type: ignore[untyped-decorator]
def _gather(
    words: Any, before: Any, value: Any, index: Any, summit: Any, at: Any, energy: Any
) -> None:
    """Write the marked sub-cells of a block of them, a thread those of a word."""
    own = cuda.shared.array(ROOM, int32)
    ahead = cuda.shared.array(ROOM, int32)
    t = cuda.threadIdx.x
    block = cuda.blockIdx.x
    marks_before(words, block * WORDS, t, _WORDS, own, ahead)
    if t < WORDS:
        n = before[block] + ahead[t]
        word = words[block * WORDS + t]
        while word:
            bit = cuda.ffs(word) - 1
            word &= word - uint32(1)
            c = block * SPAN + t * 32 + bit
            summit[n] = c
            at[n] = index[c]
            energy[n] = value[c]
            n += 1


@device
def _widen(s: Any, count: int, distance: int) -> None:
    """Raise each of the first `count` values to the one that is `distance` behind it."""
    for i in range(count):
        s[i] = max(s[i], s[i + distance])


def _steps(size: int, window: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return counts and distances for `_widen` to find the maximum of each `window` of `size`.

    Each step makes maxima over twice as many values; those of the last one overlap.
    """
    steps = []
    length = 1
    while length < window:
        distance = min(length, window - length)
        length += distance
        steps.append((size - length + 1, distance))
    steps += [(0, 0)] * (STEPS - len(steps))
    counts, distances = zip(*steps, strict=True)
    return tuple(map(constant, counts)), tuple(map(constant, distances))


@functools.cache
def mark_kernel(sub: int, spacing: int) -> Any:
    """Return the kernel that marks the crests above `share` of their cell's level that stand out.

    Crests up to `sure` sub-cells away are within `spacing` samples wherever they lie in their
    sub-cells, so that their values tell. Of the few that no such one exceeds, those farther away
    are looked at with their indices.
    """
    reach = (spacing - 1) // sub + 1
    sure = max(min((spacing + 1) // sub - 1, reach, MOST_SURE), 0)
    threads = SPAN // OWN
    width = SPAN + 2 * reach
    room = width + width // OWN + 1
    rounds = -(-width // threads)
    size = OWN + 2 * sure
    counts, distances = _steps(size, sure)

    @cuda.jit  # type: ignore[untyped-decorator]
    def mark(
        value: Any, index: Any, level: Any, share: Any, head: int, words: Any, count: Any
    ) -> None:
        near = cuda.shared.array(room, float32)
        left = cuda.shared.array(SPAN, int32)
        bits = cuda.shared.array(WORDS, uint32)
        n_left = cuda.shared.array(2, int32)
        t = cuda.threadIdx.x & (threads - 1)
        first = cuda.blockIdx.x * SPAN
        if t < WORDS:
            bits[t] = 0
        if t < 2:
            n_left[t] = 0
        low = first - reach
        # All loads first, so that they are under way together.
        loaded = cuda.local.array(rounds, float32)
        for n in range(rounds):
            p = t + n * threads
            c = low + p
            inside = c >= 0 and c < value.size and p < width
            loaded[n] = value[c] if inside else float32(-1)
        for n in range(rounds):
            p = t + n * threads
            if p < width:
                near[p + p // OWN] = loaded[n]
        cuda.syncthreads()

        # Whether there is anything, and whether it is the first greatest one.
        s = cuda.local.array(size, float32)
        own = cuda.local.array(OWN, float32)
        at = t * OWN + reach - sure
        for i in range(size):
            s[i] = near[at + i + (at + i) // OWN]
        for i in range(OWN):
            own[i] = s[i + sure]
        _widen(s, counts[0], distances[0])
        _widen(s, counts[1], distances[1])
        _widen(s, counts[2], distances[2])
        _widen(s, counts[3], distances[3])
        _widen(s, counts[4], distances[4])
        for i in range(OWN):
            greatest = own[i] >= float32(0)
            if sure > 0:
                greatest &= (own[i] > s[i]) & (own[i] >= s[i + sure + 1])
            if greatest:
                left[cuda.atomic.add(n_left, 0, 1)] = t * OWN + i
        cuda.syncthreads()

        for n in range(t, n_left[0], threads):
            i = left[n]
            c = first + i
            p = i + reach
            height = near[p + p // OWN]
            keeps = height > share * level[(head + c) // PER_CELL]
            for distance in range(sure + 1, reach + 1):
                p = i + reach - distance
                if near[p + p // OWN] >= height:
                    keeps &= index[c] - index[c - distance] > spacing
                p = i + reach + distance
                if near[p + p // OWN] > height:
                    keeps &= index[c + distance] - index[c] > spacing
            if keeps:
                cuda.atomic.or_(bits, i // 32, uint32(1 << (i % 32)))
                cuda.atomic.add(n_left, 1, 1)
        cuda.syncthreads()
        if t < WORDS:
            words[cuda.blockIdx.x * WORDS + t] = bits[t]
        if t == 0:
            count[cuda.blockIdx.x] = n_left[1]

    return mark
