"""The kernels that look for spans, for NumPy arrays; the twins of `cuda_spans`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .cpu import Floats, Integers
from .rules import PER_CELL

Bytes = NDArray[np.int8]


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _few_reach(
    low: Floats, high: Floats, begin: int, end: int, level: Any, upper: bool, share: Any
) -> bool:
    """Tell whether none of the cells goes beyond a level, and few that change reach it."""
    some, reach = 0, 0
    for c in range(begin, end):
        if high[c] > level if upper else low[c] < level:
            return False
        if low[c] < high[c]:
            some += 1
            reach += high[c] >= level if upper else low[c] <= level
    return some > 0 and np.float32(reach) <= share * np.float32(some)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _rails(
    low: Floats,
    high: Floats,
    begin: Integers,
    length: int,
    upper: Floats,
    lower: Floats,
    share: Any,
) -> Bytes:
    rail = np.zeros(begin.size, np.int8)
    for b in range(begin.size):
        first, end = max(begin[b], 0), min(begin[b] + length, low.size)
        if _few_reach(low, high, first, end, upper[b], True, share):
            rail[b] |= 1
        if _few_reach(low, high, first, end, lower[b], False, share):
            rail[b] |= 2
    return rail


def rails(
    low: Floats,
    high: Floats,
    begin: Integers,
    length: int,
    upper: Floats,
    lower: Floats,
    share: float,
) -> Bytes:
    """See `ecg_dask.kernels.rails`."""
    rail: Bytes = _rails(low, high, begin, length, upper, lower, np.float32(share))
    return rail


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _next_part(x: Floats, level: Any, i: int, end: int, plateau: int) -> tuple[int, int]:
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


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _least_step(x: Floats, begin: int, end: int) -> Any:
    """Return the least step between neighbours in ``x[begin:end]`` that is not zero."""
    least = np.float32(np.inf)
    for i in range(begin + 1, end):
        step = abs(x[i] - x[i - 1])
        if step > 0 and step < least:
            least = step
    return least


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _left(x: Floats, level: Any, beside: int, away: int, height: Any) -> bool:
    """Tell whether the signal leaves its level at `beside`, and is far from it at `away`."""
    if 0 <= beside < x.size and x[beside] == level:
        return False
    return 0 <= away < x.size and abs(x[away] - level) >= height


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _plateaus(
    x: Floats,
    first: int,
    cell: int,
    upper: Floats,
    lower: Floats,
    rail: Bytes,
    plateau: int,
    entry: int,
    steep: Any,
    found: Any,
) -> int:
    """Put the parts of plateaus into the columns of `found`, as many as it has, and count all."""
    count = 0
    for side in range(2):
        levels = lower if side else upper
        for c in range(rail.size):
            if not rail[c] & (1 << side):
                continue
            level = levels[c]
            begin = first + c * cell
            end = min(begin + cell, x.size)
            around = plateau + entry
            height = np.float32(-1)
            start, stop = _next_part(x, level, begin, end, plateau)
            while start < stop:
                if count < found.shape[1]:
                    if height < 0:
                        low, high = max(begin - around, 0), min(begin + cell + around, x.size)
                        height = steep * _least_step(x, low, high)
                    is_steep = _left(x, level, start - 1, start - entry, height)
                    is_steep |= _left(x, level, stop, stop - 1 + entry, height)
                    found[0, count], found[1, count] = start, stop
                    found[2, count], found[3, count] = level, is_steep
                count += 1
                start, stop = _next_part(x, level, stop, end, plateau)
    return count


def plateaus(
    x: Floats,
    first: int,
    cell: int,
    upper: Floats,
    lower: Floats,
    rail: Bytes,
    plateau: int,
    entry: int,
    steep: float,
) -> NDArray[np.float64]:
    """See `ecg_dask.kernels.plateaus`."""
    asked = x, first, cell, upper, lower, rail, plateau, entry, np.float32(steep)
    found = np.empty((4, _plateaus(*asked, np.empty((4, 0)))))
    _plateaus(*asked, found)
    return found


def noisy(
    crests: Floats,
    radius: int,
    pause: int,
    quiet: float,
    faint: float,
    rhythm: tuple[int, int],
    regularity: float,
) -> Bytes:
    """See `ecg_dask.kernels.noisy`."""
    width, infinite = 2 * radius + 1, np.float32(np.inf)
    loud = _of_cells(np.maximum, crests)
    quietest = _of_cells(np.minimum, np.where(crests < 0, infinite, crests))
    recorded = loud >= 0
    loudest = _running(np.maximum, _around(loud, radius, -1), width)
    floor = np.float32(quiet) * loudest
    padded = _around(np.where(recorded, quietest, np.float32(-1)), radius, -1)
    spread, seen = _counted(padded, np.maximum(floor, np.float32(0)), width)
    far = _running(np.maximum, _around(loud, pause, -1), 2 * pause + 1)
    mask = recorded & (2 * spread > seen) & (seen > radius) & (loudest > 0)
    mask &= loudest >= np.float32(faint) * far
    if mask.any():
        mask = _irregular(crests, mask, loudest, radius, *rhythm, np.float32(regularity))
    # Of most recordings there is none.
    if not mask.any():
        return np.zeros(loud.size, np.int8)
    floor = np.where(mask, floor, infinite)
    lowest = _running(np.minimum, _around(floor, radius, np.inf), width)
    restless = recorded & (quietest >= lowest) & (lowest < infinite)
    told: Bytes = mask.astype(np.int8) + np.int8(2) * restless
    return told


def _of_cells(combine: Any, crests: Floats) -> Floats:
    """Combine the sub-cells of each cell, neighbours first: faster than along so short an axis."""
    values = crests
    while values.size * PER_CELL > crests.size:
        values = combine(values[::2], values[1::2])
    return values


def _around(cells: Floats, radius: int, outside: float) -> Floats:
    """Return `cells` with `radius` more on either side."""
    fill = np.full(radius, outside, cells.dtype)
    return np.concatenate([fill, cells, fill])


def _running(combine: Any, values: Floats, width: int) -> Floats:
    """Combine each `width` neighbours: ``width - 1`` values fewer."""
    have = 1
    while 2 * have <= width:
        values = combine(values[:-have], values[have:])
        have *= 2
    rest = width - have
    return combine(values[:-rest], values[rest:]) if rest else values


def _counted(quiet: Floats, floor: Floats, width: int) -> tuple[Any, Any]:
    """Count how many of the `width` values from each on are at least its floor, and at least 0."""
    spread, seen = np.zeros(floor.size, np.int16), np.zeros(floor.size, np.int16)
    for shift in range(width):
        beside = quiet[shift : shift + floor.size]
        spread += beside >= floor
        seen += beside >= 0
    return spread, seen


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _irregular(
    crests: Floats, mask: Any, loudest: Floats, radius: int, first: int, last: int, regularity: Any
) -> Any:
    """Return those cells of `mask` around which energy does not repeat itself."""
    window = (2 * radius + 1) * PER_CELL
    found = np.zeros_like(mask)
    values = np.empty(window, np.int32)
    for c in np.flatnonzero(mask):
        # In units of an infinite one there is nothing to be told.
        if loudest[c] == np.inf:
            found[c] = True
            continue
        total = np.int32(0)
        begin = (c - radius) * PER_CELL
        for i in range(window):
            j = begin + i
            # A missing sub-cell counts as quiet.
            energy = max(crests[j], np.float32(0)) if 0 <= j < crests.size else np.float32(0)
            values[i] = np.int32(np.rint(np.float32(255) * np.sqrt(energy / loudest[c])))
            total += values[i]
        values -= total // window
        power, best = _product(values, values), np.int32(0)
        for lag in range(first, last + 1):
            best = max(best, _product(values[:-lag], values[lag:]))
        found[c] = np.float32(best) < regularity * np.float32(power)
    return found


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _product(one: Any, other: Any) -> Any:
    total = np.int32(0)
    for i in range(one.size):
        total += one[i] * other[i]
    return total
