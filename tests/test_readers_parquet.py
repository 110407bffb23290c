import datetime as dt

import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ecg_dask
from ecg_dask import InputError

N = 1000
ECG = np.random.default_rng(0).normal(size=N).astype(np.float32)


@pytest.fixture(autouse=True)
def _one_thread():
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture
def write(tmp_path):
    def write(columns, group=100, fs=None, **options):
        path = tmp_path / "rec.parquet"
        table = columns if isinstance(columns, pa.Table) else pa.table(columns)
        if fs is not None:
            table = table.replace_schema_metadata({"fs": str(fs)})
        pq.write_table(table, path, row_group_size=group, **options)
        return path

    return write


@pytest.mark.parametrize("group", [100, 333, 5000])
@pytest.mark.parametrize("chunk", [1, 250, None])
def test_groups_of_rows_are_partitions(write, group, chunk):
    path = write({"I (mV)": ECG, "II [mV]": -ECG.astype(np.float64)}, group)
    recording = ecg_dask.read(path, fs=250, chunk=chunk)
    assert recording.signal.compute().tobytes() == np.stack([ECG, -ECG], axis=1).tobytes()
    assert recording.leads == ("I", "II")
    assert recording.unit == "mV"
    assert (recording.name, recording.source, recording.notes) == ("rec", str(path), ())
    sizes = {1: min(group, N), 250: min(max(group, 200), N), None: N}
    assert recording.signal.chunks[0][0] == sizes[chunk]
    np.testing.assert_array_equal(
        ecg_dask.read(path, fs=250, leads="II").signal.compute()[:, 0], -ECG
    )


def test_types(write):
    numbers = [7 * i % 20 for i in range(20)]
    columns = {
        "i8": pa.array(numbers, pa.int8()),
        "u64": pa.array(numbers, pa.uint64()),
        "half": pa.array(np.array(numbers, np.float16)),
        "decimal": pa.array(numbers, pa.decimal128(9, 2)),
        "flag": pa.array([True] * 20),
        "word": pa.array(["x"] * 20),
        "list": pa.array([[1.0]] * 20),
    }
    recording = ecg_dask.read(write(columns), fs=1)
    assert recording.leads == ("i8", "u64", "half", "decimal")
    assert recording.notes == tuple(
        f"Column {name} was left out: no numbers" for name in ("flag", "word", "list")
    )
    np.testing.assert_array_equal(
        recording.signal.compute(), np.repeat(np.array(numbers)[:, None], 4, axis=1)
    )


def test_nulls_are_missing(write):
    columns = {"a": pa.array([1, None, 3], pa.int32()), "b": pa.array([None, 2.5, float("nan")])}
    signal = ecg_dask.read(write(columns), fs=1).signal.compute()
    np.testing.assert_array_equal(signal, [[1, np.nan], [np.nan, 2.5], [3, np.nan]])


def test_rate_in_the_metadata(write):
    path = write({"ecg": ECG}, fs=360)
    assert ecg_dask.read(path).fs == 360
    with pytest.raises(InputError, match="250 Hz given and 360 Hz in the file"):
        ecg_dask.read(path, fs=250)
    with pytest.raises(InputError, match=r"fs in the metadata of .*found 'fast'"):
        ecg_dask.read(write({"ecg": ECG}, fs="fast"))
    with pytest.raises(InputError, match=r"rec\.parquet: found no sampling rate.*Give fs"):
        ecg_dask.read(write({"ecg": ECG}))


@pytest.mark.parametrize("group", [1, 70, 5000])
@pytest.mark.parametrize("kind", ["float", "int", "timestamp", "zoned", "index"])
def test_time_columns(write, group, kind):
    n = 200
    rows = np.arange(n) + 30 * (np.arange(n) >= 80)
    microseconds = rows * 4000 + 1_465_628_627_290_000
    times = {
        "float": ("time", rows * 0.004),
        "int": ("t_ms", rows * 4),
        "timestamp": ("when", pa.array(microseconds, pa.timestamp("us"))),
        "zoned": ("when", pa.array(microseconds * 1000, pa.timestamp("ns", "UTC"))),
        "index": ("__index_level_0__", rows * 0.004),
    }
    name, column = times[kind]
    recording = ecg_dask.read(write({"ecg": ECG[:n], name: column}, group), chunk=1)
    assert recording.fs == 250
    assert recording.leads == ("ecg",)
    assert recording.notes == ("1 jump in the time column became 30 missing samples",)
    expected = np.insert(ECG[:n], 80, [np.nan] * 30)
    assert recording.signal.compute()[:, 0].tobytes() == expected.tobytes()
    start = dt.datetime(2016, 6, 11, 7, 3, 47, 290_000) if name == "when" else None
    assert recording.start == start


def test_a_counter_is_no_lead(write):
    columns = {"__index_level_0__": np.arange(N), "ecg": ECG}
    recording = ecg_dask.read(write(columns), fs=250)
    assert recording.leads == ("ecg",)
    assert recording.notes == ()


def test_bad_times(write):
    times = np.arange(N) / 250
    times[700] = 1
    with pytest.raises(InputError, match=r"row 701, column time: found a time 1.796 s before"):
        ecg_dask.read(write({"time": times, "ecg": ECG}))
    times[700] = np.nan
    with pytest.raises(InputError, match="column time: found a row without a time"):
        ecg_dask.read(write({"time": times, "ecg": ECG}))
    with pytest.raises(InputError, match="column time: found a row without a time"):
        ecg_dask.read(write({"time": pa.array([0.0, None, 0.1]), "ecg": ECG[:3]}))
    with pytest.raises(InputError, match="300 Hz given and 250 Hz in the time column time"):
        ecg_dask.read(write({"time": np.arange(N) / 250, "ecg": ECG}), fs=300)


@pytest.mark.parametrize("statistics", [True, False])
def test_infinite_values(write, statistics):
    ecg = ECG.astype(np.float64)
    ecg[[5, 600]], ecg[7] = [np.inf, -np.inf], 1e300
    path = write({"a": ECG, "b": ecg}, write_statistics=statistics)
    recording = ecg_dask.read(path, fs=1)
    assert recording.notes == ("3 infinite values became missing",)
    assert np.argwhere(np.isnan(recording.signal.compute())).tolist() == [[5, 1], [7, 1], [600, 1]]
    assert ecg_dask.read(path, fs=1, leads="a").notes == ()


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ({"ecg": ECG[:0]}, "no rows"),
        ({"word": ["a", "b"]}, "no column of numbers"),
        (pa.table([ECG, ECG], names=["a", "a"]), "two columns of one name"),
    ],
)
def test_refused_tables(write, columns, found):
    with pytest.raises(InputError, match=f"rec.parquet: found {found}"):
        ecg_dask.read(write(columns), fs=1)


@pytest.mark.parametrize("n", [1, 2])
def test_one_and_two_samples(write, n):
    assert ecg_dask.read(write({"ecg": ECG[:n]}), fs=1).signal.compute().shape == (n, 1)


def test_damaged_files(write):
    path = write({"ecg": ECG})
    data = path.read_bytes()
    recording = ecg_dask.read(path, fs=1)
    for cut in (4, 100, len(data) - 1):
        path.write_bytes(data[:cut])
        with pytest.raises(InputError, match=r"rec\.parquet: found no whole Parquet file"):
            ecg_dask.read(path, fs=1)
    with pytest.raises(InputError, match="no whole Parquet file"):
        recording.signal.compute()
    path.write_bytes(data[:4] + bytes(300) + data[304:])
    with pytest.raises(InputError, match=r"rec\.parquet"):
        ecg_dask.read(path, fs=1).signal.compute()
