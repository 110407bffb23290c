"""The CPU kernels against obvious loops."""

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from signals import counts, with_gaps

from ecg_dask.kernels import cpu
from ecg_dask.segment.cut import cut
from ecg_dask.segment.detector import integrated_ricker


def gappy(seed=0, n=500):
    x = counts(n, seed=seed)[0][:, 0]
    return with_gaps(x, [(0, 2), (90, 91), (200, 230), (231, 232), (n - 1, n)])


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


@given(st.integers(0, 50), st.integers(1, 9), st.integers(1, 40), st.integers(0, 999))
@settings(max_examples=40, deadline=None)
def test_energy_cells_and_thresholds_equal_the_loops(seed, radius, cell, first):
    x = gappy(seed, 300)
    e = cpu.energy(x, radius)
    np.testing.assert_allclose(e, naive.energy(x, radius), rtol=1e-5)
    maxima = cpu.cell_maxima(e, first, cell)
    np.testing.assert_array_equal(maxima, naive.cell_maxima(e, first, cell))
    floor = cpu.thresholds(maxima, 4, 5, 0.25)
    np.testing.assert_array_equal(floor, naive.thresholds(maxima, 4, 5, 0.25))
    got = cpu.peaks(e, floor, first, cell, 3 * radius)
    np.testing.assert_array_equal(got, naive.peaks(e, floor, first, cell, 3 * radius))


def test_the_first_of_equal_peaks_stays():
    e = np.array([0, 5, 5, 0, 5, 0], np.float32)
    floor = np.zeros(1, np.float32)
    assert cpu.peaks(e, floor, 0, 6, 3).tolist() == [1]
    assert cpu.strongest(np.array([1, -3, 3, 2], np.float32), np.array([2]), 2)[0].tolist() == [1]


def test_peaks_beside_many_gaps_all_fit():
    e = np.full(41, np.nan, np.float32)
    e[::2] = 1
    assert cpu.peaks(e, np.zeros(1, np.float32), 0, 41, 20).size == 21


@pytest.mark.parametrize("seed", range(5))
def test_position_and_measures_equal_the_loops(seed):
    x = gappy(seed)
    x[120:126] = x[120]  # clipped
    w = cpu.response(x, integrated_ricker(0.015, 100, 6))
    e = cpu.energy(w, 3)
    floor = cpu.thresholds(cpu.cell_maxima(e, 7, 10), 4, 5, 0.05)
    peak = cpu.peaks(e, floor, 7, 10, 10)
    assert peak.size > 4
    position, at_edge = cpu.strongest(w, peak, 5)
    expected = naive.strongest(w, peak, 5)
    np.testing.assert_array_equal(position, expected[0])
    np.testing.assert_array_equal(at_edge, expected[1])
    got = cpu.measure(x, e, peak, position, 6, 12, 28, 3)
    for column, oracle in zip(got, naive.measure(x, e, peak, position, 6, 12, 28, 3), strict=True):
        np.testing.assert_allclose(column, oracle, rtol=1e-5, atol=1e-6)


def test_cut_equals_the_loop():
    x = with_gaps(counts(300, n_leads=2)[0], [(120, 122)])
    x[40, 1] = np.nan
    position = np.array([0, 7, 41, 60, 118, 290, 299])
    keep = np.array([99, 3, 99, 12, 5, 99, 1])
    got = cut(x, position, 10, 15, keep)
    expected = naive.cut(x, position, 10, 15, keep)
    np.testing.assert_array_equal(got[0], expected[0])
    np.testing.assert_array_equal(got[1], expected[1])
    assert got[1].tolist() == [False, False, False, True, False, False, False]
