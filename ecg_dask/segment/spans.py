"""Spans of a recording that cannot be analysed: missing, flat, clipped, or noise.

A block looks at its cells, which lie at fixed sample numbers, and tells the runs of cells that
answer a description. Runs of neighbour blocks are joined afterwards, and only then lengths are
judged, so that the spans do not depend on how the recording is cut into blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..arrays import namespace, on_gpu, on_host
from .runs import (
    CUT,
    FLAT,
    FLAT_S,
    LEVEL,
    MISSING,
    NO_RUNS,
    NOISE,
    RAIL,
    RESTLESS,
    Runs,
    concatenated,
)

#: Length of a sub-cell, of which a quarter of a second has eight: a crest of energy each.
SUB_CELL_S = 1 / 32
SUB_CELLS = 8

#: An amplifier's limit is sought among the extremes of so many seconds on either side.
LIMIT_S = 5.0
#: A plateau is this long and at least three samples; within half of that, before or after, the
#: signal has left it by `STEEP` of its smallest steps. A smooth wave leaves by at most five: the
#: top of a parabola that is level to within a step falls by four in as much time again as it has
#: been level to either side of its peak, and rounding adds one.
PLATEAU_S, STEEP = 0.012, 6
#: Share of the cells around, of those that change, that may reach a limit; more reach a baseline.
FEW = 0.75

#: Noise is judged on so many seconds either side of a cell.
NOISE_WINDOW_S = 2.0
#: Between QRS complexes there is a moment of quiet each quarter of a second, up to 200 beats/min:
#: the quietest sub-cell has at most 0.15 of the loudest's amplitude even where the QRS is wide.
#: Noise alone has 0.18 or more in most quarters.
QUIET = 0.18
#: A rhythm too fast for quiet between its waves (ventricular flutter) is told from noise by its
#: regularity: the autocorrelation of its energy at intervals from 0.16 to 0.4 s.
RHYTHM_S, REGULARITY = (0.16, 0.41), 0.3
#: What is fainter than this, as a share of the loudest within `PAUSE_S`, is a pause and not noise.
FAINT, PAUSE_S = 0.1, 5.0
#: Cells that are looked at together, which bounds the memory: on a CPU as many as its cache likes,
#: on a GPU so many that each of its dozens of kernels has something to do.
_SLAB, _SLAB_ON_GPU = 512, 32_768

Integers = npt.NDArray[np.int64]


class Widths(NamedTuple):
    """Lengths at one sampling rate: in samples, from `limit` on in cells, `rhythm` in sub-cells."""

    sub: int
    cell: int
    flat: int
    plateau: int
    entry: int
    limit: int
    noise: int
    pause: int
    rhythm: tuple[int, int]


def widths(fs: float) -> Widths:
    """Return the widths at `fs` Hz."""

    def samples(seconds: float) -> int:
        return max(round(seconds * fs), 1)

    sub = samples(SUB_CELL_S)
    cell = SUB_CELLS * sub
    plateau = max(samples(PLATEAU_S), 3)

    def cells(seconds: float) -> int:
        return max(round(seconds * fs / cell), 1)

    return Widths(
        sub=sub,
        cell=cell,
        flat=samples(FLAT_S),
        plateau=plateau,
        entry=(plateau - 1) // 2,
        limit=cells(LIMIT_S),
        noise=cells(NOISE_WINDOW_S),
        pause=cells(PAUSE_S),
        rhythm=(round(RHYTHM_S[0] * fs / sub), round(RHYTHM_S[1] * fs / sub)),
    )


def halo(fs: float, crest: int) -> int:
    """Return how many samples before and behind its core a block needs at `fs` Hz.

    `crest` is the number of samples that a sample's energy takes in on either side.
    """
    w = widths(fs)
    # Two cells more: the last of its own reaches beyond the core, the outermost may be cut.
    cells = max(w.limit, w.noise + w.pause) + 2
    return cells * w.cell + max(crest, w.plateau + w.entry)


def find_runs(x: Any, crests: Any, first: int, core: tuple[int, int], fs: float) -> Runs:
    """Find the runs of cells of one block that may be spans, and its missing samples.

    Parameters
    ----------
    x
        The block's samples of one lead, float32 of shape (n,), NaN where missing; the core, and up
        to `halo` samples on either side as far as the recording goes.
    crests
        Greatest energy in each sub-cell of ``widths(fs).sub`` samples, from sub-cell
        ``first // sub`` on; -1 where nothing was recorded.
    first
        Sample number of ``x[0]``.
    core
        Sample numbers ``[start, stop)``. A cell belongs to the core that holds its first sample.
    fs
        Sampling rate in Hz.
    """
    w = widths(fs)
    cells = _Cells(x, crests, first, core, w)
    found = [_missing(x, first, core)]
    if cells.stop > cells.start:
        found += [_flat(cells), _clipped(cells), _noise(cells)]
    return concatenated(found)


class _Cells:
    """A block by cells: bounds of each one's samples and crests, and which the core owns."""

    def __init__(self, x: Any, crests: Any, first: int, core: tuple[int, int], w: Widths) -> None:
        xp = namespace(x)
        self.x, self.w = x, w
        end = first + x.size
        #: Number of the first cell that the block sees from its start on.
        self.number = -(-first // w.cell)
        self.offset = self.number * w.cell - first
        whole = max(end // w.cell - self.number, 0)
        # A cell that the recording's end cuts is one, a cell that the block's end cuts is none.
        cut = core[1] == end and end % w.cell > 0 and end // w.cell >= self.number
        behind = self.offset + whole * w.cell
        rows = x[self.offset : behind].reshape(whole, w.cell)
        low = high = xp.empty(0, dtype=xp.float32)
        if whole:
            low, high = rows.min(axis=1), rows.max(axis=1)
        holed = xp.flatnonzero(low != low)
        if holed.size:
            low[holed], high[holed] = _bounds(rows[holed])
        if cut:
            last = _bounds(x[None, behind:])
            low, high = xp.concatenate([low, last[0]]), xp.concatenate([high, last[1]])
        #: Of the recorded samples; inf and -inf where there is none.
        self.low, self.high = low, high
        own = [min(max(-(-s // w.cell) - self.number, 0), low.size) for s in core]
        #: The core's own cells.
        self.start, self.stop = own
        self.end = end

        begin = self.number * SUB_CELLS - first // w.sub
        part = crests[begin : begin + low.size * SUB_CELLS]
        if part.size < low.size * SUB_CELLS:
            unseen = xp.full(low.size * SUB_CELLS - part.size, -1, dtype=part.dtype)
            part = xp.concatenate([part, unseen])
        #: Energy by cells and sub-cells.
        self.crests = part.reshape(low.size, SUB_CELLS)

    def runs(self, mask: Any, reason: int) -> Runs:
        """Return the runs of own cells where `mask`, a value each own cell, holds."""
        begin, end = _edges(mask)
        return self.told(begin, end, np.full(begin.size, reason, np.int8))

    def told(self, begin: Integers, end: Integers, reason: Any, level: Any = None) -> Runs:
        """Return runs of own cells as runs of samples."""
        base = self.number + self.start
        if level is None:
            level = np.full(begin.size, np.nan, np.float32)
        stop = np.minimum((base + end) * self.w.cell, self.end)
        return Runs(reason, (base + begin) * self.w.cell, stop, level)


def _bounds(rows: Any) -> tuple[Any, Any]:
    """Return the least and greatest recorded sample of each row."""
    xp = namespace(rows)
    missing = xp.isnan(rows)
    infinite = xp.float32(np.inf)
    low = xp.where(missing, infinite, rows).min(axis=1)
    return low, xp.where(missing, -infinite, rows).max(axis=1)


def _edges(mask: Any) -> tuple[Integers, Integers]:
    """Return starts and stops of the runs of True, on the host."""
    xp = namespace(mask)
    if not mask.any():
        return np.empty(0, np.int64), np.empty(0, np.int64)
    no = xp.zeros(1, dtype=bool)
    padded = xp.concatenate([no, mask, no])
    edges = on_host(xp.flatnonzero(padded[1:] != padded[:-1]))
    return edges[::2], edges[1::2]


def _slabs(cells: Any) -> Iterator[Any]:
    """Cut an array of cells into parts that are looked at together."""
    size = _SLAB_ON_GPU if on_gpu(cells) else _SLAB
    for i in range(0, cells.size, size):
        yield cells[i : i + size]


def _running(combine: Any, values: Any, width: int) -> Any:
    """Combine each `width` neighbours along the last axis: ``width - 1`` values fewer."""
    have = 1
    while 2 * have <= width:
        values = combine(values[..., :-have], values[..., have:])
        have *= 2
    rest = width - have
    return combine(values[..., :-rest], values[..., rest:]) if rest else values


def _of_cells(combine: Any, crests: Any) -> Any:
    """Combine the sub-cells of each cell, neighbours first: faster than along so short an axis."""
    values = crests.ravel()
    while values.size > len(crests):
        values = combine(values[::2], values[1::2])
    return values


def _around(cells: Any, radius: int, outside: float) -> Any:
    """Return `cells` with `radius` more on either side."""
    xp = namespace(cells)
    fill = xp.full(radius, outside, dtype=cells.dtype)
    return xp.concatenate([fill, cells, fill])


def _missing(x: Any, first: int, core: tuple[int, int]) -> Runs:
    own = x[core[0] - first : core[1] - first]
    begin, end = _edges(own != own)
    level = np.full(begin.size, np.nan, np.float32)
    return Runs(np.full(begin.size, MISSING, np.int8), begin + core[0], end + core[0], level)


def _flat(cells: _Cells) -> Runs:
    """Find the cells that do not change, a run a level."""
    xp = namespace(cells.low)
    still = cells.low == cells.high
    same = xp.zeros(still.size, dtype=bool)
    same[1:] = still[1:] & still[:-1] & (cells.low[1:] == cells.low[:-1])
    own = slice(cells.start, cells.stop)
    if not still[own].any():
        return cells.runs(still[own], FLAT)
    goes_on = same[own].copy()
    goes_on[:1] = False
    begin = xp.flatnonzero(still[own] & ~goes_on) + cells.start
    # A run ends before the next cell that does not go on with it.
    breaks = xp.concatenate([xp.flatnonzero(~goes_on) + cells.start, xp.asarray([cells.stop])])
    end = breaks[xp.searchsorted(breaks, begin, side="right")]
    # Runs that the core cuts may be longer.
    length = (end - begin) * cells.w.cell
    kept = (begin == cells.start) | (end == cells.stop) | (length >= cells.w.flat)
    begin, end = begin[kept], end[kept]
    level = cells.low[begin]
    after = xp.minimum(end, still.size - 1)
    # An end is told by the block that sees it: where the next cell does not go on.
    enters, leaves = ~same[begin], (end < still.size) & ~same[after]
    n = cells.w.limit
    rail = (enters & _beyond(cells, begin - n, level)) | (leaves & _beyond(cells, end, level))
    reason = np.where(on_host(rail), RAIL, FLAT).astype(np.int8)
    begin, end = on_host(begin) - cells.start, on_host(end) - cells.start
    return cells.told(begin, end, reason, on_host(level))


def _beyond(cells: _Cells, begin: Any, level: Any) -> Any:
    """Tell whether a level is an extreme of the cells from `begin` on that few of them reach."""
    n = cells.w.limit
    low, high, changing = _changing(cells, begin, n)
    over = (changing & (high > level[:, None])).any(axis=1)
    under = (changing & (low < level[:, None])).any(axis=1)
    highest = ~over & _few_reach(cells, begin, n, level, True)
    return highest | (~under & _few_reach(cells, begin, n, level, False))


def _few_reach(cells: _Cells, begin: Any, length: int, level: Any, upper: bool) -> Any:
    """Tell whether at most `FEW` of the changing cells reach a level; most reach a baseline."""
    low, high, changing = _changing(cells, begin, length)
    reach = changing & ((high >= level[:, None]) if upper else (low <= level[:, None]))
    some = changing.sum(axis=1)
    return (some > 0) & (reach.sum(axis=1) <= FEW * some)


def _changing(cells: _Cells, begin: Any, length: int) -> tuple[Any, Any, Any]:
    """Return the bounds of `length` cells from each `begin` on, and which of them change."""
    xp = namespace(begin)
    index = begin[:, None] + xp.arange(length)
    inside = (index >= 0) & (index < cells.low.size)
    index = xp.where(inside, index, 0)
    low, high = cells.low[index], cells.high[index]
    return low, high, inside & (low < high)


def _clipped(cells: _Cells) -> Runs:
    """Find the plateaus at the extremes of their surroundings, to the sample."""
    xp = namespace(cells.low)
    n, own = cells.w.limit, slice(cells.start, cells.stop)
    highest = _running(xp.maximum, _around(cells.high, n, -np.inf), 2 * n + 1)[own]
    lowest = _running(xp.minimum, _around(cells.low, n, np.inf), 2 * n + 1)[own]
    found = []
    for upper, bound, extreme in ((True, cells.high, highest), (False, cells.low, lowest)):
        # Where nothing changes there is no limit to be seen, and no signal either.
        candidate = xp.flatnonzero((bound[own] == extreme) & (lowest < highest))
        for slab in _slabs(candidate):
            level, cell = extreme[slab], slab + cells.start
            few = _few_reach(cells, cell - n, 2 * n + 1, level, upper)
            found.append(_plateaus(cells, cell[few], level[few]))
    return concatenated([NO_RUNS, *found])


def _plateaus(cells: _Cells, cell: Any, level: Any) -> Runs:
    """Find the parts of plateaus at `level` that lie in each cell, `CUT` where a steep end is."""
    w, x = cells.w, cells.x
    xp = namespace(x)
    beside = w.plateau + w.entry
    index = (cells.offset + cell * w.cell)[:, None] + xp.arange(-beside, w.cell + beside)
    inside = (index >= 0) & (index < x.size)
    near = xp.where(inside, x[xp.where(inside, index, 0)], xp.float32(np.nan))
    at = near == level[:, None]
    begun = _running(xp.logical_and, at, w.plateau)
    if not begun.any():
        return NO_RUNS
    steps = xp.abs(near[:, 1:] - near[:, :-1])
    smallest = xp.where(steps > 0, steps, xp.float32(np.inf)).min(axis=1)
    away = xp.abs(near - level[:, None]) >= xp.float32(STEEP) * smallest[:, None]
    # Every sample of which one of the samples up to it begins a whole plateau.
    on = xp.zeros_like(at)
    on[:, w.plateau - 1 : begun.shape[1]] = _running(xp.logical_or, begun, w.plateau)

    def moved(mask: Any, by: int) -> Any:
        return mask[:, beside + by : beside + by + w.cell]

    first = moved(on, 0) & ~moved(at, -1) & moved(away, -w.entry)
    last = moved(on, 0) & ~moved(at, 1) & moved(away, w.entry)
    no = xp.zeros((len(level), 1), dtype=bool)
    edges = xp.concatenate([no, moved(on, 0), no], axis=1)
    row, begin = xp.nonzero(edges[:, 1:] & ~edges[:, :-1])
    _, end = xp.nonzero(edges[:, :-1] & ~edges[:, 1:])
    steep = on_host(first[row, begin] | last[row, end - 1])
    at_cell = on_host((cells.number + cell[row]) * w.cell)
    return Runs(
        np.where(steep, CUT, LEVEL).astype(np.int8),
        at_cell + on_host(begin),
        at_cell + on_host(end),
        on_host(level[row]),
    )


def _noise(cells: _Cells) -> Runs:
    """Find the cells around which energy is spread without rhythm."""
    crests, n = cells.crests, cells.w.noise
    xp = namespace(crests)
    loud = _of_cells(xp.maximum, crests)
    quiet = _of_cells(xp.minimum, xp.where(crests < 0, xp.float32(np.inf), crests))
    recorded = loud >= 0
    loudest = _running(xp.maximum, _around(loud, n, -1), 2 * n + 1)
    # Energies are squares, so the shares of amplitudes are squared too.
    floor = xp.float32(QUIET**2) * loudest
    quiet = _around(xp.where(recorded, quiet, xp.float32(-1)), n, -1)
    spread, seen = _counted(quiet, xp.maximum(floor, xp.float32(0)), 2 * n + 1)
    n_pause = cells.w.pause
    around = _running(xp.maximum, _around(loud, n_pause, -1), 2 * n_pause + 1)
    mask = recorded & (2 * spread > seen) & (seen > n) & (loudest > 0)
    mask &= loudest >= xp.float32(FAINT**2) * around
    seeds = xp.flatnonzero(mask)
    if not seeds.size:
        return cells.runs(mask[cells.start : cells.stop], NOISE)
    # A missing sub-cell counts as quiet.
    near = _around(xp.maximum(crests, xp.float32(0)).ravel(), n * SUB_CELLS, 0)
    near = near.reshape(-1, SUB_CELLS)
    beside = xp.arange(2 * n + 1)
    for slab in _slabs(seeds):
        windows = near[slab[:, None] + beside].reshape(slab.size, -1)
        mask[slab] = ~_regular(windows, loudest[slab], cells.w.rhythm)
    # Near its ends noise has louder QRS complexes beside it: what is as restless belongs to it.
    floor = xp.where(mask, floor, xp.float32(np.inf))
    lowest = _running(xp.minimum, _around(floor, n, np.inf), 2 * n + 1)
    restless = recorded & (quiet[n : n + loud.size] >= lowest)
    own = slice(cells.start, cells.stop)
    return concatenated([cells.runs(mask[own], NOISE), cells.runs(restless[own], RESTLESS)])


def _counted(quiet: Any, floor: Any, width: int) -> tuple[Any, Any]:
    """Count how many of the `width` values from each on are at least its floor, and at least 0."""
    xp = namespace(quiet)
    if on_gpu(quiet):
        rows = xp.lib.stride_tricks.as_strided(quiet, (floor.size, width), 2 * quiet.strides)
        return (rows >= floor[:, None]).sum(axis=1), (rows >= 0).sum(axis=1)
    spread, seen = xp.zeros(floor.size, xp.int16), xp.zeros(floor.size, xp.int16)
    for shift in range(width):
        beside = quiet[shift : shift + floor.size]
        spread += beside >= floor
        seen += beside >= 0
    return spread, seen


def _regular(near: Any, loudest: Any, rhythm: tuple[int, int]) -> Any:
    """Tell whether each row of energies repeats itself at an interval of `rhythm`.

    Whole numbers, whose sums float32 holds exactly: they are the same in any order.
    """
    xp = namespace(near)
    values = xp.rint(xp.float32(255) * xp.sqrt(near / loudest[:, None]))
    values -= xp.floor(values.sum(axis=1) / xp.float32(near.shape[1]))[:, None]
    power = (values * values).sum(axis=1)
    best = xp.zeros_like(power)
    for lag in range(rhythm[0], rhythm[1] + 1):
        best = xp.maximum(best, (values[:, :-lag] * values[:, lag:]).sum(axis=1))
    return best >= xp.float32(REGULARITY) * power
