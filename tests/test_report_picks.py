from itertools import pairwise

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import torch
from report_pages import scored

from ecg_dask import Model
from ecg_dask.anomaly.vae import new_network
from ecg_dask.beats import Beats
from ecg_dask.report import pick_beats
from ecg_dask.report.reconstruction import points_s, reconstructions


def untrained(n_leads=2, window=(0.2, 0.3)):
    weights = new_network(n_leads, 3, torch.Generator().manual_seed(0)).state_dict()
    return Model(
        weights={name: value.numpy() for name, value in weights.items()},
        window=window,
        n_leads=n_leads,
        latent=3,
        seed=0,
        epochs=0,
    )


MODEL = untrained()


def beats_of(table, waves, lengths, fs=50.0, before_s=0.2):
    cuts = np.cumsum([0, *lengths])
    frames = [table.iloc[a:b] for a, b in pairwise(cuts)]
    blocks = [
        da.from_delayed(dask.delayed(waves[a:b]), (np.nan, *waves.shape[1:]), meta=waves[:0])
        for a, b in pairwise(cuts)
    ]
    return Beats(
        table=dd.concat([dd.from_pandas(frame, npartitions=1) for frame in frames]),
        waves=da.concatenate(blocks, allow_unknown_chunksizes=True),
        fs=fs,
        window=(before_s, waves.shape[2] / fs - before_s),
        leads=("MLII", "V5"),
        unit="mV",
        records=dask.delayed(pd.DataFrame)(),
    )


@pytest.fixture
def one_record():
    table = scored(samples=range(50, 5050, 50), anomalies=())
    table["complete"] = np.arange(100) % 7 != 0
    table.loc[~table["complete"], "score"] = 99.0
    waves = np.random.default_rng(1).normal(size=(100, 2, 25)).astype(np.float32)
    return table, waves


def picked(beats, table, lengths, model=MODEL, **options):
    todo = pick_beats(beats, table, lengths, model, **options)
    return dask.compute(todo, scheduler="sync")[0]


@pytest.mark.parametrize("lengths", [[100], [0, 33, 0, 1, 66], [1] * 100])
def test_the_picked_are_those_of_an_obvious_loop(one_record, lengths):
    table, waves = one_record
    found = picked([beats_of(table, waves, lengths)], table, lengths, n=5, n_median=10).worst
    usable = [i for i in range(100) if table["complete"][i]]
    expected = sorted(usable, key=lambda i: -table["score"][i])[:5]
    assert [beat.sample for beat in found] == [table["sample"][i] for i in expected]
    assert [beat.score for beat in found] == [table["score"][i] for i in expected]
    for beat in found:
        assert list(beat.parts) == ["shape", "timing", "amplitude"]
        assert sum(beat.parts.values()) == pytest.approx(beat.score)
        assert beat.parts["shape"] == max(beat.parts.values())
    step = (len(usable) - 1) / 9
    even = [usable[int(k * step)] for k in range(10)]
    for beat, i in zip(found, expected, strict=True):
        np.testing.assert_array_equal(beat.wave, waves[i, 0])
        np.testing.assert_array_equal(beat.median_wave, np.median(waves[even, 0], axis=0))
        assert beat.median_wave.dtype == np.float32
        assert (beat.record, beat.n_median) == ("100", 10)
        assert beat.time_s == beat.sample / 50
        assert beat.times_s[10] == 0
        assert beat.times_s[0] == -0.2


def test_behind_a_beat_lies_what_the_network_makes_of_it_at_the_scale_of_its_record(one_record):
    table, waves = one_record
    table["amplitude"] = np.where(table["complete"], -3.0, 100.0)
    table["rr_next_s"] = np.where(np.arange(100) % 3, 0.25, np.nan)
    found = picked([beats_of(table, waves, [40, 60])], table, [40, 60], n=8).worst
    for beat in found:
        row = beat.sample // 50 - 1
        (expected,) = reconstructions([waves[row]], [3.0], [table["rr_next_s"][row]], [50.0], MODEL)
        np.testing.assert_array_equal(beat.reconstruction, expected)
        np.testing.assert_array_equal(beat.points_s, points_s((0.2, 0.3)))


def test_of_equal_scores_the_first_is_taken(one_record):
    table, waves = one_record
    table.loc[table["complete"], "score"] = 1.0
    found = picked([beats_of(table, waves, [50, 50])], table, [50, 50], n=3).worst
    assert [beat.sample for beat in found] == table["sample"][table["complete"]][:3].tolist()


