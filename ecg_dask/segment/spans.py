"""Spans of a recording that cannot be analysed: missing, flat, clipped, or noise.

A block looks at its cells, which lie at fixed sample numbers, and tells the runs of cells that
answer a description. Runs of neighbour blocks are joined afterwards, and only then lengths are
judged, so that the spans do not depend on how the recording is cut into blocks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import kernels
from ..arrays import namespace, on_host
from ..kernels.rules import PER_CELL
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
SUB_CELLS = PER_CELL

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
        #: Energy by sub-cells, those of each cell.
        self.crests = part

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
        return NO_RUNS
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
    before = begin - cells.w.limit
    rail = (enters & _at_rail(cells, before, level)) | (leaves & _at_rail(cells, end, level))
    reason = np.where(on_host(rail), RAIL, FLAT).astype(np.int8)
    begin, end = on_host(begin) - cells.start, on_host(end) - cells.start
    return cells.told(begin, end, reason, on_host(level))


def _at_rail(cells: _Cells, begin: Any, level: Any) -> Any:
    """Tell whether a level is an extreme of the cells from `begin` on that few of them reach."""
    xp = namespace(level)
    # What does not change has no say in where the limit is.
    changing = cells.low < cells.high
    low = xp.where(changing, cells.low, xp.float32(np.inf))
    high = xp.where(changing, cells.high, xp.float32(-np.inf))
    return kernels.rails(low, high, begin, cells.w.limit, level, level, FEW) > 0


def _clipped(cells: _Cells) -> Runs:
    """Find the plateaus at the extremes of their surroundings, to the sample."""
    w, own = cells.w, slice(cells.start, cells.stop)
    begin = namespace(cells.low).arange(cells.start - w.limit, cells.stop - w.limit)
    upper, lower = cells.high[own], cells.low[own]
    rail = kernels.rails(cells.low, cells.high, begin, 2 * w.limit + 1, upper, lower, FEW)
    first = cells.offset + cells.start * w.cell
    found = kernels.plateaus(cells.x, first, w.cell, upper, lower, rail, w.plateau, w.entry, STEEP)
    start, stop, level, steep = on_host(found)
    sample = cells.number * w.cell - cells.offset
    return Runs(
        np.where(steep > 0, CUT, LEVEL).astype(np.int8),
        start.astype(np.int64) + sample,
        stop.astype(np.int64) + sample,
        level.astype(np.float32),
    )


def _noise(cells: _Cells) -> Runs:
    """Find the cells around which energy is spread without rhythm."""
    w = cells.w
    # Energies are squares, so the shares of amplitudes are squared too.
    told = kernels.noisy(cells.crests, w.noise, w.pause, QUIET**2, FAINT**2, w.rhythm, REGULARITY)
    # A byte a cell, which is cut into runs sooner there than here.
    own = on_host(told[cells.start : cells.stop])
    return concatenated([cells.runs(own & 1 > 0, NOISE), cells.runs(own & 2 > 0, RESTLESS)])
