from dataclasses import replace

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from signals import SHORT, counts

from ecg_dask import Beats, Detector, InputError, Recording, find_beats
from ecg_dask.beats import BEAT_COLUMNS
from ecg_dask.segment.halos import find_block


def recording(seed=0, name="r", n_leads=2):
    x = counts(4000, seed=seed, n_leads=n_leads)[0]
    return Recording(da.from_array(x, chunks=(1000, n_leads)), 100, name=name)


def test_the_table_is_what_it_says():
    beats = find_beats(recording(), SHORT)
    table = beats.table.compute()
    kinds = {name: str(kind) for name, kind in table.dtypes.items()}
    assert kinds == {
        name: str(np.dtype(k)) if k != "str" else "str" for name, k in BEAT_COLUMNS.items()
    }
    assert dict(beats.table.dtypes) == dict(table.dtypes)
    assert table.index.tolist() == list(range(len(table)))
    assert (np.diff(table["sample"]) > 0).all()
    np.testing.assert_allclose(table["time_s"], table["sample"] / 100)
    np.testing.assert_allclose(table["rr_next_s"][:-1], np.diff(table["sample"]) / 100)
    assert table["quality"].between(0, 1).all()
    assert (table["split"] == "train").sum() == int(0.75 * len(table))
    assert beats.waves.shape[1:] == (2, 25)
    assert beats.waves.npartitions == beats.table.npartitions == 4


def test_waves_are_the_signal_around_the_beat():
    source = recording()
    beats = find_beats(source, SHORT)
    x = source.signal.compute()
    samples, waves = beats.table["sample"].compute(), beats.waves.compute()
    for sample, wave in list(zip(samples, waves, strict=True))[1:-1]:
        np.testing.assert_array_equal(wave, x[sample - 10 : sample + 15].T)


def test_interval_embedding_ends_at_the_next_beat():
    detector = Detector(before_s=0.1, after_s=0.6, embed="interval")
    x = np.zeros((3000, 1), np.float32)
    at = np.arange(200, 2800, 40)
    for sample in at:
        x[sample] = 100
    x += 1
    beats = find_beats(Recording(da.from_array(x, chunks=(1000, 1)), 100), detector)
    waves = beats.waves.compute()
    assert beats.table["sample"].compute().tolist() == at.tolist()
    assert (waves[:-1, 0, :50] != 0).all()
    assert (waves[:-1, 0, 50:] == 0).all()


@pytest.mark.parametrize(("sample", "is_beat"), [(1000, True), (1050, False)])
def test_a_faint_beat_is_found_in_its_place_and_not_where_it_splits_an_interval(sample, is_beat):
    x = np.zeros((2000, 1), np.float32)
    x[200:2000:100] = 1000
    x[1000] = 1000 if sample != 1000 else 0
    x[sample] = 150
    table = find_beats(Recording(da.from_array(x, chunks=-1), 100), Detector()).table.compute()
    assert (sample in table["sample"].tolist()) == is_beat
    assert len(table) == 18


def test_amplitude_is_signed():
    x = np.zeros((1000, 1), np.float32)
    x[[200, 400]] = 100
    x[[600, 800]] = -100
    table = find_beats(Recording(da.from_array(x, chunks=-1), 100), SHORT).table.compute()
    assert table["amplitude"].tolist() == [100, 100, -100, -100]


def test_where_keeps_table_and_waves_together():
    beats = find_beats(recording(), SHORT)
    table, waves = beats.table.compute(), beats.waves.compute()
    chosen = beats.where(lambda part: part["amplitude"] > 0)
    mask = (table["amplitude"] > 0).to_numpy()
    assert 0 < mask.sum() < len(mask)
    pd.testing.assert_frame_equal(chosen.table.compute(), table[mask])
    np.testing.assert_array_equal(chosen.waves.compute(), waves[mask])


def test_concat_joins_records():
    parts = [find_beats(recording(seed, f"r{seed}"), SHORT) for seed in range(3)]
    joined = Beats.concat(parts)
    table = joined.table.compute()
    assert table["record"].unique().tolist() == ["r0", "r1", "r2"]
    assert len(joined.waves.compute()) == len(table)
    assert joined.table.npartitions == joined.waves.npartitions == 12
    assert joined.records.compute()["record"].tolist() == ["r0", "r1", "r2"]
    n_train = (table["split"] == "train").groupby(table["record"]).sum()
    assert (n_train == (0.75 * table.groupby("record").size()).astype(int)).all()


def test_records_of_one_name_are_not_joined():
    parts = [find_beats(recording(seed, "r"), SHORT) for seed in range(2)]
    with pytest.raises(InputError, match="record r in two"):
        Beats.concat(parts)


def test_any_scheduler_gives_the_same():
    beats = find_beats(recording(), SHORT)
    tables = [beats.table.compute(scheduler=name) for name in ("sync", "threads")]
    pd.testing.assert_frame_equal(*tables)


def test_leads_are_chosen_by_name_and_index():
    source = recording(n_leads=3)
    assert source.select("lead2").leads == ("lead2",)
    assert source.select([1, "lead0"]).leads == ("lead1", "lead0")
    assert source.select("all").leads == ("lead0", "lead1", "lead2")
    with pytest.raises(ValueError, match=r"V5.*lead0, lead1, lead2"):
        source.select("V5")


def test_persisted_beats_are_the_same_and_are_found_once(monkeypatch):
    seen = []

    def spy(*parts, **options):
        seen.append(options["first"])
        return find_block(*parts, **options)

    monkeypatch.setattr("ecg_dask.segment.halos.find_block", spy)
    x = counts(8000)[0]
    beats = find_beats(Recording(da.from_array(x, chunks=(1000, 1)), 100), SHORT)
    with dask.config.set(scheduler="sync"):
        table_only = beats.persist(waves=False)
        assert len(seen) == 8
        table_only.table.compute()
        assert len(seen) == 8
        table_only.waves.compute()
        assert len(seen) == 16
        seen.clear()
        held = beats.persist()
        assert len(seen) == 8
        table, waves = dask.compute(held.table, held.waves)
        assert len(seen) == 8
        pd.testing.assert_frame_equal(table, beats.table.compute())
        np.testing.assert_array_equal(waves, beats.waves.compute())
        assert held.records.compute()["beats"].tolist() == [len(table)]
        assert len(held.spans.compute()) == len(beats.spans.compute())
        chosen = held.where(lambda part: part["amplitude"] > 0)
        assert len(chosen.table) == (table["amplitude"] > 0).sum()
        assert [len(part) for part, _ in dask.compute(chosen.partitions())[0]] == [
            len(block) for _, block in dask.compute(chosen.partitions())[0]
        ]


def test_a_table_of_ones_own_goes_with_its_waves():
    beats = find_beats(Recording(da.from_array(counts(8000)[0], chunks=(1000, 1)), 100), SHORT)
    doubled = replace(beats, table=beats.table.assign(amplitude=beats.table["amplitude"] * 2))
    parts = [part for part, _ in doubled.partitions()]
    got = pd.concat(dask.compute(*parts, scheduler="sync"))
    pd.testing.assert_frame_equal(got, doubled.table.compute(scheduler="sync"))
    with pytest.raises(InputError, match="8 partitions of the table and 1 blocks"):
        replace(beats, waves=da.zeros((10, 1, 25), chunks=-1)).partitions()
