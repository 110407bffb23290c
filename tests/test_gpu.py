"""What can be told of GPU clusters without a GPU: options, sizes, messages, what is read when."""

import asyncio
import logging
import sys
import warnings

import dask
import numpy as np
import pandas as pd
import pytest

from ecg_dask import InputError, connect, read
from ecg_dask.gpu import pool
from ecg_dask.gpu.devices import Gpu, visible
from ecg_dask.gpu.pool import Pool, pool_bytes, told_when_full

GIB = 2**30
TWO = [Gpu(number, "NVIDIA H200", f"GPU-{number}abcd", 140 * GIB, 130 * GIB) for number in range(2)]


@pytest.mark.parametrize(
    ("chosen", "numbers"),
    [
        (None, [0, 1]),
        ("1,0", [1, 0]),
        ("GPU-1abcd", [1]),
        ("GPU-0a", [0]),
        ("1,7,0", [1]),
        ("1,1", [1]),
        ("", []),
        ("-1", []),
        ("GPU", []),
    ],
)
def test_the_variable_of_visible_devices_is_read_as_the_driver_does(chosen, numbers):
    assert [gpu.number for gpu in visible(TWO, chosen)] == numbers


def test_a_pool_is_divided_among_the_workers_of_a_gpu():
    assert pool_bytes("4 GiB", 8 * GIB, GIB) == 4 * GIB
    assert pool_bytes("4 GiB", 8 * GIB, GIB, 2) == 2 * GIB
    assert pool_bytes(None, 8 * GIB, 5 * GIB, 2) == 2 * GIB
    assert pool_bytes("async", 8 * GIB, 5 * GIB) == 4 * GIB
    assert pool_bytes("1000", 8 * GIB, GIB) == 768


@pytest.mark.parametrize("size", ["9 GiB", "0", "-1 GiB", "many"])
def test_a_pool_that_is_none_or_larger_than_the_gpu_is_refused(size):
    with pytest.raises(InputError, match=r"allowed: a size up to the 8\.00 GiB of the GPU"):
        pool_bytes(size, 8 * GIB, GIB)


@pytest.fixture
def two_gpus(monkeypatch):
    """A machine with two GPUs: there is none to try on here."""
    monkeypatch.setattr("ecg_dask.gpu.devices.gpus", lambda: tuple(TWO))


@pytest.fixture
def packages(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"workers": 3}, "workers: found 3 on 2 GPUs; allowed: up to 2"),
        ({"workers": 7, "workers_per_gpu": 3}, "allowed: up to 6.*larger workers_per_gpu"),
        ({"pool": "141 GiB"}, "pool: found '141 GiB'; allowed: a size up to the 140.00 GiB"),
        ({"pool": "async", "protocol": "ucxx"}, "'async' together with ucx"),
    ],
)
def test_what_gpus_cannot_do_is_told(two_gpus, packages, options, words):
    with pytest.raises(InputError, match=words):
        connect(device="gpu", **options)


def test_a_gpu_without_its_packages(two_gpus):
    with pytest.raises(
        InputError, match=r"without the packages cudf, .*extra gpu-cu12 or gpu-cu13"
    ):
        connect(device="gpu")
    with (
        pytest.warns(UserWarning, match="There is a GPU, and the CPU is used: cudf, "),
        connect(workers=1, threads=1) as client,
    ):
        assert len(client.nthreads()) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="dask-cuda runs on Linux")
def test_each_worker_gets_its_gpu_and_the_pool(monkeypatch):
    """The description of the workers; dask-cuda's own switch leaves the driver out."""
    monkeypatch.setenv("DASK_CUDA_TEST_DISABLE_DEVICE_SPECIFIC", "1")
    # The cluster is described, and not started.
    logging.getLogger("tornado.application").disabled = True

    async def described():
        from ecg_dask.gpu.local import GpuCluster

        cluster = GpuCluster(
            indices=[2, 5],
            per_gpu=2,
            workers=3,
            pool=Pool("cuda", 4 * GIB, 3),
            asynchronous=True,
            threads_per_worker=1,
            dashboard_address=None,
        )
        return cluster.device_memory_limit, dict(cluster.worker_spec)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        limit, workers = asyncio.run(described())
    logging.getLogger("tornado.application").disabled = False
    assert limit == 2 * GIB
    seen = [worker["options"]["env"]["CUDA_VISIBLE_DEVICES"] for worker in workers.values()]
    assert seen == ["2,5", "2,5", "5,2"]
    for worker in workers.values():
        plugins = {type(plugin).__name__: plugin for plugin in worker["options"]["plugins"]}
        assert plugins["GpuMemory"].pool == Pool("cuda", 4 * GIB, 3)
        assert worker["options"]["nthreads"] == 1


@told_when_full
def task(block, error):
    raise error


def test_memory_that_ran_out_is_told_with_the_partition_and_the_pool(monkeypatch):
    block = np.zeros((2_000_000, 1), np.float32)
    with pytest.raises(MemoryError):
        task(block, MemoryError("std::bad_alloc"))
    monkeypatch.setattr(pool, "_here", Pool("cuda", 2**26))
    for error in (MemoryError("std::bad_alloc"), RuntimeError("CUDA out of memory")):
        words = "found 64.00 MiB, too little for task on a partition of 2,000,000 x 1 values, 7.63"
        with pytest.raises(InputError, match=words):
            task([(block, None)], error)
    with pytest.raises(RuntimeError, match="something else"):
        task(block, RuntimeError("something else"))


@pytest.fixture
def like_a_gpu(monkeypatch):
    """A process with a pool, in which NumPy stands for CuPy, and no text is plain."""
    monkeypatch.setattr(pool, "_here", Pool("cuda", 2**20, 2))
    monkeypatch.setitem(sys.modules, "cupy", np)
    monkeypatch.setattr("ecg_dask.readers.csv.read_plain", lambda *arguments: None)
    with dask.config.set(scheduler="synchronous"):
        yield


def test_partitions_follow_the_pool(like_a_gpu, tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", np.zeros((20_000, 1), np.float32))
    assert max(read(tmp_path / "x.npy", fs=250).signal.chunks[0]) == 2**20 // 64 // 4
    monkeypatch.setattr(pool, "_here", Pool("cuda", 140 * GIB, 1))
    assert read(tmp_path / "x.npy", fs=250).signal.numblocks == (1, 1)
    assert read(tmp_path / "x.npy", fs=250, chunk=9_000).signal.chunks[0] == (9000, 9000, 2000)


@pytest.mark.parametrize(("n_rows", "stays"), [(50_000, True), (90_000, False)])
def test_text_that_fits_is_read_while_its_rows_are_counted(like_a_gpu, tmp_path, n_rows, stays):
    x = np.round(np.random.default_rng(0).normal(size=n_rows), 3)
    path = tmp_path / "x.csv"
    pd.DataFrame({"ecg": x}).to_csv(path, index=False)
    recording = read(path, fs=250)
    assert recording.signal.numblocks[0] > 5
    path.rename(tmp_path / "gone.csv")
    if stays:
        np.testing.assert_array_equal(recording.signal.compute()[:, 0], x.astype(np.float32))
    else:
        with pytest.raises(InputError, match="no such file"):
            recording.signal.compute()


def test_a_bad_cell_in_text_that_fits_is_told_with_its_line(like_a_gpu, tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("ecg\n" + "0.5\n" * 9000 + "oops\n" + "0.5\n" * 9000)
    with pytest.raises(InputError, match=r"x\.csv, line 9002, column ecg: found 'oops'"):
        read(path, fs=250)
