import dask
import numpy as np
import pytest

import ecg_dask
from ecg_dask import InputError

SIGNAL = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)


@pytest.fixture(autouse=True)
def _one_thread():
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture
def save(tmp_path):
    def save(array=None, packed=False, **arrays):
        if array is not None and not arrays and not packed:
            path = tmp_path / "rec.npy"
            np.save(path, array)
        else:
            path = tmp_path / "rec.npz"
            (np.savez_compressed if packed else np.savez)(
                path, *([] if array is None else [array]), **arrays
            )
        return path

    return save


@pytest.mark.parametrize("chunk", [None, 1, 77])
@pytest.mark.parametrize("packed", [None, False, True])
@pytest.mark.parametrize("order", ["C", "F"])
def test_ranges_are_the_array(save, chunk, packed, order):
    array = np.asarray(SIGNAL, order=order)
    path = save(array) if packed is None else save(packed=packed, signal=array)
    recording = ecg_dask.read(path, fs=250, chunk=chunk)
    assert recording.signal.chunks[0][0] == (chunk or 300)
    assert recording.signal.compute().tobytes() == SIGNAL.tobytes()
    assert recording.leads == ("lead0", "lead1", "lead2")
    assert (recording.name, recording.source, recording.notes) == ("rec", str(path), ())
    some = ecg_dask.read(path, fs=250, chunk=chunk, leads=[2, 0]).signal.compute()
    np.testing.assert_array_equal(some, SIGNAL[:, [2, 0]])


@pytest.mark.parametrize("dtype", ["int16", ">i2", "uint8", "int64", "float16", "float64", ">f4"])
def test_types_become_float32(save, dtype):
    array = np.arange(40).astype(dtype)
    signal = ecg_dask.read(save(array), fs=1).signal.compute()
    assert signal.dtype == np.float32
    np.testing.assert_array_equal(signal[:, 0], np.arange(40))


@pytest.mark.parametrize("dtype", ["O", "c8", "U3", "?", "M8[s]", [("a", "f4")]])
def test_other_types_are_refused(tmp_path, dtype):
    path = tmp_path / "rec.npy"
    np.save(path, np.zeros(40, dtype), allow_pickle=True)
    with pytest.raises(InputError, match=r"rec\.npy: found an array of .*integers or floats"):
        ecg_dask.read(path, fs=1)


def test_npz_tells_rate_and_leads(save):
    path = save(signal=SIGNAL, fs=360, leads=["I", "II", "III"])
    recording = ecg_dask.read(path, leads="II")
    assert recording.fs == 360
    assert recording.leads == ("II",)
    with pytest.raises(InputError, match="250 Hz given and 360 Hz in the file"):
        ecg_dask.read(path, fs=250)
    np.testing.assert_array_equal(ecg_dask.read(save(x=SIGNAL), fs=1).signal.compute(), SIGNAL)


@pytest.mark.parametrize(
    ("arrays", "found"),
    [
        ({"a": SIGNAL, "b": SIGNAL}, "the arrays a, b"),
        ({"signal": SIGNAL, "fs": [1, 2]}, "fs in .*rec.npz"),
        ({"signal": SIGNAL, "fs": -1}, "fs in .*found -1"),
        ({"signal": SIGNAL, "fs": "fast"}, "fs in .*found fast"),
        ({"signal": SIGNAL, "leads": ["a", "b"]}, "leads in .*the names a, b for 3 columns"),
        ({"signal": SIGNAL, "leads": ["a", "a", "b"]}, "leads in .*the names a, a, b"),
    ],
)
def test_refused_npz(save, arrays, found):
    with pytest.raises(InputError, match=found):
        ecg_dask.read(save(**arrays), fs=None if "fs" in arrays else 1)


@pytest.mark.parametrize(
    ("shape", "found"),
    [
        ((), r"an array of shape \(\)"),
        ((0,), r"an array of shape \(0,\)"),
        ((0, 3), r"an array of shape \(0, 3\)"),
        ((30, 0), r"an array of shape \(30, 0\)"),
        ((3, 4, 5), r"an array of shape \(3, 4, 5\)"),
        ((3, 30), r"fewer samples than leads.*transposed"),
        ((15, 5000), r"fewer samples than leads.*transposed"),
    ],
)
def test_refused_shapes(save, shape, found):
    with pytest.raises(InputError, match=found):
        ecg_dask.read(save(np.zeros(shape)), fs=1)


@pytest.mark.parametrize("shape", [(1,), (2,), (1, 1), (2, 2), (16, 20)])
def test_short_arrays_are_recordings(save, shape):
    assert ecg_dask.read(save(np.ones(shape)), fs=1).signal.compute().sum() == np.prod(shape)


def test_infinite_values(save):
    array = SIGNAL.astype(np.float64)
    array[[3, 200], [0, 1]] = np.inf, -np.inf
    array[5, 2] = 1e300
    recording = ecg_dask.read(save(array), fs=1, chunk=50)
    assert recording.notes == ("3 infinite values became missing",)
    missing = np.isnan(recording.signal.compute())
    assert np.argwhere(missing).tolist() == [[3, 0], [5, 2], [200, 1]]
    assert ecg_dask.read(save(array), fs=1, leads=1).notes == ("1 infinite value became missing",)


def test_no_rate(save):
    with pytest.raises(InputError, match=r"rec\.npy: found no sampling rate.*Give fs"):
        ecg_dask.read(save(SIGNAL))


@pytest.mark.parametrize("packed", [None, False, True])
def test_cut_off_files(save, packed):
    path = save(SIGNAL) if packed is None else save(SIGNAL, packed=packed)
    data = path.read_bytes()
    recording = ecg_dask.read(path, fs=1, chunk=100)
    for cut in (7, 9, 60, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:cut])
        with pytest.raises(InputError, match=r"rec\.np.: found no whole NumPy file|begin like"):
            ecg_dask.read(path, fs=1)
    with pytest.raises(InputError, match="no whole NumPy file"):
        recording.signal.compute()


def test_damaged_zip(save):
    path = save(SIGNAL, packed=True)
    data = bytearray(path.read_bytes())
    data[200:260] = bytes(60)
    path.write_bytes(data)
    with pytest.raises(InputError, match="no whole NumPy file"):
        ecg_dask.read(path, fs=1).signal.compute()


def test_an_array_that_is_cut_after_the_first_row_of_a_range(save):
    path = save(SIGNAL)
    recording = ecg_dask.read(path, fs=1, chunk=100)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - 99 * 3 * 4])
    with pytest.raises(InputError, match="no whole NumPy file"):
        recording.signal.compute()
