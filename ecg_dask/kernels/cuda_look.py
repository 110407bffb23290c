"""A narrower and a wider look at candidates, on CUDA."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from numba import boolean, cuda, float32, int32, int64

from ..arrays import namespace
from .cuda_device import constant, device
from .launch import launch

#: Widest taps and radius that the kernel keeps in registers; 500 Hz has them.
MOST_TAPS, LARGEST_RADIUS = 48, 32

#: Threads a block, samples a thread, taps that are unrolled at a time, and loads under way.
THREADS, OWN, TOGETHER, LOADS = 128, 8, 4, 24
_FIRST, _SECOND, _THIRD = (constant(begin) for begin in range(0, MOST_TAPS, 4 * TOGETHER))


def look(x: Any, narrow: Any, taps: Any, wide: Any, at: Any, radius: int) -> tuple[Any, Any, Any]:
    """See `ecg_dask.kernels.look`."""
    xp = namespace(x)
    sharpness = xp.empty(at.size, np.float32)
    position = xp.empty(at.size, np.int64)
    at_edge = xp.empty(at.size, bool)
    found = (sharpness, position, at_edge)
    if max(narrow.size, taps.size, wide.size) <= MOST_TAPS and radius <= LARGEST_RADIUS:
        near = near_look(narrow.tobytes(), taps.tobytes(), wide.tobytes(), radius)
        blocks = -(-at.size // near.candidates)
        launch(near.kernel, blocks, THREADS, x, at, *found)
        return found
    kernels = (xp.asarray(half) for half in (narrow, taps, wide))
    launch(_look_far, at.size, THREADS, x, *kernels, at, radius, *found)
    return found


class Near(NamedTuple):
    """A kernel for certain taps and radius, and the candidates a block."""

    kernel: Any
    candidates: int


@device
def _take(taps: Any, k: int, begin: int, d: Any, w: Any) -> None:
    """Take `TOGETHER` taps of three kernels from `begin` on into `OWN` responses each.

    The widest one has `k`. What a tap is multiplied by is the same for all three.
    """
    taps_1, taps_2, taps_3 = taps
    w_1, w_2, w_3 = w
    for m in range(begin, min(begin + TOGETHER, k)):
        for r in range(OWN):
            change = d[k - 1 + r - m] - d[k + r + m]
            if m < taps_1.size:
                w_1[r] = cuda.fma(taps_1[m], change, w_1[r])
            if m < taps_2.size:
                w_2[r] = cuda.fma(taps_2[m], change, w_2[r])
            if m < taps_3.size:
                w_3[r] = cuda.fma(taps_3[m], change, w_3[r])


@device
def _respond(taps: Any, k: int, begin: int, d: Any, w: Any) -> None:
    """Take four times as many, in parts: there is a limit to a loop that the compiler unrolls."""
    _take(taps, k, begin, d, w)
    _take(taps, k, begin + TOGETHER, d, w)
    _take(taps, k, begin + 2 * TOGETHER, d, w)
    _take(taps, k, begin + 3 * TOGETHER, d, w)


@functools.cache
def near_look(narrow: bytes, taps: bytes, wide: bytes, radius: int) -> Near:
    """Return the kernel for these taps (float32) and this radius.

    A candidate's samples are a row in shared memory, in which what lies outside its run is as high
    as the run's end: the differences there are zero. A few threads share a candidate; each makes
    the responses at `OWN` samples from differences in registers.
    """
    halves = [np.frombuffer(half, np.float32) for half in (narrow, taps, wide)]
    k = max(half.size for half in halves)
    sharing = -(-(2 * radius + 1) // OWN)
    candidates = THREADS // sharing
    length = sharing * OWN + 2 * k
    # An odd length keeps threads out of each other's bank of shared memory.
    step = length | 1
    room = candidates * step
    warps = THREADS // 32
    rounds = -(-length // 32)
    # Candidates whose samples a warp loads together, and values a thread that makes.
    batch = max(min(LOADS // rounds, candidates // warps), 1)
    in_flight = batch * rounds
    center = radius + k
    window = OWN + 2 * k - 1
    taps_1, taps_2, taps_3 = halves
    longest = constant(k)

    @device
    def load(x: Any, begin: Any, n_here: int, t: int, row: Any, start: Any, stop: Any) -> Any:
        """Take the candidates' samples, mark their runs' ends, and tell whether any is missing."""
        missing = int64(0)
        lane = t & 31
        value = cuda.local.array(in_flight, float32)
        for low in range(t // 32, candidates, warps * batch):
            # All loads first, so that they are under way together.
            for c in range(batch):
                b = min(low + c * warps, n_here - 1)
                for n in range(rounds):
                    o = lane + 32 * n
                    i = begin[b] + o
                    inside = (i >= 0) & (i < x.size) & (o < length)
                    value[c * rounds + n] = x[i] if inside else float32(math.nan)
            for c in range(batch):
                b = low + c * warps
                for n in range(rounds):
                    o = lane + 32 * n
                    height = value[c * rounds + n]
                    if (b < n_here) & (o < length):
                        row[b * step + o] = height
                        if height != height:
                            missing = int64(1)
                            if o < center:
                                cuda.atomic.max(start, b, o + 1)
                            else:
                                cuda.atomic.min(stop, b, o)
        return missing

    @device
    def level_ends(n_here: int, t: int, row: Any, start: Any, stop: Any) -> None:
        """Make what lies outside a candidate's run as high as the run's end."""
        for b in range(t // 32, n_here, warps):
            for n in range(rounds):
                o = (t & 31) + 32 * n
                if o < start[b]:
                    row[b * step + o] = row[b * step + start[b]]
                elif (o >= stop[b]) & (o < length):
                    row[b * step + o] = row[b * step + stop[b] - 1]

    @device
    def respond(row: Any, here: int, w: Any) -> None:
        """Make the three responses at `OWN` samples."""
        weights = (
            cuda.const.array_like(taps_1),
            cuda.const.array_like(taps_2),
            cuda.const.array_like(taps_3),
        )
        d = cuda.local.array(window, float32)
        for c in range(window):
            d[c] = row[here + c + 1] - row[here + c]
        w_1, w_2, w_3 = w
        for r in range(OWN):
            w_1[r] = float32(0)
            w_2[r] = float32(0)
            w_3[r] = float32(0)
        _respond(weights, longest, _FIRST, d, w)
        _respond(weights, longest, _SECOND, d, w)
        _respond(weights, longest, _THIRD, d, w)

    @cuda.jit  # type: ignore[untyped-decorator]
    def kernel(x: Any, at: Any, sharpness: Any, position: Any, at_edge: Any) -> None:
        row = cuda.shared.array(room, float32)
        begin = cuda.shared.array(THREADS, int64)
        start = cuda.shared.array(THREADS, int32)
        stop = cuda.shared.array(THREADS, int32)
        steep = cuda.shared.array(THREADS, float32)
        usual = cuda.shared.array(THREADS, float32)
        high = cuda.shared.array(THREADS, float32)
        place = cuda.shared.array(THREADS, int32)
        t = cuda.threadIdx.x & (THREADS - 1)
        first = cuda.blockIdx.x * candidates
        n_here = min(candidates, at.size - first)
        start[t] = 0
        stop[t] = length
        if t < n_here:
            begin[t] = at[first + t] - center
        cuda.syncthreads()
        if cuda.syncthreads_or(load(x, begin, n_here, t, row, start, stop)):
            level_ends(n_here, t, row, start, stop)
            cuda.syncthreads()

        own = t // sharing
        part = t - own * sharing
        if own < n_here:
            w_1 = cuda.local.array(OWN, float32)
            w_2 = cuda.local.array(OWN, float32)
            w_3 = cuda.local.array(OWN, float32)
            respond(row, own * step + part * OWN, (w_1, w_2, w_3))
            # The samples of this thread that are looked at.
            r_begin = max(start[own] - k - part * OWN, 0)
            r_end = min(stop[own] - k - part * OWN, 2 * radius + 1 - part * OWN)
            best_1, best_2, best_3 = float32(-1), float32(-1), float32(-1)
            best = int64(0)
            for r in range(OWN):
                if (r_begin <= r) & (r < r_end):
                    best_1 = max(best_1, abs(w_1[r]))
                    best_2 = max(best_2, abs(w_2[r]))
                    if abs(w_3[r]) > best_3:
                        best_3 = abs(w_3[r])
                        best = r
            steep[t] = best_1
            usual[t] = best_2
            high[t] = best_3
            place[t] = k + part * OWN + best
        cuda.syncthreads()

        if t < n_here:
            low = t * sharing
            most_1, most_2, most_3 = steep[low], usual[low], high[low]
            most = place[low]
            for n in range(low + 1, low + sharing):
                most_1 = max(most_1, steep[n])
                most_2 = max(most_2, usual[n])
                if high[n] > most_3:
                    most_3 = high[n]
                    most = place[n]
            ratio = most_1 / most_2 if most_2 > float32(0) else float32(0)
            sharpness[first + t] = ratio * ratio
            position[first + t] = begin[t] + most
            at_edge[first + t] = (most == start[t]) | (most == stop[t] - 1)

    return Near(kernel, candidates)


@device
def _response_at(x: Any, taps: Any, start: int, stop: int, i: int) -> Any:
    """Return the absolute response at a sample of the run that the bounds are of, if in reach."""
    w = float32(0)
    for m in range(taps.size):
        before, after = float32(0), float32(0)
        j = i - m
        if j > start:
            before = x[j] - x[j - 1]
        j = i + m + 1
        if j < stop:
            after = x[j] - x[j - 1]
        w = cuda.fma(taps[m], before - after, w)
    return abs(w)


@cuda.jit  # type: ignore[untyped-decorator]
def _look_far(
    x: Any,
    narrow: Any,
    taps: Any,
    wide: Any,
    at: Any,
    radius: int,
    sharpness: Any,
    position: Any,
    at_edge: Any,
) -> None:
    """Look at one candidate a block, whatever the widths."""
    bounds = cuda.shared.array(2, int32)
    steep = cuda.shared.array(THREADS, float32)
    usual = cuda.shared.array(THREADS, float32)
    high = cuda.shared.array(THREADS, float32)
    place = cuda.shared.array(THREADS, int32)
    t = cuda.threadIdx.x
    center = at[cuda.blockIdx.x]
    reach = radius + max(narrow.size, max(taps.size, wide.size)) + 1
    if t == 0:
        bounds[0] = -reach
        bounds[1] = reach + 1
    cuda.syncthreads()
    for o in range(t - reach, reach + 1, THREADS):
        i = center + o
        if i < 0 or i >= x.size or x[i] != x[i]:
            if o < 0:
                cuda.atomic.max(bounds, 0, o + 1)
            else:
                cuda.atomic.min(bounds, 1, o)
    cuda.syncthreads()
    start, stop = center + bounds[0], center + bounds[1]
    best_1, best_2, best_3 = float32(-1), float32(-1), float32(-1)
    best = 0
    for o in range(t - radius, radius + 1, THREADS):
        i = center + o
        if i >= start and i < stop:
            best_1 = max(best_1, _response_at(x, narrow, start, stop, i))
            best_2 = max(best_2, _response_at(x, taps, start, stop, i))
            w = _response_at(x, wide, start, stop, i)
            if w > best_3:
                best_3 = w
                best = o
    steep[t] = best_1
    usual[t] = best_2
    high[t] = best_3
    place[t] = best
    cuda.syncthreads()
    if t == 0:
        for n in range(1, THREADS):
            best_1 = max(best_1, steep[n])
            best_2 = max(best_2, usual[n])
            if high[n] > best_3 or (high[n] == best_3 and place[n] < best):
                best_3 = high[n]
                best = place[n]
        ratio = best_1 / best_2 if best_2 > float32(0) else float32(0)
        sharpness[cuda.blockIdx.x] = ratio * ratio
        position[cuda.blockIdx.x] = center + best
        at_edge[cuda.blockIdx.x] = boolean(best == bounds[0] or best == bounds[1] - 1)
