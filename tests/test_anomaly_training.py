"""Training: what it depends on, what it does not, and its ends."""

from dataclasses import replace
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pytest
import torch
from anomaly_beats import make_beats, make_table, make_waves
from dask import delayed
from hypothesis import given, settings
from hypothesis import strategies as st

from ecg_dask import InputError
from ecg_dask.anomaly import Model, fit, train
from ecg_dask.anomaly.fit import default_epochs, validation_rows
from ecg_dask.beats import empty_table, stack_waves

N = 160


@pytest.fixture(autouse=True)
def _synchronous() -> Any:
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def model() -> Model:
    with dask.config.set(scheduler="synchronous"):
        return train(make_beats(make_waves(N)), epochs=2)


def same_bits(a: Model, b: Model) -> bool:
    return (
        list(a.weights) == list(b.weights)
        and all(np.array_equal(a.weights[name], b.weights[name]) for name in a.weights)
        and a.threshold == b.threshold
        and a.history == b.history
    )


@settings(max_examples=8, deadline=None)
@given(cuts=st.lists(st.integers(0, N), max_size=6).map(sorted))
def test_the_model_does_not_depend_on_partitions(model: Model, cuts: list[int]) -> None:
    assert same_bits(train(make_beats(make_waves(N), cuts=cuts), epochs=2), model)


