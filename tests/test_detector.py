"""The detector on one block: its steps, what they are for, and the convolution by Fourier."""

from dataclasses import replace

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_signals import gap_lists, gappy
from signals import SHORT, counts, with_gaps

from ecg_dask import Detector, InputError, kernels
from ecg_dask.segment.detector import detect, fft_response, integrated_ricker

GAPS = [(0, 2), (90, 91), (400, 430), (431, 432), (900, 960), (1199, 1200)]


def found(x, detector, fs, first=0):
    return detect(np.ascontiguousarray(x), first, (first, first + len(x)), detector, fs)


#: Detectors that prune much, accept much, and wait long for the next beat.
DETECTORS = {
    "short": (SHORT, 100.0),
    "prunes": (replace(SHORT, threshold=0.02, refractory_s=0.5), 100.0),
    "windows": (replace(SHORT, after_s=0.7, threshold=0.2), 128.0),
    "near": (replace(SHORT, rhythm_s=0.5, noise_s=0.3, peak_s=0.1), 200.0),
    "default": (Detector(), 100.0),
}


@pytest.mark.parametrize("name", DETECTORS)
@pytest.mark.parametrize("gaps", [[], GAPS, "cut"], ids=["whole", "gaps", "cut"])
def test_a_block_gives_what_obvious_loops_give(name, gaps):
    detector, fs = DETECTORS[name]
    signal, at = counts(1200, fs=fs, seed=len(name), noise=25, faintest=0.1)
    if gaps == "cut":
        # Begins or ends within each third QRS complex.
        gaps = [(beat + i % 3, beat + 9) for i, beat in enumerate(at[::3])]
        gaps += [(beat - 9, beat - i % 3) for i, beat in enumerate(at[1::3])]
    x = with_gaps(signal[:, 0], gaps)
    first, core = 1003, (1003 + 150, 1003 + 1100)
    got = detect(x, first, core, detector, fs)
    sample, following, amplitude, quality, pruned = naive.detect(x, first, core, detector, fs)
    np.testing.assert_array_equal(got.sample, sample)
    np.testing.assert_array_equal(got.next_sample, following)
    np.testing.assert_allclose(got.amplitude, amplitude, rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose(got.quality, quality, rtol=1e-4, atol=1e-4)
    assert got.pruned == pruned
    assert got.sample.size > 2
    if name == "prunes":
        assert pruned > 0
    types = [column.dtype for column in got[:4]]
    assert types == [np.int64, np.int64, np.float32, np.float32]


def test_the_crests_of_a_block_are_told():
    x = gappy(2)
    w = SHORT.widths(100.0)
    taps = integrated_ricker(SHORT.wavelet_s, 100.0, w.wavelet)
    expected = kernels.crests(x, taps, w.energy, 77, w.sub)[0]
    np.testing.assert_array_equal(found(x, SHORT, 100.0, 77).crests, expected)


def regular(fs, n_beats, *, missing=(), faint=(), early=(), t_wave=0.2, noise=2.0, seed=0):
    """Return beats a second apart, some missing, faint, or 0.5 s early, and where they are."""
    rng = np.random.default_rng(seed)
    time = np.arange(int((n_beats + 1) * fs)) / fs
    x = rng.normal(0, noise, time.size)
    at = []
    for beat in range(n_beats):
        if beat in missing:
            continue
        when = beat + (0.5 if beat in early else 1)
        height = 70 if beat in faint else 500
        x += height * np.exp(-(((time - when) / 0.012) ** 2))
        x += height * t_wave * np.exp(-(((time - when - 0.28) / 0.05) ** 2))
        at.append(round(when * fs))
    return np.round(x).astype(np.float32), np.array(at)


@pytest.mark.parametrize("fs", [128.0, 360.0])
def test_every_beat_is_found_and_no_t_wave(fs):
    for t_wave in (-0.6, 0.2, 0.6):
        x, at = regular(fs, 30, t_wave=t_wave)
        np.testing.assert_allclose(found(x, Detector(), fs).sample, at, atol=1)


def test_a_faint_beat_is_found_where_one_was_due_and_not_where_it_would_split_an_interval():
    x, at = regular(250.0, 30, faint=[14])
    np.testing.assert_allclose(found(x, Detector(), 250.0).sample, at, atol=1)
    # The same deflection, halfway between two beats that were due.
    y, others = regular(250.0, 30)
    middle = (others[13] + others[14]) // 2
    y[middle - 60 : middle + 60] = x[at[14] - 60 : at[14] + 60]
    np.testing.assert_allclose(found(y, Detector(), 250.0).sample, others, atol=1)


def test_a_jump_at_the_edge_of_a_gap_is_pruned():
    x, at = regular(250.0, 12)
    x[at[5] + 80 : at[5] + 160] = np.nan
    x[at[5] + 120 : at[5] + 122] = 0, 50_000
    got = found(x, Detector(), 250.0)
    np.testing.assert_allclose(got.sample, at, atol=1)
    assert got.pruned == 1
    # Where it does not lie in the core, another block counts it.
    assert detect(x, 0, (0, at[5] + 120), Detector(), 250.0).pruned == 0


def test_a_core_owns_the_beat_at_its_start_and_not_the_one_at_its_stop():
    x, at = regular(250.0, 12, noise=0)
    got = detect(x, 0, (at[3], at[7]), Detector(), 250.0)
    np.testing.assert_array_equal(got.sample, at[3:7])


def test_the_next_beat_is_told_when_it_is_within_the_window():
    x, at = regular(250.0, 12, noise=0)
    for after_s, within in ((1.0, False), (1.004, True)):
        got = found(x, Detector(after_s=after_s), 250.0)
        np.testing.assert_array_equal(got.sample, at)
        never = np.iinfo(np.int64).max
        following = [*at[1:], never] if within else [never] * 12
        np.testing.assert_array_equal(got.next_sample, following)


def test_noise_costs_quality():
    quality = [
        float(np.median(found(regular(250.0, 30, noise=noise)[0], Detector(), 250.0).quality))
        for noise in (1.0, 60.0, 150.0)
    ]
    assert quality == sorted(quality, reverse=True)
    assert quality[0] > 0.95 > 0.85 > quality[-1]


def test_a_pause_brings_no_beats_and_an_early_beat_is_one():
    x, at = regular(250.0, 30, missing=[9, 10, 11], early=[20])
    np.testing.assert_allclose(found(x, Detector(), 250.0).sample, at, atol=1)


FFT = replace(SHORT, convolution="fft")


@given(
    seed=st.integers(0, 50), n=st.integers(0, 500), gaps=gap_lists, k=st.sampled_from([1, 2, 6, 25])
)
@settings(max_examples=60, deadline=None)
def test_the_fourier_response_is_the_response_away_from_gaps(seed, n, gaps, k):
    x = with_gaps(gappy(seed, 500)[:n], gaps)
    taps = integrated_ricker(0.015, 16.7 * k, k)
    got, expected = fft_response(x, taps), kernels.response(x, taps)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(np.isnan(got), np.isnan(x))
    # Samples that see no gap, and the recording's ends, which both take for level.
    missing = np.convolve(np.isnan(x), np.ones(2 * k + 1), "full")[k : k + n] if n else x
    away = missing == 0
    atol = 1e-6 * np.abs(np.nan_to_num(np.diff(x))).max(initial=0.0)
    np.testing.assert_allclose(got[away], expected[away], rtol=0, atol=atol)


@pytest.mark.parametrize("k", [1, 6, 25])
@pytest.mark.parametrize("offset", [0, 100_000])
def test_the_fourier_response_is_the_response_without_gaps(k, offset):
    x = counts(5000, seed=k)[0][:, 0] + np.float32(offset)
    taps = integrated_ricker(0.015, 16.7 * k, k)
    expected = kernels.response(x, taps)
    np.testing.assert_allclose(
        fft_response(x, taps), expected, rtol=0, atol=2e-6 * np.abs(expected).max()
    )


@pytest.mark.parametrize("gaps", [[], GAPS], ids=["whole", "gaps"])
def test_the_fourier_convolution_finds_the_same_beats(gaps, monkeypatch):
    x = with_gaps(counts(3000, seed=4)[0][:, 0], gaps)
    direct = found(x, SHORT, 100.0)
    monkeypatch.delattr(kernels, "crests")
    fourier = found(x, FFT, 100.0)
    np.testing.assert_array_equal(fourier.sample, direct.sample)
    np.testing.assert_array_equal(fourier.next_sample, direct.next_sample)
    np.testing.assert_array_equal(fourier.amplitude, direct.amplitude)
    np.testing.assert_allclose(fourier.quality, direct.quality, atol=1e-3)
    assert direct.sample.size > 30


@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("value", [0.0, 5.0, np.nan])
def test_the_fourier_convolution_of_nothing(n, value):
    assert found(np.full(n, value, np.float32), FFT, 100.0).sample.size == 0


@pytest.mark.parametrize("word", ["FFT", "", None, 1])
def test_no_other_convolution(word):
    with pytest.raises(InputError, match=r'Detector\.convolution.*"direct" or "fft"'):
        Detector(convolution=word)
