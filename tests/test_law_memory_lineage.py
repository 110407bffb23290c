"""Memory and lineage laws, on real worker processes."""

import os
import pickle
import resource
import signal
import threading

import dask
import numpy as np
import pandas as pd
import pytest
from dask.delayed import delayed
from distributed import LocalCluster, wait

import ecg_dask
from ecg_dask import find_beats, train
from ecg_dask.segment.halos import find_block
from ecg_dask.synthetic import synthetic, write_csv

pytestmark = pytest.mark.cluster


def peak_kib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def peak_of_segmenting(hours):
    """Return the peak memory in KiB of a fresh worker that finds and cuts all beats, and these."""
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=None, memory_limit=0
        ) as cluster,
        cluster.get_client() as client,
    ):
        recording = synthetic(hours * 3600, 250.0, n_leads=1, chunk=250_000).recording
        beats = find_beats(recording)
        n_rows, n_waves = dask.compute(
            [delayed(len)(part) for part in beats.table.to_delayed()],
            [delayed(len)(block) for block in beats.waves.to_delayed().ravel()],
        )
        assert n_rows == n_waves
        return next(iter(client.run(peak_kib).values())), sum(n_rows)


def test_peak_memory_follows_the_chunk_and_not_the_recording():
    """Ten times the recording in chunks of the same size: at most 1.3 times the peak."""
    one, few = peak_of_segmenting(1)
    ten, many = peak_of_segmenting(10)
    assert many > 8 * few
    assert ten <= 1.3 * one


def test_tasks_carry_no_signal(tmp_path):
    """The graph of a file holds paths and ranges: it hardly grows with the recording."""
    sizes = []
    for n_samples in (50_000, 200_000):
        path = tmp_path / f"{n_samples}.csv"
        signal_ = np.random.default_rng(0).normal(size=n_samples).round(3)
        pd.DataFrame({"ecg": signal_}).to_csv(path, index=False)
        beats = find_beats(ecg_dask.read(path, fs=250, chunk=n_samples // 4))
        graph = dict(beats.waves.__dask_graph__()) | dict(
            dask.delayed(beats.table.to_delayed()).__dask_graph__()
        )
        sizes.append(len(pickle.dumps(graph)))
    assert sizes[1] < 1.1 * sizes[0]
    assert sizes[1] < 50_000 * 4


def test_each_step_works_on_each_block_once(monkeypatch):
    """Table and waves of one step come from one look at the signal."""
    seen = []

    def spy(*parts, **options):
        seen.append(options["first"])
        return find_block(*parts, **options)

    monkeypatch.setattr("ecg_dask.segment.halos.find_block", spy)
    recording = synthetic(240.0, 250.0, chunk=6_000).recording
    beats = find_beats(recording)
    chosen = beats.where(lambda table: table["amplitude"] > 0)
    with dask.config.set(scheduler="sync"):
        model = train(beats, epochs=1)
        assert len(seen) == len(set(seen)) == 10
        for step in (lambda: model.score(chosen).compute(), lambda: train(chosen, epochs=1)):
            seen.clear()
            step()
            assert len(seen) == len(set(seen)) == 10


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, protocol="tcp"
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def holter(tmp_path_factory):
    path = tmp_path_factory.mktemp("holter") / "holter.csv"
    write_csv(synthetic(600.0, 250.0, seed=2), path)
    return path


def kill_one(client):
    """Kill the worker with the most keys as a machine dies, without a word."""
    keys = client.has_what()
    address = max(keys, key=lambda worker: len(keys[worker]))
    pid = client.run(os.getpid, workers=[address])[address]
    os.kill(pid, signal.SIGKILL)
    return address


def test_what_is_persisted_is_computed_again_when_its_worker_dies(cluster, holter):
    with cluster.get_client() as client:
        beats = find_beats(ecg_dask.read(holter, fs=250, chunk=15_000))
        table, waves = dask.persist(
            beats.table.to_delayed(), beats.waves.to_delayed().ravel().tolist()
        )
        wait([table, waves])
        before = dask.compute(table, waves)
        dead = kill_one(client)
        after = dask.compute(table, waves)
        assert dead not in client.scheduler_info()["workers"]
        pd.testing.assert_frame_equal(pd.concat(before[0]), pd.concat(after[0]), check_exact=True)
        for one, other in zip(before[1], after[1], strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("delay_s", [0.2, 1.5])
def test_a_worker_killed_on_the_way_changes_no_answer(cluster, holter, delay_s):
    """Segmenting, training and scoring, while one of the two workers dies."""
    with cluster.get_client() as client:
        client.wait_for_workers(2, timeout=60)
        beats = find_beats(ecg_dask.read(holter, fs=250, chunk=15_000))

        def whole():
            model = train(beats, epochs=3)
            return model, model.score(beats).compute()

        model, scores = whole()
        killer = threading.Timer(delay_s, kill_one, [client])
        killer.start()
        again, rescored = whole()
        killer.join()
        for name, weights in model.weights.items():
            np.testing.assert_array_equal(weights, again.weights[name])
        assert model.threshold == again.threshold
        pd.testing.assert_frame_equal(scores, rescored, check_exact=True)
