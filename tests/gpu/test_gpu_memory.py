"""One pool under all libraries, one address from file to network, and what goes over the bus."""

import json

import numpy as np
import pytest

import ecg_dask
from ecg_dask import InputError, connect

POOL = "8 GiB"


@pytest.fixture(scope="module")
def client():
    with connect(device="gpu", workers=1, pool=POOL) as client:
        yield client


def in_worker(client, function, *arguments):
    """Run a function in the worker, on the thread that tasks run on."""
    return client.submit(function, *arguments, pure=False).result(timeout=200)


def allocations():
    """Allocate with each library; return what the pool's statistics and the driver tell."""
    import cudf
    import cupy
    import rmm.statistics
    import torch
    from cuda.bindings import driver
    from numba import cuda

    def cudf_column():
        column = cudf.Series(range(2**18), dtype="float32")
        return column, column.values.data.ptr

    def cupy_array():
        array = cupy.ones(2**18, cupy.float32)
        return array, array.data.ptr

    def numba_array():
        array = cuda.device_array(2**18, np.float32)
        return array, array.__cuda_array_interface__["data"][0]

    def torch_tensor():
        tensor = torch.ones(2**18, device="cuda")
        return tensor, tensor.data_ptr()

    rmm.statistics.enable_statistics()
    told, kept = {}, []
    for make in (cudf_column, cupy_array, numba_array, torch_tensor):
        before = rmm.statistics.get_statistics().current_bytes
        value, pointer = make()
        kept.append(value)
        grown = rmm.statistics.get_statistics().current_bytes - before
        _, base, size = driver.cuMemGetAddressRange(driver.CUdeviceptr(pointer))
        told[make.__name__] = (grown, int(base), int(size))
    return told


def test_four_libraries_allocate_from_one_pool(client):
    told = in_worker(client, allocations)
    assert len(told) == 4
    for grown, _, size in told.values():
        assert 2**20 <= grown < 2**21
        assert size >= 8 * 2**30
    assert len({base for _, base, _ in told.values()}) == 1


def one_column():
    import cudf
    import cupy
    import torch
    from numba import cuda

    column = cudf.Series(cupy.arange(1000, dtype=cupy.float32))
    array = column.values
    return {
        array.data.ptr,
        cuda.as_cuda_array(array).__cuda_array_interface__["data"][0],
        torch.from_dlpack(array).data_ptr(),
        cupy.from_dlpack(torch.from_dlpack(array)).data.ptr,
    }


def test_a_column_has_one_address_in_all_libraries(client):
    assert len(in_worker(client, one_column)) == 1


def addresses(path):
    """Find, train and score in this process; return the addresses that are seen on the way."""
    import dask

    from ecg_dask.anomaly import fit, training
    from ecg_dask.readers import csv
    from ecg_dask.segment import halos

    seen = {}

    def spy(module, name, note):
        original = getattr(module, name)

        def spied(*args, **kwargs):
            result = original(*args, **kwargs)
            seen.setdefault(f"{module.__name__}.{name}", []).append(note(args, result))
            return result

        setattr(module, name, spied)
        return lambda: setattr(module, name, original)

    undo = [
        spy(csv, "read_plain", lambda args, block: block.samples.data.ptr),
        spy(halos, "detect", lambda args, found: args[0].data.ptr),
        spy(training, "take_rows", lambda args, rows: rows.inputs.data.ptr),
        spy(fit, "from_dlpack", lambda args, tensor: (args[0].data.ptr, tensor.data_ptr())),
    ]
    try:
        with dask.config.set(scheduler="synchronous"):
            beats = ecg_dask.find_beats(ecg_dask.read(path, fs=250))
            ecg_dask.train(beats, epochs=1)
    finally:
        for back in undo:
            back()
    return seen


def test_one_address_from_the_column_to_the_kernels_and_from_the_beats_to_the_network(
    client, holter
):
    seen = in_worker(client, addresses, str(holter))
    (read,) = seen["ecg_dask.readers.csv.read_plain"]
    assert set(seen["ecg_dask.segment.halos.detect"]) == {read}
    (rows,) = seen["ecg_dask.anomaly.training.take_rows"]
    # The training part is the first rows of the same memory.
    assert seen["ecg_dask.anomaly.fit.from_dlpack"] == [(rows, rows)]


