"""The kernels for NumPy arrays, compiled by Numba; the twins of `ecg_dask.kernels.cuda`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

#: Samples that are worked on while they stay in the first-level cache.
TILE = 2048


@intrinsic  # type: ignore[untyped-decorator]
def fma(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    """Multiply and add in float32 with one rounding, as ``numba.cuda.fma`` does."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float32(types.float32, types.float32, types.float32), lower


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _run_stop(x: Floats, start: int) -> int:
    """Return where the run of samples that begins at `start` ends."""
    stop = start
    while stop < x.size and x[stop] == x[stop]:
        stop += 1
    return stop


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def response(x: Floats, taps: Floats) -> Floats:
    """See `ecg_dask.kernels.response`."""
    n, k = x.size, taps.size
    w = np.full(n, np.float32(np.nan), np.float32)
    start = 0
    while start < n:
        stop = _run_stop(x, start)
        # The run's first difference with k zeros before and behind: the run as a whole record.
        d = np.zeros(stop - start + 2 * k + 1, np.float32)
        for i in range(start + 1, stop):
            d[i - start + k] = x[i] - x[i - 1]
        for low in range(start, stop, TILE):
            high = min(low + TILE, stop)
            for i in range(low, high):
                w[i] = np.float32(0)
            for m in range(k):
                tap = taps[m]
                for i in range(low, high):
                    j = i - start + k
                    w[i] = fma(tap, d[j - m] - d[j + m + 1], w[i])
        start = stop + 1
    return w


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _recorded_until(x: Floats, begin: int, limit: int) -> int:
    """Return the first missing sample from `begin` on, or `limit`."""
    stop = begin
    # Blocks first, which are told without a branch; then sample by sample.
    while stop + 64 <= limit:
        block = x[stop : stop + 64]
        missing = np.int32(0)
        for t in range(64):
            missing |= np.int32(block[t] != block[t])
        if missing:
            break
        stop += 64
    while stop < limit and x[stop] == x[stop]:
        stop += 1
    return stop


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _differences(x: Floats, start: int, stop: int, low: int, d: Floats) -> None:
    """Put ``x[j] - x[j - 1]`` for j from `low` on into `d`, zero outside the run."""
    begin, end = max(start + 1 - low, 0), min(stop - low, d.size)
    d[:begin] = 0
    d[end:] = 0
    within = d[begin:end]
    later, earlier = x[low + begin :], x[low + begin - 1 :]
    for t in range(within.size):
        within[t] = later[t] - earlier[t]


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _convolve(d: Floats, taps: Floats, w: Floats) -> None:
    """Respond to ``w.size + 2 * taps.size - 1`` differences."""
    k = taps.size
    w[:] = 0
    m = 0
    # Five taps a pass, so that a sum stays in its register; the slices begin at the earliest
    # difference of the pass, for an index that is never negative vectorizes.
    while m + 5 <= k:
        t0, t1, t2, t3, t4 = taps[m], taps[m + 1], taps[m + 2], taps[m + 3], taps[m + 4]
        before, after = d[k - 5 - m :], d[k + m :]
        for t in range(w.size):
            total = fma(t0, before[t + 4] - after[t], w[t])
            total = fma(t1, before[t + 3] - after[t + 1], total)
            total = fma(t2, before[t + 2] - after[t + 2], total)
            total = fma(t3, before[t + 1] - after[t + 3], total)
            w[t] = fma(t4, before[t] - after[t + 4], total)
        m += 5
    while m < k:
        tap, before, after = taps[m], d[k - 1 - m :], d[k + m :]
        for t in range(w.size):
            w[t] = fma(tap, before[t] - after[t], w[t])
        m += 1


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _copy(a: Floats, copied: Floats) -> None:
    for t in range(copied.size):
        copied[t] = a[t]


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _square(w: Floats, begin: int, end: int) -> None:
    """Square responses in place; those outside the run become zero."""
    w[:begin] = 0
    w[end:] = 0
    within = w[begin:end]
    for t in range(within.size):
        within[t] *= within[t]


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _add(a: Floats, b: Floats, total: Floats) -> None:
    for t in range(total.size):
        total[t] = a[t] + b[t]


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _accumulate(e: Floats, a: Floats) -> None:
    for t in range(e.size):
        e[t] += a[t]


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _window_sums(q: Floats, e: Floats, s: Floats, r: Floats) -> None:
    """Sum each window of ``q.size - e.size + 1`` values, doubling the length of partial sums.

    The length in binary says which partial sums make up the window, the shortest one first.
    """
    _copy(q, e)
    size = q.size - 1
    _add(q, q[1:], s[:size])
    length, place = 2, 1
    rest = (q.size - e.size + 1) >> 1
    while True:
        if rest & 1:
            _accumulate(e, s[place:])
            place += length
        rest >>= 1
        if not rest:
            break
        size -= length
        _add(s, s[length:], r[:size])
        s, r = r, s
        length *= 2


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _greatest_of_cells(
    e: Floats, low: int, first: int, sub: int, value: Floats, index: Integers
) -> None:
    """Take the samples from `low` on into their sub-cells' greatest value and its index."""
    c = (first + low) // sub - first // sub
    begin, end = 0, (first // sub + c + 1) * sub - first - low
    while begin < e.size:
        part = e[begin : min(end, e.size)]
        best, at = np.float32(-1), 0
        for t in range(part.size):
            # Both ways have a value, so that nothing is to be foretold.
            more = part[t] > best
            best = part[t] if more else best
            at = t if more else at
        if best > value[c]:
            value[c] = best
            index[c] = low + begin + at
        begin, end, c = end, end + sub, c + 1


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def crests(x: Floats, taps: Floats, radius: int, first: int, sub: int) -> tuple[Floats, Integers]:
    """See `ecg_dask.kernels.crests`; without taps, `x` is the response itself."""
    k = taps.size
    n_cells = (first + x.size - 1) // sub - first // sub + 1 if x.size else 0
    value = np.full(n_cells, np.float32(-1), np.float32)
    index = np.full(n_cells, -1, np.int64)
    # Whole sub-cells, and more of them the more a tile must know of its neighbours.
    tile = max(TILE, 2 * (radius + k)) // sub * sub + sub
    d = np.empty(tile + 2 * (radius + k), np.float32)
    q, s, r = np.empty_like(d), np.empty_like(d), np.empty_like(d)
    e = np.empty(tile, np.float32)
    start = 0
    while start < x.size:
        low = stop = start
        while low <= stop and low < x.size:
            high = min(((first + low) // tile + 1) * tile - first, x.size)
            # The run is followed only as far as the tile reaches, to read each sample once.
            stop = _recorded_until(x, stop, min(high + radius + k, x.size))
            high = min(high, stop)
            if high == low:
                break
            n = high - low
            begin, end = max(start - low + radius, 0), min(stop - low + radius, n + 2 * radius)
            around = q[: n + 2 * radius]
            if k:
                _differences(x, start, stop, low - radius - k + 1, d[: around.size + 2 * k - 1])
                _convolve(d, taps, around)
            else:
                _copy(x[low - radius + begin :], around[begin:end])
            _square(around, begin, end)
            _window_sums(around, e[:n], s, r)
            _greatest_of_cells(e[:n], low, first, sub, value, index)
            low = high
        start = stop + 1
    return value, index


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def cell_maxima(e: Floats, first: int, cell: int) -> Floats:
    """Return the maximum of `e` in each cell of `cell` samples, -1 where it has no sample.

    Cells lie at multiples of `cell` in absolute sample numbers and `first` is that of ``e[0]``;
    the first cell returned is ``first // cell``. Of sub-cells, cells are made in the same way:
    ``cell_maxima(value, first // sub, per_cell)``.
    """
    n_cells = (first + e.size - 1) // cell - first // cell + 1 if e.size else 0
    maxima = np.full(n_cells, np.float32(-1), np.float32)
    for c in range(n_cells):
        begin = max((first // cell + c) * cell - first, 0)
        end = min((first // cell + c + 1) * cell - first, e.size)
        for i in range(begin, end):
            if e[i] > maxima[c]:
                maxima[c] = e[i]
    return maxima


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _replace(ordered: Floats, old: Any, new: Any) -> None:
    """Replace one value of an ascending array by another and keep the order."""
    place, end = 0, ordered.size - 1
    while place < end:
        middle = (place + end) // 2
        if ordered[middle] < old:
            place = middle + 1
        else:
            end = middle
    while place + 1 < ordered.size and ordered[place + 1] < new:
        ordered[place] = ordered[place + 1]
        place += 1
    while place > 0 and ordered[place - 1] > new:
        ordered[place] = ordered[place - 1]
        place -= 1
    ordered[place] = new


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def usual_maxima(maxima: Floats, peak_cells: int, median_radius: int) -> Floats:
    """Return a running median of running maxima of cells, a value a cell.

    The running maximum of cell c is over ``c - peak_cells // 2`` and the next ``peak_cells - 1``
    cells, the median (the lower one of an even number) over cells ``c - median_radius`` to
    ``c + median_radius``. Cells without a sample (-1) take no part.
    """
    n = maxima.size
    high = np.full(n, np.float32(-1), np.float32)
    for c in range(n):
        if maxima[c] >= 0:
            begin = c - peak_cells // 2
            for j in range(max(begin, 0), min(begin + peak_cells, n)):
                high[c] = max(high[c], maxima[j])
    usual = np.full(n, np.float32(-1), np.float32)
    # The window's values in order; what is missing sorts behind them and is not counted.
    ordered = np.full(2 * median_radius + 1, np.float32(np.inf), np.float32)
    count = 0
    for c in range(-median_radius, n):
        gone, come = c - median_radius - 1, c + median_radius
        old, new = np.float32(np.inf), np.float32(np.inf)
        if gone >= 0 and high[gone] >= 0:
            old = high[gone]
            count -= 1
        if come < n and high[come] >= 0:
            new = high[come]
            count += 1
        _replace(ordered, old, new)
        if c >= 0 and count:
            usual[c] = ordered[(count - 1) // 2]
    return usual


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def summits(
    value: Floats,
    index: Integers,
    floor: Floats,
    first: int,
    sub: int,
    per_cell: int,
    spacing: int,
) -> Integers:
    """Find the crests above their cell's `floor` that no crest nearby exceeds.

    Parameters
    ----------
    value, index
        What `crests` gave for `first` and `sub`.
    floor
        float32, a value for each cell of `per_cell` sub-cells, from cell
        ``first // sub // per_cell`` on.
    first, sub
        As in `crests`.
    per_cell
        Sub-cells a cell; cells lie at multiples of it in absolute sub-cell numbers.
    spacing
        Samples within which no other crest may be greater, or equal and earlier, whatever is
        missing between them.

    Returns
    -------
    array
        int64 indices of the sub-cells, ascending.
    """
    n = value.size
    # Crests farther apart than this are more than `spacing` samples apart.
    reach = (spacing - 1) // sub + 1
    found = np.empty(n * sub // (spacing + 1) + 1, np.int64)
    count = 0
    for cell in range(floor.size):
        begin = ((first // sub) // per_cell + cell) * per_cell - first // sub
        for c in range(max(begin, 0), min(begin + per_cell, n)):
            if value[c] > floor[cell] and _stands_out(value, index, c, reach, spacing):
                found[count] = c
                count += 1
    return found[:count].copy()


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _stands_out(value: Floats, index: Integers, c: int, reach: int, spacing: int) -> bool:
    """Tell whether a crest is the first greatest one within `spacing` samples."""
    for distance in range(1, reach + 1):
        j = c - distance
        if j >= 0 and value[j] >= value[c] and index[c] - index[j] <= spacing:
            return False
        j = c + distance
        if j < value.size and value[j] > value[c] and index[j] - index[c] <= spacing:
            return False
    return True
