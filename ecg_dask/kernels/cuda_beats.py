"""The kernels that work on candidates, for CuPy arrays; the twins of `cpu_beats`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cuda, float32

from ..arrays import namespace
from .cuda_candidates import candidates
from .cuda_choose import choose
from .cuda_levels import levels
from .cuda_look import look
from .launch import launch
from .rules import APART, FAR_FLANK, NEAR_FLANK, PER_CELL, QUIET, ROOM, STRONG

__all__ = ["candidates", "choose", "levels", "look", "merits"]

#: Threads a block; each has one candidate.
THREADS = 128

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
    b = cuda.grid(1)
    if b >= at.size:
        return
    center = at[b]
    begin = b
    while begin > 0 and center - at[begin - 1] <= reach:
        begin -= 1
    count, first, last = 0, center, center
    before, behind = reach, reach
    total = float32(0)
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