def copies(path, folder):
    """Read, find, train and score under a profiler; return all copies as (kind, bytes)."""
    import dask
    from torch.profiler import ProfilerActivity, profile

    with (
        dask.config.set(scheduler="synchronous"),
        profile(activities=[ProfilerActivity.CUDA]) as profiler,
    ):
        beats = ecg_dask.find_beats(ecg_dask.read(path, fs=250))
        model = ecg_dask.train(beats, epochs=2)
        n_beats = len(model.score(beats).compute())
    trace = f"{folder}/trace.json"
    profiler.export_chrome_trace(trace)
    with open(trace) as file:
        events = json.load(file)["traceEvents"]
    found = [e for e in events if e.get("cat") == "gpu_memcpy"]
    return n_beats, [(e["name"], e["args"]["bytes"]) for e in found]


def test_nothing_as_large_as_the_signal_goes_through_the_host(client, holter, tmp_path):
    n_beats, found = in_worker(client, copies, str(holter), str(tmp_path))
    up = [n for name, n in found if "HtoD" in name]
    down = [n for name, n in found if "DtoH" in name]
    assert n_beats > 3000
    # The text goes in once; what else goes in and out is a few numbers a beat.
    text = holter.stat().st_size
    assert text <= sum(up) <= text + 128 * n_beats + 2**20
    assert sum(down) <= 256 * n_beats + 2**18
    assert max(down) <= 32 * n_beats


@pytest.mark.parametrize(("pool", "task"), [("24 MiB", "on_device"), ("44 MiB", "find_block")])
def test_a_pool_too_small_is_told_with_the_partition(tmp_path, pool, task):
    path = tmp_path / "long.npy"
    np.save(path, np.random.default_rng(0).normal(size=(8_000_000, 1)).astype(np.float32))
    with connect(device="gpu", workers=1, pool=pool):
        beats = ecg_dask.find_beats(ecg_dask.read(path, fs=250, chunk=8_000_000))
        words = f"pool: found .*, too little for {task} on a partition of 8,000,000 x 1 values"
        with pytest.raises(InputError, match=words):
            beats.table.compute()


@pytest.mark.timeout(280)
def test_twice_the_pool_goes_through(tmp_path):
    """4 GiB of signal in a pool of 2 GiB: found, trained on, scored."""
    day = synthetic_lead(20_000_000)
    times = -(-(2**30) // day.size)
    path = tmp_path / "weeks.npy"
    signal = np.lib.format.open_memmap(
        path, mode="w+", dtype=np.float32, shape=(times * day.size, 1)
    )
    for i in range(times):
        signal[i * day.size : (i + 1) * day.size, 0] = day
    signal.flush()
    assert signal.nbytes >= 4 * 2**30
    with connect(device="gpu", workers=1, pool="2 GiB"):
        alone = ecg_dask.find_beats(ecg_dask.Recording(np_array(day), 250.0))
        n_alone = len(alone.table)
        beats = ecg_dask.find_beats(ecg_dask.read(path, fs=250))
        table = beats.table.persist()
        beats = replaced(beats, table)
        model = ecg_dask.train(beats, epochs=1)
        scores = model.score(beats).persist()
        assert abs(len(table) - times * n_alone) <= 2 * times
        assert len(scores) == len(table)
        assert scores["score"].count().compute() == table["complete"].sum().compute()


def synthetic_lead(n_samples):
    from ecg_dask.synthetic import synthetic

    signal = synthetic(n_samples / 250, 250.0).recording.signal
    return np.ascontiguousarray(signal.compute(scheduler="threads")[:, 0])


def np_array(x):
    import dask.array as da

    return da.from_array(x[:, None], chunks=(2_000_000, 1))


def replaced(beats, table):
    from dataclasses import replace

    return replace(beats, table=table)
