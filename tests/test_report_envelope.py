import subprocess
import sys
import warnings

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecg_dask.report import choose_bin_samples, envelope


def naive(signal, bin_samples):
    low, high = [], []
    for first in range(0, len(signal), bin_samples):
        recorded = [x for x in signal[first : first + bin_samples] if np.isfinite(x)]
        low.append(min(recorded, default=np.nan))
        high.append(max(recorded, default=np.nan))
    return np.array(low, np.float32), np.array(high, np.float32)


def chunked(signal, chunks):
    return da.from_array(np.asarray(signal)[:, None], chunks=(tuple(chunks), 1))


def computed(signal, bin_samples, lead=0):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return dask.compute(envelope(signal, lead, bin_samples=bin_samples), scheduler="sync")[0]


@settings(deadline=None)
@given(st.data())
def test_bins_do_not_depend_on_the_chunks(data):
    values = st.sampled_from([np.nan, 0.0, -0.0, np.inf, -np.inf, 1.5, -2.25, 7.0])
    signal = np.array(data.draw(st.lists(values, min_size=1, max_size=40)), np.float32)
    cuts = data.draw(st.lists(st.integers(0, len(signal)), max_size=6))
    chunks = np.diff([0, *sorted(cuts), len(signal)])
    bin_samples = data.draw(st.integers(1, 45))
    low, high = computed(chunked(signal, chunks.tolist()), bin_samples)
    whole_low, whole_high = computed(chunked(signal, [len(signal)]), bin_samples)
    assert low.tobytes() == whole_low.tobytes()
    assert high.tobytes() == whole_high.tobytes()
    naive_low, naive_high = naive(signal, bin_samples)
    np.testing.assert_array_equal(low, naive_low)
    np.testing.assert_array_equal(high, naive_high)
    assert low.dtype == high.dtype == np.float32


def test_double_precision_is_rounded_and_the_lead_is_the_one_asked_for():
    signal = np.random.default_rng(0).normal(size=(1000, 2)) * 1e6
    low, high = computed(da.from_array(signal, chunks=(130, 2)), 7, lead=1)
    naive_low, naive_high = naive(signal[:, 1], 7)
    np.testing.assert_array_equal(low, naive_low)
    np.testing.assert_array_equal(high, naive_high)


def test_a_value_beyond_float32_is_missing_and_warns_of_nothing():
    low, high = computed(chunked([1e300, 1.0, 2.0], [3]), 3)
    assert (low.tolist(), high.tolist()) == ([1.0], [2.0])


def test_workers_need_no_bokeh():
    code = "import sys, ecg_dask.report as r; r.envelope; print('bokeh' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_recording_without_samples_has_no_bins():
    low, high = computed(da.zeros((0, 1)), 4)
    assert low.shape == high.shape == (0,)


def test_blocks_are_loaded_once_with_other_work():
    loads = []

    def load():
        loads.append(1)
        return np.zeros((10, 1), np.float32)

    block = dask.delayed(load, pure=False)()
    signal = da.from_delayed(block, (10, 1), np.float32)
    dask.compute(envelope(signal, bin_samples=3), envelope(signal, bin_samples=5), scheduler="sync")
    assert len(loads) == 1


@pytest.mark.parametrize(
    ("n_samples", "expected"),
    [([20_140_000], 21), ([650_000], 1), ([650_000] * 48, 32), ([0], 1), ([2], 1), ([], 1)],
)
def test_bins_are_as_short_as_a_page_allows(n_samples, expected):
    assert choose_bin_samples(n_samples) == expected
    bins = sum(-(-n // expected) for n in n_samples)
    assert bins <= 1_000_000 + len(n_samples)
    if expected > 1:
        assert sum(-(-n // (expected - 1)) for n in n_samples) > 1_000_000