def test_records_of_several_rates_keep_their_own_median_and_times():
    slow, fast = scored("slow", anomalies=(3,)), scored("fast", fs=100.0, anomalies=(5,))
    waves = [np.full((59, 1, 25), 1, np.float32), np.full((59, 1, 50), 2, np.float32)]
    beats = [
        beats_of(slow, waves[0], [20, 39]),
        beats_of(fast, waves[1], [59], fs=100.0),
    ]
    table = pd.concat([slow, fast], ignore_index=True)
    found = picked(beats, table, [20, 39, 59], untrained(n_leads=1), n=2).worst
    assert [(beat.record, beat.sample) for beat in found] == [("slow", 200), ("fast", 300)]
    for beat, value, n_window in zip(found, (1, 2), (25, 50), strict=True):
        assert beat.median_wave.tolist() == [value] * n_window
        assert len(beat.times_s) == n_window
        assert beat.times_s[-1] == pytest.approx(0.3 - 0.01 * (50 // n_window))


def with_groups(table, *groups):
    """Put rows into groups, and make them anomalies."""
    table = table.assign(anomaly=False, group=pd.array([pd.NA] * len(table), dtype="Int16"))
    table["reason"] = pd.Series([None] * len(table), dtype="str")
    for number, rows in enumerate(groups, start=1):
        table.loc[list(rows), ["anomaly", "group", "reason"]] = [True, number, "shape"]
    return table


@pytest.mark.parametrize("lengths", [[100], [0, 33, 0, 1, 66], [1] * 100])
def test_a_template_is_the_median_of_evenly_chosen_beats_of_the_group(one_record, lengths):
    table, waves = one_record
    large = [i for i in range(100) if table["complete"][i] and i % 2]
    table = with_groups(table, large, [2, 4])
    found = picked([beats_of(table, waves, lengths)], table, lengths, n=1, n_template=7).groups
    assert [group.facts["beats"] for group in found] == [len(large), 2]
    step = (len(large) - 1) / 6
    for group, even in zip(found, ([large[int(k * step)] for k in range(7)], [2, 4]), strict=True):
        np.testing.assert_array_equal(group.wave, np.median(waves[even, 0], axis=0))
        complete = table["complete"].to_numpy()
        np.testing.assert_array_equal(group.median_wave, np.median(waves[complete, 0], axis=0))
        assert group.wave.dtype == group.median_wave.dtype == np.float32
        assert (group.record, group.n_wave, group.n_median) == ("100", len(even), complete.sum())
        assert group.time_s == table["time_s"][even[0]]
        assert group.times_s[10] == 0


def test_a_template_is_of_the_record_that_most_beats_of_the_group_are_of():
    slow, fast = scored("slow", anomalies=()), scored("fast", fs=100.0, anomalies=())
    waves = [np.full((59, 1, 25), 1, np.float32), np.full((59, 1, 50), 2, np.float32)]
    beats = [beats_of(slow, waves[0], [20, 39]), beats_of(fast, waves[1], [59], fs=100.0)]
    table = pd.concat([slow, fast], ignore_index=True)
    table = with_groups(table, [3, 4, 69, 70, 80], [5, 6, 7, 90])
    groups = picked(beats, table, [20, 39, 59], untrained(n_leads=1)).groups
    for group, record, value, n_window, first, n in zip(
        groups, ("fast", "slow"), (2, 1), (50, 25), (69, 5), (3, 3), strict=True
    ):
        assert (group.record, group.n_wave) == (record, n)
        assert group.wave.tolist() == group.median_wave.tolist() == [value] * n_window
        assert len(group.times_s) == n_window
        assert group.time_s == table["time_s"][first]
    assert groups[0].facts["records"] == {"fast": 3, "slow": 2}


def test_without_scores_nothing_is_picked_and_nothing_loaded(one_record):
    table, waves = one_record
    table["score"] = np.nan
    todo = pick_beats([beats_of(table, waves, [40, 60])], table, [40, 60], MODEL)
    assert dask.compute(todo, scheduler="sync")[0] == ([], [])
    assert not any("fetch" in str(key) for key in todo.dask)


def test_only_partitions_that_hold_a_wanted_beat_get_a_task(one_record):
    table, waves = one_record
    table = with_groups(table, [1, 2, 3], [4])
    wanted = {"n": 1, "n_median": 3, "n_template": 2}
    todo = pick_beats([beats_of(table, waves, [1] * 100)], table, [1] * 100, MODEL, **wanted)
    # The worst beat, two and one of the groups, and three of the median beat.
    assert sum("fetch" in str(key) for key in todo.dask) in (6, 7)


def test_only_wanted_waves_return_and_of_templates_the_first_lead(one_record):
    table, waves = one_record
    table = with_groups(table, range(1, 7))
    todo = pick_beats([beats_of(table, waves, [100])], table, [100], MODEL, n=2, n_median=5)
    (key,) = [key for key in todo.dask if "fetch" in str(key)]
    fetched = dask.get(todo.dask, key)
    assert fetched.first.shape[1:] == (25,)
    assert 6 <= len(fetched.first) <= 6 + 5 + 2
    assert fetched.whole.shape == (2, 2, 25)


def test_the_model_is_one_task_of_the_graph(one_record):
    table, waves = one_record
    lengths = [10] * 10
    todo = pick_beats([beats_of(table, waves, lengths)], table, lengths, MODEL)
    assert sum(key.startswith("Model-") for key in map(str, todo.dask)) == 1


def test_lengths_must_cover_the_table(one_record):
    table, waves = one_record
    with pytest.raises(ValueError, match="rows of every partition"):
        pick_beats([beats_of(table, waves, [40, 60])], table, [40, 59], MODEL)
