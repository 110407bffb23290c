"""Cutting: from a block of samples and beat positions to rows of fixed length."""

from __future__ import annotations

from typing import Any

from ..arrays import namespace


def cut(block: Any, position: Any, before: int, after: int, keep: Any = None) -> Any:
    """Cut a window around each beat out of every lead and embed it into zeros.

    Parameters
    ----------
    block
        Samples, float32 of shape (n, n_leads), NaN where missing.
    position
        Indices into `block`, int64 of shape (n_beats,).
    before, after
        The window is ``[position - before, position + after)``.
    keep
        Samples of the window from the beat on to keep, int64 of shape (n_beats,); what lies
        behind becomes zero. None keeps all.

    Returns
    -------
    float32 of shape (n_beats, n_leads, before + after), zero where a sample is missing, not in
    `block` or not kept
    """
    xp = namespace(block)
    offset = xp.arange(-before, after)
    index = position[:, None] + offset
    inside = (index >= 0) & (index < block.shape[0])
    values = block[xp.where(inside, index, 0)].transpose(0, 2, 1)
    recorded = inside[:, None, :] & xp.isfinite(values)
    if keep is not None:
        recorded &= (offset < keep[:, None])[:, None, :]
    return xp.where(recorded, values, xp.float32(0))


def are_complete(block: Any, position: Any, before: int, after: int) -> Any:
    """Tell of which beats every sample of the window is in `block` and recorded, in every lead.

    The parameters are those of `cut`; the result is bool of shape (n_beats,).
    """
    xp = namespace(block)
    low, high = position - before, position + after
    inside = (low >= 0) & (high <= block.shape[0])
    missing = xp.isnan(block).any(axis=1)
    if not missing.any():
        return inside
    lost = xp.concatenate([xp.zeros(1, xp.int64), xp.cumsum(missing)])
    return inside & (lost[xp.maximum(low, 0)] == lost[xp.minimum(high, block.shape[0])])
