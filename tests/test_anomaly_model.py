"""Scores, the threshold, and model files."""

import json
import pickle
import weakref
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from anomaly_beats import make_beats, make_table, make_waves
from dask import delayed
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from ecg_dask import InputError
from ecg_dask.anomaly import Model, train
from ecg_dask.anomaly.threshold import alarm_threshold, robust_threshold
from ecg_dask.beats import stack_waves

N = 420
ODD = (100, 200, 330, 410)


@pytest.fixture(autouse=True)
def _synchronous() -> Any:
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def model() -> Model:
    with dask.config.set(scheduler="synchronous"):
        return train(make_beats(make_waves(N, odd=ODD)), epochs=15, latent=3)


@pytest.fixture(scope="module")
def scores(model: Model) -> pd.DataFrame:
    with dask.config.set(scheduler="synchronous"):
        return model.score(make_beats(make_waves(N, odd=ODD))).compute()


def test_scores_are_a_table_of_the_stated_kind(model: Model, scores: pd.DataFrame) -> None:
    assert {name: str(kind) for name, kind in scores.dtypes.items()} == {
        "score": "float32",
        "anomaly": "bool",
        "score_shape": "float32",
        "score_timing": "float32",
        "score_amplitude": "float32",
        "reason": "str",
        "z0": "float32",
        "z1": "float32",
        "z2": "float32",
    }
    lazy = model.score(make_beats(make_waves(4)))
    assert lazy.dtypes.equals(scores.dtypes)


def test_odd_beats_stand_out(scores: pd.DataFrame) -> None:
    assert set(scores["score"].nlargest(len(ODD)).index) == set(ODD)
    assert scores["anomaly"].iloc[list(ODD)].all()
    assert scores["anomaly"].sum() <= len(ODD) + 0.02 * N


@settings(max_examples=10, deadline=None)
@given(cuts=st.lists(st.integers(0, N), max_size=8).map(sorted))
def test_scores_do_not_depend_on_partitions(
    model: Model, scores: pd.DataFrame, cuts: list[int]
) -> None:
    beats = make_beats(make_waves(N, odd=ODD), cuts=cuts)
    lazy = model.score(beats)
    assert lazy.npartitions == beats.table.npartitions == len(cuts) + 1
    found = lazy.compute()
    assert found.index.equals(beats.table.compute().index)
    assert found.reset_index(drop=True).equals(scores)


def test_index_and_divisions_are_those_of_the_beats(model: Model) -> None:
    table = make_table(30)
    table.index = pd.Index(np.arange(500, 530), name="beat")
    beats = make_beats(make_waves(30), cuts=[15])
    beats = replace(beats, table=dd.from_pandas(table, npartitions=2, sort=True))
    lazy = model.score(beats)
    assert lazy.divisions == beats.table.divisions
    assert lazy.compute().index.equals(table.index)
    joined = dd.concat([beats.table, lazy], axis=1).compute()
    assert len(joined) == 30
    assert joined["score"].notna().all()


def test_incomplete_beats_are_null_and_kept(model: Model, scores: pd.DataFrame) -> None:
    table, waves = make_table(N), make_waves(N, odd=ODD)
    lost = [0, 5, 100, 101, 330, N - 1]
    table.loc[lost, "complete"] = False
    waves[lost] = 0
    found = model.score(make_beats(waves, table, cuts=[6, 100, 102])).compute()
    found = found.reset_index(drop=True)
    assert found.loc[lost, ["score", "z0", "z1", "z2"]].isna().all(axis=None)
    assert not found.loc[lost, "anomaly"].any()
    latent = ["z0", "z1", "z2"]
    kept, before = found.drop(index=lost), scores.drop(index=lost)
    assert kept[latent].equals(before[latent])
    # What is usual in the record is judged by fewer beats.
    assert (kept["score"] / before["score"] - 1).abs().median() < 0.05


def test_waves_that_are_not_finite_are_null(model: Model) -> None:
    waves = make_waves(5)
    waves[1, 0, 3] = np.inf
    waves[2, 0, :2] = [-3e38, 3e38]
    found = model.score(make_beats(waves)).compute()
    assert found["score"].isna().tolist() == [False, True, True, False, False]
    assert found["z0"].isna().equals(found["score"].isna())
    assert not found["anomaly"].iloc[1:3].any()


def test_scoring_keeps_no_waves(model: Model) -> None:
    """Whatever the length of a record: of its partitions' waves few are there at a time."""
    waves = make_waves(N)
    beats = make_beats(waves, cuts=range(30, N, 30))
    there, most = 0, 0

    def gone() -> None:
        nonlocal there
        there -= 1

    def load(start: int) -> np.ndarray:
        nonlocal there, most
        block = waves[start : start + 30].copy()
        there += 1
        most = max(most, there)
        weakref.finalize(block, gone)
        return block

    blocks = [delayed(load, pure=False)(start) for start in range(0, N, 30)]
    lazy = replace(beats, waves=stack_waves(blocks, waves.shape[1:], waves[:0]))
    assert len(model.score(lazy).compute()) == N
    assert most <= 4


def test_beats_unlike_the_model_are_refused(model: Model) -> None:
    with pytest.raises(InputError, match="window"):
        model.score(make_beats(make_waves(4), window=(0.3, 0.4)))


def test_a_graph_carries_the_model_once(model: Model) -> None:
    mark = np.float32(1.2345678e-20).tobytes() * 8
    marked = replace(model, weights={"mark": np.frombuffer(mark, dtype=np.float32)})
    lazy = marked.score(make_beats(make_waves(40), cuts=[10, 20, 30])).optimize()
    graph = lazy.__dask_graph__()
    assert sum(mark in pickle.dumps(task) for task in dict(graph).values()) == 1


