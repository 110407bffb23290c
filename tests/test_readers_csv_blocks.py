"""Any cut of a text file into ranges of bytes gives the same recording, bit for bit."""

from unittest import mock

import dask
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ecg_dask.readers import csv as csv_reader
from ecg_dask.readers import opensignals, text_blocks
from ecg_dask.readers.csv import read_csv
from ecg_dask.readers.text_blocks import Layout, columns_of, count_lines, owned_lines

SETTINGS = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
#: What a line of a file may be besides a row.
ODD_LINES = st.sampled_from(["", "  ", "# a comment, 1", " # 2"])
NUMBERS = st.one_of(
    st.floats(-1e4, 1e4, width=32).map(lambda x: f"{x:.6g}"),
    st.integers(-999, 999).map(str),
    st.sampled_from(["NaN", "1e-3", "+2.5", "inf"]),
)


@st.composite
def tables(draw):
    """Draw the text of a file, its rows as floats, and the row after each jump with its length."""
    n_leads = draw(st.integers(1, 3))
    values = draw(
        st.lists(st.lists(NUMBERS, min_size=n_leads, max_size=n_leads), min_size=3, max_size=40)
    )
    values[0] = ["1.5"] * n_leads
    timed = draw(st.booleans())
    jumps = draw(
        st.dictionaries(st.integers(1, len(values) - 1), st.integers(1, 40), max_size=2)
        if timed and len(values) > 25
        else st.just({})
    )
    quote = draw(st.sampled_from(["", '"']))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    lines = [",".join((["t_ms"] if timed else []) + [f"ecg{i}" for i in range(n_leads)])]
    now = 0
    for row, cells in enumerate(values):
        lines += draw(st.lists(ODD_LINES, max_size=2))
        now += (row > 0) + jumps.get(row, 0)
        time = [str(4 * now)] if timed else []
        lines.append(",".join(f"{quote}{cell}{quote}" for cell in time + cells))
    text = end.join(lines) + draw(st.sampled_from(["", end]))
    return text, np.array(values, np.float64), jumps, timed


def read_in_blocks(path, size, read=read_csv, **options):
    with (
        mock.patch.object(csv_reader, "text_bytes", return_value=size),
        dask.config.set(scheduler="sync"),
    ):
        recording = read(str(path), **options)
        return recording, recording.signal.compute()


@SETTINGS
@given(table=tables(), size=st.integers(1, 120))
def test_any_block_size_gives_what_a_loop_gives(tmp_path, table, size):
    text, values, jumps, timed = table
    path = tmp_path / "rec.csv"
    path.write_bytes(text.encode())
    fs = None if timed else 100
    recording, signal = read_in_blocks(path, size, fs=fs)
    expected = []
    for row, cells in enumerate(values):
        expected += [np.full(len(cells), np.nan)] * jumps.get(row, 0)
        expected.append(np.where(np.isinf(cells), np.nan, cells))
    assert signal.tobytes() == np.array(expected, np.float32).tobytes()
    _, at_once = read_in_blocks(path, size, fs=fs, room=2**20)
    assert at_once.tobytes() == signal.tobytes()
    assert recording.fs == (250 if timed else 100)
    infinite = int(np.isinf(values).sum())
    notes = len(jumps) > 0, infinite > 0
    told = [note for note in recording.notes if "skipped" not in note]
    assert len(told) == sum(notes)
    assert len(recording.notes) - len(told) <= (not timed)
    if jumps:
        plural = "s" * (len(jumps) > 1), "s" * (sum(jumps.values()) > 1)
        assert told[0] == (
            f"{len(jumps)} jump{plural[0]} in the time column became "
            f"{sum(jumps.values())} missing sample{plural[1]}"
        )


@settings(SETTINGS, max_examples=30)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(11, 400),
    form=st.sampled_from(["jitter", "seconds", "midnight", "blanks", "counter", "semicolon"]),
)
def test_two_block_sizes_give_one_recording(tmp_path, seed, size, form):
    random = np.random.default_rng(seed)
    n = int(random.integers(40, 80))
    lost = np.cumsum(1 + (random.random(n) < 0.03) * random.integers(1, 300, n))
    jitter = np.cumsum(random.uniform(0.8, 1.2, n)) + lost - np.arange(n)
    x = random.normal(size=n)
    path = tmp_path / "rec.csv"
    fs = None
    if form == "jitter":
        lines = ["time_us,ecg", *(f"{4e3 * t:.0f},{v:.4f}" for t, v in zip(jitter, x, strict=True))]
    elif form == "seconds":
        lines = ["time,ecg", *(f"07:03:{i // 12:02d},{v:.4f}" for i, v in enumerate(x))]
    elif form == "midnight":
        now = np.datetime64("2016-06-11T23:59:59.900") + (4 * lost).astype("timedelta64[ms]")
        lines = ["time;ecg", *(f"{str(t)[11:]};{v:.4f}" for t, v in zip(now, x, strict=True))]
    elif form == "blanks":
        lines = [
            " time  ecg ",
            *(f" {t / 250:8.3f}  {v:9.4f} " for t, v in zip(lost, x, strict=True)),
        ]
    elif form == "counter":
        fs = 100
        lines = ["n\tecg\t", *(f"{t}\t{v:.4f}\t" for t, v in zip(lost, x, strict=True))]
    else:
        lines = [
            "t_ms;ecg",
            *(f"{4 * t};{v:.4f}".replace(".", ",") for t, v in zip(lost, x, strict=True)),
        ]
    path.write_text("\n".join(lines))
    one, signal = read_in_blocks(path, 10**6, fs=fs)
    other, again = read_in_blocks(path, size, fs=fs)
    assert again.tobytes() == signal.tobytes()
    for told in ("fs", "notes", "leads", "start"):
        assert getattr(other, told) == getattr(one, told)


