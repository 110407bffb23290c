"""Tables of text in their many forms: what is read, and what is refused in which words."""

import datetime as dt
from pathlib import Path

import dask
import numpy as np
import pytest

import ecg_dask
from ecg_dask import InputError

VALUES = np.round(np.random.default_rng(7).normal(size=60), 3).astype(np.float32)


@pytest.fixture(autouse=True)
def _one_thread():
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture
def write(tmp_path):
    def write(text: str | bytes, name: str = "rec.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def rows(form, n=60, end="\n"):
    return "".join(form(i, float(f"{VALUES[i % 60]:.3f}")) + end for i in range(n))


def comma(text: str) -> str:
    return text.replace(".", ",")


FORMS = {
    "bare": (rows(lambda i, x: f"{x}"), 1),
    "header": ("ecg\n" + rows(lambda i, x: f"{x}"), 1),
    "plus signs": (rows(lambda i, x: f"{x:+}"), 1),
    "exponents": (rows(lambda i, x: f"{x:.5E}"), 1),
    "comma": ("a,b\n" + rows(lambda i, x: f"{x},{x}"), 2),
    "comma and blank": ("a, b\n" + rows(lambda i, x: f"{x}, {x}"), 2),
    "semicolon": (rows(lambda i, x: f"{x};{x}"), 2),
    "tab": (rows(lambda i, x: f"{x}\t{x}"), 2),
    "bar": (rows(lambda i, x: f"{x}|{x}"), 2),
    "blanks": (rows(lambda i, x: f"  {x:8.3f}   {x:8.3f} "), 2),
    "blanks under a header": ("  a   b\n" + rows(lambda i, x: f"  {x:8.3f}\t  {x:8.3f}"), 2),
    "trailing separator": ("a,b\n" + rows(lambda i, x: f"{x},{x},"), 2),
    "trailing tab": (rows(lambda i, x: f"{x}\t{x}\t"), 2),
    "decimal comma, semicolon": ("a;b\n" + comma(rows(lambda i, x: f"{x};{x}")), 2),
    "decimal comma, tab": (comma(rows(lambda i, x: f"{x}\t{x}")), 2),
    "decimal comma in quotes": (comma(rows(lambda i, x: f'"{x}"')) + '"1,5"\n', 1),
    "quoted": ('"a","b"\n' + rows(lambda i, x: f'"{x}","{x}"'), 2),
    "byte order mark": ("\ufeffecg\n" + rows(lambda i, x: f"{x}"), 1),
    "CR LF": ("ecg\r\n" + rows(lambda i, x: f"{x}", end="\r\n"), 1),
    "no last newline": (rows(lambda i, x: f"{x}").rstrip("\n"), 1),
    "blank lines": ("\n\necg\n\n" + rows(lambda i, x: f"{x}", end="\n  \n\n"), 1),
    "comments": ("# x\necg\n# y\n" + rows(lambda i, x: f"{x}", end="\n#z, 1\n"), 1),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_tables(write, form):
    text, n_leads = FORMS[form]
    recording = ecg_dask.read(write(text), fs=250)
    signal = recording.signal.compute()
    assert signal.dtype == np.float32
    assert signal.shape[1] == n_leads
    np.testing.assert_array_equal(signal[:60], np.repeat(VALUES[:, None], n_leads, axis=1))
    assert len(signal) == 60 + (form == "decimal comma in quotes")
    assert recording.fs == 250
    assert len(recording.notes) == (form in ("blank lines", "comments"))
    assert all("skipped" in note for note in recording.notes)
    assert recording.name == "rec"


def test_source_and_path_like(write):
    path = write("1\n2\n")
    assert ecg_dask.read(path, fs=1).source == str(path)
    assert ecg_dask.read(str(path), fs=1).source == str(path)


@pytest.mark.parametrize(
    ("header", "leads", "unit"),
    [
        ("I,II", ("I", "II"), None),
        ("ECG (mV),V5 [mV]", ("ECG", "V5"), "mV"),
        ("ECG (mV),V5 [uV]", ("ECG", "V5"), None),
        ("ECG [µV],V5 [uV]", ("ECG", "V5"), "uV"),
        ("ECG (left),V5 (right)", ("ECG (left)", "V5 (right)"), None),
        ("ecg,ecg", ("ecg", "ecg_2"), None),
        ("ecg,", ("ecg", "lead1"), None),
        ("'MLII','V5'\n'mV','mV'", ("MLII", "V5"), "mV"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_names_and_units(write, header, leads, unit, encoding):
    text = (header + "\n" + rows(lambda i, x: f"{x},{-x}")).encode(encoding)
    recording = ecg_dask.read(write(text), fs=250)
    assert recording.leads == leads
    assert recording.unit == unit


def test_leads_are_chosen_before_they_are_read(write):
    text = "time,I (mV),II (V),III\n" + rows(lambda i, x: f"{i / 100},{x},{2 * x:.3f},{3 * x:.3f}")
    bad = text.replace(",", "!", 0).splitlines()
    bad[40] = bad[40].rsplit(",", 1)[0] + ",oops"
    path = write("\n".join(bad))
    assert ecg_dask.read(path).leads == ("I", "II", "III")
    chosen = ecg_dask.read(path, leads=["II", 0])
    assert chosen.leads == ("II", "I")
    np.testing.assert_array_equal(chosen.signal.compute()[:, 1], VALUES)
    assert ecg_dask.read(path, leads="II").unit == "V"
    assert ecg_dask.read(path, leads=1).leads == ("II",)
    with pytest.raises(InputError, match="line 41, column III: found 'oops'"):
        ecg_dask.read(path, leads="all").signal.compute()
    with pytest.raises(InputError, match="lead of rec: found 'aVR'"):
        ecg_dask.read(path, leads="aVR")


def test_missing_cells(write):
    cells = ["", "NaN", "nan", "NA", "n/a", "null", "-", " ", '""']
    text = "a,b\n" + "".join(f"{i},{cell}\n{cell},{i}\n" for i, cell in enumerate(cells, 5))
    signal = ecg_dask.read(write("x,y\n1.5,2.5\n" + text[4:]), fs=1).signal.compute()
    assert np.isnan(signal).sum() == 2 * len(cells)
    np.testing.assert_array_equal(signal[1::2, 0], np.arange(5, 5 + len(cells)))
    np.testing.assert_array_equal(signal[2::2, 1], np.arange(5, 5 + len(cells)))


def test_a_lead_whose_head_is_empty_is_a_lead(write):
    text = "a,b\n" + rows(lambda i, x: f"{x},") * 10 + "1,2\n"
    signal = ecg_dask.read(write(text), fs=1).signal.compute()
    assert signal.shape == (601, 2)
    assert signal[-1, 1] == 2


def test_infinite_values_become_missing_with_a_note(write):
    text = rows(lambda i, x: {3: "inf", 9: "-Infinity"}.get(i, f"{x}"))
    recording = ecg_dask.read(write(text), fs=1, chunk=7)
    assert recording.notes == ("2 infinite values became missing",)
    assert np.flatnonzero(np.isnan(recording.signal.compute()[:, 0])).tolist() == [3, 9]


def test_columns_of_words_are_left_out_with_a_note(write):
    text = "ecg,note\n" + rows(lambda i, x: f"{x},{'N' if i % 9 == 0 else ''}")
    recording = ecg_dask.read(write(text), fs=1)
    assert recording.leads == ("ecg",)
    assert recording.notes == ("Column note was left out: no numbers",)


def test_lines_above_the_header(write):
    text = "Device X\nSerial 12\n\nt,ecg\n" + rows(lambda i, x: f"{i / 50},{x}")
    recording = ecg_dask.read(write(text))
    assert recording.fs == 50
    assert recording.leads == ("ecg",)
    assert recording.notes == ("2 lines above the header were skipped",)


def test_header_in_the_last_comment(write):
    text = "# by a machine\n# t,ecg\n" + rows(lambda i, x: f"{i / 50},{x}")
    assert ecg_dask.read(write(text)).leads == ("ecg",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5\n", [[5]]),
        ("5", [[5]]),
        ("ecg\n5\n", [[5]]),
        ("ecg\r\n5", [[5]]),
        ("a;b\n5;6\n", [[5, 6]]),
        ("5\n6\n", [[5], [6]]),
        ("5,7\n6,8", [[5, 7], [6, 8]]),
        ("t_ms,a\n5,7\n6,8", [[7], [8]]),
    ],
)
def test_one_and_two_samples_are_recordings(write, text, expected):
    fs = None if "t_ms" in text else 100
    assert ecg_dask.read(write(text), fs=fs).signal.compute().tolist() == expected


def test_row_counters_are_neither_time_nor_lead(write):
    for header in ("'sample #','MLII','V5'\n", ",MLII,V5\n", "n,MLII,V5\n"):
        path = write(header + rows(lambda i, x: f"{i},{x},{x}"))
        recording = ecg_dask.read(path, fs=360)
        assert recording.leads == ("MLII", "V5")
        assert recording.notes == ()
        with pytest.raises(InputError, match="no sampling rate"):
            ecg_dask.read(path)
    assert ecg_dask.read(write(rows(lambda i, x: f"{i},{x}")), fs=1).leads == ("lead0",)


def test_skipped_lines_are_told_where_no_time_shows_what_is_missing(write):
    text = (
        "ecg\n" + rows(lambda i, x: f"{x}", n=30) + "\n\n# lead off\n" + rows(lambda i, x: f"{x}")
    )
    assert ecg_dask.read(write(text), fs=100, chunk=7).notes == (
        "3 lines without a value were skipped, and no time tells whether samples are missing",
    )
    timed = write("time,ecg\n" + rows(lambda i, x: f"{i / 100},{x}") + "\n")
    assert ecg_dask.read(timed).notes == ()


def test_a_time_beside_a_counter_is_the_time_with_and_without_a_header(write):
    for header in ("", "index,time,ecg\n"):
        path = write(header + rows(lambda i, x: f"{i},{i / 250:.3f},{x}"))
        for fs in (None, 250):
            recording = ecg_dask.read(path, fs=fs)
            assert len(recording.leads) == 1
            assert recording.fs == 250
            np.testing.assert_array_equal(recording.signal.compute()[:, 0], VALUES)


def test_a_counter_that_skips_tells_missing_samples(write):
    text = "n,ecg\n" + rows(lambda i, x: f"{i + 5 * (i > 20) + 2 * (i > 30)},{x}")
    recording = ecg_dask.read(write(text), fs=100, chunk=8)
    signal = recording.signal.compute()[:, 0]
    assert np.flatnonzero(np.isnan(signal)).tolist() == [21, 22, 23, 24, 25, 36, 37]
    np.testing.assert_array_equal(signal[~np.isnan(signal)], VALUES)
    assert recording.notes == ("2 jumps in the counter n became 7 missing samples",)


def test_a_counter_that_goes_back_is_refused(write):
    path = write("n,ecg\n" + rows(lambda i, x: f"{i - 3 * (i == 40)},{x}"))
    with pytest.raises(InputError, match="line 42, column n: found a counter that steps by -2"):
        ecg_dask.read(path, fs=100)


def test_a_counter_in_steps_of_two_is_left_out(write):
    recording = ecg_dask.read(write("sample,ecg\n" + rows(lambda i, x: f"{2 * i},{x}")), fs=100)
    assert recording.leads == ("ecg",)
    assert recording.notes == ("Column sample was left out: it counts rows, but not one by one",)


def test_a_ramp_that_is_named_as_a_lead_is_one(write):
    path = write("ecg,V1\n" + rows(lambda i, x: f"{i / 100},{i}"))
    assert ecg_dask.read(path, fs=5).leads == ("ecg", "V1")


REFUSED = {
    "prose": (
        "Dear sir,\nI have the honour\nto be 3 years\n",
        "no line of numbers; it begins 'Dear",
    ),
    "header only": ("time,ecg\n", "no line of numbers; it begins 'time,ecg'"),
    "comments only": ("# a\n# b\n", "no lines but comments"),
    "blank": ("\n \n", "no lines but comments"),
    "utf-16": ("ecg\n1\n".encode("utf-16"), "UTF-16"),
    "old ends of lines": ("1\r2\r3", "CR alone"),
    "zeros": (bytes(999), "binary data"),
    "noise": (np.random.default_rng(1).bytes(9999), "binary data"),
    "noise without NUL": (
        bytes(np.random.default_rng(2).integers(128, 256, 300, dtype=np.uint8)),
        "no line of numbers",
    ),
    "words after a number": ("7\nlike\nthis\nis\nnot\n", "no line of numbers"),
    "words in a column": ("a\nb\nc\n", "no line of numbers"),
    "short header": ("ecg\n0,05\n0,12\n", r"line 1: found 1 cell \('ecg'\) above rows of 2 cells"),
    "decimal comma or two columns": ("0,05\n0,12\n-0,3\n", "a decimal comma or two columns"),
    "damaged first number": ("0.1x\n0.2\n0.3\n", "line 1: found '0.1x'"),
    "time alone": ("clock\n07:03:47.1\n07:03:47.2\n", "no line of numbers|no column of numbers"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_at_once(write, case):
    text, found = REFUSED[case]
    with pytest.raises(InputError, match=found) as error:
        ecg_dask.read(write(text), fs=100)
    assert "rec.csv" in str(error.value)


LATE = {
    "word": ("abc", "line 52, column a: found 'abc'; allowed: a number, or an empty cell"),
    "two points": ("1.2.3", "line 52, column a: found '1.2.3'"),
    "hexadecimal": ("0x10", "line 52, column a: found '0x10'"),
    "too large": ("1e39", r"line 52, column a: found '1e39'; allowed: at most 3.4e\+38"),
    "binary": ("\x01\x02", r"line 52, column a: found '\\x01\\x02'"),
    "long": ("x" * 99, f"found '{'x' * 40}';"),
    "cut off": (None, r"line 52: found 1 cell \('7'\); allowed: 2 in every line"),
    "one more": ("1,1", r"line 52: found 3 cells"),
}


@pytest.mark.parametrize("chunk", [1, 9, None])
@pytest.mark.parametrize("case", LATE)
def test_a_bad_line_is_named(write, case, chunk):
    cell, found = LATE[case]
    text = "a,b\n\n# c\n" + rows(lambda i, x: f"{x},{x}")
    lines = text.splitlines()
    lines[51] = "7" if cell is None else f"{cell},7"
    recording = ecg_dask.read(write("\r\n".join(lines)), fs=100, chunk=chunk)
    with pytest.raises(InputError, match=found) as error:
        recording.signal.compute()
    assert "rec.csv, line 52" in str(error.value)


def test_a_bad_time_is_named(write):
    for cell in ("oops", "", "nan", "inf"):
        path = write(
            "time,a\n" + rows(lambda i, x, cell=cell: f"{cell if i == 40 else i / 10},{x}")
        )
        with pytest.raises(InputError, match=f"line 42, column time: found '{cell}'"):
            ecg_dask.read(path, chunk=3)


def test_a_file_that_changes_is_refused(write):
    path = write(rows(lambda i, x: f"{x}"))
    recording = ecg_dask.read(path, fs=1)
    write(rows(lambda i, x: f"{x}", n=50))
    with pytest.raises(InputError, match="50 rows after byte 0 where 60 were counted"):
        recording.signal.compute()
    path.unlink()
    with pytest.raises(InputError, match="no such file"):
        recording.signal.compute()


def test_a_line_without_an_end_is_refused(write):
    path = write("1\n2\n" * 10 + "3" * 3_000_000)
    with pytest.raises(InputError, match="no end of line in a million bytes"):
        ecg_dask.read(path, fs=1, chunk=20_000).signal.compute()


def test_without_a_rate_the_error_tells_what_to_give(write):
    with pytest.raises(InputError, match=r"rec.csv: found no sampling rate.*Give fs in Hz \(--fs"):
        ecg_dask.read(write("ecg\n1\n2\n"))


def test_start(write):
    def read(text):
        return ecg_dask.read(write("time,ecg\n" + text), fs=None).start

    day = np.datetime64("2016-06-11T23:59:59.900")
    times = [day + np.timedelta64(4 * i, "ms") for i in range(60)]
    first = dt.datetime(2016, 6, 11, 23, 59, 59, 900_000)
    assert read(rows(lambda i, x: f"{times[i]},{x}")) == first
    assert read(rows(lambda i, x: f"{times[i]},{x}").replace("T", " ")) == first
    zone = dt.timezone(dt.timedelta(hours=2))
    assert read(rows(lambda i, x: f"{times[i]}+02:00,{x}")) == first.replace(tzinfo=zone)
    clock = rows(lambda i, x: f"{str(times[i])[11:]},{x}")
    assert read(clock) == dt.datetime(1900, 1, 1, 23, 59, 59, 900_000)
    assert read(rows(lambda i, x: f"0:00:0{i / 100:.2f},{x}")) is None
    assert read(rows(lambda i, x: f"{i / 100:.2f},{x}")) is None


def test_microcontroller_file(data_dir):
    path = data_dir / "odd" / "microcontroller_jitter.csv"
    recording = ecg_dask.read(path)
    table = np.genfromtxt(path, delimiter=",", skip_header=1)
    assert recording.fs == pytest.approx(2718 / (table[-1, 0] - table[0, 0]) * 1e6, rel=1e-12)
    assert recording.notes == ("fs of 256.309 Hz is the slope of the time column timestamp",)
    assert recording.leads == ("ecg_measurement",)
    assert recording.unit is None
    np.testing.assert_array_equal(recording.signal.compute()[:, 0], table[:, 1].astype(np.float32))
    assert ecg_dask.read(path, fs=256).fs == 256
    with pytest.raises(InputError, match=r"250 Hz given and 256.309 Hz in the time column"):
        ecg_dask.read(path, fs=250)
