"""The lowest and highest sample of each bin of a signal, so that a page can draw a whole day."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
from dask.delayed import Delayed, delayed

from ..arrays import namespace, on_host

#: Bins of all records of a page together: with two bytes a bound, about 5 MB of HTML.
MAX_BINS = 1_000_000

_Floats = npt.NDArray[np.float32]


def choose_bin_samples(n_samples: Sequence[int], max_bins: int = MAX_BINS) -> int:
    """Return the shortest bin, in samples, with which records fit into a page.

    Parameters
    ----------
    n_samples
        Samples of each record of the page.
    max_bins
        Bins that the page may hold, give or take one a record.
    """
    return max(1, -(-sum(n_samples) // max_bins))


def envelope(signal: da.Array, lead: int = 0, *, bin_samples: int) -> Delayed:
    """Find the lowest and the highest sample of every bin, on the workers.

    Bins are ``[k * bin_samples, (k + 1) * bin_samples)`` in samples from the recording's first, so
    they do not depend on the chunks.

    Parameters
    ----------
    signal
        Floats of shape (n_samples, n_leads); NaN, infinities and what float32
        cannot hold count as missing.
    lead
        Column of the lead.
    bin_samples
        Samples a bin.

    Returns
    -------
    Delayed
        Tuple (low, high) of NumPy float32 arrays of shape (ceil(n_samples / bin_samples),), in the
        signal's unit; NaN where no sample of the bin was recorded.
    """
    n_samples = int(signal.shape[0])
    # The blocks keep their keys, so that the caller can load each once for all that it computes.
    blocks = signal.to_delayed(optimize_graph=False)[:, 0]
    starts = np.cumsum([0, *signal.chunks[0]])[:-1].tolist()
    parts = [
        delayed(_block_bins)(block, lead, start, bin_samples)
        for block, start in zip(blocks, starts, strict=True)
    ]
    return delayed(_merge, nout=2)(parts, -(-n_samples // bin_samples))


def _block_bins(
    block: Any, lead: int, start: int, bin_samples: int
) -> tuple[int, _Floats, _Floats]:
    """Bins of one block: the first bin's index, then bounds, infinite in bins without samples."""
    xp = namespace(block)
    n_samples = block.shape[0]
    before = start % bin_samples
    n_bins = -(-(before + n_samples) // bin_samples)
    padded = xp.full(n_bins * bin_samples, xp.nan, dtype=xp.float32)
    # What float32 cannot hold becomes infinite, and with that missing.
    with np.errstate(over="ignore"):
        padded[before : before + n_samples] = block[:, lead]
    cells = padded.reshape(n_bins, bin_samples)
    recorded = xp.isfinite(cells)
    low = xp.where(recorded, cells, xp.inf).min(axis=1)
    high = xp.where(recorded, cells, -xp.inf).max(axis=1)
    # Adding 0 turns -0 into 0: which of the two a minimum returns would depend on the chunks.
    low, high = low + xp.float32(0), high + xp.float32(0)
    return start // bin_samples, on_host(low), on_host(high)


def _merge(parts: Sequence[tuple[int, _Floats, _Floats]], n_bins: int) -> tuple[_Floats, _Floats]:
    low = np.full(n_bins, np.inf, dtype=np.float32)
    high = np.full(n_bins, -np.inf, dtype=np.float32)
    for first, part_low, part_high in parts:
        own = slice(first, first + len(part_low))
        np.minimum(low[own], part_low, out=low[own])
        np.maximum(high[own], part_high, out=high[own])
    for bounds in (low, high):
        bounds[~np.isfinite(bounds)] = np.nan
    return low, high