def test_the_robust_threshold_is_its_formula() -> None:
    scores = np.random.default_rng(0).gamma(3, 1, 501).astype(np.float32)
    threshold = robust_threshold(scores)
    assert threshold == pytest.approx(sorted(scores.tolist())[250] + 12, rel=1e-6)
    assert threshold == np.float32(threshold)
    # Many large ones move it, but not past themselves.
    spoiled = np.concatenate([scores, np.full(200, 50, dtype=np.float32)])
    assert (spoiled > robust_threshold(spoiled)).sum() == 200


def test_the_robust_threshold_at_its_ends() -> None:
    values = np.random.default_rng(1).lognormal(-3, 1, 50)
    for value in (0.0, 1e-30, 3e38, *values):
        same = np.full(7, value, dtype=np.float32)
        assert not (same > robust_threshold(same)).any()
    assert robust_threshold(np.float32([2.0])) == 14.0


@given(
    scores=st.lists(st.floats(0, 10, width=32), min_size=1, max_size=50),
    seconds=st.floats(0, 20_000),
    alarms_per_hour=st.floats(0, 100),
)
def test_the_alarm_threshold_is_the_lowest_that_keeps_the_rate(
    scores: list[float], seconds: float, alarms_per_hour: float
) -> None:
    found = alarm_threshold(np.float32(scores), seconds, alarms_per_hour)
    assert sum(score > found for score in scores) * 3600 <= alarms_per_hour * seconds
    for lower in (score for score in scores if score < found):
        assert sum(score > lower for score in scores) * 3600 > alarms_per_hour * seconds


def test_alarms_per_hour_sets_the_threshold_on_the_held_out_beats() -> None:
    waves = make_waves(400)
    beats = make_beats(waves)
    # 100 beats, 0.8 s each: 80 s; 90 alarms an hour are two in them.
    found = train(beats, epochs=1, alarms_per_hour=90)
    held_out = found.score(beats).compute().iloc[300:]
    assert held_out["anomaly"].sum() == 2
    assert found.threshold == held_out["score"].nlargest(3).iloc[-1]
    assert found.threshold_rule.startswith("at most 90 an hour")


def test_the_held_out_beats_set_the_threshold_unless_they_are_few() -> None:
    for n, with_training in ((80, False), (76, True)):
        beats = make_beats(make_waves(n))
        found = train(beats, epochs=1)
        values = found.score(beats).compute()["score"].to_numpy()
        part = values if with_training else values[3 * n // 4 :]
        assert found.threshold == robust_threshold(part)
        assert ("training beats" in found.threshold_rule) == with_training


def test_a_file_gives_the_same_model(model: Model, tmp_path: Path, scores: pd.DataFrame) -> None:
    path = tmp_path / "model.pt"
    path.write_text("an older one")
    model.save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["model.pt"]
    found = Model.load(path)
    for part in fields(Model):
        if part.name != "weights":
            assert getattr(found, part.name) == getattr(model, part.name)
    assert set(found.weights) == set(model.weights)
    for name, weight in model.weights.items():
        assert found.weights[name].dtype == np.float32
        assert np.array_equal(found.weights[name], weight)
    assert found.score(make_beats(make_waves(N, odd=ODD))).compute().equals(scores)


def test_a_model_without_weights_goes_through_a_file(tmp_path: Path) -> None:
    empty = train(make_beats(make_waves(1)))
    empty.save(tmp_path / "model.pt")
    found = Model.load(tmp_path / "model.pt")
    assert found.weights == {}
    assert found.notes == empty.notes


def test_files_that_are_no_models_are_refused(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "file"
    contents: list[bytes] = [b"", b"junk" * 100, pickle.dumps({"weights": 1}), b"\xff" * 8]
    model.save(path)
    contents += [path.read_bytes()[:200], path.read_bytes()[:-4]]
    for content in contents:
        path.write_bytes(content)
        with pytest.raises(InputError) as caught:
            Model.load(path)
        assert caught.value.args[0] == str(path)
    for missing in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(InputError, match=str(missing)):
            Model.load(missing)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 1},
        {"length": 64},
        {"latent": 4},
        {"surprise": 1},
        {"window": None},
        None,
        "[]",
        "not json",
    ],
)
def test_parameters_that_do_not_fit_are_refused(
    model: Model, tmp_path: Path, change: dict[str, Any] | str | None
) -> None:
    path = tmp_path / "model.pt"
    text = change
    if isinstance(change, dict):
        model.save(path)
        raw = path.read_bytes()
        header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
        text = json.dumps(json.loads(header["__metadata__"]["ecg_dask.model"]) | change)
    metadata = {"format": "np"} if text is None else {"ecg_dask.model": str(text)}
    save_file(dict(model.weights), path, metadata=metadata)
    with pytest.raises(InputError, match=r"model\.pt"):
        Model.load(path)


def test_a_file_that_cannot_be_written_is_an_input_error(model: Model, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere"):
        model.save(tmp_path / "nowhere" / "model.pt")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="folder"):
        model.save(tmp_path / "folder")
    assert [file.name for file in tmp_path.iterdir()] == ["folder"]


def test_a_model_goes_to_another_process(model: Model) -> None:
    found = pickle.loads(pickle.dumps(model))
    assert found.history == model.history
    assert all(np.array_equal(found.weights[k], model.weights[k]) for k in model.weights)
