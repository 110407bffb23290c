"""GPU memory of a worker in processes outside Dask, through CUDA IPC."""

import gc
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from ecg_dask import InputError, connect
from ecg_dask.share import attach, describe, leases, offer, owner, withdraw

N_ROWS = 100_000

#: What readers begin with. Contexts and imports belong to the start of a process.
BEGIN = """
import gc, json, sys, time
import cudf, cupy, torch
from ecg_dask import InputError
from ecg_dask.share import attach, cuda
cupy.zeros(1)
cudf.Series([1.0, None])
torch.zeros(1, device="cuda")
"""

pytestmark = pytest.mark.usefixtures("shares_apart")


@pytest.fixture(scope="module")
def client():
    with connect(device="gpu", workers=1, pool="4 GiB") as client:
        yield client


@pytest.fixture
def start(start_python):
    """Start Python processes that have a context on the GPU."""

    def started_one(code, *arguments, **environment):
        own = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **environment}
        return start_python(BEGIN + code, *arguments, **own)

    return started_one


@pytest.fixture(autouse=True)
def nothing_is_left(client):
    yield
    client.submit(let_go, pure=False).result(timeout=60)
    leases.sweep()
    assert list(leases.share_root().iterdir()) == []


def let_go():
    for share in list(owner._offers):
        withdraw({"share": share})
    assert owner._offers == {}


def until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def in_worker(client, function, *arguments, **options):
    return client.submit(function, *arguments, pure=False, **options).result(timeout=120)


def samples():
    import cupy

    # Not at the start of its allocation.
    return cupy.arange(3 * N_ROWS, dtype=cupy.float32).reshape(-1, 3)[1000:]


def table():
    import cudf

    numbers = np.arange(N_ROWS)
    frame = cudf.DataFrame(
        {
            "record": cudf.Series(["a", None, "bü", ""] * (N_ROWS // 4), dtype="str"),
            "sample": numbers,
            "rr_prev_s": np.where(numbers % 3, numbers / 250, np.nan),
            "complete": numbers % 2 == 0,
            "day": cudf.Series(numbers.astype("datetime64[s]")),
        },
        nan_as_null=False,
    )
    frame["score"] = frame["rr_prev_s"].astype("float32").where(frame["sample"] % 5 != 0, None)
    return frame


def block_of(array):
    """Return the base and the size of the driver's block that an array lies in."""
    from cuda.bindings import driver

    failed, base, size = driver.cuMemGetAddressRange(driver.CUdeviceptr(array.data.ptr))
    assert not failed
    return array.data.ptr - int(base), int(size)


def recording(piece):
    return json.dumps(describe("ecg", "recording", [{"signal": piece}], fs=250.0))


def test_an_array_is_mapped_where_it_lies(client, start):
    held = client.submit(samples, pure=False)
    piece = in_worker(client, offer, held)
    assert (piece["offset"], piece["block"]) == in_worker(client, block_of, held)
    assert piece["block"] >= 4 * 2**30
    again = in_worker(client, offer, held)
    assert again["handle"] == piece["handle"]
    descriptor = describe("ecg", "recording", [{"signal": piece}, {"signal": again}], fs=250.0)
    code = """
start = time.perf_counter()
shared = attach(sys.argv[1])
one, other = shared.signal
seconds = time.perf_counter() - start
tensors = [torch.as_tensor(one, device="cuda"), torch.from_dlpack(one)]
(block,) = cuda._blocks.values()
print(json.dumps({
    "seconds": seconds,
    "same": [one.data.ptr == tensor.data_ptr() for tensor in tensors],
    "aliased": one.data.ptr == other.data.ptr,
    "inside": block.pointer <= one.data.ptr,
    "shape": one.shape,
    "dtype": one.dtype.str,
    "values": [float(tensor.double().sum()) for tensor in tensors],
    "ends": [float(one[0, 0]), float(one[-1, -1])],
}))
"""
    process, said = start(code, json.dumps(descriptor))
    process.communicate()
    assert process.returncode == 0
    told = json.loads(said)
    print(f"array attached and mapped in {1000 * told['seconds']:.2f} ms")
    expected = np.arange(3 * N_ROWS, dtype=np.float32).reshape(-1, 3)[1000:]
    assert told["same"] == [True, True]
    assert told["aliased"]
    assert told["inside"]
    assert (told["shape"], told["dtype"]) == (list(expected.shape), "<f4")
    assert told["values"] == [expected.astype(float).sum()] * 2
    assert told["ends"] == [3000.0, 3.0 * N_ROWS - 1]


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame,
        lambda frame: frame.iloc[1:1002],
        lambda frame: frame.iloc[:0],
        lambda frame: frame.set_index("sample"),
        lambda frame: frame.set_index("record"),
        lambda frame: frame[["score"]],
    ],
    ids=["whole", "slice", "no rows", "numbers as index", "text as index", "one column"],
)
def test_a_table_with_nulls_and_text_is_mapped(client, start, tmp_path, change):
    held = client.submit(lambda: change(table()), pure=False)
    piece = in_worker(client, offer, held)
    path = str(tmp_path / "seen.pickle")
    code = """
start = time.perf_counter()
shared = attach(sys.argv[1])
(frame,) = shared.table
seconds = time.perf_counter() - start
blocks = list(cuda._blocks.values())
outside = []
for name in frame:
    column = frame[name].to_pylibcudf()[0]
    for part in (column, *column.children()):
        for buffer in (part.data(), part.null_mask()):
            if buffer is not None and buffer.size and not any(
                block.pointer <= buffer.ptr < block.pointer + int(sys.argv[3]) for block in blocks
            ):
                outside.append(name)
frame.to_pandas().to_pickle(sys.argv[2])
nulls = {name: int(frame[name].to_pylibcudf()[0].null_count()) for name in frame}
print(json.dumps({"seconds": seconds, "outside": outside, "nulls": nulls}))
"""
    descriptor = json.dumps(describe("b", "table", [{"table": piece}]))
    process, said = start(code, descriptor, path, str(piece["block"]))
    process.communicate()
    assert process.returncode == 0
    told = json.loads(said)
    print(f"table attached and mapped in {1000 * told['seconds']:.2f} ms")
    expected, nulls = in_worker(client, on_host, held)
    pd.testing.assert_frame_equal(pd.read_pickle(path), expected, check_exact=True)
    assert told["nulls"] == nulls
    assert told["outside"] == []


