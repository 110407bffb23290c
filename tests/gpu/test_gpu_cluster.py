"""Workers on GPUs: over UCX, on a shared GPU, and when one of them dies."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import dask
import numpy as np
import pandas as pd
import pytest
from distributed import Client, wait

import ecg_dask
from ecg_dask import InputError, connect
from ecg_dask.gpu.devices import gpus
from ecg_dask.gpu.pool import FOUND, pool_here

CHUNK = 100_000


def whole(path):
    """Return beats, waves, the model and scores of a file, on the host."""
    beats = ecg_dask.find_beats(ecg_dask.read(path, fs=250, chunk=CHUNK))
    model = ecg_dask.train(beats, epochs=2)
    table = beats.table.compute().to_pandas()
    waves = beats.waves.compute().get()
    return table, waves, model, model.score(beats).compute().to_pandas()


def check_same(one, other):
    pd.testing.assert_frame_equal(one[0], other[0], check_exact=True)
    np.testing.assert_array_equal(one[1], other[1])
    for name, weights in one[2].weights.items():
        np.testing.assert_array_equal(weights, other[2].weights[name])
    pd.testing.assert_frame_equal(one[3], other[3], check_exact=True)


@pytest.fixture(scope="module")
def alone(holter):
    """Return what one worker makes of the file."""
    with connect(device="gpu", workers=1, pool="8 GiB") as client:
        assert client.scheduler.address.startswith("tcp://")
        return whole(holter)


def test_one_gpu_worker_gives_tables_of_cudf_and_the_cpus_beats(alone, holter):
    with dask.config.set(scheduler="threads"):
        beats = ecg_dask.find_beats(ecg_dask.read(holter, fs=250, chunk=CHUNK))
        table, waves = dask.compute(beats.table, beats.waves)
    pd.testing.assert_frame_equal(alone[0], table, check_exact=False, rtol=1e-6)
    np.testing.assert_array_equal(alone[1], waves)


def test_two_workers_over_ucx_give_the_same(alone, holter):
    with connect(device="gpu", workers=2, workers_per_gpu=2, pool="16 GiB") as client:
        assert client.scheduler.address.startswith("ucx://")
        assert len(client.nthreads()) == 2
        check_same(alone, whole(holter))


def test_an_asynchronous_pool_gives_the_same(alone, holter):
    with connect(device="gpu", workers=1, pool="async"):
        check_same(alone, whole(holter))


def kill_one(client):
    """Kill the worker with the most keys as a machine dies, without a word."""
    keys = client.has_what()
    address = max(keys, key=lambda worker: len(keys[worker]))
    pid = client.run(os.getpid, workers=[address])[address]
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while address in client.nthreads():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.timeout(400)
def test_a_worker_killed_in_each_stage_changes_no_answer(alone, holter):
    with connect(
        device="gpu", workers=2, workers_per_gpu=2, pool="16 GiB", protocol="tcp"
    ) as client:

        def dying(work):
            client.wait_for_workers(2, timeout=60)
            with ThreadPoolExecutor(1) as pool:
                killed = pool.submit(kill_one, client)
                done = work()
                killed.result(timeout=60)
            return done

        recording = dying(lambda: ecg_dask.read(holter, fs=250, chunk=CHUNK))
        beats = ecg_dask.find_beats(recording)

        def segmented():
            blocks = beats.waves.to_delayed(optimize_graph=False).ravel().tolist()
            held = dask.persist(beats.table.to_delayed(optimize_graph=False), blocks)
            wait(held)
            tables, waves = dask.compute(*held)
            table = pd.concat([part.to_pandas() for part in tables])
            return table, np.concatenate([block.get() for block in waves])

        table, waves = dying(segmented)
        model = dying(lambda: ecg_dask.train(beats, epochs=2))
        scores = dying(lambda: model.score(beats).compute().to_pandas())
        check_same(alone, (table, waves, model, scores))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"workers": 1000}, "workers: found 1000 on"),
        ({"pool": "10 TiB"}, "pool: found '10 TiB'"),
        ({"pool": "much"}, "pool: found 'much'"),
        ({"pool": "async", "protocol": "ucx", "workers_per_gpu": 2}, "'async' together with ucx"),
    ],
)
def test_what_gpus_cannot_do_is_told(options, words):
    with pytest.raises(InputError, match=words):
        connect(device="gpu", **options)


def test_a_worker_a_gpu():
    with connect(pool="4 GiB") as client:
        assert len(client.nthreads()) == len(gpus())
        seen = client.run(lambda: os.environ["CUDA_VISIBLE_DEVICES"].split(",")[0])
        assert len(set(seen.values())) == len(gpus())


def test_workers_that_dask_cuda_started_get_one_pool(alone, holter, tmp_path):
    """As on several machines: a scheduler, a worker with RMM's pool, and a client that comes."""
    file = str(tmp_path / "scheduler.json")
    python = [sys.executable, "-m"]
    scheduler = [*python, "dask", "scheduler", "--host", "127.0.0.1", "--port", "0"]
    worker = [*python, "dask", "cuda", "worker", "--rmm-pool-size", "8GB"]
    processes = [
        subprocess.Popen([*scheduler, "--no-dashboard", "--scheduler-file", file]),
        subprocess.Popen([*worker, "--scheduler-file", file]),
    ]
    try:
        deadline = time.monotonic() + 60
        while not os.path.exists(file):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        with Client(scheduler_file=file) as client:
            client.wait_for_workers(1, timeout=60)
        with connect(scheduler_file=file, device="gpu") as client:
            assert {pool.kind for pool in client.run(pool_here).values()} == {FOUND}
            check_same(alone, whole(holter))
    finally:
        for process in processes:
            process.terminate()
            process.wait(timeout=30)
