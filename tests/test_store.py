import os
import subprocess
import sys
import time
from dataclasses import replace

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster, wait
from distributed.client import futures_of

import ecg_dask
from ecg_dask.errors import InputError
from ecg_dask.share import attach
from ecg_dask.store import Store, kinds, waiting
from ecg_dask.store.catalogue import Catalogue, Settings
from ecg_dask.synthetic import synthetic

pytestmark = pytest.mark.cluster

#: Samples a partition of the recording, which has three.
CHUNK = 10_000


@pytest.fixture(scope="module")
def cluster():
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options) as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with Client(cluster) as client:
        yield client
        for key in client.list_datasets():
            client.unpublish_dataset(key)


@pytest.fixture
def store(client):
    return Store(client)


@pytest.fixture(scope="module")
def recording():
    whole = synthetic(120.0, 250.0, seed=5).recording
    signal = da.from_array(whole.signal.compute(scheduler="sync"), chunks=(CHUNK, 1))
    return replace(whole, signal=signal, notes=("a note",))


@pytest.fixture(scope="module")
def beats(recording):
    with dask.config.set(scheduler="sync"):
        return ecg_dask.find_beats(recording)


@pytest.fixture(scope="module")
def model(beats):
    with dask.config.set(scheduler="sync"):
        return ecg_dask.train(beats, epochs=1)


def in_another_process(cluster, text, cwd=None):
    """Run a script on a client and a store of its own."""
    script = "\n".join(
        [
            "import ecg_dask",
            f"with ecg_dask.connect({cluster.scheduler_address!r}) as client:",
            "    store = ecg_dask.Store(client)",
            *(f"    {line}" for line in text.splitlines()),
        ]
    )
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=cwd).stdout


def states(store):
    return {entry.name: entry.state for entry in store.list()}


def same_beats(one, other):
    pd.testing.assert_frame_equal(one.table.compute(), other.table.compute())
    np.testing.assert_array_equal(one.waves.compute(), other.waves.compute())
    for part in ("records", "spans"):
        pd.testing.assert_frame_equal(getattr(one, part).compute(), getattr(other, part).compute())
    for part in ("fs", "window", "leads", "unit", "names"):
        assert getattr(one, part) == getattr(other, part)


def same_recording(one, other):
    assert one.signal.chunks == other.signal.chunks
    np.testing.assert_array_equal(one.signal.compute(), other.signal.compute())
    for part in ("fs", "leads", "unit", "start", "name", "source", "notes"):
        assert getattr(one, part) == getattr(other, part)


def test_another_process_gets_what_a_first_one_put(cluster, store, recording):
    store.put("day", recording)
    in_another_process(cluster, "store.put('beats', ecg_dask.find_beats(store.get('day')))")
    said = in_another_process(cluster, "print(len(store.get('beats').table))")
    assert int(said) == len(store.get("beats").table) > 100
    assert store.entry("beats").made_from == {"day": store.entry("day").id}


def test_each_kind_comes_back_as_it_was(store, recording, beats, model):
    scored = model.score(beats)
    things = {"day": recording, "beats": beats, "model": model, "scored": scored}
    for name, value in things.items():
        store.put(name, value)
    same_recording(store.get("day"), recording)
    same_beats(store.get("beats"), beats)
    pd.testing.assert_frame_equal(store.get("scored").compute(), scored.compute())
    again = store.get("model")
    assert (again.threshold, again.history) == (model.threshold, model.history)
    for name, weights in model.weights.items():
        np.testing.assert_array_equal(again.weights[name], weights)
    assert [entry.kind for entry in store.list()] == ["recording", "beats", "model", "table"]


def test_getting_moves_and_computes_nothing(client, store, beats):
    store.put("beats", beats)
    before = client.who_has(), client.nbytes(summary=False)
    kept = store.get("beats")
    assert (client.who_has(), client.nbytes(summary=False)) == before
    assert kept.table.npartitions == beats.table.npartitions


