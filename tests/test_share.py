"""Arrays and tables that other processes map: the same values, where the owner put them."""

import gc
import json
import pickle
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
import torch

from ecg_dask import InputError
from ecg_dask.share import attach, describe, leases, offer, owner, withdraw

pytestmark = pytest.mark.usefixtures("shares_apart")


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Let go of all that a test offered, and look that nothing of it stays."""
    yield
    gc.collect()
    for share in list(owner._offers):
        withdraw({"share": share})
    assert owner._offers == {}
    assert owner._owner is None


def shared_signal(array):
    return attach(describe("ecg", "recording", [{"signal": offer(array)}], fs=250.0))


def shared_table(frame):
    return attach(describe("rows", "table", [{"table": offer(frame)}]))


def in_another_process(function, descriptor, path):
    """Run ``function(shared)`` in a process that has no Dask, and return what it makes."""
    code = (
        "import pickle, sys, ecg_dask.share\n"
        f"sys.path.insert(0, {str(path)!r})\n"
        "from work import work\n"
        "with ecg_dask.share.attach(sys.stdin.read()) as shared:\n"
        "    pickle.dump(work(shared), sys.stdout.buffer)\n"
        "assert 'dask' not in sys.modules and 'distributed' not in sys.modules\n"
    )
    (path / "work.py").write_text(function)
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(descriptor).encode(), capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()
    return pickle.loads(done.stdout)


def address(array):
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.float32).reshape(6, 2),
        np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1),
        np.arange(20)[::-3],
        np.array([True, False, True]),
        np.array([1.5, np.nan, -np.inf], np.float16),
        np.array(7, np.uint8),
        np.empty((0, 3), np.float32),
        np.empty((4, 0, 3), np.int16),
    ],
)
def test_an_array_comes_as_it_is_and_cannot_be_written(array):
    with shared_signal(array) as shared:
        (seen,) = shared.signal
        assert (seen.dtype, seen.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(seen, array)
        assert not seen.flags.writeable
        assert seen.flags.c_contiguous
        with pytest.raises(ValueError, match="read-only"):
            seen[...] = 0
        # Mapped once: asked again it is the same.
        assert shared.signal[0] is seen
        assert (shared.name, shared.kind, shared.fs, shared.info) == ("ecg", "recording", 250.0, {})


def test_a_reader_sees_the_owners_memory_and_no_copy(tmp_path):
    piece = offer(np.zeros(1000))
    descriptor = describe("ecg", "recording", [{"signal": piece}])
    with attach(descriptor) as one, attach(json.dumps(descriptor)) as other:
        seen = (one.signal[0], other.signal[0])
        assert address(seen[0]) != address(seen[1])
        # Written into the owner's file, it is what both see.
        with open(leases.find(piece["share"]) / leases.DATA, "r+b") as file:
            file.write(np.full(1000, 3.5).tobytes())
        assert {float(array[999]) for array in seen} == {3.5}


def test_torch_uses_the_same_memory():
    with shared_signal(np.arange(6, dtype=np.float32)) as shared:
        (array,) = shared.signal
        assert torch.from_dlpack(array).data_ptr() == address(array)
        with pytest.warns(UserWarning, match="not writable"):
            assert torch.as_tensor(array).data_ptr() == address(array)
        assert torch.from_dlpack(array).sum() == 15


def test_jax_takes_it():
    jax = pytest.importorskip("jax")
    with shared_signal(np.arange(6, dtype=np.float32)) as shared:
        assert float(jax.numpy.asarray(shared.signal[0]).sum()) == 15


def beats():
    return pd.DataFrame(
        {
            "record": pd.array(["a", "bü", None, ""], dtype="str"),
            "sample": np.array([3, 250, 2**40, 7]),
            "rr_prev_s": [np.nan, 0.8, -np.inf, 0.0],
            "amplitude": np.array([1, 2, np.nan, 4], np.float32),
            "complete": [True, False, True, True],
            "score": pd.array([1.5, None, 2.5, None], dtype="Float64"),
            "count": pd.array([1, None, 3, 4], dtype="Int8"),
            "known": pd.array([True, None, False, None], dtype="boolean"),
            "split": pd.Categorical(["train", "test", None, "train"], ["train", "test", "none"]),
            "day": pd.to_datetime(["2020-01-01", None, "2021-05-05", "1960-01-01"]),
            "length": pd.to_timedelta([1, 2, 3, None], unit="s"),
            "there": pd.to_datetime(["2020-01-01"] * 4).tz_localize("Europe/Berlin"),
            "text": pd.array(["x", None, "y", "z"], dtype="string"),
            "arrow": pd.array([1.0, None, float("nan"), 4.0], dtype="double[pyarrow]"),
        },
        index=pd.Index([5, 6, 7, 9], name="row"),
    )


FRAMES = {
    "beats": beats(),
    "none": beats().iloc[:0],
    "one": beats().iloc[2:3],
    "every other": beats().iloc[::2],
    "backwards": beats()[["sample", "rr_prev_s"]].iloc[::-1],
    "range": beats().reset_index(drop=True),
    "no rows, range": beats().reset_index(drop=True).iloc[:0],
    "text index": beats().set_index("record"),
    "two levels": beats().set_index(["sample", "complete"]),
    "numbers as names": pd.DataFrame({0: [1, 2], 3: [0.5, np.nan]}),
    "nothing": pd.DataFrame(),
    "all missing": pd.DataFrame({"s": pd.Series([None, None], dtype="str"), "f": [np.nan] * 2}),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_table_comes_as_it_is(name):
    frame = FRAMES[name]
    with shared_table(frame) as shared:
        (seen,) = shared.table
        pd.testing.assert_frame_equal(seen, frame, check_exact=True, check_freq=False)
        if "arrow" in frame:
            # A null and a NaN stay two things, which assert_frame_equal takes for one.
            one, other = (list(part["arrow"].array._pa_array) for part in (seen, frame))
            assert [str(value) for value in one] == [str(value) for value in other]


def test_a_table_is_mapped_and_not_copied():
    kinds = ["sample", "rr_prev_s", "amplitude", "complete", "day", "length"]
    with shared_table(beats()) as shared, shared_table(beats()) as other:
        (seen,), (elsewhere,) = shared.table, other.table
        columns = [seen[name].to_numpy() for name in kinds]
        columns += [seen.index.to_numpy()]
        places = [address(column) for column in columns]
        places += [
            buffer.address
            for name in ("record", "text", "arrow")
            for chunk in seen[name].array._pa_array.chunks
            for buffer in chunk.buffers()
            if buffer is not None
        ]
        with open("/proc/self/maps") as maps:
            lines = [line.split() for line in maps if "ecg_dask" in line]
        spans = [
            [int(end, 16) for end in line[0].split("-")] for line in lines if line[1] == "r--s"
        ]
        assert len(places) > len(kinds) + 5
        assert all(any(low <= place < high for low, high in spans) for place in places)
        assert address(elsewhere["sample"].to_numpy()) not in places


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (pd.DataFrame({"s": pd.Series(["a"], dtype=object)}), "columns of Python objects: s"),
        (pd.DataFrame({"c": pd.Categorical([1, "a"])}), "columns of Python objects: c"),
        (pd.DataFrame({"x": [1]}, index=pd.Index(["a"], dtype=object)), "the index None"),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), "one that Arrow refuses .Duplicate"),
        (pd.DataFrame({"s": pd.array(["a"], dtype="string[python]")}), "columns that Arrow chang"),
        (pd.DataFrame(index=pd.RangeIndex(3)), "changes: the names or index"),
        (np.array([1, "a"], object), "value: found an array of object"),
        (np.array([1.0 + 2j]), "value: found an array of complex128"),
        (np.array([1.0], ">f4"), "value: found an array of >f4"),
        (np.ma.array([1.0]), "value: found MaskedArray"),
        ([1.0], "value: found list"),
        (None, "value: found NoneType"),
    ],
)
def test_what_cannot_be_shared_is_told_and_leaves_nothing(value, words):
    with pytest.raises(InputError, match=words):
        offer(value)
    assert owner._owner is None


@pytest.mark.parametrize("hold_s", [-1, float("nan"), "1", None, True])
def test_a_wrong_time_is_told(hold_s):
    with pytest.raises(InputError, match="hold_s: found"):
        offer(np.zeros(3), hold_s=hold_s)


def test_shared_memory_that_is_full_is_told(monkeypatch):
    def full(folder):
        return open("/dev/full", "wb")

    # A file system that is full: this device refuses every write as one does.
    monkeypatch.setattr("ecg_dask.share.host.new_file", full)
    with pytest.raises(InputError, match=r"shared memory: found .* bytes free, too little for nda"):
        offer(np.zeros(10**6))
    with pytest.raises(InputError, match=r"Give /.* more \(docker run --shm-size\)"):
        offer(beats())


def test_partitions_of_beats_in_another_process(tmp_path):
    tables = [beats(), beats().iloc[:1]]
    waves = [
        np.random.default_rng(i).normal(size=(len(part), 2, 5)) for i, part in enumerate(tables)
    ]
    pieces = [
        {"table": offer(table), "waves": offer(block)}
        for table, block in zip(tables, waves, strict=True)
    ]
    descriptor = describe("b", "beats", pieces, fs=360, info={"window": [0.3, 0.4]})
    work = (
        "def work(shared):\n"
        "    waves = [block.copy() for block in shared.waves]\n"
        "    tables = [table.copy() for table in shared.table]\n"
        "    return tables, waves, shared.fs, shared.info\n"
    )
    seen, blocks, fs, info = in_another_process(work, descriptor, tmp_path)
    for one, other in zip(seen, tables, strict=True):
        pd.testing.assert_frame_equal(one, other, check_exact=True)
    for one, other in zip(blocks, waves, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (fs, info) == (360.0, {"window": [0.3, 0.4]})


def test_what_was_given_stays_usable_after_close_and_keeps_the_data():
    piece = offer(np.arange(1000.0))
    shared = attach(describe("ecg", "recording", [{"signal": piece}]))
    tensor = torch.from_dlpack(shared.signal[0][10:])
    shared.close()
    with pytest.raises(InputError, match="share ecg: found one that was closed"):
        _ = shared.signal
    with pytest.raises(InputError, match="one that was closed"):
        shared.check()
    folder = leases.find(piece["share"])
    withdraw(piece)
    time.sleep(2.5)
    assert leases.has_readers(folder)
    assert tensor[0] == 10
    del tensor
    gc.collect()
    assert not leases.has_readers(folder)


def test_a_part_that_is_not_there_is_told():
    with (
        shared_table(beats()) as shared,
        pytest.raises(InputError, match=r"rows, waves: .*: table"),
    ):
        _ = shared.waves


def test_importing_it_is_cheap():
    slow = ("dask", "distributed", "pandas", "torch", "cupy", "pyarrow")
    code = f"import ecg_dask.share, sys; print([m for m in {slow} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
