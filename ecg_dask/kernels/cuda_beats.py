"""The kernels that work on candidates, for CuPy arrays; the twins of `cpu_beats`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cuda, float32, int64

from ..arrays import namespace
from .cuda_candidates import candidates
from .cuda_choose import choose
from .cuda_levels import levels
from .cuda_look import look
from .launch import launch
from .rules import APART, FAR_FLANK, NEAR_FLANK, PER_CELL, QUIET, ROOM, STRONG

__all__ = ["candidates", "choose", "levels", "look", "merits"]

#: Threads a block; each has one candidate. Candidates on either side that a block knows too: of
#: 250 Hz and the defaults, all that may be within reach.
THREADS, AROUND = 128, 40
WIDTH = THREADS + 2 * AROUND

# Typed, so that no product becomes a float64.
_STRONG, _QUIET, _APART, _ROOM = (np.float32(value) for value in (STRONG, QUIET, APART, ROOM))


def merits(
    value: Any,
    level: Any,
    noise: Any,
    summit: Any,
    at: Any,
    sharpness: Any,
    head: int,
    reach: int,
    sure: float,
) -> Any:
    """See `ecg_dask.kernels.merits`."""
    share, alone, first, second = (namespace(at).empty(at.size, np.float32) for _ in range(4))
    blocks = -(-at.size // THREADS)
    launch(_standing, blocks, THREADS, value, level, noise, summit, head, sharpness, share, alone)
    launch(_among_neighbours, blocks, THREADS, at, share, _STRONG, sharpness, alone, reach, first)
    least = np.float32(sure)
    launch(_among_neighbours, blocks, THREADS, at, first, least, sharpness, alone, reach, second)
    return second


@cuda.jit  # type: ignore[untyped-decorator]
def _standing(
    value: Any,
    level: Any,
    noise: Any,
    summit: Any,
    head: int,
    sharpness: Any,
    share: Any,
    alone: Any,
) -> None:
    """Find each candidate's share of the level, and its merit as far as it stands alone."""
    b = cuda.grid(1)
    if b >= summit.size:
        return
    one = float32(1)
    s = summit[b]
    cell = (head + s) // PER_CELL
    full = level[cell]
    if not full > float32(0):
        # Where all around is silent, the candidate is its own measure.
        full = value[s]
    flank = float32(0)
    for distance in range(NEAR_FLANK, FAR_FLANK + 1):
        if s - distance >= 0:
            flank = max(flank, value[s - distance])
        if s + distance < value.size:
            flank = max(flank, value[s + distance])
    quiet = max(noise[cell], float32(0)) / full + _QUIET
    own = value[s] / full
    share[b] = own
    sharp = float32(math.sqrt(min(sharpness[b], one)))
    crowd = one + float32(math.sqrt(flank / full))
    alone[b] = own * sharp / (float32(math.sqrt(quiet)) * crowd)


@cuda.jit  # type: ignore[untyped-decorator]
def _among_neighbours(
    at: Any, strength: Any, least: Any, sharpness: Any, alone: Any, reach: int, merit: Any
) -> None:
    """Find each candidate's merit among those whose strength exceeds `least`."""
    # The block's candidates and those around; the sharpness of a weak one is -1.
    near_at = cuda.shared.array(WIDTH, int64)
    near_sharp = cuda.shared.array(WIDTH, float32)
    t = cuda.threadIdx.x
    low = cuda.blockIdx.x * THREADS - AROUND
    for p in range(t, WIDTH, THREADS):
        j = min(max(low + p, 0), at.size - 1)
        near_at[p] = at[j]
        near_sharp[p] = sharpness[j] if strength[j] > least else float32(-1)
    cuda.syncthreads()
    b = cuda.grid(1)
    if b >= at.size:
        return
    first_near, end_near = max(-low, 0), min(WIDTH, at.size - low)
    p = t + AROUND
    center = near_at[p]
    begin = p
    while begin > first_near and center - near_at[begin - 1] <= reach:
        begin -= 1
    end = p + 1
    while end < end_near and near_at[end] - center <= reach:
        end += 1
    whole = (begin > first_near or low <= 0) and (end < end_near or low + WIDTH >= at.size)
    count = int64(0)
    first, last = center, center
    before, behind = reach, reach
    total = float32(0)
    if whole:
        for j in range(begin, p):
            if near_sharp[j] >= float32(0):
                if count == 0:
                    first = near_at[j]
                before = center - near_at[j]
                count += 1
                total += near_sharp[j]
        if near_sharp[p] >= float32(0):
            count += 1
            total += near_sharp[p]
        elif count:
            last = center - before
        for j in range(p + 1, end):
            if near_sharp[j] >= float32(0):
                last = near_at[j]
                if behind == reach:
                    behind = last - center
                if count == 0:
                    first = last
                count += 1
                total += near_sharp[j]
    else:
        begin = b
        while begin > 0 and center - at[begin - 1] <= reach:
            begin -= 1
        j = begin
        while j < at.size and at[j] - center <= reach:
            if strength[j] > least:
                if count == 0:
                    first = at[j]
                last = at[j]
                count += 1
                total += sharpness[j]
                if j < b:
                    before = center - at[j]
                elif j > b and behind == reach:
                    behind = at[j] - center
            j += 1
    own = alone[b]
    if count > 1:
        mean = float32(last - first) / float32(count - 1)
        own *= min(float32(min(before, behind)) / mean, _APART)
        own *= min(float32(before + behind) / mean, _ROOM)
    if total > float32(0):
        likeness = min(sharpness[b] * float32(count) / total, float32(1))
        root = float32(math.sqrt(likeness))
        own *= root * float32(math.sqrt(root))
    merit[b] = own