def test_an_entry_tells_what_is_there(store, recording, beats):
    store.put("day", recording)
    entry = store.put("beats", beats, parameters={"window": 1}, made_from=["day"], made_by="me")
    assert entry == store.entry("beats")
    assert entry.schema["sample"] == "int64"
    assert entry.schema["waves"] == f"float32[1, {beats.waves.shape[2]}]"
    assert (entry.fs, entry.made_by, entry.parameters) == (250.0, "me", {"window": 1})
    assert entry.made_from == {"day": store.entry("day").id}
    assert entry.n_bytes > beats.waves.compute().nbytes
    assert store.entry("day").n_bytes == 4 * recording.n_samples
    assert store.entry("day").schema == {"II": "float32"}


def test_a_name_is_replaced_only_when_told(client, store, beats):
    first = store.put("beats", beats)
    with pytest.raises(InputError, match=r"beats of that name already.*overwrite"):
        store.put("beats", beats)
    second = store.put("beats", beats.where(lambda table: table["sample"] < CHUNK), overwrite=True)
    assert first.id != second.id
    assert len(store.get("beats").table) < len(beats.table)
    assert len(client.list_datasets()) == 2


def test_of_two_that_put_at_once_one_is_refused(store, monkeypatch):
    # Both looked before either was there.
    monkeypatch.setattr(Catalogue, "find", lambda *_: (None, Settings()))
    store.put("table", pd.DataFrame({"a": [1]}))
    with pytest.raises(InputError, match="table of that name already"):
        store.put("table", pd.DataFrame({"a": [2]}))
    assert store.get("table").compute()["a"].tolist() == [1]


@pytest.mark.parametrize("name", ["", "a b", "../a", "-a", ".a", "ä", "a" * 101, 3])
def test_names_that_are_refused(store, name):
    with pytest.raises(InputError, match="name: found"):
        store.put(name, pd.DataFrame({"a": [1]}))


def test_values_that_are_refused(store, model, monkeypatch):
    with pytest.raises(InputError, match=r"builtins\.dict.*Recording, Beats"):
        store.put("x", {})
    monkeypatch.setattr(kinds, "MOST_LOCAL", 1_000)
    with pytest.raises(InputError, match=r"a table of .* in this process.*up to 0\.98 kiB"):
        store.put("x", pd.DataFrame({"a": np.zeros(1_000)}))
    with pytest.raises(InputError, match="a model of"):
        store.put("x", model)
    assert not store.list()


def test_a_name_that_is_not_there(store):
    store.put("table", pd.DataFrame({"a": [1]}))
    for work in (store.get, store.entry, store.drop, store.share):
        with pytest.raises(InputError, match="no such name in the store; allowed: table"):
            work("tabel")


def test_what_cannot_be_computed_is_told_and_leaves_no_name(store, beats):
    with pytest.raises(ZeroDivisionError):
        store.put("beats", beats.where(lambda table: 1 / 0))
    assert not store.list()


def test_dropping_frees_the_memory(client, store, beats):
    store.put("beats", beats)
    assert client.nbytes(summary=False)
    store.drop("beats")
    for _ in range(100):
        if not client.nbytes(summary=False):
            break
        time.sleep(0.05)
    assert client.nbytes(summary=False) == {}
    assert not store.list()
    assert not client.list_datasets()


def test_beyond_the_limit_goes_to_files_and_comes_back(client, recording, beats, tmp_path):
    store = Store(client)
    store.put("beats", beats)
    store.put("day", recording)
    limit = sum(entry.n_bytes for entry in store.list())
    store = Store(client, limit=limit, folder=tmp_path)
    store.put("table", pd.DataFrame({"a": [1.5, None], "b": ["x", None]}))
    # What was not used for longest went first.
    assert states(store) == {"beats": "disk", "day": "memory", "table": "memory"}
    (about,) = tmp_path.glob("*/beats-*/entry.json")
    first_written = about.stat().st_mtime_ns
    same_beats(store.get("beats"), beats)
    assert states(store) == {"beats": "memory", "day": "disk", "table": "memory"}
    # Any store of the cluster keeps the limit.
    assert Store(client).get("table").compute()["b"].isna().tolist() == [False, True]
    same_recording(Store(client).get("day"), recording)
    assert states(store) == {"beats": "disk", "day": "memory", "table": "memory"}
    (spilled,) = tmp_path.iterdir()
    assert len(list(spilled.iterdir())) == 2
    # The beats went twice, and were written once.
    (about,) = spilled.glob("beats-*/entry.json")
    assert about.stat().st_mtime_ns == first_written
    store.drop("day")
    same_beats(store.get("beats"), beats)
    assert [path.name for path in spilled.iterdir()] == [f"beats-{store.entry('beats').id}"]


