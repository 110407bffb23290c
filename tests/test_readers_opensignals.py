import datetime as dt
import json

import dask
import numpy as np
import pytest

import ecg_dask
from ecg_dask import InputError

DEVICE = {
    "column": ["nSeq", "I1", "A2", "A3"],
    "label": ["A2", "A3"],
    "sampling rate": 100,
    "resolution": [4, 1, 10, 10],
    "date": "2016-6-11",
    "time": "7:3:47.29",
}


@pytest.fixture(autouse=True)
def _one_thread():
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture
def write(tmp_path):
    def write(rows=range(40), devices=None, end="# EndOfHeader\n"):
        path = tmp_path / "rec.txt"
        header = json.dumps({"a": DEVICE} if devices is None else devices)
        lines = "".join(f"{seq % 16}\t1\t{i}\t{-i}\t\n" for i, seq in enumerate(rows))
        path.write_text(f"# OpenSignals Text File Format\n# {header}\n{end}{lines}")
        return path

    return write


def test_header_and_leads(write):
    recording = ecg_dask.read(write())
    assert recording.fs == 100
    assert recording.leads == ("A2", "A3")
    assert recording.start == dt.datetime(2016, 6, 11, 7, 3, 47, 290_000)
    assert recording.unit is None
    assert recording.notes == ()
    np.testing.assert_array_equal(recording.signal.compute()[:, 1], -np.arange(40))
    assert ecg_dask.read(write(), leads="A3").signal.compute()[5] == [-5]


def test_skips_of_the_counter_are_missing_samples(write):
    # 16 lost samples cannot be seen in a counter of 4 bits, and 18 look like 2.
    rows = np.arange(100) + 2 * (np.arange(100) >= 10) + 16 * (np.arange(100) >= 30)
    rows += 18 * (np.arange(100) >= 50)
    recording = ecg_dask.read(write(rows), chunk=7)
    assert recording.notes == ("2 jumps in the counter nSeq became 4 missing samples",)
    signal = recording.signal.compute()[:, 0]
    assert np.flatnonzero(np.isnan(signal)).tolist() == [10, 11, 52, 53]


def test_given_rate(write):
    assert ecg_dask.read(write(), fs=100).fs == 100
    with pytest.raises(InputError, match="101 Hz given and 100 Hz in the file"):
        ecg_dask.read(write(), fs=101)


@pytest.mark.parametrize(
    ("devices", "found"),
    [
        ({"a": DEVICE, "b": DEVICE}, r"2 devices \(a, b\)"),
        ({}, "0 devices"),
        ([DEVICE], "header that cannot be read"),
        ({"a": {**DEVICE, "label": ["A9"]}}, "header that cannot be read"),
        ({"a": {**DEVICE, "label": []}}, "header that cannot be read"),
        ({"a": {**DEVICE, "sampling rate": "fast"}}, "header that cannot be read"),
        ({"a": {**DEVICE, "sampling rate": 0}}, "header that cannot be read"),
        ({"a": {k: v for k, v in DEVICE.items() if k != "column"}}, "KeyError: 'column'"),
        ({"a": 5}, "header that cannot be read"),
    ],
)
def test_refused_headers(write, devices, found):
    with pytest.raises(InputError, match=found) as error:
        ecg_dask.read(write(devices=devices))
    assert "rec.txt" in str(error.value)


def test_cut_off_files(write, tmp_path):
    path = write()
    text = path.read_bytes()
    for cut in (5, 40, 120, text.index(b"# EndOf") + 3):
        path.write_bytes(text[:cut])
        with pytest.raises(InputError, match=r"rec.txt: found"):
            ecg_dask.read(path, fs=1)
    path.write_bytes(text[: text.index(b"EndOfHeader\n") + 12])
    with pytest.raises(InputError, match="no samples"):
        ecg_dask.read(path)
    path.write_bytes(text[:-7])
    with pytest.raises(InputError, match=r"line 43: found \d cells?"):
        ecg_dask.read(path)


def test_bad_cell(write):
    path = write()
    path.write_text(path.read_text().replace("\t17\t", "\tx7\t"))
    with pytest.raises(InputError, match="line 21, column A2: found 'x7'"):
        ecg_dask.read(path).signal.compute()


def test_one_sample(write):
    assert ecg_dask.read(write(range(1))).signal.compute().tolist() == [[0, 0]]


def test_real_file(data_dir):
    path = data_dir / "odd" / "opensignals.txt"
    recording = ecg_dask.read(path, chunk=5000)
    assert recording.fs == 1000
    assert recording.leads == ("A2",)
    assert recording.start == dt.datetime(2016, 6, 11, 7, 3, 47, 290_000)
    assert recording.notes == ()
    assert len(recording.signal.chunks[0]) > 3
    np.testing.assert_array_equal(
        recording.signal.compute()[:, 0], np.loadtxt(path, usecols=5, dtype=np.float32)
    )
