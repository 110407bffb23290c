import datetime as dt

import dask
import numpy as np
import pytest
import wfdb

import ecg_dask
from ecg_dask import InputError
from ecg_dask.readers.wfdb_records import BEAT_SYMBOLS, read_annotations


@pytest.fixture(autouse=True)
def _one_thread():
    with dask.config.set(scheduler="sync"):
        yield


SIGNAL = np.random.default_rng(0).normal(size=(500, 2)).round(3)


def write(folder, name="r", signal=SIGNAL, fmt="16", **options):
    n = signal.shape[1]
    options = {"units": ["mV"] * n, "sig_name": ["I", "II", "III"][:n]} | options
    if fmt == "212":
        options |= {"adc_gain": [200.0] * n, "baseline": [100] * n}
    wfdb.wrsamp(name, fs=360, p_signal=signal, fmt=[fmt] * n, write_dir=str(folder), **options)
    return folder / name


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize("fmt", ["16", "212", "24"])
@pytest.mark.parametrize("chunk", [None, 100, 33, "400 B"])
def test_all_leads_in_physical_units(tmp_path, fmt, chunk):
    record = write(tmp_path, fmt=fmt)
    recording = ecg_dask.read(record, chunk=chunk)
    signal = recording.signal.compute()
    assert signal.dtype == np.float32
    whole = wfdb.rdrecord(str(record)).p_signal.astype(np.float32)
    assert signal.tobytes() == whole.tobytes()
    np.testing.assert_allclose(signal, SIGNAL, atol=0.0026)
    assert recording.fs == 360
    assert recording.leads == ("I", "II")
    assert recording.unit == "mV"
    assert (recording.name, recording.source) == ("r", str(record))
    sizes = {None: 500, 100: 100, 33: 33, "400 B": 50}
    assert recording.signal.chunks[0][0] == sizes[chunk]


@pytest.mark.parametrize("suffix", ["", ".hea", ".dat"])
def test_any_of_its_files_names_the_record(tmp_path, suffix):
    write(tmp_path)
    (tmp_path / "x.r").mkdir()
    recording = ecg_dask.read(f"{tmp_path}/r{suffix}")
    assert recording.n_samples == 500
    assert recording.name == "r"


def test_leads(tmp_path):
    record = write(tmp_path)
    signal = ecg_dask.read(record, leads=["II", "I"], chunk=99).signal.compute()
    np.testing.assert_allclose(signal, SIGNAL[:, ::-1], atol=1e-3)
    with pytest.raises(InputError, match="lead of r: found 'V9'"):
        ecg_dask.read(record, leads="V9")


def test_missing_samples_are_nan(tmp_path):
    signal = SIGNAL.copy()
    signal[[3, 250], 1] = np.nan
    missing = np.isnan(ecg_dask.read(write(tmp_path, signal=signal), chunk=100).signal.compute())
    assert np.argwhere(missing).tolist() == [[3, 1], [250, 1]]


def test_names_and_units_and_start(tmp_path):
    record = write(
        tmp_path,
        units=["mV", "uV"],
        base_time=dt.time(7, 3, 47, 290_000),
        base_date=dt.date(2016, 6, 11),
    )
    edit(record.with_suffix(".hea"), " II\n", " I\n")
    recording = ecg_dask.read(record)
    assert recording.leads == ("I", "I_2")
    assert recording.unit is None
    assert ecg_dask.read(record, leads="I_2").unit == "uV"
    assert recording.start == dt.datetime(2016, 6, 11, 7, 3, 47, 290_000)
    edit(record.with_suffix(".hea"), " 11/06/2016", "")
    assert ecg_dask.read(record).start == dt.datetime(1900, 1, 1, 7, 3, 47, 290_000)
    assert ecg_dask.read(write(tmp_path, "s")).start is None


def test_another_rate_is_refused(tmp_path):
    record = write(tmp_path)
    assert ecg_dask.read(record, fs=360).fs == 360
    with pytest.raises(InputError, match="361 Hz given and 360 Hz in the file"):
        ecg_dask.read(record, fs=361)


@pytest.mark.parametrize("fmt", ["16", "212"])
def test_data_shorter_than_the_header(tmp_path, fmt):
    record = write(tmp_path, fmt=fmt)
    data = record.with_suffix(".dat").read_bytes()
    recording = ecg_dask.read(record, chunk=100)
    record.with_suffix(".dat").write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match="no sample 499 in the data") as error:
        ecg_dask.read(record)
    assert str(record) in str(error.value)
    with pytest.raises(InputError, match=r"no samples [234]00 to [234]99"):
        recording.signal.compute()
    record.with_suffix(".dat").unlink()
    with pytest.raises(InputError, match=r"r\.dat: found no such file"):
        ecg_dask.read(record)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("r 2 360 500", "rubbish"),
        ("r 2 360 500", "\x00\x01\x02"),
        ("r 2 360 500", "r 2 360"),
        ("r 2 360 500", "r 2 360 0"),
        ("r 2 360 500", "r 3 360 500"),
        ("r 2 360 500", "r 2 x 500"),
        ("r.dat 16 ", "r.dat 99 "),
    ],
)
def test_bad_headers(tmp_path, old, new):
    record = write(tmp_path)
    edit(record.with_suffix(".hea"), old, new)
    with pytest.raises(InputError) as error:
        ecg_dask.read(record).signal.compute()
    assert str(record) in str(error.value)


