"""Cutting: from a block of samples and beat positions to rows of fixed length."""

from __future__ import annotations

from typing import Any

from ..arrays import namespace


def cut(block: Any, position: Any, before: int, after: int, keep: Any = None) -> tuple[Any, Any]:
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
    waves
        float32 of shape (n_beats, n_leads, before + after), zero where a sample is missing, lies
        outside `block` or is not kept.
    complete
        bool of shape (n_beats,): whether every sample of the window is in `block` and recorded.
    """
    xp = namespace(block)
    offset = xp.arange(-before, after)
    index = position[:, None] + offset
    inside = (index >= 0) & (index < block.shape[0])
    values = block[xp.where(inside, index, 0)].transpose(0, 2, 1)
    recorded = inside[:, None, :] & xp.isfinite(values)
    complete = recorded.all(axis=(1, 2))
    if keep is not None:
        recorded &= (offset < keep[:, None])[:, None, :]
    return xp.where(recorded, values, xp.float32(0)), complete
