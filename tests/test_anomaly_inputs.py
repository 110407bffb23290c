"""What the autoencoder sees of a beat."""

import numpy as np
import pytest
from anomaly_beats import WINDOW, bump, make_waves

from ecg_dask.anomaly.inputs import (
    HEIGHT,
    LENGTH,
    model_inputs,
    resampling,
)


def inputs(waves: np.ndarray, fs: float, scale: float = 1.0) -> np.ndarray:
    """Return the inputs of waves that share one scale."""
    return model_inputs(waves, np.full(len(waves), scale, np.float32), fs, WINDOW)


def naive_inputs(waves: np.ndarray, fs: float, window: tuple[float, float]) -> np.ndarray:
    """The same by obvious loops, in double precision."""
    out = np.zeros((*waves.shape[:2], LENGTH))
    before_s, after_s = window
    step_s = (before_s + after_s) / LENGTH
    reach_s = max(step_s, 1 / fs)
    n_window = waves.shape[-1]
    times_s = [(i - round(before_s * fs)) / fs for i in range(n_window)]
    for beat in range(waves.shape[0]):
        for lead in range(waves.shape[1]):
            for point in range(LENGTH):
                t = min(max(-before_s + (point + 0.5) * step_s, times_s[0]), times_s[-1])
                total = weights = 0.0
                for i in range(n_window):
                    weight = 1 - abs(times_s[i] - t) / reach_s
                    if weight > 0:
                        total += weight * float(waves[beat, lead, i])
                        weights += weight
                out[beat, lead, point] = total / weights
            out[beat, lead] -= out[beat, lead].mean()
            out[beat, lead] *= HEIGHT
    return out


@pytest.mark.parametrize("fs", [100.0, 250.0, 360.0, 1000.0, 257.3])
def test_inputs_are_those_of_obvious_loops(fs: float) -> None:
    waves = np.concatenate([make_waves(3, fs), make_waves(3, fs, odd=[1], seed=1)], axis=1)
    found = inputs(waves, fs)
    assert found.dtype == np.float32
    assert found.shape == (3, 2, LENGTH)
    assert found.flags.c_contiguous
    np.testing.assert_allclose(found, naive_inputs(waves, fs, WINDOW), atol=2e-5)


@pytest.mark.parametrize("n", [1, 2, 3, 17, 300])
def test_a_row_has_the_same_bits_alone_and_among_others(n: int) -> None:
    waves = make_waves(300, 360.0)
    whole = inputs(waves, 360.0)
    for start in (0, 5, 300 - n):
        part = inputs(waves[start : start + n], 360.0)
        assert np.array_equal(part, whole[start : start + n])


def test_rates_give_nearly_the_same_inputs() -> None:
    slow, fast, faster = (inputs(make_waves(20, fs, noise=0), fs) for fs in (250.0, 360.0, 1000.0))
    # The QRS complex is 4 high.
    assert np.abs(slow - fast).max() < 0.1
    assert np.abs(fast - faster).max() < 0.1
    # Half a sample of shift between the rates would be seen.
    assert np.abs(slow - np.roll(fast, 1, axis=-1)).max() > 0.5


def test_high_frequencies_do_not_fold() -> None:
    fs = 1000.0
    t = np.arange(-250, 450) / fs
    beat = bump(t, 0, 0.02)
    hum = 0.5 * np.sin(2 * np.pi * 360 * t)  # above half of the new rate, 183 Hz
    clean = inputs(beat[None, None].astype(np.float32), fs)
    noisy = inputs((beat + hum)[None, None].astype(np.float32), fs)
    assert np.abs(clean - noisy).max() < 0.1


def test_scale_and_offset_leave_no_trace() -> None:
    counts = np.round(200 * make_waves(10)).astype(np.float32)
    plain = inputs(counts, 250.0, 200.0)
    assert np.array_equal(inputs(counts + 1e6, 250.0, 200.0), plain)
    assert np.array_equal(inputs(counts * 2.0**-40, 250.0, 200.0 * 2.0**-40), plain)
    assert np.array_equal(inputs(-counts, 250.0, 200.0), -plain)
    for scale in (1e-30, 1e30):
        scaled = inputs(counts * np.float32(scale), 250.0, 200.0 * scale)
        np.testing.assert_allclose(scaled, plain, atol=1e-5)


def test_a_larger_beat_stays_larger() -> None:
    waves = make_waves(2)
    waves[1] = 3 * waves[0]
    found = inputs(waves, 250.0)
    np.testing.assert_allclose(found[1], 3 * found[0], rtol=1e-5, atol=1e-5)


def test_the_next_beat_is_no_part_of_one() -> None:
    waves = make_waves(3)
    early = waves.copy()
    # The next R peak 0.4 s behind this one; its QRS complex begins 0.1 s before.
    early[..., round((0.25 + 0.31) * 250) :] += 5
    scale, next_s = np.ones(3, np.float32), np.full(3, 0.4)
    found = model_inputs(early, scale, 250.0, WINDOW, next_s)
    np.testing.assert_array_equal(found, model_inputs(waves, scale, 250.0, WINDOW, next_s))
    last = int((0.25 + 0.3) / 0.7 * LENGTH - 0.5)
    assert (found[..., last:] == found[..., last, None]).all()
    assert (found[..., last - 1] != found[..., last]).all()
    # Beats far away, and unknown ones, change nothing.
    for far in (0.7, np.nan):
        same = model_inputs(waves, scale, 250.0, WINDOW, np.full(3, far))
        np.testing.assert_array_equal(same, inputs(waves, 250.0))


def test_flat_beats_are_zero_and_nothing_hides_what_is_not_finite() -> None:
    waves = make_waves(5)
    waves[1] = 0
    waves[2] = 3.3e5
    waves[3, 0, 10] = np.nan
    waves[4, 0, :2] = [-3e38, 3e38]
    found = inputs(waves, 250.0)
    assert np.isfinite(found[0]).all()
    assert not found[1:3].any()
    assert not np.isfinite(found[3]).all()
    assert not np.isfinite(found[4]).all()


@pytest.mark.parametrize(("n_window", "fs"), [(1, 10.0), (2, 3.0), (7, 10.0), (7000, 10000.0)])
def test_weights_of_any_window_sum_to_one(n_window: int, fs: float) -> None:
    index, weight = resampling(n_window, fs, WINDOW)
    assert index.shape == weight.shape
    assert index.min() >= 0
    assert index.max() < n_window
    np.testing.assert_allclose(weight.sum(axis=0), 1, atol=1e-6)


def test_no_beats_give_no_inputs() -> None:
    assert inputs(make_waves(0), 250.0).shape == (0, 1, LENGTH)