def test_empty_header(tmp_path):
    (tmp_path / "r.hea").write_text("")
    with pytest.raises(InputError, match=r"r\.hea"):
        ecg_dask.read(tmp_path / "r.hea")


def test_several_samples_a_frame_are_averaged_with_a_note(tmp_path):
    slow, fast = np.arange(100) / 10, np.arange(200) / 20
    wfdb.wrsamp(
        "r",
        fs=100,
        units=["mV", "mV"],
        sig_name=["a", "b"],
        e_p_signal=[slow, fast],
        fmt=["16", "16"],
        samps_per_frame=[1, 2],
        write_dir=str(tmp_path),
    )
    recording = ecg_dask.read(tmp_path / "r", chunk=7)
    expected = np.stack([slow, fast.reshape(-1, 2).mean(axis=1)], axis=1)
    np.testing.assert_allclose(recording.signal.compute(), expected, atol=1e-3)
    assert recording.fs == 100
    assert recording.notes == ("Lead b has 2 samples a frame, which were averaged to 100 Hz",)


def test_segments(tmp_path):
    write(tmp_path, "s1", SIGNAL[:200, :1])
    write(tmp_path, "s2", SIGNAL[200:, :1])
    header = tmp_path / "m.hea"
    header.write_text("m/2 1 360 500\ns1 200\ns2 300\n")
    recording = ecg_dask.read(tmp_path / "m", chunk=150)
    assert recording.leads == ("I",)
    np.testing.assert_allclose(recording.signal.compute(), SIGNAL[:, :1], atol=1e-3)
    header.write_text("m/3 1 360 510\ns1 200\n~ 10\ns2 300\n")
    with pytest.raises(InputError, match="an empty segment in a record of fixed layout"):
        ecg_dask.read(tmp_path / "m")


def test_segments_of_variable_layout(tmp_path):
    write(tmp_path, "s1", SIGNAL[:200, :1])
    write(tmp_path, "s2", SIGNAL[200:])
    layout = "".join(f"~ 0 100(0)/mV 16 0 0 0 0 {name}\n" for name in ("I", "II"))
    (tmp_path / "lay.hea").write_text("lay 2 360 0\n" + layout)
    (tmp_path / "m.hea").write_text("m/4 2 360 510\nlay 0\ns1 200\n~ 10\ns2 300\n")
    recording = ecg_dask.read(tmp_path / "m", chunk=50)
    assert recording.leads == ("I", "II")
    assert recording.unit == "mV"
    expected = np.concatenate([SIGNAL[:200], np.full((10, 2), np.nan), SIGNAL[200:]])
    expected[:200, 1] = np.nan
    np.testing.assert_allclose(recording.signal.compute(), expected, atol=1e-3)
    second = ecg_dask.read(tmp_path / "m", leads="II").signal.compute()
    np.testing.assert_allclose(second, expected[:, 1:], atol=1e-3)


@pytest.mark.parametrize("n", [1, 2])
def test_one_and_two_samples(tmp_path, n):
    signal = ecg_dask.read(write(tmp_path, signal=SIGNAL[:n])).signal.compute()
    np.testing.assert_allclose(signal, SIGNAL[:n], atol=1e-3)


def test_annotations(tmp_path):
    record = write(tmp_path)
    wfdb.wrann("r", "atr", np.array([5, 90, 400]), ["N", "+", "V"], fs=360, write_dir=str(tmp_path))
    for path in (record, str(record), f"{record}.hea", f"{record}.dat"):
        found = read_annotations(path)
        assert found.sample.dtype == np.int64
        assert found.sample.tolist() == [5, 90, 400]
        assert found.symbol == ("N", "+", "V")
        assert found.fs == 360
    assert [symbol in BEAT_SYMBOLS for symbol in found.symbol] == [True, False, True]
    with pytest.raises(InputError, match=r"r\.qrs: found no such file"):
        read_annotations(record, "qrs")


def test_annotations_take_the_rate_from_the_header(tmp_path):
    record = write(tmp_path)
    wfdb.wrann("r", "atr", np.array([5]), ["N"], write_dir=str(tmp_path))
    assert read_annotations(record).fs == 360
    record.with_suffix(".hea").unlink()
    assert read_annotations(record).fs is None


def test_real_record(data_dir):
    recording = ecg_dask.read(data_dir / "mitdb" / "100", chunk=200_000)
    assert recording.leads == ("MLII", "V5")
    assert recording.unit == "mV"
    assert recording.fs == 360
    assert recording.signal.chunks[0] == (200_000, 200_000, 200_000, 50_000)
    signal = recording.signal.compute()
    digital = wfdb.rdrecord(str(data_dir / "mitdb" / "100"), physical=False).d_signal
    np.testing.assert_array_equal(signal, ((digital - 1024) / 200).astype(np.float32))
    beats = [s for s in read_annotations(data_dir / "mitdb" / "100").symbol if s in BEAT_SYMBOLS]
    assert len(beats) == 2273
