"""Beats beside the usual ones of their record, and what a score is made of."""

from typing import Any

import dask
import numpy as np
import pytest
import torch
from anomaly_beats import WINDOW, bump, make_beats, make_table, make_waves
from scipy.stats import norm

from ecg_dask.anomaly import Model, train
from ecg_dask.anomaly.inputs import LENGTH, model_inputs
from ecg_dask.anomaly.profile import (
    FAINT,
    NO_P,
    Profile,
    profile_of,
    profiles,
    regions,
    views,
)
from ecg_dask.anomaly.scoring import PARTS, score_inputs, surprise

N = 400


@pytest.fixture(autouse=True)
def _synchronous() -> Any:
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def model() -> Model:
    with dask.config.set(scheduler="synchronous"):
        return train(make_beats(make_waves(N)), epochs=15)


def inputs(waves: np.ndarray) -> torch.Tensor:
    scale = np.ones(len(waves), np.float32)
    return torch.from_numpy(model_inputs(waves, scale, 250.0, WINDOW))


def scored(model: Model, waves: np.ndarray, rr_prev_s: dict[int, float] | None = None) -> Any:
    table = make_table(len(waves))
    for row, value in (rr_prev_s or {}).items():
        table.loc[row, "rr_prev_s"] = value
    return model.score(make_beats(waves, table)).compute()


def p_wave(size: float) -> np.ndarray:
    """Return a P wave of so many times the usual size, as it stands in a wave at 250 Hz."""
    t = np.arange(-round(WINDOW[0] * 250), round(WINDOW[1] * 250)) / 250
    return (0.12 * size * bump(t, -0.16, 0.02)).astype(np.float32)


def test_regions_lie_at_their_times_in_any_window() -> None:
    where = regions((0.25, 0.45))
    step_s = 0.7 / LENGTH
    assert where.qrs == slice(38, 60)
    assert where.p == slice(0, 38)
    assert abs(where.qrs.start * step_s - (0.25 - 0.042)) < step_s
    for window in ((0.02, 0.03), (0.5, 0.5), (0.001, 1.0), (1.0, 0.001)):
        for part in regions(window):
            assert 0 <= part.start <= part.stop - 2 <= LENGTH - 2


def test_views_are_those_of_obvious_loops() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 7, 2, LENGTH)).astype(np.float32)
    types = rng.normal(size=(3, 2, LENGTH)).astype(np.float32)
    wave, residual = rng.normal(size=(2, 2, LENGTH)).astype(np.float32)
    profile = Profile(types, wave, residual, np.zeros(4, np.float32), np.ones(4, np.float32))
    found = views(torch.from_numpy(x), torch.from_numpy(y), profile.on("cpu"), regions(WINDOW))
    typical = wave[:, 0:38] - wave[:, 0:38].mean(axis=1, keepdims=True)
    # Up to 0.2 s behind the R peak, which is 0.25 s from the start.
    x, y = (part - part[..., :82].mean(axis=-1, keepdims=True) for part in (x, y))
    for beat in range(7):
        qrs = x[beat, :, 38:60]
        distances = [((qrs - one[:, 38:60]) ** 2).mean() for one in types]
        near = types[int(np.argmin(distances)), :, 38:60]
        left = (x[beat] - y[beat] - residual)[:, 38:60]
        p = x[beat, :, 0:38] - x[beat, :, 0:38].mean(axis=1, keepdims=True)
        other = ((p - typical) ** 2).mean()
        own = (p**2).mean() + NO_P * (typical**2).mean()
        energies = [min(distances), (left**2).mean(), other, other / own]
        np.testing.assert_allclose(found.logs[beat], np.log(np.add(energies, FAINT)), rtol=1e-4)
        gain = (near * qrs).sum() / (near**2).sum()
        rest = [((qrs - gain * near) ** 2).mean(), ((p - gain * typical) ** 2).mean()]
        expected = np.clip(1 - np.divide(rest, [min(distances), other]), 0, 1) * (gain > 0)
        np.testing.assert_allclose(found.explained[beat], expected, rtol=1e-3, atol=1e-4)


def test_surprises_are_logarithms_of_chances() -> None:
    z = torch.tensor([-40.0, -1.0, 0.0, 3.0, 5.0, 40.0], dtype=torch.float64)
    np.testing.assert_allclose(surprise(z), -norm.logsf(z.numpy()), rtol=1e-9)


