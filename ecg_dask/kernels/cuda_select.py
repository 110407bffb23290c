"""Selecting on CUDA: blocks mark items and count them, one block adds up, items find their place.

A block marks an item in bit ``i % 32`` of word ``i // 32``. Its words lie behind those of the block
before, and it writes the number of its marks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda, int64

from ..arrays import namespace
from .cuda_device import device
from .launch import launch

#: Threads of the block that adds up, and of those whose sums are added together first.
ADDING, TOGETHER = 512, 32
GROUPS = ADDING // TOGETHER

#: Of a count, the marks are the lower half, and something else may be counted in the upper one.
LOWER = 0xFFFFFFFF


def marks(like: Any, n_items: int, span: int) -> tuple[Any, Any]:
    """Return room for the words and the counts of blocks of `span` items."""
    xp = namespace(like)
    blocks = -(-n_items // span)
    return xp.empty(blocks * (span // 32), np.uint32), xp.empty(blocks, np.int64)


def add_up(count: Any) -> tuple[Any, int]:
    """Return what was counted before each block, and in all; waits for it."""
    xp = namespace(count)
    before = xp.empty_like(count)
    total = xp.empty(1, np.int64)
    launch(_add_up, 1, ADDING, count, before, total)
    return before, int(total.item())


@cuda.jit  # type: ignore[untyped-decorator]
def _add_up(count: Any, before: Any, total: Any) -> None:
    sums = cuda.shared.array(ADDING, int64)
    group = cuda.shared.array(GROUPS, int64)
    t = cuda.threadIdx.x
    share = (count.size + ADDING - 1) // ADDING
    begin, end = min(t * share, count.size), min((t + 1) * share, count.size)
    own = int64(0)
    for i in range(begin, end):
        own += count[i]
    sums[t] = own
    cuda.syncthreads()
    if t < GROUPS:
        own = int64(0)
        for i in range(t * TOGETHER, (t + 1) * TOGETHER):
            own += sums[i]
        group[t] = own
    cuda.syncthreads()
    own = int64(0)
    for i in range(t // TOGETHER):
        own += group[i]
    for i in range(t // TOGETHER * TOGETHER, t):
        own += sums[i]
    for i in range(begin, end):
        before[i] = own
        own += count[i]
    if t == ADDING - 1:
        total[0] = own


@device
def marks_before(words: Any, first: int, t: int, n: int, own: Any, ahead: Any) -> None:
    """Put the number of marks in the words from `first` on before the t-th one into ``ahead[t]``.

    A thread has one of `n` words; ``ahead[n]`` gets the number of all. `own` is as long as `ahead`,
    both in shared memory.
    """
    if t < n:
        own[t] = cuda.popc(words[first + t])
    cuda.syncthreads()
    if t <= n:
        sum_before = int64(0)
        for i in range(t):
            sum_before += own[i]
        ahead[t] = sum_before
    cuda.syncthreads()
