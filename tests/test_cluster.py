import sys

import dask.array as da
import pandas as pd
import pytest
from distributed import Client, LocalCluster, Security
from signals import SHORT, counts

from ecg_dask import InputError, Recording, connect, find_beats


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"device": "tpu"}, "'tpu'; allowed: auto, cpu or gpu"),
        ({"device": "gpu"}, "the driver lists no GPU.*ecg-dask doctor"),
        ({"device": "cpu", "workers_per_gpu": 2}, "workers_per_gpu: found 2"),
        ({"workers_per_gpu": 0}, "workers_per_gpu: found 0"),
        ({"address": ""}, "no scheduler answered"),
        ({"protocol": "ucx-old"}, "tcp, tls or ucx"),
        ({"protocol": "tls"}, "Security"),
        ({"protocol": "ucx", "security": Security()}, "does not encrypt"),
        ({"pool": "2 GiB"}, "pool"),
        ({"workers": 0}, "workers: found 0"),
        ({"threads": -1}, "threads: found -1"),
        ({"address": "tcp://127.0.0.1:9", "workers": 2}, "workers beside a running scheduler"),
        ({"address": "tcp://127.0.0.1:9", "scheduler_file": "x"}, "both address and"),
        ({"address": "nonsense://x"}, "no scheduler answered"),
        ({"scheduler_file": "/nowhere/scheduler.json"}, "which is no file"),
    ],
)
def test_what_cannot_be_connected(options, words, monkeypatch):
    monkeypatch.setattr("ecg_dask.cluster.CONNECT_TIMEOUT_S", 1)
    with pytest.raises(InputError, match=words):
        connect(**options)
    # Dask's default scheduler is still there.
    assert da.ones(3).sum().compute() == 3


def test_a_missing_ucx_package_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match="distributed-ucxx"):
        connect(protocol="ucx")


@pytest.mark.cluster
def test_a_local_cluster_ends_with_its_client():
    with connect(workers=1, threads=1) as client:
        assert client.submit(lambda: 41 + 1).result() == 42
        cluster = client.cluster
        assert client.scheduler_info()["workers"]
    assert cluster.status.name == "closed"


def test_a_running_scheduler_stays():
    with LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster:
        with connect(cluster.scheduler_address) as client:
            assert isinstance(client, Client)
        with connect(cluster.scheduler_address) as client:
            assert client.submit(sum, [1, 2]).result() == 3


def test_a_running_cluster_must_be_of_one_kind():
    def start_on_gpu(dask_worker):
        """Leave in a worker what `dask cuda worker` does."""
        from dask_cuda.plugins import PreImport

        dask_worker.plugins["dask-cuda"] = PreImport(None)

    with LocalCluster(n_workers=2, processes=False, dashboard_address=None) as cluster:
        with pytest.raises(InputError, match="found 0 of 2 workers on GPUs"):
            connect(cluster.scheduler_address, device="gpu")
        with connect(cluster.scheduler_address) as client:
            one, _ = client.nthreads()
            client.run(start_on_gpu, workers=[one])
        for device in ("auto", "gpu"):
            with pytest.raises(InputError, match="found 1 of 2 workers on GPUs"):
                connect(cluster.scheduler_address, device=device)
        # The client that was refused is not Dask's default.
        assert da.ones(3).sum().compute() == 3
        with connect(cluster.scheduler_address, device="cpu") as client:
            assert len(client.nthreads()) == 2


@pytest.mark.cluster
@pytest.mark.skipif(sys.platform != "linux", reason="UCX runs on Linux")
def test_beats_over_ucx_are_those_of_one_thread():
    pytest.importorskip("distributed_ucxx")
    x = counts(8000, n_leads=1)[0]
    beats = find_beats(Recording(da.from_array(x, chunks=(1000, 1)), 100), SHORT)
    expected = beats.table.compute(scheduler="sync")
    with connect(protocol="ucx", workers=2, threads=1):
        pd.testing.assert_frame_equal(beats.table.compute(), expected)