def test_a_beat_that_could_not_be_more_usual_scores_nothing_but_its_timing(model: Model) -> None:
    """Its surprises are 0, and so is what they are divided among."""
    name_and_inputs = [("a", inputs(make_waves(40)).numpy())]
    profile = profiles([name_and_inputs], model.network)["a"]
    profile = profile._replace(middle=np.full(4, 1e6, np.float32))
    found = score_inputs(
        name_and_inputs[0][1], np.zeros(40), [("a", 40)], model.network, {"a": profile}
    )
    np.testing.assert_allclose(found.score, np.log(2), rtol=1e-6)


def test_two_usual_shapes_are_two_types(model: Model) -> None:
    waves = make_waves(N, odd=range(0, N, 3), seed=5)
    vae = model.network.on(1, "cpu")
    with torch.no_grad():
        profile = profile_of(inputs(waves), vae, regions(WINDOW))
        alone = profile_of(inputs(make_waves(N)), vae, regions(WINDOW))
    # Among the types are both shapes, as closely as the beats of a kind are alike.
    for kind in (slice(0, N, 3), slice(1, N, 3)):
        shape = inputs(waves)[kind].median(dim=0).values[..., 38:60]
        nearest = (profile.types[..., 38:60] - shape).square().mean(dim=(1, 2)).min()
        assert nearest < 0.1 * shape.square().mean()
    assert len(profile.types) == 2
    assert len(alone.types) == 1


def test_a_rare_shape_is_no_type(model: Model) -> None:
    odd = range(0, N, 25)
    waves = make_waves(N, odd=odd)
    with torch.no_grad():
        profile = profile_of(inputs(waves), model.network.on(1, "cpu"), regions(WINDOW))
    shape = inputs(waves)[list(odd)].median(dim=0).values[..., 38:60]
    distance = (profile.types[..., 38:60] - shape).square().mean(dim=(1, 2)).min()
    assert distance > 0.5 * shape.square().mean()


def test_a_profile_has_one_type_of_one_beat_and_of_equal_beats(model: Model) -> None:
    for waves in (make_waves(1), np.repeat(make_waves(1), 30, axis=0)):
        found = profiles([[("a", inputs(waves).numpy())]], model.network)["a"]
        level = inputs(waves)[0, :, :82].mean()
        np.testing.assert_allclose(found.types[0], inputs(waves)[0] - level, atol=1e-6)
        assert all(np.isfinite(part).all() for part in found)
        assert (found.deviation > 0).all()


def test_without_weights_there_are_no_profiles(model: Model) -> None:
    network = model.network._replace(weights={})
    assert profiles([[("a", inputs(make_waves(3)).numpy())]], network) == {}


def test_a_score_is_the_sum_of_its_parts_and_the_reason_is_the_largest(model: Model) -> None:
    waves = make_waves(N, odd=(350,))
    found = scored(model, waves, {360: 0.5})
    parts = found[[f"score_{part}" for part in PARTS]]
    np.testing.assert_allclose(parts.sum(axis=1), found["score"], rtol=1e-5)
    assert (parts >= 0).all(axis=None)
    flagged = found["anomaly"]
    assert {350, 360} <= set(np.flatnonzero(flagged))
    largest = np.array(PARTS)[parts.to_numpy().argmax(axis=1)]
    assert (found.loc[flagged, "reason"] == largest[flagged]).all()
    assert found.loc[~flagged, "reason"].isna().all()


def test_each_part_answers_to_its_cause(model: Model) -> None:
    waves = make_waves(N)
    plain = scored(model, waves)
    assert plain["anomaly"].mean() < 0.05

    early = scored(model, waves, {350: 0.5})
    assert early["reason"][350] == "timing"
    changed = waves.copy()
    changed[350] = make_waves(1, odd=(0,))
    assert scored(model, changed)["reason"][350] == "shape"
    changed[350] = 2.5 * waves[350]
    assert scored(model, changed)["reason"][350] == "amplitude"
    # Upside down is no height.
    for size in (-0.5, -1.0, -2.0):
        changed[350] = size * waves[350]
        found = scored(model, changed)
        assert found["reason"][350] == "shape"
        assert found["score_amplitude"][350] == 0
    # A lost P wave and one upside down count as shape.
    for size in (-1.0, -2.0):
        changed[350] = waves[350] + p_wave(size)
        found = scored(model, changed)
        assert found["score_shape"][350] > plain["score_shape"].quantile(0.99)


def test_a_beat_upside_down_is_as_far_from_a_record_upside_down(model: Model) -> None:
    """Polarity and size of the recording leave no trace in timing, and none in the parts."""
    waves = make_waves(N, odd=(350,))
    found, turned = scored(model, waves), scored(train(make_beats(-waves), epochs=15), -waves)
    assert found["score"].nlargest(1).index == turned["score"].nlargest(1).index
    assert found["score_timing"].equals(turned["score_timing"])
