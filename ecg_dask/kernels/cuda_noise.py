"""The cells around which energy is spread without rhythm, on CUDA."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba import cuda, float32, int32

from ..arrays import namespace
from .launch import launch
from .rules import PER_CELL

#: Threads a block, each of which has one cell; and of the blocks that have one cell each.
THREADS, ON_ONE = 128, 32


def noisy(
    crests: Any,
    radius: int,
    pause: int,
    quiet: float,
    faint: float,
    rhythm: tuple[int, int],
    regularity: float,
) -> Any:
    """See `ecg_dask.kernels.noisy`."""
    xp = namespace(crests)
    n_cells = crests.size // PER_CELL
    loud, quietest, loudest, floor = (xp.empty(n_cells, np.float32) for _ in range(4))
    told, restless = xp.empty(n_cells, np.int8), xp.empty(n_cells, np.int8)
    blocks = -(-n_cells // THREADS)
    launch(_bounds, blocks, THREADS, crests, loud, quietest)
    shares = np.float32(quiet), np.float32(faint)
    launch(_spread, blocks, THREADS, loud, quietest, radius, pause, *shares, loudest, floor, told)
    kernel, least = rhythm_kernel(radius, *rhythm), np.float32(regularity)
    launch(kernel, n_cells, ON_ONE, crests, loudest, least, floor, told)
    launch(_restless, blocks, THREADS, quietest, floor, told, radius, restless)
    return restless


@cuda.jit  # type: ignore[untyped-decorator]
def _bounds(crests: Any, loud: Any, quietest: Any) -> None:
    """Find each cell's greatest and least recorded crest, -1 without any."""
    c = cuda.grid(1)
    if c >= loud.size:
        return
    most, least = float32(-1), float32(math.inf)
    for i in range(c * PER_CELL, (c + 1) * PER_CELL):
        energy = crests[i]
        if energy >= float32(0):
            most = max(most, energy)
            least = min(least, energy)
    loud[c] = most
    quietest[c] = least if most >= float32(0) else float32(-1)


@cuda.jit  # type: ignore[untyped-decorator]
def _spread(
    loud: Any,
    quietest: Any,
    radius: int,
    pause: int,
    quiet: Any,
    faint: Any,
    loudest: Any,
    floor: Any,
    told: Any,
) -> None:
    """Tell the cells around which energy is spread; the floor of others is infinite."""
    c = cuda.grid(1)
    if c >= loud.size:
        return
    most, far = float32(-1), float32(-1)
    for i in range(max(c - radius, 0), min(c + radius + 1, loud.size)):
        most = max(most, loud[i])
    for i in range(max(c - pause, 0), min(c + pause + 1, loud.size)):
        far = max(far, loud[i])
    own = quiet * most
    least = max(own, float32(0))
    spread, seen = int32(0), int32(0)
    for i in range(max(c - radius, 0), min(c + radius + 1, loud.size)):
        if quietest[i] >= least:
            spread += int32(1)
        if quietest[i] >= float32(0):
            seen += int32(1)
    is_spread = loud[c] >= float32(0) and 2 * spread > seen and seen > radius
    is_spread = is_spread and most > float32(0) and most >= faint * far
    loudest[c] = most
    floor[c] = own if is_spread else float32(math.inf)
    told[c] = 1 if is_spread else 0


@functools.cache
def rhythm_kernel(radius: int, first: int, last: int) -> Any:
    """Return the kernel that takes back the cells around which energy repeats itself.

    A block has one cell, a thread an interval or two.
    """
    room = (2 * radius + 1) * PER_CELL
    n_lags = last - first + 1
    room_lags = n_lags + 1

    @cuda.jit  # type: ignore[untyped-decorator]
    def kernel(crests: Any, loudest: Any, regularity: Any, floor: Any, told: Any) -> None:
        values = cuda.shared.array(room, int32)
        products = cuda.shared.array(room_lags, int32)
        t = cuda.threadIdx.x
        c = cuda.blockIdx.x
        most = loudest[c]
        # In units of an infinite one there is nothing to be told.
        if told[c] == 0 or most == float32(math.inf):
            return
        begin = (c - radius) * PER_CELL
        for i in range(t, room, ON_ONE):
            j = begin + i
            # A missing sub-cell counts as quiet.
            energy = float32(0)
            if j >= 0 and j < crests.size:
                energy = max(crests[j], energy)
            values[i] = round(float32(255) * float32(math.sqrt(energy / most)))
        cuda.syncthreads()
        total = int32(0)
        for i in range(room):
            total += values[i]
        mean = total // int32(room)
        # Of no distance, which is the power, and of each interval.
        for k in range(t, room_lags, ON_ONE):
            lag = first + k - 1 if k else 0
            product = int32(0)
            for i in range(room - lag):
                product += (values[i] - mean) * (values[i + lag] - mean)
            products[k] = product
        cuda.syncthreads()
        if t == 0:
            best = int32(0)
            for k in range(1, room_lags):
                best = max(best, products[k])
            if float32(best) >= regularity * float32(products[0]):
                told[c] = 0
                floor[c] = float32(math.inf)

    return kernel


@cuda.jit  # type: ignore[untyped-decorator]
def _restless(quietest: Any, floor: Any, told: Any, radius: int, restless: Any) -> None:
    """Tell what is noisy, and what is as restless as noise within the radius."""
    c = cuda.grid(1)
    if c >= told.size:
        return
    lowest = float32(math.inf)
    for i in range(max(c - radius, 0), min(c + radius + 1, told.size)):
        lowest = min(lowest, floor[i])
    own = quietest[c]
    as_noise = own >= float32(0) and own >= lowest and lowest < float32(math.inf)
    restless[c] = told[c] + (2 if as_noise else 0)