def on_host(frame):
    nulls = {name: int(frame[name].to_pylibcudf()[0].null_count()) for name in frame}
    return frame.to_pandas(), nulls


def test_beats_are_cut_and_scored_in_another_process(client, start):
    held = client.submit(table, pure=False), client.submit(samples, pure=False)
    parts = {"table": in_worker(client, offer, held[0]), "waves": in_worker(client, offer, held[1])}
    code = """
with attach(sys.argv[1]) as shared:
    (frame,), (waves,) = shared.table, shared.waves
    late = frame[frame["complete"] & (frame["rr_prev_s"] > 300)]
    print(len(late), len(cuda._blocks), float(torch.as_tensor(waves, device="cuda").max()))
"""
    process, said = start(code, json.dumps(describe("b", "beats", [parts], fs=250.0)))
    process.communicate()
    assert process.returncode == 0
    numbers = np.arange(N_ROWS)
    n_late = int(((numbers % 3 > 0) & (numbers % 2 == 0) & (numbers / 250 > 300)).sum())
    assert said.split() == [str(n_late), "1", f"{3.0 * N_ROWS - 1}"]


def test_jax_uses_the_same_memory(client, start):
    pytest.importorskip("jax")
    piece = in_worker(client, offer, client.submit(samples, pure=False))
    code = """
import jax
with attach(sys.argv[1]) as shared:
    (signal,) = shared.signal
    array = jax.dlpack.from_dlpack(signal)
    print(array.unsafe_buffer_pointer() == signal.data.ptr, float(array[0, 0]), array.shape[0])
"""
    process, said = start(code, recording(piece))
    process.communicate()
    assert process.returncode == 0
    assert said.split() == ["True", "3000.0", str(N_ROWS - 1000)]


def test_a_tensor_keeps_the_lease_and_the_last_one_gives_it_back(client, start):
    piece = in_worker(client, offer, client.submit(samples, pure=False))
    folder = leases.find(piece["share"])
    code = """
shared = attach(sys.argv[1])
tensor = torch.from_dlpack(shared.signal[0])
shared.close()
gc.collect()
print("closed", flush=True)
sys.stdin.readline()
assert float(tensor[0, 0]) == 3000
del tensor
gc.collect()
print("given back", len(cuda._blocks), flush=True)
sys.stdin.read()
"""
    process, said = start(code, recording(piece))
    assert said == "closed\n"
    in_worker(client, withdraw, piece)
    time.sleep(2.5)
    assert leases.has_readers(folder)
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "given back 0\n"
    assert not leases.has_readers(folder)
    until(lambda: not folder.exists())
    process.communicate()
    assert process.returncode == 0


def pool_in_use():
    import rmm.statistics

    gc.collect()
    rmm.statistics.enable_statistics()
    return rmm.statistics.get_statistics().current_bytes


def large():
    import cupy

    return cupy.ones(2**26, cupy.float32)


def n_offers():
    return len(owner._offers)


