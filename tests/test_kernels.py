"""The CPU kernels against obvious loops."""

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_signals import gap_lists, gappy, small_numbers
from signals import counts, with_gaps

from ecg_dask import kernels
from ecg_dask.kernels import cpu, cpu_beats
from ecg_dask.segment.cut import are_complete, cut
from ecg_dask.segment.detector import integrated_ricker


def test_response_is_the_wavelet_convolution_of_each_run():
    x = gappy()
    radius, scale = 6, 1.5
    t = np.arange(-radius, radius + 1) / scale
    wavelet = (1 - t**2) * np.exp(-(t**2) / 2)
    wavelet -= wavelet.mean()
    taps = integrated_ricker(scale / 100, 100, radius)
    got = cpu.response(x, taps)
    expected = naive.convolve(x, wavelet)
    # The taps are scaled to an absolute sum of 1; the ratio is one number for all samples.
    ratio = np.nansum(got * expected) / np.nansum(expected**2)
    np.testing.assert_allclose(got, ratio * expected, atol=1e-6 * np.nanmax(np.abs(x)))
    assert got.dtype == np.float32
    assert ratio > 0


@given(
    seed=st.integers(0, 50),
    n=st.integers(1, 300),
    gaps=gap_lists,
    k=st.integers(1, 12),
    radius=st.integers(1, 9),
    first=st.integers(0, 999),
    sub=st.integers(1, 20),
)
@settings(max_examples=60, deadline=None)
def test_crests_equal_the_loops(seed, n, gaps, k, radius, first, sub):
    x = small_numbers(seed, n, gaps)
    taps = np.random.default_rng(seed).integers(-2, 3, k).astype(np.float32)
    e = naive.energy(naive.response(x, taps), radius)
    value, index = cpu.crests(x, taps, radius, first, sub)
    expected = naive.crests(e, first, sub)
    np.testing.assert_array_equal(value, expected[0])
    np.testing.assert_array_equal(index, expected[1])
    assert value.dtype == np.float32
    assert index.dtype == np.int64


@pytest.mark.parametrize("radius", [1, 2, 7, 8, 11, 20])
def test_the_sum_of_squares_has_the_stated_order(radius):
    w = np.random.default_rng(radius).normal(size=400).astype(np.float32)
    w = with_gaps(w, [(60, 61), (200, 205), (207, 208)])
    e = naive.energy_in_blocks(w, radius)
    np.testing.assert_allclose(e, naive.energy(w, radius), rtol=1e-5)
    value, index = kernels.energy_crests(w, radius, 3, 5)
    expected = naive.crests(e, 3, 5)
    np.testing.assert_array_equal(value, expected[0])
    np.testing.assert_array_equal(index, expected[1])


@pytest.mark.parametrize("k", [1, 4, 5, 15, 22])
def test_crests_are_those_of_the_response(k):
    """Over several tiles, and with runs that end at every place of one."""
    x = np.random.default_rng(k).normal(0, 50, 3 * cpu.TILE).astype(np.float32)
    x = with_gaps(x, [(at, at + 1 + at % 2) for at in range(40, x.size, 517)])
    taps = integrated_ricker(0.015, 16.7 * k, k)
    value, index = kernels.crests(x, taps, 8, 77, 8)
    expected = kernels.energy_crests(kernels.response(x, taps), 8, 77, 8)
    np.testing.assert_array_equal(value, expected[0])
    np.testing.assert_array_equal(index, expected[1])
    assert (value[index >= 0] >= 0).all()