@SETTINGS
@given(data=st.binary(max_size=200), step=st.integers(1, 64), start=st.integers(0, 3))
def test_ranges_own_each_line_once(tmp_path, data, step, start):
    path = tmp_path / "x"
    path.write_bytes(data)
    layout = Layout(",", ".", ("a",), min(start, len(data)), 1)
    parts = [
        owned_lines(str(path), layout, low, min(low + step, len(data)))
        for low in range(layout.start, len(data), step)
    ]
    assert b"".join(parts) == data[layout.start :]
    assert all(
        not part or part.endswith(b"\n") for part in parts[:-1] if part is not parts[-1]
    ) or (b"".join(parts).count(b"\n") == data[layout.start :].count(b"\n"))


@SETTINGS
@given(
    lines=st.lists(st.sampled_from(["1,2", "", " ", "#", " # 3", "\t", "3 , 4", '"5",6', "\r"])),
    end=st.booleans(),
    step=st.integers(1, 9),
)
def test_rows_are_counted_as_they_are_parsed(lines, end, step):
    layout = Layout(",", ".", ("a", "b"), 0, 1)
    text = "\n".join(lines).encode() + b"\n" * end
    (column,) = columns_of(text, layout, {0: "value"})
    with mock.patch.object(text_blocks, "_SLICE_BYTES", step):
        assert count_lines(text, layout) == (text.count(b"\n"), len(column))
    assert len(column) == sum(line[0:1].isdigit() or line[0:1] == '"' for line in lines)


def test_chunk_gives_about_so_many_samples(tmp_path):
    path = tmp_path / "rec.csv"
    path.write_text("".join(f"{i % 10}.{i % 7}\n" for i in range(10_000)))
    with dask.config.set(scheduler="sync"):
        assert read_csv(str(path), fs=1).signal.chunks[0] == (10_000,)
        chunks = read_csv(str(path), fs=1, chunk=1000).signal.chunks[0]
        assert len(chunks) == 10
        assert set(chunks) == {1000}
        assert len(read_csv(str(path), fs=1, chunk="8 kB").signal.chunks[0]) == 5


def test_a_long_gap_gets_partitions_of_its_own(tmp_path):
    path = tmp_path / "rec.csv"
    path.write_text("".join(f"{i / 100 + 2000 * (i >= 530)},{i % 9}\n" for i in range(1000)))
    with dask.config.set(scheduler="sync"):
        recording = read_csv(str(path), chunk=100)
        assert recording.n_samples == 201_000
        assert max(recording.signal.chunks[0]) == 2**16
        assert len(recording.signal.chunks[0]) > 12
        signal = recording.signal.compute()[:, 0]
    assert np.flatnonzero(np.isnan(signal)).tolist() == list(range(530, 200_530))
    np.testing.assert_array_equal(signal[200_530:], np.arange(530, 1000) % 9)


@pytest.mark.parametrize("size", [30, 1000])
def test_opensignals_in_blocks(tmp_path, size):
    path = tmp_path / "o.txt"
    header = (
        '# OpenSignals Text File Format\n# {"a": {"column": ["nSeq", "A1"], "label": ["A1"], '
        '"sampling rate": 100, "resolution": [4, 10]}}\n# EndOfHeader\n'
    )
    path.write_text(header + "".join(f"{(i + 3 * (i > 50)) % 16}\t{i}\t\n" for i in range(99)))
    recording, signal = read_in_blocks(path, size, opensignals.read_opensignals)
    assert recording.notes == ("1 jump in the counter nSeq became 3 missing samples",)
    expected = np.insert(np.arange(99.0), 51, [np.nan] * 3).astype(np.float32)
    assert signal[:, 0].tobytes() == expected.tobytes()
