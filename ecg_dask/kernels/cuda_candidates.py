"""The crests that stand out, on CUDA."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import cuda, float32, int32, uint32

from ..arrays import namespace
from .cuda_select import add_up, marks, marks_before
from .launch import launch
from .rules import PER_CELL

#: Sub-cells a block and a thread of the kernel that marks.
SPAN, OWN = 2048, 8

#: Words of marks a block, and threads a block of the kernel that gathers.
WORDS, GATHERING = 64, 96
ROOM = WORDS + 1


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
    marks_before(words, block * WORDS, t, WORDS, own, ahead)
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


def _widen(size: int, length: int) -> Any:
    """Return a function that makes maxima over `length` values of those over half as many."""

    @cuda.jit(device=True)  # type: ignore[untyped-decorator]
    def widen(s: Any) -> None:
        for i in range(size - length + 1):
            s[i] = max(s[i], s[i + length // 2])

    return widen


@functools.cache
def _window_maxima(size: int, window: int) -> Any:
    """Return a function that makes the maximum of each `window` of a local array of `size`."""
    steps = []
    length = 2
    while length <= window:
        steps.append(_widen(size, length))
        length *= 2
    # The last one of two that overlap.
    rest = window - length // 2

    @cuda.jit(device=True)  # type: ignore[untyped-decorator]
    def finish(s: Any) -> None:
        if rest:
            for i in range(size - window + 1):
                s[i] = max(s[i], s[i + rest])

    def then(first: Any, second: Any) -> Any:
        @cuda.jit(device=True)  # type: ignore[untyped-decorator]
        def both(s: Any) -> None:
            first(s)
            second(s)

        return both

    return functools.reduce(then, [*steps, finish])


@functools.cache
def mark_kernel(sub: int, spacing: int) -> Any:
    """Return the kernel that marks the crests above `share` of their cell's level that stand out.

    Crests up to `sure` sub-cells away are within `spacing` samples wherever they lie in their
    sub-cells, so that their values tell. Of the few that no such one exceeds, those farther away
    are looked at with their indices.
    """
    reach = (spacing - 1) // sub + 1
    sure = max(min((spacing + 1) // sub - 1, reach), 0)
    threads = SPAN // OWN
    width = SPAN + 2 * reach
    room = width + width // OWN + 1
    rounds = -(-width // threads)
    size = OWN + 2 * sure
    maxima = _window_maxima(size, max(sure, 1))

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
        if sure > 0:
            maxima(s)
        for i in range(OWN):
            greatest = own[i] >= float32(0)
            if sure > 0:
                greatest = greatest and own[i] > s[i] and own[i] >= s[i + sure + 1]
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
                    keeps = keeps and index[c] - index[c - distance] > spacing
                p = i + reach + distance
                if near[p + p // OWN] > height:
                    keeps = keeps and index[c + distance] - index[c] > spacing
            if keeps:
                cuda.atomic.or_(bits, i // 32, uint32(1 << (i % 32)))
                cuda.atomic.add(n_left, 1, 1)
        cuda.syncthreads()
        if t < WORDS:
            words[cuda.blockIdx.x * WORDS + t] = bits[t]
        if t == 0:
            count[cuda.blockIdx.x] = n_left[1]

    return mark