def test_a_reader_that_is_killed_leaves_nothing_behind(client, start):
    before = in_worker(client, pool_in_use)
    held = client.submit(large, pure=False)
    piece = in_worker(client, offer, held)
    code = """
shared = attach(sys.argv[1])
(signal,) = shared.signal
print(float(signal.sum()), flush=True)
sys.stdin.read()
"""
    process, said = start(code, recording(piece))
    assert float(said) == 2**26
    in_worker(client, withdraw, piece)
    # The lease keeps the data though neither Dask nor the store has it any more.
    held.release()
    time.sleep(2.5)
    assert in_worker(client, pool_in_use) >= before + 2**28
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: in_worker(client, n_offers) == 0)
    until(lambda: in_worker(client, pool_in_use) <= before + 2**20)
    assert list(leases.share_root().iterdir()) == []


def own(array, frame):
    """Attach in the process that owns the data; tell whether it is the same memory."""
    pieces = [{"table": offer(frame), "waves": offer(array)}]
    with attach(describe("b", "beats", pieces)) as shared:
        same = shared.waves[0].data.ptr == array.data.ptr
        equal = shared.table[0].to_pandas().equals(frame.to_pandas())
    for piece in pieces[0].values():
        withdraw(piece)
    return same, equal, len(owner._offers)


def test_the_owner_itself_may_attach(client):
    held = client.submit(samples, pure=False), client.submit(table, pure=False)
    assert in_worker(client, own, *held) == (True, True, 0)


def not_contiguous():
    import cupy

    return samples()[::-7].T, cupy.empty((0, 3), cupy.float32)


def offer_all(values):
    return [offer(value) for value in values]


def test_what_is_not_contiguous_is_copied_once_and_nothing_stays_nothing(client, start):
    pieces = in_worker(client, offer_all, client.submit(not_contiguous, pure=False))
    descriptor = describe("ecg", "recording", [{"signal": piece} for piece in pieces])
    code = """
with attach(sys.argv[1]) as shared:
    one, none = shared.signal
    print(json.dumps([one.get().tolist(), none.shape]))
"""
    process, said = start(code, json.dumps(descriptor))
    process.communicate()
    assert process.returncode == 0
    values, shape = json.loads(said)
    expected = np.arange(3 * N_ROWS, dtype=np.float32).reshape(-1, 3)[1000:][::-7].T
    np.testing.assert_array_equal(np.array(values, np.float32), expected)
    assert shape == [0, 3]


def refused():
    import cudf

    return [
        cudf.DataFrame({"c": cudf.Series(["a"], dtype="category")}),
        cudf.DataFrame({"x": [1]}, index=cudf.MultiIndex.from_tuples([(1, 2)])),
        cudf.DataFrame({1.5: [1]}),
        samples()[:10] * 1j,
    ]


def why_refused():
    told = []
    for value in refused():
        try:
            offer(value)
        except InputError as error:
            told.append(str(error))
    return told, len(owner._offers)


def test_what_does_not_travel_is_told(client):
    told, left = in_worker(client, why_refused)
    assert left == 0
    words = ["types that do not travel: c", "several levels", "names that are", "complex64"]
    assert all(word in text for word, text in zip(words, told, strict=True))


def test_a_process_that_does_not_see_the_gpu_is_told():
    code = """
import sys
from ecg_dask import InputError
from ecg_dask.share import attach
try:
    with attach(sys.argv[1]) as shared:
        shared.signal
except InputError as error:
    print(error)
"""
    with connect(device="gpu", workers=1, pool="1 GiB") as client:
        piece = in_worker(client, offer, client.submit(samples, pure=False))
        done = subprocess.run(
            [sys.executable, "-c", code, recording(piece)],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    assert f"GPU of this process: found none; allowed: {piece['gpu']}" in done.stdout


def test_an_asynchronous_pool_is_refused_in_words():
    with connect(device="gpu", workers=1, pool="async") as client:
        held = client.submit(samples, pure=False)
        words = "pool: found memory that other processes cannot map .* a pool with a size"
        with pytest.raises(InputError, match=words):
            in_worker(client, offer, held)


def test_an_owner_that_is_killed_gives_the_reader_an_error_and_no_crash(start):
    code = """
with attach(sys.argv[1]) as shared:
    (signal,) = shared.signal
    print(float(signal[0, 0]), flush=True)
    sys.stdin.readline()
    for access in (shared.check, lambda: shared.signal):
        try:
            access()
        except InputError as error:
            print(error, flush=True)
"""
    with connect(device="gpu", workers=1, pool="1 GiB") as client:
        piece = in_worker(client, offer, client.submit(samples, pure=False))
        process, said = start(code, recording(piece))
        assert said == "3000.0\n"
        (pid,) = client.run(os.getpid).values()
        os.kill(pid, signal.SIGKILL)
        until(lambda: not leases.has_owner(leases.share_root() / piece["share"]))
        told, _ = process.communicate("\n")
    assert process.returncode == 0
    words = "share ecg: found that the process which held the data is gone; allowed: one whose "
    assert told.splitlines() == [f"{words}owner lives. Share the name again."] * 2
    with pytest.raises(InputError, match="Share the name again"):
        attach(recording(piece))
