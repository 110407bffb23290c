"""read(): which reader takes a file, what it refuses, and where the file is opened."""

import builtins
import os
import pathlib

import dask
import numpy as np
import pytest

import ecg_dask
from ecg_dask import InputError


@pytest.fixture(autouse=True)
def _one_thread():
    with dask.config.set(scheduler="sync"):
        yield


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("a.ecg", b"ISHNE1.0" + bytes(600), "the format ISHNE;.*Convert it"),
        ("a.csv", b"ISHNE1.0" + bytes(600), "the format ISHNE;.*Convert it"),
        ("a.ann", b"ANN  1.0" + bytes(600), "the format ISHNE annotations"),
        ("a.edf", b"0       " + b" " * 600, "the format EDF;.*Convert it"),
        ("a", b"0       " + b" " * 600, "the format EDF"),
        ("a.bdf", b"\xffBIOSEMI" + b" " * 600, "the format BDF;.*Convert it"),
        ("a.csv.gz", b"\x1f\x8b\x08" + bytes(60), "the format gzip;.*Unpack it"),
        ("a.zip", b"PK\x03\x04" + bytes(60), "the format zip;.*Unpack it"),
        ("a.h5", b"\x89HDF\r\n\x1a\n" + bytes(60), "the format HDF5"),
        ("a.mat", b"MATLAB 5.0 MAT-file" + bytes(60), "the format MATLAB"),
        ("a.edf", b"1\n2\n", "does not begin like EDF"),
        ("a.parquet", b"1\n2\n", "does not begin like Parquet"),
        ("a.npz", b"1\n2\n", "does not begin like NumPy"),
        ("a.csv", b"", "an empty file"),
        ("a.dat", bytes(60), "binary data of no known format"),
    ],
)
def test_refused_formats(tmp_path, name, content, found):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=found) as error:
        ecg_dask.read(path, fs=100)
    assert str(error.value).startswith(f"{path}: ")


def test_content_goes_before_the_suffix(tmp_path):
    path = tmp_path / "a.csv"
    with open(path, "wb") as file:
        np.save(file, np.arange(9.0))
    assert ecg_dask.read(path, fs=1).n_samples == 9
    path = tmp_path / "a.dat"
    path.write_text("1\n2\n")
    assert ecg_dask.read(path, fs=1).n_samples == 2
    path = tmp_path / "a.txt"
    path.write_text("0       1\n0       2\n")
    assert ecg_dask.read(path, fs=1).signal.shape == (2, 2)


def test_a_file_goes_before_a_record_of_its_name(tmp_path):
    (tmp_path / "r").write_text("1\n2\n")
    (tmp_path / "r.hea").write_text("r 1 250 9\n")
    assert ecg_dask.read(tmp_path / "r", fs=1).n_samples == 2


@pytest.mark.parametrize("path", [5, None, b"a.csv", ["a.csv"]])
def test_other_types_of_path(path):
    with pytest.raises(InputError, match=r"^path: found"):
        ecg_dask.read(path)


def test_paths_without_a_file(tmp_path):
    with pytest.raises(InputError, match=r"gone\.csv: found no such file"):
        ecg_dask.read(tmp_path / "gone.csv")
    with pytest.raises(InputError, match="found a folder"):
        ecg_dask.read(tmp_path)
    with pytest.raises(InputError, match=r"^path: found"):
        ecg_dask.read("a\0b")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="no regular file"):
        ecg_dask.read(tmp_path / "pipe")


@pytest.mark.parametrize("name", ["a.csv", "a.npy", "a.parquet", "a.txt"])
def test_a_file_that_must_not_be_read(tmp_path, monkeypatch, name):
    path = tmp_path / name
    path.write_text("1\n2\n")

    def refuse(file, *args, **options):
        raise PermissionError(13, "Permission denied", str(file))

    monkeypatch.setattr(builtins, "open", refuse)
    with pytest.raises(InputError, match=r"a file that must not be read.*permissions"):
        ecg_dask.read(path, fs=1)


@pytest.mark.parametrize("fs", [0, -5, float("nan"), float("inf"), "250", True])
def test_refused_rates(tmp_path, fs):
    path = tmp_path / "a.csv"
    path.write_text("1\n2\n")
    with pytest.raises(InputError, match=r"^fs: found"):
        ecg_dask.read(path, fs=fs)
    assert ecg_dask.read(path, fs=np.int64(5)).fs == 5


@pytest.mark.parametrize("chunk", [0, -1, 2.5, True, "five", "-3 MiB", "0 B"])
def test_refused_chunks(tmp_path, chunk):
    path = tmp_path / "a.csv"
    path.write_text("1\n2\n")
    with pytest.raises(InputError, match=r"^chunk: found .*64 MiB"):
        ecg_dask.read(path, fs=1, chunk=chunk)


@pytest.mark.parametrize("leads", ["x", 3, -1, [], ["lead0", "x"]])
def test_refused_leads(tmp_path, leads):
    path = tmp_path / "a.csv"
    path.write_text("1,2\n2,3\n")
    with pytest.raises(InputError, match=r"^lead of a: found"):
        ecg_dask.read(path, fs=1, leads=leads)


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_schedulers(tmp_path, scheduler):
    path = tmp_path / "a.csv"
    path.write_text("".join(f"{i % 7}\n" for i in range(2000)))
    with dask.config.set(scheduler=scheduler):
        signal = ecg_dask.read(path, fs=1, chunk=100).signal.compute()
    np.testing.assert_array_equal(signal[:, 0], np.arange(2000) % 7)


@pytest.mark.cluster
def test_only_workers_open_the_file(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    lines = [f"{i * 4},{i % 7}" for i in range(3000)]
    good.write_text("t_ms,ecg\n" + "\n".join(lines))
    lines[2000] = "8000,oops"
    bad.write_text("t_ms,ecg\n" + "\n".join(lines))
    array = tmp_path / "a.npy"
    np.save(array, np.arange(50.0))
    real_open, real_stat = builtins.open, os.stat

    def hidden(real):
        def call(path, *args, **options):
            if str(path).startswith(str(tmp_path)):
                raise FileNotFoundError(2, "hidden from the client", str(path))
            return real(path, *args, **options)

        return call

    with (
        dask.config.set(scheduler=None),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
    ):
        monkeypatch.setattr(builtins, "open", hidden(real_open))
        monkeypatch.setattr(pathlib.os, "stat", hidden(real_stat))
        recording = ecg_dask.read(good, chunk=500)
        assert recording.fs == 250
        np.testing.assert_array_equal(recording.signal.compute()[:, 0], np.arange(3000) % 7)
        assert ecg_dask.read(array, fs=1).signal.sum().compute() == 1225
        broken = ecg_dask.read(bad, chunk=500)
        with pytest.raises(InputError, match="line 2002, column ecg: found 'oops'"):
            broken.signal.compute()
        with pytest.raises(InputError, match=r"gone\.csv: found no such file"):
            ecg_dask.read(tmp_path / "gone.csv")
        monkeypatch.undo()
