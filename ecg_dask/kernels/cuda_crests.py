"""The energy's crests on CUDA: the signal is read once, and responses and energies stay on chip."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, float32, int32, int64

from ..arrays import namespace
from .cuda_device import constant, device
from .launch import launch

#: Widest taps, radius and sub-cell that the fused kernel keeps in registers; 500 Hz has them.
MOST_TAPS, LARGEST_RADIUS, LARGEST_SUB = 32, 15, 16

#: About as many samples a thread works on. The more, the fewer are read twice.
SAMPLES = 16

#: About as many samples a block works on.
TILE = 2048

#: More values than any array in shared memory has.
NO_PAD = 1 << 62

#: Taps that are unrolled together, the first ones of each part, and lengths of partial sums.
TOGETHER = 8
_PART_1, _PART_2, _PART_3, _PART_4 = (constant(begin) for begin in range(0, MOST_TAPS, TOGETHER))
_TWO, _FOUR, _EIGHT, _SIXTEEN = (constant(2**n) for n in range(1, 5))

#: Threads a block of the kernels for wide widths, and the most that any block has.
THREADS, MOST_THREADS = 256, 1024


def crests(x: Any, taps: Any, radius: int, first: int, sub: int) -> tuple[Any, Any]:
    """See `ecg_dask.kernels.crests`; without taps, `x` is the response itself."""
    xp = namespace(x)
    offset = first % sub
    n_cells = (offset + x.size - 1) // sub + 1 if x.size else 0
    value = xp.empty(n_cells, np.float32)
    index = xp.empty(n_cells, np.int64)
    if not n_cells:
        return value, index
    if 0 < taps.size <= MOST_TAPS and radius <= LARGEST_RADIUS and sub <= LARGEST_SUB:
        fused = fused_crests(taps.tobytes(), radius, sub)
        blocks = -(-n_cells // fused.cells)
        launch(fused.kernel, blocks, fused.threads, x, offset, value, index)
        return value, index
    q = xp.empty_like(x)
    e = xp.empty_like(x)
    blocks = -(-x.size // THREADS)
    launch(_squares, blocks, THREADS, x, xp.asarray(taps), q)
    launch(_energies, blocks, THREADS, x, q, radius, e)
    launch(_greatest, -(-n_cells // THREADS), THREADS, e, offset, sub, value, index)
    return value, index


@device
def response_at(x: Any, taps: Any, i: int) -> Any:
    """Return the response at a recorded sample; see `ecg_dask.kernels.response`."""
    left, right = True, True
    w = float32(0)
    for m in range(taps.size):
        before, after = float32(0), float32(0)
        j = i - m
        left = left and j > 0 and x[j - 1] == x[j - 1]
        if left:
            before = x[j] - x[j - 1]
        j = i + m + 1
        right = right and j < x.size and x[j] == x[j]
        if right:
            after = x[j] - x[j - 1]
        w = cuda.fma(taps[m], before - after, w)
    return w


@device
def _square_at(x: Any, taps: Any, i: int) -> Any:
    """Return the square of the response at a recorded sample; without taps, `x` is that itself."""
    w = response_at(x, taps, i) if taps.size else x[i]
    return w * w


@device
def _energy_at(x: Any, q: Any, shift: int, radius: int, pad: int, i: int) -> Any:
    """Sum the squares around a recorded sample; that of sample j is number ``j - shift`` of `q`.

    One value is unused after as many as `pad`.
    """
    begin = i
    end = i
    while begin > max(i - radius, 0) and x[begin - 1] == x[begin - 1]:
        begin -= 1
    while end < min(i + radius, x.size - 1) and x[end + 1] == x[end + 1]:
        end += 1
    # halves[n] waits for its fellow of as many squares, 2 ** n.
    halves = cuda.local.array(32, float32)
    total = float32(0)
    place = i - radius
    window = 2 * radius + 1
    length = int64(1)
    while length <= window:
        if length & window:
            block = float32(0)
            for count in range(length):
                j = place + count
                p = j - shift
                block = q[p + p // pad] if begin <= j and j <= end else float32(0)
                level = int64(0)
                while (count >> level) & 1:
                    block = halves[level] + block
                    level += 1
                halves[level] = block
            total += block
            place += length
        length *= 2
    return total


@cuda.jit  # type: ignore[untyped-decorator]
def _squares(x: Any, taps: Any, q: Any) -> None:
    i = cuda.grid(1)
    if i < x.size and x[i] == x[i]:
        q[i] = _square_at(x, taps, i)


@cuda.jit  # type: ignore[untyped-decorator]
def _energies(x: Any, q: Any, radius: int, e: Any) -> None:
    i = cuda.grid(1)
    if i < x.size:
        e[i] = _energy_at(x, q, 0, radius, NO_PAD, i) if x[i] == x[i] else float32(math.nan)


@cuda.jit  # type: ignore[untyped-decorator]
def _greatest(e: Any, offset: int, sub: int, value: Any, index: Any) -> None:
    c = cuda.grid(1)
    if c >= value.size:
        return
    best = float32(-1)
    at = -1
    for i in range(max(c * sub - offset, 0), min((c + 1) * sub - offset, e.size)):
        if e[i] > best:
            best = e[i]
            at = i
    value[c] = best
    index[c] = at


class Fused(NamedTuple):
    """A kernel for certain widths, its threads a block and the sub-cells that a block finds."""

    kernel: Any
    threads: int
    cells: int


@device
def _respond(taps: Any, d: Any, w: Any, begin: int) -> None:
    """Take `TOGETHER` taps from `begin` on, if there are, into as many responses as `w` has."""
    k = taps.size
    for m in range(begin, min(begin + TOGETHER, k)):
        for r in range(w.size):
            w[r] = cuda.fma(taps[m], d[k - 1 + r - m] - d[k + r + m], w[r])


@device
def _double(s: Any, e: Any, window: int, length: int) -> None:
    """Make partial sums of `length` squares of those of half as many; some are due in `e`."""
    if window >= length:
        for c in range(e.size + window - length):
            s[c] = s[c] + s[c + length // 2]
        if window & length:
            # Shorter blocks lie before this one.
            place = window & (length - 1)
            for r in range(e.size):
                e[r] = e[r] + s[r + place]


@functools.cache
def fused_crests(
    taps: bytes, radius: int, sub: int, samples: int = SAMPLES, tile: int = TILE
) -> Fused:
    """Return the kernel for these taps (float32) and widths, about `samples` samples a thread.

    A block takes the differences of its samples into shared memory, its threads keep those around
    their own samples in registers, and exchange the squares of the responses through shared memory
    again. Every loop has a constant length and every index is known not to be negative, so that
    the compiler unrolls them and puts the arrays into registers: only so does arithmetic, and not
    addressing, set the pace.

    Where a block meets a missing sample or an end of the recording, the threads around it have
    their sums done again sample by sample, in the same order.
    """
    weights = np.frombuffer(taps, np.float32)
    k = weights.size
    per_thread = max(samples // sub, 1)
    own = per_thread * sub
    # Threads read `own` samples apart; where that is even, one unused value after as many keeps
    # them out of each other's bank of shared memory.
    padded = own % 2 == 0
    step = own + 1 if padded else own
    pad = own if padded else NO_PAD
    multiple = math.lcm(own, 32) if padded else 32
    threads = min(max(tile // own // multiple, 1) * multiple, MOST_THREADS)
    row = threads + threads // pad
    # The first and last `radius` responses are those of samples that other blocks own.
    busy = (threads * own - 2 * radius) // own
    cells = busy * per_thread
    n_differences = threads * own + 2 * k - 1
    n_rows = n_differences // threads
    rest = n_differences - n_rows * threads
    reach = own + 2 * k - 1
    room_d, room_q = n_differences + n_differences // pad + 1, threads * step
    window = own + 2 * radius
    n_ahead = (window - 1) // own
    room_touched = threads + n_ahead
    summed = constant(2 * radius + 1)
    # Threads whose differences or squares a missing sample may be among.
    far_back = (own + 2 * k - 2) // own

    @cuda.jit  # type: ignore[untyped-decorator]
    def kernel(x: Any, offset: int, value: Any, index: Any) -> None:
        d = cuda.shared.array(room_d, float32)
        q = cuda.shared.array(room_q, float32)
        touched = cuda.shared.array(room_touched, int32)
        # The masks tell the compiler that no index is negative.
        t = cuda.threadIdx.x & (MOST_THREADS - 1)
        cell = (cuda.blockIdx.x & 0x7FFFFFFF) * cells
        low = cell * sub - offset - radius - k + 1
        missing = int64(1)
        if (low >= 1) & (low + n_differences <= x.size):
            missing = int64(0)
            later = x[low:]
            earlier = x[low - 1 :]
            for n in range(n_rows):
                change = later[t + n * threads] - earlier[t + n * threads]
                missing |= change != change
                d[t + t // pad + n * row] = change
            if t < rest:
                change = later[t + n_rows * threads] - earlier[t + n_rows * threads]
                missing |= change != change
                d[t + t // pad + n_rows * row] = change
        missing = cuda.syncthreads_or(missing)
        if missing:
            around_missing(x, low, t, d, touched)

        around = cuda.local.array(reach, float32)
        w = cuda.local.array(own, float32)
        for c in range(reach):
            around[c] = d[t * step + c + c // pad]
        for r in range(own):
            w[r] = float32(0)
        shared_taps = cuda.const.array_like(weights)
        # In parts, for there is a limit to a loop that the compiler unrolls.
        _respond(shared_taps, around, w, _PART_1)
        _respond(shared_taps, around, w, _PART_2)
        _respond(shared_taps, around, w, _PART_3)
        _respond(shared_taps, around, w, _PART_4)
        for r in range(own):
            q[t * step + r] = w[r] * w[r]
        cuda.syncthreads()
        if missing:
            squares_singly(x, low + k - 1, t, q, touched)

        if t < busy:
            s = cuda.local.array(window, float32)
            e = cuda.local.array(own, float32)
            for c in range(window):
                s[c] = q[t * step + c + c // pad]
            for r in range(own):
                e[r] = s[r]
            _double(s, e, summed, _TWO)
            _double(s, e, summed, _FOUR)
            _double(s, e, summed, _EIGHT)
            _double(s, e, summed, _SIXTEEN)
            for c in range(per_thread):
                best = float32(-1)
                at = int64(0)
                for r in range(sub):
                    if e[c * sub + r] > best:
                        best = e[c * sub + r]
                        at = r
                this = cell + t * per_thread + c
                if this < value.size:
                    value[this] = best
                    index[this] = this * sub - offset + at
        if missing:
            cuda.syncthreads()
            crests_singly(x, offset, value, index, q, cell, t, touched)

    @device
    def around_missing(x: Any, low: int, t: int, d: Any, touched: Any) -> None:
        """Make the differences beside missing samples zero, and note the threads that meet them."""
        for p in range(t, room_touched, threads):
            touched[p] = 0
        cuda.syncthreads()
        for p in range(t, n_differences, threads):
            i = low + p
            change = float32(math.nan)
            if (i >= 1) & (i < x.size):
                change = x[i] - x[i - 1]
            if change != change:
                change = float32(0)
                for back in range(far_back + 1):
                    thread = p // own - back
                    if (thread >= 0) & (thread < threads):
                        touched[thread] = 1
            d[p + p // pad] = change
        cuda.syncthreads()

    @device
    def squares_singly(x: Any, low: int, t: int, q: Any, touched: Any) -> None:
        """Replace the squares of threads that met missing samples."""
        shared_taps = cuda.const.array_like(weights)
        for p in range(t, threads * own, threads):
            if touched[p // own]:
                i = low + p
                recorded = i >= 0 and i < x.size and x[i] == x[i]
                q[p + p // pad] = _square_at(x, shared_taps, i) if recorded else float32(0)
        cuda.syncthreads()

    @device
    def crests_singly(
        x: Any, offset: int, value: Any, index: Any, q: Any, cell: int, t: int, touched: Any
    ) -> None:
        """Replace the crests of threads whose squares may be of more than one run."""
        low = cell * sub - offset - radius
        for c in range(t, min(cells, value.size - cell), threads):
            thread = c // per_thread
            mixed = int64(touched[thread])
            for ahead in range(1, n_ahead + 1):
                mixed |= touched[thread + ahead]
            if mixed:
                best = float32(-1)
                at = int64(-1)
                begin = (cell + c) * sub - offset
                for i in range(max(begin, 0), min(begin + sub, x.size)):
                    if x[i] == x[i]:
                        e = _energy_at(x, q, low, radius, pad, i)
                        if e > best:
                            best = e
                            at = i
                value[cell + c] = best
                index[cell + c] = at

    return Fused(kernel, threads, cells)