@given(st.integers(0, 900), st.integers(0, 900), st.integers(0, 10**9), gap_lists)
@settings(max_examples=30, deadline=None)
def test_crests_do_not_depend_on_the_block(before, length, first, gaps):
    k, radius, sub = 6, 3, 4
    x = with_gaps(gappy(1, 2 * cpu.TILE + 901), gaps)
    taps = integrated_ricker(0.015, 100, k)
    value, index = kernels.crests(x, taps, radius, first, sub)
    # The block that knows a core of whole sub-cells.
    core = first // sub + 60 + before, first // sub + 61 + before + length // 4
    low, high = core[0] * sub - radius - k - first, core[1] * sub + radius + k - first
    got = kernels.crests(x[low:high], taps, radius, first + low, sub)
    at = core[0] - (first + low) // sub
    within = slice(core[0] - first // sub, core[1] - first // sub)
    n = core[1] - core[0]
    assert value[within].size == n
    np.testing.assert_array_equal(got[0][at : at + n], value[within])
    found = index[within] >= 0
    np.testing.assert_array_equal(got[1][at : at + n][found] + low, index[within][found])
    np.testing.assert_array_equal(got[1][at : at + n] >= 0, found)


@given(st.integers(0, 50), gap_lists, st.integers(-20, 20))
@settings(max_examples=20, deadline=None)
def test_crests_keep_their_places_when_negated_or_scaled(seed, gaps, power):
    x = with_gaps(gappy(seed, 300), gaps)
    taps = integrated_ricker(0.015, 100, 6)
    value, index = kernels.crests(x, taps, 3, 5, 3)
    scaled = kernels.crests(-x * np.float32(2.0**power), taps, 3, 5, 3)
    np.testing.assert_array_equal(scaled[1], index)
    missing = index < 0
    np.testing.assert_array_equal(scaled[0], np.where(missing, -1, value * np.float32(4.0**power)))


def test_crests_of_nothing():
    taps = np.ones(3, np.float32)
    for n, n_cells in ((0, 0), (1, 1), (9, 3)):
        value, index = kernels.crests(np.full(n, np.nan, np.float32), taps, 2, 6, 4)
        assert value.tolist() == index.tolist() == [-1] * n_cells
    # One sample and its copy behind a gap: a response of zero twice, the first one stays.
    value, index = kernels.crests(np.array([3, np.nan, 3], np.float32), taps, 2, 9, 4)
    assert (value.tolist(), index.tolist()) == ([0], [0])


@given(
    seed=st.integers(0, 99),
    n=st.integers(1, 120),
    first=st.integers(0, 999),
    sub=st.integers(1, 8),
    per_cell=st.integers(1, 9),
    spacing=st.integers(0, 60),
    missing=st.floats(0, 1),
)
@settings(max_examples=100, deadline=None)
def test_summits_equal_the_loops(seed, n, first, sub, per_cell, spacing, missing):
    rng = np.random.default_rng(seed)
    e = rng.integers(0, 30, n).astype(np.float32)
    e[rng.random(n) < missing] = np.nan
    value, index = naive.crests(e, first, sub)
    maxima = cpu.cell_maxima(value, first // sub, per_cell)
    np.testing.assert_array_equal(maxima, naive.cell_maxima(e, first, per_cell * sub))
    floor = np.float32(0.5) * cpu.usual_maxima(maxima, 4, 2)
    got = cpu.summits(value, index, floor, first, sub, per_cell, spacing)
    expected = naive.summits(value, index, floor, first, sub, per_cell, spacing)
    np.testing.assert_array_equal(got, expected)
    assert got.dtype == np.int64


def test_the_first_of_equal_summits_stays_across_a_gap():
    e = np.array([0, 5, np.nan, np.nan, 5, 0], np.float32)
    value, index = naive.crests(e, 0, 2)
    zero = np.zeros(1, np.float32)
    assert cpu.summits(value, index, zero, 0, 2, 3, 3).tolist() == [0]
    assert cpu.summits(value, index, zero, 0, 2, 3, 2).tolist() == [0, 2]


@given(
    seed=st.integers(0, 99),
    n=st.integers(0, 150),
    peak_cells=st.integers(1, 9),
    median_radius=st.integers(1, 30),
    missing=st.floats(0, 1),
)
@settings(max_examples=60, deadline=None)
def test_usual_maxima_equal_the_loops(seed, n, peak_cells, median_radius, missing):
    rng = np.random.default_rng(seed)
    maxima = np.round(rng.gamma(0.5, 9, n)).astype(np.float32)
    maxima[rng.random(n) < missing] = -1
    got = cpu.usual_maxima(maxima, peak_cells, median_radius)
    np.testing.assert_array_equal(got, naive.usual_maxima(maxima, peak_cells, median_radius))


crest_lists = st.lists(st.sampled_from([-1, -1, 0, 1, 2, 2, 3, 7, np.inf]), max_size=60).map(
    lambda values: np.array(values, dtype=np.float32)
)


@given(crest_lists, st.integers(0, 999), st.integers(1, 9))
@settings(max_examples=100, deadline=None)
def test_cells_equal_the_loops(value, first, cell):
    for got, expected in (
        (cpu.cell_maxima(value, first, cell), naive.cell_maxima(value, first, cell)),
        (cpu_beats.cell_middles(value, first, cell), naive.cell_middles(value, first, cell)),
    ):
        np.testing.assert_array_equal(got, expected)
        assert got.dtype == np.float32


def test_the_middle_of_an_even_number_is_the_greater_one():
    value = np.array([9, 1, -1, 4, 2, -1, -1, -1, 5], np.float32)
    assert cpu_beats.cell_middles(value, 3, 5).tolist() == [9, 4, 5]
    assert cpu_beats.cell_middles(value[:8], 5, 5).tolist() == [4, -1]


def test_cut_equals_the_loop():
    x = with_gaps(counts(300, n_leads=2)[0], [(120, 122)])
    x[40, 1] = np.nan
    position = np.array([0, 7, 41, 60, 118, 290, 299])
    keep = np.array([99, 3, 99, 12, 5, 99, 1])
    waves, complete = naive.cut(x, position, 10, 15, keep)
    np.testing.assert_array_equal(cut(x, position, 10, 15, keep), waves)
    got = are_complete(x, position, 10, 15)
    np.testing.assert_array_equal(got, complete)
    np.testing.assert_array_equal(are_complete(x[:100], position[2:4], 10, 15), complete[2:4])
    assert got.tolist() == [False, False, False, True, False, False, False]
