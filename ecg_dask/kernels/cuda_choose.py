"""Choosing beats among candidates and measuring them, on CUDA."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba import cuda, float32, int32, int64, uint32

from ..arrays import namespace
from .cuda_device import constant, device
from .cuda_select import LOWER, add_up, marks, marks_before
from .launch import launch

#: Threads a block; each has one candidate. Words of marks a block.
THREADS, WORDS = 128, 4
ROOM_WORDS = WORDS + 1
_WORDS = constant(WORDS)

#: Most samples around beats that a block keeps in shared memory.
ROOM = 10_000

#: Beats whose samples a warp loads together.
BATCH = 4

#: Stands for the next beat where there is none near.
NEVER = np.iinfo(np.int64).max


def choose(
    x: Any,
    merit: Any,
    threshold: float,
    position: Any,
    at_edge: Any,
    energy: Any,
    refractory: int,
    first: int,
    core: tuple[int, int],
    after: int,
    near: int,
    far: int,
    wide: int,
    plateau: int,
) -> tuple[Any, Any, Any, Any, int]:
    """See `ecg_dask.kernels.choose`."""
    xp = namespace(x)
    least = np.float32(threshold)
    low, high = int(core[0] - first), int(core[1] - first)
    words, count = marks(merit, merit.size, THREADS)
    kept = xp.empty(merit.size, bool)
    launch(
        _mark,
        count.size,
        THREADS,
        merit,
        least,
        position,
        at_edge,
        energy,
        refractory,
        low,
        high,
        kept,
        words,
        count,
    )
    before, total = add_up(count)
    n_beats, pruned = total & LOWER, total >> 32
    sample = xp.empty(n_beats, np.int64)
    following = xp.empty(n_beats, np.int64)
    amplitude = xp.empty(n_beats, np.float32)
    quality = xp.empty(n_beats, np.float32)
    if n_beats:
        launch(
            measure_kernel(near, far, wide, plateau),
            count.size,
            THREADS,
            x,
            position,
            merit,
            least,
            kept,
            words,
            before,
            first,
            after,
            sample,
            following,
            amplitude,
            quality,
        )
    return sample, following, amplitude, quality, pruned


@device
def _stays(
    merit: Any, least: Any, position: Any, at_edge: Any, energy: Any, refractory: int, b: int
) -> Any:
    """Tell whether no accepted neighbour of an accepted candidate takes its place."""
    j = b - 1
    while j >= 0 and position[b] - position[j] < refractory:
        if merit[j] > least and not at_edge[j]:
            if energy[j] >= energy[b]:
                return False
            break
        j -= 1
    j = b + 1
    while j < position.size and position[j] - position[b] < refractory:
        if merit[j] > least and not at_edge[j]:
            return energy[b] >= energy[j]
        j += 1
    return True


@cuda.jit  # type: ignore[untyped-decorator]
def _mark(
    merit: Any,
    least: Any,
    position: Any,
    at_edge: Any,
    energy: Any,
    refractory: int,
    low: int,
    high: int,
    kept: Any,
    words: Any,
    count: Any,
) -> None:
    """Mark the accepted candidates that stay; in the core, count them and those that do not."""
    bits = cuda.shared.array(WORDS, uint32)
    counts = cuda.shared.array(2, int32)
    t = cuda.threadIdx.x
    if t < WORDS:
        bits[t] = 0
    if t < 2:
        counts[t] = 0
    cuda.syncthreads()
    b = cuda.grid(1)
    if b < merit.size:
        stays = False
        if merit[b] > least:
            if not at_edge[b]:
                stays = _stays(merit, least, position, at_edge, energy, refractory, b)
            if (position[b] >= low) & (position[b] < high):
                cuda.atomic.add(counts, 0 if stays else 1, 1)
                if stays:
                    cuda.atomic.or_(bits, t // 32, uint32(1 << (t % 32)))
        kept[b] = stays
    cuda.syncthreads()
    if t < WORDS:
        words[cuda.blockIdx.x * WORDS + t] = bits[t]
    if t == 0:
        count[cuda.blockIdx.x] = int64(counts[0]) + (int64(counts[1]) << 32)


@functools.cache
def measure_kernel(near: int, far: int, wide: int, plateau: int) -> Any:
    """Return the kernel that writes the marked beats and measures them.

    The threads of a warp take a beat's samples together: those within `far` into shared memory,
    of those within `wide` they tell where the run ends. Then each thread measures one beat.
    """
    seen = max(far, plateau)
    # An odd length keeps threads out of each other's bank of shared memory.
    length = 2 * seen + 1
    staged = wide >= seen and length <= ROOM // 32
    group = min(ROOM // length, THREADS) if staged else THREADS
    room = group * length if staged else 1
    warps = THREADS // 32
    rounds = -(-(2 * wide + 1) // 32)
    in_flight = BATCH * rounds if staged else 1

    @device
    def measure(
        x: Any, s: int, begin: int, end: int, row: Any, shift: int, margin: Any
    ) -> tuple[Any, Any]:
        """Return amplitude and quality, the sample j being ``row[j - shift]``."""
        center = row[s - shift]
        height = float32(0)
        count = int64(0)
        for j in range(max(begin, s - far), min(end, s + far + 1)):
            if abs(j - s) >= near:
                height += center - row[j - shift]
                count += 1
        amplitude = height / float32(count) if count else float32(math.nan)
        good = float32(1) - float32(1) / margin
        good *= float32(end - begin) / float32(2 * wide + 1)
        first, last = s, s
        while first > max(s - plateau, 0) and row[first - 1 - shift] == center:
            first -= 1
        while last < min(s + plateau, x.size - 1) and row[last + 1 - shift] == center:
            last += 1
        if last - first + 1 >= plateau:
            good *= float32(0.5)
        return amplitude, good

    @cuda.jit  # type: ignore[untyped-decorator]
    def kernel(
        x: Any,
        position: Any,
        merit: Any,
        least: Any,
        kept: Any,
        words: Any,
        before: Any,
        first: int,
        after: int,
        sample: Any,
        following: Any,
        amplitude: Any,
        quality: Any,
    ) -> None:
        row = cuda.shared.array(room, float32)
        beat = cuda.shared.array(THREADS, int64)
        place = cuda.shared.array(THREADS, int64)
        begin = cuda.shared.array(THREADS, int32)
        end = cuda.shared.array(THREADS, int32)
        own = cuda.shared.array(ROOM_WORDS, int32)
        ahead = cuda.shared.array(ROOM_WORDS, int32)
        t = cuda.threadIdx.x
        block = cuda.blockIdx.x
        marks_before(words, block * WORDS, t, _WORDS, own, ahead)
        lane = t & 31
        bits = words[block * WORDS + t // 32]
        if (bits >> lane) & 1:
            earlier = bits & uint32((1 << lane) - 1)
            beat[ahead[t // 32] + cuda.popc(earlier)] = block * THREADS + t
        begin[t] = -wide
        end[t] = wide + 1
        cuda.syncthreads()
        if t < ahead[WORDS]:
            place[t] = position[beat[t]]
        cuda.syncthreads()
        n_beats = ahead[WORDS]
        out = before[block] & LOWER

        value = cuda.local.array(in_flight, float32)
        for low in range(0, n_beats, group):
            high = min(low + group, n_beats)
            if staged:
                for n in range(low + t // 32, high, warps * BATCH):
                    # All loads first, so that they are under way together.
                    for c in range(BATCH):
                        s = place[min(n + c * warps, high - 1)]
                        for turn in range(rounds):
                            o = lane + 32 * turn - wide
                            i = s + o
                            inside = i >= 0 and i < x.size and o <= wide
                            value[c * rounds + turn] = x[i] if inside else float32(math.nan)
                    for c in range(BATCH):
                        m = n + c * warps
                        here = (m - low) * length + seen
                        for turn in range(rounds):
                            o = lane + 32 * turn - wide
                            height = value[c * rounds + turn]
                            if m < high and o <= wide:
                                if abs(o) <= seen:
                                    row[here + o] = height
                                if height != height:
                                    if o < 0:
                                        cuda.atomic.max(begin, m, o + 1)
                                    else:
                                        cuda.atomic.min(end, m, o)
            cuda.syncthreads()
            n = low + t
            if n < high:
                b = beat[n]
                s = place[n]
                margin = merit[b] / least
                if staged:
                    shift = s - (n - low) * length - seen
                    height, good = measure(x, s, s + begin[n], s + end[n], row, shift, margin)
                else:
                    start, stop = s, s + 1
                    while start > max(s - wide, 0) and x[start - 1] == x[start - 1]:
                        start -= 1
                    while stop < min(s + wide + 1, x.size) and x[stop] == x[stop]:
                        stop += 1
                    height, good = measure(x, s, start, stop, x, 0, margin)
                sample[out + n] = s + first
                amplitude[out + n] = height
                quality[out + n] = good
                then = NEVER
                j = b + 1
                while j < position.size and position[j] - s < after:
                    if kept[j]:
                        then = position[j] + first
                        break
                    j += 1
                following[out + n] = then
            cuda.syncthreads()

    return kernel
