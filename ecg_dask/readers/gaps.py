"""Put rows of missing samples where a recording skipped, and make blocks into one Dask array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dask.array as da
import numpy as np
from dask.delayed import delayed

from ..arrays import namespace
from ..gpu.pool import on_device
from .clock import Rows

#: Tells Dask that blocks are NumPy arrays.
NO_SAMPLES = np.empty((0, 0), np.float32)

#: Missing samples that never need a partition of their own.
_SHORT_GAP = 2**16


def assembled(
    blocks: Sequence[Any],
    rows: Sequence[int],
    n_leads: int,
    gap_rows: Rows,
    gap_samples: Rows,
    meta: Any = NO_SAMPLES,
) -> da.Array:
    """Make the signal of delayed blocks and of gaps between their rows.

    Parameters
    ----------
    blocks
        Delayed arrays, float32 of shape (n, n_leads).
    rows
        The n of each block.
    n_leads
        Number of columns.
    gap_rows, gap_samples
        Rows, counted over all blocks, before which samples are missing, and how many.
    meta
        An empty array of the blocks' kind.

    Returns
    -------
    float32 of shape (sum of rows and gap_samples, n_leads); a gap that is longer than the longest
    block, and than `_SHORT_GAP`, gets partitions of its own, so that no partition grows with it
    """
    if not gap_rows.size:
        kept = [(block, n) for block, n in zip(blocks, rows, strict=True) if n]
        return from_blocks([block for block, _ in kept], [n for _, n in kept], n_leads, meta)
    longest = max(*rows, _SHORT_GAP)
    stops = np.cumsum(rows)
    pieces: list[da.Array] = []
    for block, n, stop in zip(blocks, rows, stops.tolist(), strict=True):
        if not n:
            continue
        inside = (gap_rows >= stop - n) & (gap_rows < stop)
        starts, lengths = gap_rows[inside] - (stop - n), gap_samples[inside]
        if not starts.size:
            pieces.append(_array(block, n, n_leads, meta))
            continue
        low = 0
        for start, length in zip(
            [*starts[lengths > longest].tolist(), n],
            [*lengths[lengths > longest].tolist(), 0],
            strict=True,
        ):
            here = (starts >= low) & (starts < start) & (lengths <= longest)
            if start > low:
                size = start - low + int(lengths[here].sum())
                part = delayed(with_missing)(block, low, start, starts[here], lengths[here])
                pieces.append(_array(part, size, n_leads, meta))
            if length:
                missing = da.full((length, n_leads), np.nan, dtype=np.float32, chunks=(longest, -1))
                pieces.append(missing.map_blocks(on_device, meta=meta))
            low = start
    return da.concatenate(pieces)


def from_blocks(
    blocks: Sequence[Any], rows: Sequence[int], n_leads: int, meta: Any = NO_SAMPLES
) -> da.Array:
    """Make the signal of delayed blocks, float32 of shape (n, n_leads), with the n of each."""
    return da.concatenate(
        [_array(block, n, n_leads, meta) for block, n in zip(blocks, rows, strict=True)]
    )


def _array(block: Any, n: int, n_leads: int, meta: Any) -> da.Array:
    return da.from_delayed(block, (n, n_leads), meta=meta)


def with_missing(block: Any, start: int, stop: int, rows: Rows, samples: Rows) -> Any:
    """Return the rows [start, stop) of a block, with so many rows of NaN before the given rows."""
    xp = namespace(block)
    out = xp.full((stop - start + int(samples.sum()), block.shape[1]), np.nan, block.dtype)
    shift = np.zeros(stop - start, np.int64)
    np.add.at(shift, rows - start, samples)
    out[xp.asarray(np.arange(stop - start) + np.cumsum(shift))] = block[start:stop]
    return out
