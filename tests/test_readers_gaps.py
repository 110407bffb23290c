import dask
import numpy as np
import pytest
from dask.delayed import delayed
from hypothesis import given, settings
from hypothesis import strategies as st

from ecg_dask.readers import gaps


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(st.integers(0, 6), min_size=1, max_size=5).filter(any),
    lost=st.dictionaries(st.integers(1, 12), st.integers(1, 30), max_size=6),
    short=st.integers(1, 9),
)
def test_missing_rows_are_put_before_their_rows(rows, lost, short):
    n = sum(rows)
    lost = {row: count for row, count in sorted(lost.items()) if row < n}
    signal = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
    parts = np.split(signal, np.cumsum(rows)[:-1])
    with pytest.MonkeyPatch.context() as patch, dask.config.set(scheduler="sync"):
        patch.setattr(gaps, "_SHORT_GAP", short)
        made = gaps.assembled(
            [delayed(part) for part in parts],
            rows,
            2,
            np.array(list(lost), np.int64),
            np.array(list(lost.values()), np.int64),
        )
        computed = made.compute()
    expected = []
    for row in range(n):
        expected += [[np.nan, np.nan]] * lost.get(row, 0) + [signal[row].tolist()]
    assert made.dtype == np.float32
    assert made.shape == computed.shape
    np.testing.assert_array_equal(computed, np.array(expected, np.float32))
    # No partition grows with a gap.
    longest = max(*rows, short)
    assert max(made.chunks[0]) <= max(rows) + len(lost) * longest
    if len(lost) == 1:
        assert max(made.chunks[0]) <= max(rows) + min(longest, *lost.values())