def test_of_many_beats_one_in_so_many_is_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which ones does not depend on the partitions; the others take part in nothing."""
    waves = make_waves(N)
    n_train = train(make_beats(waves), epochs=1).n_train
    monkeypatch.setattr("ecg_dask.anomaly.training.MOST_TRAINING_BEATS", -(-n_train // 3))
    few = train(make_beats(waves), epochs=2)
    assert few.n_train == n_train // 3
    assert few.notes == (f"Trained on one in 3 of {n_train} beats.",)
    for cuts in ([1, 2, 50], [40, 41, 110]):
        assert same_bits(train(make_beats(waves, cuts=cuts), epochs=2), few)
    changed = waves.copy()
    changed[1:n_train:3] = waves[0]
    again = train(make_beats(changed), epochs=2)
    assert all(np.array_equal(few.weights[name], again.weights[name]) for name in few.weights)
    changed[3] = waves[0]
    other = train(make_beats(changed), epochs=2)
    assert not all(np.array_equal(few.weights[name], other.weights[name]) for name in few.weights)


def test_the_model_depends_on_seed_and_beats(model: Model) -> None:
    waves = make_waves(N)
    assert not same_bits(train(make_beats(waves), epochs=2, seed=1), model)
    assert not same_bits(train(make_beats(waves[::-1]), epochs=2), model)


def test_the_model_does_not_depend_on_scheduler_or_cores(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    beats = make_beats(make_waves(N), cuts=[50, 90])
    with dask.config.set(scheduler="threads"):
        assert same_bits(train(beats, epochs=2), model)
    for cores in (1, 3):
        monkeypatch.setattr(fit, "CPU_COUNT", cores)
        assert same_bits(train(beats, epochs=2), model)


def test_a_large_batch_does_not_depend_on_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "SHARD", 10)
    beats = make_beats(make_waves(N))
    models = []
    for cores in (1, 4):
        monkeypatch.setattr(fit, "CPU_COUNT", cores)
        models.append(train(beats, epochs=1))
    assert same_bits(*models)


def test_shards_add_up_to_the_batch(monkeypatch: pytest.MonkeyPatch, model: Model) -> None:
    monkeypatch.setattr(fit, "SHARD", 5)
    found = train(make_beats(make_waves(N)), epochs=2)
    for name, weight in model.weights.items():
        np.testing.assert_allclose(found.weights[name], weight, atol=1e-4)


def test_what_is_held_out_or_incomplete_does_not_touch_the_weights(model: Model) -> None:
    waves, table = make_waves(N), make_table(N)
    rng = np.random.default_rng(3)
    test = (table["split"] == "test").to_numpy()
    waves[test] = rng.normal(size=waves[test].shape)
    found = train(make_beats(waves, table), epochs=2)
    assert all(np.array_equal(found.weights[k], model.weights[k]) for k in model.weights)
    assert found.threshold != model.threshold

    # Incomplete beats in between, too.
    rows = np.repeat(np.arange(N), 2)
    waves, table = make_waves(N)[rows], make_table(N).iloc[rows].reset_index(drop=True)
    table.loc[1::2, "complete"] = False
    waves[1::2] = 7
    found = train(make_beats(waves, table, cuts=[77]), epochs=2)
    assert same_bits(found, model)
    assert (found.n_train, found.n_held_out) == (120, 40)


def test_validation_is_the_last_tenth_of_each_record() -> None:
    chosen = validation_rows([100, 9, 31])
    assert np.flatnonzero(chosen).tolist() == [*range(90, 100), 137, 138, 139]
    assert not validation_rows([99]).any()
    assert validation_rows([]).size == 0


def test_the_early_stop_looks_at_the_last_tenth_only(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    original = fit._Trainer._loss

    def spy(self: Any, rows: Any, noise: Any) -> float:
        seen.append(rows.numpy())
        return original(self, rows, noise)

    monkeypatch.setattr(fit._Trainer, "_loss", spy)
    two = [make_beats(make_waves(N)), make_beats(make_waves(40, seed=1))]
    found = train(two, epochs=1)
    # 120 and 30 training beats: the last 12, and the last 3 of all.
    assert sorted(np.concatenate(seen)) == [*range(108, 120), *range(147, 150)]
    assert found.n_validation == 15


def test_training_stops_early_and_keeps_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    curve = [9.0, 9.5, 9.5, 9.5, 9.5, 9.5, 5.0, 7.0, 6.0, 6.0, 6.0, 6.0, 1.0]
    states = []

    def validate(self: Any) -> float:
        states.append({k: v.clone().numpy() for k, v in self.network.state_dict().items()})
        return curve[len(states) - 1]

    monkeypatch.setattr(fit._Trainer, "_validate", validate)
    found = train(make_beats(make_waves(N)), epochs=13)
    # The warm-up takes four epochs, whose losses may rise; then five without a better one after
    # the best are the end.
    assert [row["validation"] for row in found.history] == curve[:12]
    assert all(np.array_equal(found.weights[name], states[6][name]) for name in states[6])


def test_the_weight_of_the_divergence_warms_up() -> None:
    found = train(make_beats(make_waves(60)), epochs=6)
    assert [row["kl_weight"] for row in found.history] == [0.05, 0.1, 0.1, 0.1, 0.1, 0.1]
    assert [row["validation"] for row in found.history] == [None] * 6
    for row in found.history:
        total = row["reconstruction"] + row["kl_weight"] * row["kl"]
        assert row["loss"] == pytest.approx(total)
    assert found.history[-1]["loss"] < found.history[0]["loss"]


def test_an_interruption_keeps_the_best_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(event: dict[str, Any]) -> None:
        if event["epoch"] == 2:
            raise KeyboardInterrupt

    beats = make_beats(make_waves(60))
    first = train(beats, epochs=1)
    monkeypatch.setattr(fit, "_announce", interrupt)
    monkeypatch.setattr(fit._Trainer, "_validate", lambda self: 1.0)
    found = train(beats, epochs=3)  # its warm-up is one epoch long, as that of one epoch
    assert len(found.history) == 2
    assert all(np.array_equal(found.weights[k], first.weights[k]) for k in first.weights)
    assert found.notes == ("Training was interrupted after 2 of 3 epochs.",)


def test_a_loss_that_is_no_number_ends_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "LEARNING_RATE", 1e30)
    beats = make_beats(make_waves(60))
    found = train(beats, epochs=5)
    assert found.notes == ("The loss was no finite number in epoch 1.",)
    assert found.threshold is None
    scores = found.score(beats).compute()
    assert scores["score"].isna().all()
    assert not scores["anomaly"].any()


@pytest.mark.parametrize("n_train", [0, 1, 2, 3])
def test_few_beats_are_results(n_train: int) -> None:
    n = 4 * n_train // 3 + 2
    table = make_table(n)
    table["split"] = ["train"] * n_train + ["test"] * (n - n_train)
    beats = make_beats(make_waves(n), table)
    found = train(beats, epochs=2)
    scores = found.score(beats).compute()
    assert len(scores) == n
    assert found.n_train == n_train
    if n_train < 2:
        note = f"Not trained: {n_train} usual beats of the training part, 2 or more are needed."
        assert found.notes == (note,)
        assert found.threshold is None
        assert scores.drop(columns="anomaly").isna().all(axis=None)
    else:
        assert found.notes == ()
        assert np.isfinite(scores.drop(columns=["anomaly", "reason"])).all(axis=None)
    assert not scores["anomaly"].any() or n_train >= 2


def test_no_beats_at_all() -> None:
    beats = make_beats(make_waves(0))
    found = train(beats)
    assert found.weights == {}
    assert len(found.score(beats).compute()) == 0


def test_several_rates_go_into_one_model() -> None:
    slow, fast = make_beats(make_waves(N)), make_beats(make_waves(N, 360.0), fs=360.0)
    found = train([slow, fast], epochs=10)
    assert (found.n_train, found.n_held_out) == (240, 80)
    medians = [found.score(beats).compute()["score"].median() for beats in (slow, fast)]
    # White noise of the same size a sample is the weaker, the more samples a point averages.
    assert 0.5 < medians[1] / medians[0] < 1.5


def test_pytorch_is_left_as_it_was() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    state = torch.get_rng_state()
    try:
        train(make_beats(make_waves(20)), epochs=1)
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.get_num_threads() == 3
        assert not torch.are_deterministic_algorithms_enabled()
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("n", "epochs"), [(0, 30), (300, 30), (20_000, 12), (75_000, 4), (10**7, 4)]
)
def test_default_epochs(n: int, epochs: int) -> None:
    assert default_epochs(n) == epochs


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0),
        ("epochs", 2.5),
        ("latent", 0),
        ("latent", 65),
        ("latent", True),
        ("seed", -1),
        ("seed", 2**63),
        ("alarms_per_hour", -1.0),
        ("alarms_per_hour", float("nan")),
        ("alarms_per_hour", float("inf")),
        ("alarms_per_hour", "3"),
    ],
)
def test_arguments_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InputError) as caught:
        train(make_beats(make_waves(4)), **{name: value})
    assert caught.value.args[:2] == (name, repr(value))


def test_beats_that_do_not_go_together_are_refused() -> None:
    waves = make_waves(8)
    beats = make_beats(waves)
    other = make_beats(waves, window=(0.2, 0.5))
    leads = make_beats(np.concatenate([waves, waves], axis=1))
    for wrong, found in ((other, "(0.2, 0.5)"), (leads, "2 leads")):
        with pytest.raises(InputError, match=r"beats\[1\]") as caught:
            train([beats, wrong])
        assert found in caught.value.args[1]
    with pytest.raises(InputError, match="empty list"):
        train([])
    apart = replace(beats, waves=make_beats(waves, cuts=[3]).waves)
    with pytest.raises(InputError, match="1 partitions of the table and 2 blocks"):
        train(apart)


def test_beats_are_found_once() -> None:
    calls = []

    def find(part: int) -> tuple[Any, Any]:
        calls.append(part)
        rows = slice(20 * part, 20 * part + 20)
        return make_table(40).iloc[rows], make_waves(40)[rows]

    found = [delayed(find)(part) for part in range(2)]
    shape = make_waves(0).shape[1:]
    beats = replace(
        make_beats(make_waves(0)),
        table=dd.from_delayed([part[0] for part in found], meta=empty_table(), verify_meta=False),
        waves=stack_waves([part[1] for part in found], shape, make_waves(0)),
    )
    model = train(beats, epochs=1)
    assert sorted(calls) == [0, 1]
    dask.compute(beats.table, model.score(beats))
    assert sorted(calls) == [0, 0, 1, 1]


def test_a_worker_announces_each_epoch(model: Model) -> None:
    from distributed import Client, LocalCluster

    with (
        dask.config.set(scheduler=None),
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        found = train(make_beats(make_waves(N), cuts=[50, 90]), epochs=2)
        events = [event for _, event in client.get_events("ecg_dask.training")]
    assert same_bits(found, model)
    assert len(events) == 2
    for event, row in zip(events, model.history, strict=True):
        assert event.items() >= {**row, "epochs": 2}.items()


@pytest.mark.cluster
def test_worker_processes_train_the_same_model(model: Model) -> None:
    from distributed import Client, LocalCluster

    with (
        dask.config.set(scheduler=None),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        beats = make_beats(make_waves(N), cuts=[50, 90])
        found = train(beats, epochs=2)
        scores = found.score(beats).compute()
    assert same_bits(found, model)
    with dask.config.set(scheduler="synchronous"):
        assert scores.equals(model.score(beats).compute())