def test_a_limit_wants_a_folder(client):
    with pytest.raises(InputError, match=r"limit: found 1\.00 kiB; allowed: a limit together"):
        Store(client, limit="1 KiB")
    for limit in ("many", -1):
        with pytest.raises(InputError, match="limit"):
            Store(client, limit=limit)
    with pytest.raises(InputError, match="ttl_s"):
        Store(client, ttl_s=0)


def test_a_name_goes_when_its_time_is_over(cluster, client):
    Store(client).put("stays", pd.DataFrame({"a": [1]}))
    store = Store(client, ttl_s=0.5)
    first = store.put("goes", pd.DataFrame({"a": [1]}))
    assert first.expires is not None
    # The time of what was there before is not that of what is there now.
    Store(client, ttl_s=3600)
    store.put("later", pd.DataFrame({"a": [1]}))
    assert set(states(store)) >= {"stays", "later"}
    deadline = time.monotonic() + 30
    while "goes" in states(store) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert set(states(store)) == {"stays", "later"}
    with pytest.raises(InputError, match="no such name"):
        store.get("goes")


def test_a_new_scheduler_gets_its_names_back(store, recording, beats, model, tmp_path):
    things = {"day": recording, "beats": beats, "model": model}
    for name, value in things.items():
        store.put(name, value, parameters={"of": name})
    store.put("table", pd.DataFrame({"a": [1.5, None]}, index=pd.Index([7, 8], name="row")))
    written = store.snapshot(tmp_path)
    other = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)
    with other, Client(other) as client:
        anew = Store(client)
        anew.restore(tmp_path)
        assert [replace(entry, used="", state="") for entry in anew.list()] == [
            replace(entry, used="", state="") for entry in written
        ]
        same_recording(anew.get("day"), recording)
        same_beats(anew.get("beats"), beats)
        assert anew.get("model").threshold == model.threshold
        assert anew.get("table").compute().index.tolist() == [7, 8]
        assert set(states(anew).values()) == {"memory"}
        with pytest.raises(InputError, match="of that name already"):
            anew.restore(tmp_path)


def test_a_snapshot_that_cannot_be_read_names_its_file(store, beats, tmp_path):
    with pytest.raises(InputError, match="no snapshot of a store there"):
        store.restore(tmp_path)
    store.put("beats", beats)
    store.snapshot(tmp_path)
    (tmp_path / "beats" / "waves" / "000001.parquet").write_bytes(b"no")
    store.restore(tmp_path, overwrite=True)
    with pytest.raises(InputError, match=r"000001\.parquet: found nothing that can be read"):
        store.get("beats")
    (tmp_path / "beats" / "entry.json").write_text('{"version": 99}')
    with pytest.raises(InputError, match="version 99 of the layout"):
        store.restore(tmp_path, overwrite=True)
    store.put("beats", beats, overwrite=True)
    taken = tmp_path / "file"
    taken.write_text("")
    with pytest.raises(InputError, match="a place that a worker cannot write"):
        store.snapshot(taken)


@pytest.mark.filterwarnings("ignore:Client .* desires key:UserWarning")
def test_data_that_is_gone_says_so_and_a_snapshot_brings_it_back(client, store, beats, tmp_path):
    store.put("beats", beats)
    store.snapshot(tmp_path)
    client.restart()
    assert states(store) == {"beats": "gone"}
    with pytest.raises(InputError, match=r"data is gone.*workers were restarted.*restore"):
        store.get("beats")
    store.restore(tmp_path, overwrite=True)
    same_beats(store.get("beats"), beats)


def test_a_dead_worker_costs_no_name(client, store, recording, beats):
    store.put("day", recording)
    store.put("beats", ecg_dask.find_beats(store.get("day")))
    (victim, *_) = client.who_has(futures_of(store.get("beats").waves)).popitem()[1]
    client.run(os._exit, 1, workers=[victim], on_error="ignore")
    same_beats(store.get("beats"), beats)


