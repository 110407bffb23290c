from itertools import pairwise

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from report_pages import scored

from ecg_dask.beats import Beats
from ecg_dask.report import worst_beats


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


def picked(beats, table, lengths, **options):
    return dask.compute(worst_beats(beats, table, lengths, **options), scheduler="sync")[0]


@pytest.mark.parametrize("lengths", [[100], [0, 33, 0, 1, 66], [1] * 100])
def test_the_picked_are_those_of_an_obvious_loop(one_record, lengths):
    table, waves = one_record
    found = picked([beats_of(table, waves, lengths)], table, lengths, n=5, n_median=10)
    usable = [i for i in range(100) if table["complete"][i]]
    expected = sorted(usable, key=lambda i: -table["score"][i])[:5]
    assert [beat.sample for beat in found] == [table["sample"][i] for i in expected]
    assert [beat.score for beat in found] == [table["score"][i] for i in expected]
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


def test_of_equal_scores_the_first_is_taken(one_record):
    table, waves = one_record
    table.loc[table["complete"], "score"] = 1.0
    found = picked([beats_of(table, waves, [50, 50])], table, [50, 50], n=3)
    assert [beat.sample for beat in found] == table["sample"][table["complete"]][:3].tolist()


def test_records_of_several_rates_keep_their_own_median_and_times():
    slow, fast = scored("slow", anomalies=(3,)), scored("fast", fs=100.0, anomalies=(5,))
    waves = [np.full((59, 1, 25), 1, np.float32), np.full((59, 1, 50), 2, np.float32)]
    beats = [
        beats_of(slow, waves[0], [20, 39]),
        beats_of(fast, waves[1], [59], fs=100.0),
    ]
    table = pd.concat([slow, fast], ignore_index=True)
    found = picked(beats, table, [20, 39, 59], n=2)
    assert [(beat.record, beat.sample) for beat in found] == [("slow", 200), ("fast", 300)]
    for beat, value, n_window in zip(found, (1, 2), (25, 50), strict=True):
        assert beat.median_wave.tolist() == [value] * n_window
        assert len(beat.times_s) == n_window
        assert beat.times_s[-1] == pytest.approx(0.3 - 0.01 * (50 // n_window))


def test_without_scores_nothing_is_picked_and_nothing_loaded(one_record):
    table, waves = one_record
    table["score"] = np.nan
    todo = worst_beats([beats_of(table, waves, [40, 60])], table, [40, 60])
    assert dask.compute(todo, scheduler="sync")[0] == []
    assert not any("pick" in str(key) for key in todo.dask)


def test_only_partitions_that_hold_a_wanted_beat_get_a_task(one_record):
    table, waves = one_record
    todo = worst_beats([beats_of(table, waves, [1] * 100)], table, [1] * 100, n=1, n_median=3)
    assert sum("pick" in str(key) for key in todo.dask) in (3, 4)


def test_lengths_must_cover_the_table(one_record):
    table, waves = one_record
    with pytest.raises(ValueError, match="rows of every partition"):
        worst_beats([beats_of(table, waves, [40, 60])], table, [40, 59])
