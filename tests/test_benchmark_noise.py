import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.signal import welch

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

from noise import KINDS, at_snr, seed_of, signal_power

kinds = pytest.mark.parametrize("kind", KINDS)
rates = pytest.mark.parametrize("fs", [250.0, 360.0])


def share(x, fs, low, high):
    frequency, power = welch(x, fs, nperseg=int(60 * fs))
    return power[(frequency >= low) & (frequency < high)].sum() / power.sum()


@kinds
@rates
def test_noise_has_mean_0_and_mean_square_1_and_is_given_by_its_seed(kind, fs):
    noise = KINDS[kind](45_001, fs, 3)
    assert noise.shape == (45_001,)
    assert abs(noise.mean()) < 1e-9
    assert np.mean(noise**2) == pytest.approx(1)
    np.testing.assert_array_equal(noise, KINDS[kind](45_001, fs, 3))
    assert abs(np.corrcoef(noise, KINDS[kind](45_001, fs, 4))[0, 1]) < 0.5


@rates
def test_each_kind_has_its_power_where_it_says(fs):
    made = {kind: make(int(1200 * fs), fs, 5) for kind, make in KINDS.items()}
    assert share(made["baseline"], fs, 0, 0.72) > 0.999
    assert 0.5 < share(made["baseline"], fs, 0.15, 0.35) < 0.75
    assert 0.12 < share(made["muscle"], fs, 5, 25) < 0.22
    assert share(made["muscle"], fs, 0, 5) < 0.01
    assert share(made["electrode"], fs, 1, 10) > 0.55
    assert share(made["electrode"], fs, 25, fs / 2) < 0.01


def test_muscle_noise_comes_in_contractions():
    noise = KINDS["muscle"](360 * 600, 360.0, 6)
    height = np.sqrt(np.mean(noise.reshape(600, 360) ** 2, axis=1))
    # Stationary noise of this bandwidth stays within a tenth of its median.
    assert 0.1 < np.mean(height > 1.6 * np.median(height)) < 0.22


def test_an_event_before_the_start_is_no_error():
    for seed in range(40):
        assert np.isfinite(KINDS["electrode"](720, 360.0, seed)).all()


def test_power_is_that_of_a_sine_as_high_as_the_median_qrs_complex():
    fs, beats = 100.0, [50, 150, 250, 399]
    lead = np.zeros(400)
    lead[[48, 148, 248]] = -1, -0.5, -1
    lead[[52, 152, 252]] = 1, 0.5, 1
    lead[[60, 160]] = 90  # outside 50 ms
    lead[399] = 9  # the highest of four
    assert signal_power(lead, beats, fs) == pytest.approx(2**2 / 8)


@pytest.mark.parametrize(("snr_db", "expected"), [(0, 0.5), (6, 0.5 / 10**0.6), (20, 0.005)])
def test_noise_is_scaled_to_its_level(snr_db, expected):
    noise = KINDS["muscle"](10_000, 360.0, 1)
    scaled = at_snr(noise, 0.5, snr_db)
    assert np.mean(scaled**2) == pytest.approx(expected)
    np.testing.assert_allclose(scaled / scaled[0], noise / noise[0])


def test_seeds_are_the_same_everywhere():
    assert seed_of("100", "muscle") == 1110020879
    assert len({seed_of(record, kind) for record in ("100", "101") for kind in KINDS}) == 6