def test_without_workers_nothing_waits_for_ever(recording, monkeypatch):
    monkeypatch.setattr(waiting, "WITHOUT_WORKERS_S", 0.5)
    with LocalCluster(n_workers=0, dashboard_address=None) as empty, Client(empty) as client:
        store = Store(client)
        with pytest.raises(InputError, match=r"value of day: found a cluster without workers"):
            store.put("day", recording)
        empty.scale(1)
        client.wait_for_workers(1)
        store.put("day", recording)
        empty.scale(0)
        while client.nthreads():
            time.sleep(0.05)
        with pytest.raises(InputError, match="name day: found a cluster without workers"):
            store.get("day")


def test_functions_of_a_program_outlive_it(cluster, client, store, beats, tmp_path):
    store.put("beats", beats)
    module = tmp_path / "keep.py"
    module.write_text("LEAST = 0.9\n\n\ndef good(table):\n    return table['quality'] > LEAST\n")
    text = "import keep\nstore.put('good', store.get('beats').where(keep.good))"
    in_another_process(cluster, text, cwd=tmp_path)
    module.unlink()
    expected = beats.where(lambda table: table["quality"] > 0.9)
    for address in list(client.nthreads()):
        # One after the other, so that each part is computed again.
        client.run(os._exit, 1, workers=[address], on_error="ignore")
        client.wait_for_workers(2)
        wait(futures_of(store.get("good").waves), timeout=60)
    same_beats(store.get("good"), expected)


def test_sql_over_beats_and_tables(store, beats):
    store.put("beats", beats)
    store.put("limits", pd.DataFrame({"record": [beats.names[0]], "least": [0.9]}))
    query = (
        "select record, count(*) as n from beats join limits using (record) "
        "where quality > least group by record"
    )
    table = beats.table.compute()
    rows = store.sql(query, out="counts")
    expected = pd.DataFrame(
        {"record": [beats.names[0]], "n": [int((table["quality"] > 0.9).sum())]}
    )
    pd.testing.assert_frame_equal(rows.compute(), expected, check_dtype=False)
    pd.testing.assert_frame_equal(store.get("counts").compute(), expected, check_dtype=False)
    entry = store.entry("counts")
    assert entry.made_from == {name: store.entry(name).id for name in ("beats", "limits")}
    assert entry.parameters == {"query": query, "engine": "cpu"}
    firsts = store.sql("select sample from beats where rr_prev_s is null").compute()
    assert firsts["sample"].tolist() == table["sample"][table["rr_prev_s"].isna()].tolist()
    assert isinstance(rows, dd.DataFrame)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("select nothing from beats", r"nothing.*one SELECT over beats \(record, sample"),
        ("select * from beets", r"beets.*one SELECT over beats"),
        ("drop table beats", "only SELECT"),
        ("select", "cannot be answered"),
        ("select * from day", r"day.*one SELECT over beats"),
    ],
)
def test_queries_that_are_refused(store, recording, beats, query, words):
    store.put("day", recording)
    store.put("beats", beats)
    with pytest.raises(InputError, match=words):
        store.sql(query, out="never")
    assert "never" not in states(store)


def test_a_taken_name_is_refused_before_a_query_runs(store, beats):
    store.put("beats", beats)
    with pytest.raises(InputError, match="of that name already"):
        store.sql("select * from nothing", out="beats")


def test_data_of_workers_is_mapped_by_another_process(store, recording, beats, model):
    store.put("day", recording)
    store.put("beats", beats)
    store.put("model", model)
    with attach(store.share("day")) as shared:
        blocks = shared.signal
        np.testing.assert_array_equal(np.concatenate(blocks), recording.signal.compute())
        assert (shared.kind, shared.fs, len(blocks)) == ("recording", 250.0, 3)
    with attach(store.share("beats", hold_s=1.0)) as shared:
        np.testing.assert_array_equal(np.concatenate(shared.waves), beats.waves.compute())
        pd.testing.assert_frame_equal(pd.concat(shared.table), beats.table.compute())
        assert shared.info["id"] == store.entry("beats").id
    with pytest.raises(InputError, match="a model, whose weights are small"):
        store.share("model")
