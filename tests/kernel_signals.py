"""Signals with gaps that the kernels' tests draw."""

import numpy as np
from hypothesis import strategies as st
from signals import counts, with_gaps

#: Gaps, from their first sample to behind their last one.
gap_lists = st.lists(st.tuples(st.integers(0, 299), st.integers(1, 30)), max_size=8).map(
    lambda gaps: [(start, start + length) for start, length in gaps]
)


def gappy(seed=0, n=500):
    x = counts(n, seed=seed)[0][:, 0]
    return with_gaps(x, [(0, 2), (90, 91), (200, 230), (231, 232), (n - 1, n)])


def small_numbers(seed, n, gaps):
    """Return whole numbers so small that every sum of a test is exact, and has equals."""
    x = np.random.default_rng(seed).integers(-3, 4, n).astype(np.float32)
    return with_gaps(x, gaps)


def some_recorded(x, seed, n):
    """Return up to `n` ascending indices of recorded samples."""
    recorded = np.flatnonzero(~np.isnan(x))
    chosen = np.random.default_rng(seed).permutation(recorded)[:n]
    return np.sort(chosen).astype(np.int64)
