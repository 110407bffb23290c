import numpy as np
import pytest
import torch
from anomaly_beats import WINDOW, make_beats, make_waves

from ecg_dask import Model, train
from ecg_dask.anomaly.vae import new_network
from ecg_dask.report.reconstruction import points_s, reconstructions


@pytest.fixture(scope="module")
def trained():
    """A model of beats of an R wave of 1 mV, and their waves."""
    waves = make_waves(600)
    return train(make_beats(waves), epochs=20), waves


NO_NEXT = np.nan


def at_points(wave, fs=250.0):
    times_s = np.arange(-round(WINDOW[0] * fs), round(WINDOW[1] * fs)) / fs
    return np.interp(points_s(WINDOW), times_s, wave)


def test_points_lie_evenly_in_the_window():
    times_s = points_s(WINDOW)
    assert times_s.shape == (128,)
    np.testing.assert_allclose(np.diff(times_s), 0.7 / 128)
    assert times_s[0] + 0.25 == pytest.approx(0.45 - times_s[-1]) == pytest.approx(0.35 / 128)


def test_a_learned_beat_comes_back_in_its_own_unit(trained):
    model, waves = trained
    made = reconstructions(list(waves[:20]), [1.0] * 20, [NO_NEXT] * 20, [250.0] * 20, model)
    for one, wave in zip(made, waves, strict=False):
        assert one.dtype == np.float32
        assert np.abs(one - at_points(wave[0])).mean() < 0.05
        assert one.max() == pytest.approx(wave.max(), abs=0.2)
        assert points_s(WINDOW)[one.argmax()] == pytest.approx(0, abs=0.01)


def test_a_shape_that_is_not_learned_does_not_come_back(trained):
    model, _ = trained
    (odd,) = make_waves(1, odd=[0])
    (made,) = reconstructions([odd], [1.0], [NO_NEXT], [250.0], model)
    assert np.abs(made - at_points(odd[0])).mean() > 0.1


def test_scale_and_offset_of_the_recording_come_back(trained):
    model, waves = trained
    (made,) = reconstructions([waves[3]], [1.0], [NO_NEXT], [250.0], model)
    (scaled,) = reconstructions([waves[3] * 1024 + 4096], [1024.0], [NO_NEXT], [250.0], model)
    np.testing.assert_allclose(scaled, made * 1024 + 4096, atol=1)


def test_the_next_beat_changes_nothing_before_it(trained):
    model, waves = trained
    before, after = waves[3], waves[3].copy()
    begins = round((WINDOW[0] + 0.31) * 250)
    after[:, begins:] += 5
    made = [reconstructions([wave], [1.0], [0.4], [250.0], model)[0] for wave in (before, after)]
    np.testing.assert_allclose(made[1], made[0], atol=1e-5)
    (seen,) = reconstructions([after], [1.0], [NO_NEXT], [250.0], model)
    assert np.abs(seen - made[0]).max() > 0.5
    early = points_s(WINDOW) < 0.2
    wave = at_points(before[0])
    assert np.abs(made[0] - wave)[early].mean() < 0.15


def test_of_several_rates_each_beat_has_its_own(trained):
    model, waves = trained
    double = np.repeat(waves[3], 2, axis=1)
    slow, fast = reconstructions(
        [waves[3], double], [1.0, 1.0], [NO_NEXT] * 2, [250.0, 500.0], model
    )
    np.testing.assert_allclose(fast, slow, atol=0.1)
    (alone,) = reconstructions([double], [1.0], [NO_NEXT], [500.0], model)
    np.testing.assert_array_equal(fast, alone)


def test_all_leads_are_seen_and_the_first_is_returned(trained):
    model, waves = trained
    weights = new_network(2, model.latent, torch.Generator().manual_seed(1)).state_dict()
    (bias,) = (value for value in weights.values() if value.shape == (2,))
    bias[1] = 1000.0
    two = Model(
        weights={name: value.numpy() for name, value in weights.items()},
        window=WINDOW,
        n_leads=2,
        latent=model.latent,
        seed=0,
        epochs=0,
    )
    beats = [np.concatenate([waves[0], waves[i]]) for i in (1, 2)]
    made = reconstructions(beats, [1.0, 1.0], [NO_NEXT] * 2, [250.0, 250.0], two)
    assert [one.shape for one in made] == [(128,), (128,)]
    assert not np.array_equal(*made)
    assert np.abs(made).max() < 10


def test_no_beats_need_no_network():
    assert reconstructions([], [], [], [], None) == []
