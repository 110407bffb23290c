"""The CUDA kernels under Numba's simulator against their CPU twins.

The simulator is chosen before Numba is imported, so these run in a process of their own, which
`tests/test_kernels_cuda.py` starts.
"""

import os

import numpy as np
import pytest

if os.environ.get("NUMBA_ENABLE_CUDASIM") != "1":
    pytest.skip("run by tests/test_kernels_cuda.py", allow_module_level=True)

from signals import SHORT, counts, with_gaps

from ecg_dask import kernels
from ecg_dask.kernels import cpu, cuda
from ecg_dask.segment import detector
from ecg_dask.segment.detector import detect, integrated_ricker

TAPS = integrated_ricker(0.015, 100, 6)


@pytest.fixture(scope="module", params=["whole", "gaps"])
def x(request):
    signal = counts(420, seed=3)[0][:, 0]
    spans = [(0, 2), (90, 91), (200, 230), (231, 232), (419, 420)]
    return with_gaps(signal, spans if request.param == "gaps" else [])


def close(got, expected):
    # The simulator rounds a fused multiply-add twice.
    np.testing.assert_allclose(got, expected, rtol=2e-6, atol=1e-3)
    assert got.dtype == expected.dtype


def test_response(x):
    close(cuda.response(x, TAPS), cpu.response(x, TAPS))


def test_energy(x):
    close(cuda.energy(x, 3), cpu.energy(x, 3))


@pytest.mark.parametrize("first", [0, 7, 100])
def test_cells_thresholds_and_peaks(x, first):
    e = cpu.energy(cpu.response(x, TAPS), 3)
    maxima = cpu.cell_maxima(e, first, 10)
    np.testing.assert_array_equal(cuda.cell_maxima(e, first, 10), maxima)
    floor = cpu.thresholds(maxima, 4, 5, 0.0625)
    np.testing.assert_array_equal(cuda.thresholds(maxima, 4, 5, 0.0625), floor)
    found = cpu.peaks(e, floor, first, 10, 20)
    assert found.size > 2
    np.testing.assert_array_equal(cuda.peaks(e, floor, first, 10, 20), found)


def test_equal_peaks():
    e = np.array([0, 5, 5, 0, 5, 0], np.float32)
    assert cuda.peaks(e, np.zeros(1, np.float32), 0, 6, 3).tolist() == [1]
    w = np.array([1, -3, 3, 2], np.float32)
    assert cuda.strongest(w, np.array([2]), 2)[0].tolist() == [1]


def test_positions_and_measures(x):
    x = x.copy()
    x[120:126] = x[120]
    w = cpu.response(x, TAPS)
    e = cpu.energy(w, 3)
    peak = cpu.peaks(e, np.zeros(1, np.float32), 0, 420, 15)
    position, at_edge = cpu.strongest(w, peak, 5)
    got = cuda.strongest(w, peak, 5)
    np.testing.assert_array_equal(got[0], position)
    np.testing.assert_array_equal(got[1], at_edge)
    expected = cpu.measure(x, e, peak, position, 6, 12, 28, 3)
    for column, twin in zip(
        cuda.measure(x, e, peak, position, 6, 12, 28, 3), expected, strict=True
    ):
        close(column, twin)


def test_nothing_in_nothing_out():
    empty = np.empty(0, np.float32)
    assert cuda.response(empty, TAPS).size == cuda.energy(empty, 3).size == 0
    assert cuda.cell_maxima(empty, 0, 10).size == 0
    assert cuda.peaks(empty, empty, 0, 10, 3).size == 0


def test_the_detector_on_the_cuda_kernels_finds_the_same_beats(x, monkeypatch):
    """Device law: samples are the same, floats within 1e-6."""
    expected = detect(x, 50, (50, 470), SHORT, 100.0)
    assert expected.sample.size > 4
    monkeypatch.setattr(kernels, "_twin", lambda array: cuda)
    got = detector.detect(x, 50, (50, 470), SHORT, 100.0)
    np.testing.assert_array_equal(got.sample, expected.sample)
    np.testing.assert_array_equal(got.next_sample, expected.next_sample)
    np.testing.assert_allclose(got.amplitude, expected.amplitude, rtol=1e-6)
    np.testing.assert_allclose(got.quality, expected.quality, rtol=1e-6)
    assert got.pruned == expected.pruned
