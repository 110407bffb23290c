"""Scale and rate laws: what a beat is depends neither on the unit nor on the sampling rate."""

import mitdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from signals import SHORT, counts

from ecg_dask import Detector, evaluate
from ecg_dask.segment.detector import detect

MITDB_FS = 360.0


def beats(x, fs=100.0, detector=SHORT):
    return detect(np.ascontiguousarray(x, np.float32), 0, (0, len(x)), detector, fs)


@given(st.integers(0, 20), st.integers(-20, 20), st.booleans(), st.integers(-100_000, 100_000))
@settings(max_examples=60, deadline=None)
def test_negation_powers_of_two_and_whole_offsets_change_nothing(seed, power, negate, offset):
    x = counts(1500, seed=seed)[0][:, 0]
    scale = np.float32((-1 if negate else 1) * 2.0**power)
    plain, changed = beats(x), beats((x + np.float32(offset)) * scale)
    assert plain.sample.size > 10
    np.testing.assert_array_equal(changed.sample, plain.sample)
    np.testing.assert_array_equal(changed.quality, plain.quality)
    np.testing.assert_array_equal(changed.amplitude, plain.amplitude * scale)
    assert changed.pruned == plain.pruned


@pytest.mark.parametrize(("scale", "offset"), [(1.1e-4, 0), (0.9e4, 0), (-0.37, 0), (0.005, 100.0)])
def test_mitdb_keeps_its_beats_under_scale_and_offset(data_dir, scale, offset):
    """No beat lost or gained, at most one in 10,000 moved, by a sample."""
    n_beats = moved = 0
    for name in mitdb.names(data_dir):
        x = mitdb.first_lead(data_dir, name)
        plain = beats(x, MITDB_FS, Detector()).sample
        qrs = np.percentile(np.abs(x - np.median(x)), 99) * abs(scale)
        changed = beats(
            x * np.float32(scale) + np.float32(offset * qrs), MITDB_FS, Detector()
        ).sample
        assert changed.size == plain.size, name
        assert np.abs(changed - plain).max() <= 1, name
        n_beats += plain.size
        moved += np.count_nonzero(changed != plain)
    assert moved <= n_beats / 10_000


@pytest.mark.parametrize(("up", "down"), [(5, 18), (25, 36), (25, 18), (25, 9)])
def test_mitdb_resampled_keeps_its_beats(data_dir, up, down):
    """At 100, 250, 500 and 1000 Hz: F1 of at least 99.5 % at 50 ms against 360 Hz."""
    signal = pytest.importorskip("scipy.signal")
    fs = MITDB_FS * up / down
    hits = others = 0
    for name in mitdb.names(data_dir)[::4]:
        x = mitdb.first_lead(data_dir, name)
        plain = beats(x, MITDB_FS, Detector()).sample
        # Resampled around its middle: the filter takes what lies beyond the ends for zeros.
        middle = np.median(x)
        resampled = signal.resample_poly(x.astype(np.float64) - middle, up, down)
        changed = beats(resampled, fs, Detector()).sample
        result = evaluate(
            np.round(changed * (MITDB_FS / fs)).astype(np.int64),
            plain,
            fs=MITDB_FS,
            tolerance_s=0.05,
        )
        hits += result.hits
        others += result.false + result.missed
    assert 2 * hits / (2 * hits + others) >= 0.995
