"""The store and the steps on GPU workers."""

import importlib.util
import os
import signal
import subprocess
import sys
import time

import dask
import numpy as np
import pandas as pd
import pytest
from distributed import Client

from ecg_dask import connect, find_beats, read, train
from ecg_dask.arrays import on_gpu, on_host
from ecg_dask.share import attach
from ecg_dask.stages.scoring import scored
from ecg_dask.store import Store

EPOCHS = 2
HAS_SQL = importlib.util.find_spec("polars") is not None


@pytest.fixture(scope="module")
def client():
    with connect(device="gpu", workers=1, pool="8 GiB") as client:
        yield client


@pytest.fixture
def store(client):
    yield Store(client)
    for key in client.list_datasets():
        client.unpublish_dataset(key)


def rows_of(table):
    """Return a table of the store on the host."""
    return pd.concat(
        [on_host(part) for part in dask.compute(*table.to_delayed())], ignore_index=True
    )


def same(one, other):
    pd.testing.assert_frame_equal(on_host(one.table.compute()), on_host(other.table.compute()))
    np.testing.assert_array_equal(on_host(one.waves.compute()), on_host(other.waves.compute()))


def test_things_stay_on_the_gpu_and_come_back_from_files(client, store, holter, tmp_path):
    recording = read(holter, fs=250.0, chunk=200_000)
    beats = find_beats(recording)
    model = train(beats, epochs=EPOCHS)
    for name, value in {"day": recording, "beats": beats, "model": model}.items():
        store.put(name, value)
    store.put("scored", scored([beats], model))
    assert [entry.device for entry in store.list()] == ["gpu", "gpu", "cpu", "gpu"]
    before = {name: store.get(name) for name in ("day", "beats", "scored")}
    assert on_gpu(before["beats"].waves.blocks[0].compute())
    host = before["day"].signal.compute().get(), rows_of(before["scored"])
    store.snapshot(tmp_path)
    for entry in store.list():
        store.drop(entry.name)
    store.restore(tmp_path)
    same(store.get("beats"), beats)
    np.testing.assert_array_equal(store.get("day").signal.compute().get(), host[0])
    # cuDF gives whole numbers with nulls to pandas as one type or another.
    kinds = {"group": "Int16"}
    pd.testing.assert_frame_equal(rows_of(store.get("scored")).astype(kinds), host[1].astype(kinds))
    assert store.get("model").threshold == model.threshold


def test_sql_is_answered_on_the_gpu(store, holter):
    pytest.importorskip("polars")
    pytest.importorskip("cudf_polars")
    beats = find_beats(read(holter, fs=250.0))
    store.put("beats", beats)
    query = (
        "select record, count(*) as n, min(sample) as a from beats where rr_prev_s > 0.5 "
        "group by record"
    )
    rows = store.sql(query, out="counts")
    assert type(rows._meta).__module__.startswith("cudf")
    assert store.entry("counts").parameters["engine"] == "gpu"
    on_cpu = store.sql(query, engine="cpu")
    pd.testing.assert_frame_equal(rows_of(rows), rows_of(on_cpu))
    table = on_host(beats.table.compute())
    assert rows_of(rows)["n"].tolist() == [int((table["rr_prev_s"] > 0.5).sum())]


def test_beats_are_mapped_by_another_process(store, holter):
    beats = find_beats(read(holter, fs=250.0))
    store.put("beats", beats)
    waves = beats.waves.compute()
    with attach(store.share("beats")) as shared:
        np.testing.assert_array_equal(shared.waves[0].get(), waves.get())
        pd.testing.assert_frame_equal(shared.table[0].to_pandas(), on_host(beats.table.compute()))


class Workers:
    """A `dask scheduler` and workers of `dask cuda worker` on one GPU."""

    def __init__(self, folder):
        self.file = str(folder / "scheduler.json")
        self.folder = folder
        scheduler = ["scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
        self.processes = [self.start(*scheduler)]
        deadline = time.monotonic() + 60
        while not os.path.exists(self.file):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        for _ in range(2):
            self.add()

    def start(self, *arguments):
        return subprocess.Popen(
            [sys.executable, "-m", "dask", *arguments, "--scheduler-file", self.file],
            cwd=self.folder,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "0"},
            start_new_session=True,
        )

    def add(self):
        self.processes.append(self.start("cuda", "worker", "--rmm-pool-size", "8GB"))

    def step(self, *arguments):
        command = [sys.executable, "-m", "ecg_dask", *arguments, "--scheduler-file", self.file]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def close(self):
        for process in reversed(self.processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=30)


@pytest.mark.timeout(400)
def test_five_processes_make_the_table_of_one_while_a_worker_dies(holter, tmp_path):
    with connect(device="gpu", workers=1, pool="8 GiB"):
        beats = find_beats(read(holter, fs=250.0, chunk=200_000))
        expected = rows_of(scored([beats], train(beats, epochs=EPOCHS)))
    workers = Workers(tmp_path)
    try:
        with Client(scheduler_file=workers.file) as client:
            client.wait_for_workers(2, timeout=120)
            workers.step(
                "stage", "load", str(holter), "--out", "day", "--fs", "250", "--chunk", "200000"
            )
            workers.step("stage", "segment", "--in", "day", "--out", "beats")
            held = client.has_what()
            victim = max(held, key=lambda worker: len(held[worker]))
            pid = client.run(os.getppid, workers=[victim])[victim]
            os.killpg(os.getpgid(pid), signal.SIGKILL)
            while victim in client.nthreads():
                time.sleep(0.1)
            workers.step(
                "stage", "train", "--in", "beats", "--out", "model", "--epochs", str(EPOCHS)
            )
            workers.add()
            workers.step("stage", "score", "--in", "beats", "--in", "model", "--out", "scored")
            if HAS_SQL:
                query = "select record, count(*) as n from scored where anomaly group by record"
                workers.step("stage", "sql", query, "--out", "counts")
        with connect(scheduler_file=workers.file, device="gpu") as client:
            store = Store(client)
            table = rows_of(store.get("scored"))
            pd.testing.assert_frame_equal(table, expected)
            if HAS_SQL:
                assert rows_of(store.get("counts"))["n"].tolist() == [int(table["anomaly"].sum())]
    finally:
        workers.close()
