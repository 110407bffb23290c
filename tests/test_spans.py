"""Spans that cannot be analysed: what is told, what is not, and the laws."""

from itertools import pairwise

import dask.array as da
import mitdb
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from signals import SHORT, counts

from ecg_dask import Beats, Detector, Recording, find_beats, kernels
from ecg_dask.beats import SPAN_COLUMNS
from ecg_dask.segment import spans
from ecg_dask.segment.detector import integrated_ricker
from ecg_dask.segment.halos import block_halo
from ecg_dask.segment.runs import REASONS, Runs, join_runs

FS = 250.0
DETECTOR = Detector()


def found(x, fs=FS, first=0, core=None):
    """Return the runs of one block."""
    x = np.ascontiguousarray(x, np.float32)
    w = DETECTOR.widths(fs)
    taps = integrated_ricker(DETECTOR.wavelet_s, fs, w.wavelet)
    crests, _ = kernels.crests(x, taps, w.energy, first, spans.widths(fs).sub)
    return spans.find_runs(x, crests, first, (first, first + len(x)) if core is None else core, fs)


def told(x, fs=FS, parts=None):
    """Return (reason, start in s, length in s) of the spans of a signal."""
    joined = join_runs([found(x, fs)] if parts is None else parts, fs)
    return [
        (REASONS[reason], start / fs, (stop - start) / fs)
        for reason, start, stop, _ in zip(*joined, strict=True)
    ]


def beating(seconds, fs=FS, rate=75, seed=0, width_s=0.012, noise=3.0):
    """Beats with a T wave in whole numbers, 500 high, with noise of a few."""
    rng = np.random.default_rng(seed)
    t = np.arange(round(seconds * fs)) / fs
    x = rng.normal(0, noise, t.size)
    for at in np.arange(0.4, seconds, 60 / rate) + rng.normal(0, 0.01):
        x += 500 * np.exp(-(((t - at) / width_s) ** 2))
        x += 90 * np.exp(-(((t - at - 0.25) / 0.05) ** 2)) if rate < 120 else 0
    return np.round(x).astype(np.float32)


def spoiled(fs=FS, seed=0):
    """A minute and a half with every reason in it."""
    x = beating(90, fs, seed=seed)
    rng = np.random.default_rng(seed)

    def at(start, stop):
        return slice(round(start * fs), round(stop * fs))

    x[at(10, 12.5)] = np.nan
    x[at(20, 24)] = 7
    x[at(35, 38)] = 1023
    x[at(50, 62)] = np.round(rng.normal(0, 80, round(12 * fs)))
    x[at(56, 56.004)] = np.nan
    x[at(70, 90)] = np.clip(x[at(70, 90)], -200, 180)
    return x


def test_each_reason_is_told_where_it_is():
    got = told(spoiled())
    assert [reason for reason, _, _ in got] == [
        "missing",
        "flat",
        "clipped",
        "noise",
        "missing",
        "noise",
        "clipped",
    ]
    missing, flat, rail, before, hole, behind, cut_off = [
        (start, start + length) for _, start, length in got
    ]
    assert missing == (10, 12.5)
    assert 20 <= flat[0] < 20.3
    assert 23.7 < flat[1] <= 24
    assert rail == (35, 38)
    assert before[0] == pytest.approx(50, abs=1.5)
    assert before[1] == hole[0] == 56
    assert hole[1] == behind[0] == 56.004
    assert behind[1] == pytest.approx(62, abs=1.5)
    # From the first QRS complex that is cut off for 5 s around to the last one of the recording.
    assert cut_off[0] == pytest.approx(75, abs=1)
    assert cut_off[1] > 89


@pytest.mark.parametrize("fs", [128.0, 200.0, 360.0, 500.0, 1000.0])
def test_any_rate_tells_the_same(fs):
    expected, got = told(spoiled()), told(spoiled(fs), fs)
    assert [reason for reason, _, _ in got] == [reason for reason, _, _ in expected]
    for one, other in zip(got, expected, strict=True):
        assert one[1:] == pytest.approx(other[1:], abs=1.5)


@pytest.mark.parametrize("scale", [-1.0, 2.0**-20, -(2.0**9)])
def test_negation_and_powers_of_two_change_nothing(scale):
    x = spoiled()
    assert told(x * np.float32(scale)) == told(x)


@pytest.mark.parametrize("rate", [30, 60, 120, 200, 240])
@pytest.mark.parametrize("width_s", [0.012, 0.04])
def test_a_rhythm_is_no_noise(rate, width_s):
    assert told(beating(60, rate=rate, width_s=width_s, noise=10)) == []


@pytest.mark.parametrize("hertz", [3.5, 4.5, 5.5])
def test_flutter_is_no_noise(hertz):
    t = np.arange(15_000) / FS
    wobble = np.random.default_rng(0).normal(0, 10, t.size)
    assert told(300 * np.sin(2 * np.pi * hertz * t + 0.3 * np.sin(t)) + wobble) == []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("band", [1, 3, 12])
def test_noise_of_any_colour_is_noise(seed, band):
    white = np.random.default_rng(seed).normal(0, 100, 30_000)
    x = np.convolve(white, np.ones(band), "same")
    got = told(x)
    assert {reason for reason, _, _ in got} == {"noise"}
    assert sum(length for _, _, length in got) > 0.9 * 120


def test_a_beating_heart_in_some_noise_is_no_noise():
    assert told(beating(60, noise=35)) == []
    assert told(beating(60, noise=400)) != []


@pytest.mark.parametrize("pause_s", [3, 6, 10])
def test_a_pause_is_no_noise(pause_s):
    x = beating(60)
    half = len(x) // 2
    quiet = np.random.default_rng(1).normal(0, 3, round(pause_s * FS)).round()
    assert told(np.concatenate([x[:half], quiet, x[half:]])) == []


@pytest.mark.parametrize("levels", [12, 25, 60, 250])
@pytest.mark.parametrize("fs", [128.0, 250.0, 1000.0])
def test_coarse_samples_are_neither_clipped_nor_flat(levels, fs):
    """A sound signal of few bits has level tops, and more of them the more often it is sampled."""
    wave = 100 * np.sin(np.arange(round(60 * fs)) / fs)
    x = beating(60, fs, rate=70, width_s=0.03, noise=8) + wave
    assert told(np.round(x / 700 * levels), fs) == []


def test_a_level_baseline_is_flat_and_not_clipped():
    x = np.zeros(15_000, np.float32)
    for at in range(500, 15_000, 500):
        x[at : at + 6] = 20 * (at // 500) + 100
    got = told(x)
    assert {reason for reason, _, _ in got} == {"flat"}
    assert len(got) == 30


def test_a_saturation_longer_than_any_window_is_clipped_whole():
    x = beating(120)
    x[5000:20_000] = -2048
    assert told(x) == [("clipped", 20.0, 60.0)]
    x[5000:20_000] = 3
    assert [reason for reason, _, _ in told(x)] == ["flat"]


def test_a_saturation_at_an_end_of_the_recording_is_clipped():
    x = beating(60)
    x[:2500] = 900
    x[12_500:] = -900
    assert told(x) == [("clipped", 0.0, 10.0), ("clipped", 50.0, 10.0)]
    # Slowly reached, so that its level alone tells.
    ramp = np.linspace(0, 900, 5000).round().astype(np.float32)
    x = beating(60)
    x[7500:12_500] += ramp
    x[12_500:] = 1500
    x[12_300:12_500] = np.linspace(1400, 1499, 200).round()
    reason, start, length = told(x)[-1]
    assert (reason, start + length) == ("clipped", 60)
    assert 50 <= start < 50.3


def test_a_single_level_top_is_not_told_but_a_long_one_is():
    x = beating(60)
    x[5000:5006] = 900
    assert told(x) == []
    x[5000:5060] = 900
    assert told(x) == [("clipped", 20.0, 0.24)]


@pytest.mark.parametrize("n_samples", [0, 1, 2, 63, 64, 65, 2000])
@pytest.mark.parametrize("value", [0.0, 5.0, np.nan, np.inf])
def test_ends(n_samples, value):
    x = np.full((n_samples, 1), value, np.float32)
    listed = find_beats(Recording(da.from_array(x, chunks=-1), FS)).spans.compute()
    assert {name: str(kind) for name, kind in listed.dtypes.items()} == SPAN_COLUMNS
    expected = []
    if n_samples and not np.isfinite(value):
        expected = [["missing", 0, n_samples]]
    elif n_samples >= FS:
        expected = [["flat", 0, n_samples]]
    assert listed[["reason", "start", "stop"]].to_numpy().tolist() == expected


def blocks(x, cuts, fs, halo):
    parts = []
    for start, stop in zip([0, *cuts], [*cuts, len(x)], strict=True):
        first, last = max(start - halo, 0), min(stop + halo, len(x))
        parts.append(found(x[first:last].copy(), fs, first, (start, stop)))
    return parts


@given(st.data(), st.integers(0, 3), st.sampled_from([60.0, 101.0]))
@settings(max_examples=25, deadline=None)
def test_cores_of_any_length_with_their_halos_tell_the_same(data, seed, fs):
    """Without the merging of short chunks: cores down to a single sample."""
    x = spoiled(fs, seed)
    cuts = data.draw(st.lists(st.integers(1, len(x) - 1), max_size=9, unique=True))
    cuts = sorted({*cuts, *(min(cut + 1, len(x) - 1) for cut in cuts[::3])})
    halo = block_halo(DETECTOR, fs)
    assert told(x, fs, blocks(x, cuts, fs, halo)) == told(x, fs)


def test_what_lies_beyond_the_halo_has_no_say():
    """Of the default detector's block, for every reason; a core is a few cells."""
    fs, n = 100.0, 9000
    rng = np.random.default_rng(0)
    halo = spans.halo(fs, 13)
    x = spoiled(fs)
    for start in range(halo, n - halo - 60, 97):
        y = rng.normal(0, 3000, n).round().astype(np.float32)
        within = slice(start - halo, start + 60 + halo)
        y[within] = x[within]
        core = (start, start + 60)
        for one, two in zip(found(x, fs, 0, core), found(y, fs, 0, core), strict=True):
            np.testing.assert_array_equal(one, two)


@given(
    st.lists(
        st.tuples(st.sampled_from(["missing", "flat", "rail", "noise"]), st.integers(1, 400)),
        max_size=12,
    )
)
def test_joined_spans_are_those_of_a_loop_over_samples(pieces):
    """Spans one after another, each cut in three: joined again, the short ones dropped."""
    fs = 50.0
    least = {"missing": 0, "flat": 50, "rail": 50, "noise": 150}
    code = {"missing": 0, "flat": 1, "rail": 4, "noise": 3}
    rows, expected, start = [], [], 0
    for i, (name, length) in enumerate(pieces):
        start += 101  # farther than what is joined, but for the clipped
        cuts = sorted({0, length // 3, length // 2, length})
        level = float(i) if name in ("flat", "rail") else np.nan
        rows += [(code[name], start + a, start + b, level) for a, b in pairwise(cuts)]
        if length >= least[name]:
            reason = "clipped" if name == "rail" else name
            expected.append((reason, start / fs, length / fs))
        start += length
    columns = np.array(rows or np.empty((0, 4))).T
    runs = Runs(
        columns[0].astype(np.int8),
        columns[1].astype(np.int64),
        columns[2].astype(np.int64),
        columns[3].astype(np.float32),
    )
    assert told(None, fs, [runs]) == expected


def test_the_earlier_reason_is_told_where_spans_overlap():
    nan = np.nan
    rows = [(3, 0, 1000, nan), (0, 200, 210, nan), (1, 400, 500, 7.0), (4, 500, 600, 9.0)]
    columns = list(zip(*rows, strict=True))
    runs = Runs(*(np.array(column) for column in columns))
    assert told(None, 100.0, [runs]) == [
        ("noise", 0, 2),
        ("missing", 2, 0.1),
        ("noise", 2.1, 1.9),
        ("flat", 4, 1),
        ("clipped", 5, 1),
        ("noise", 6, 4),
    ]


def recording(chunks=-1, name="r", fs=100.0, seed=0):
    x = spoiled(fs, seed)[:, None]
    return Recording(da.from_array(x, chunks=(chunks, 1)), fs, name=name)


@pytest.mark.parametrize("chunks", [100, 700, 1234, 5000])
def test_any_chunks_give_the_same_table_of_spans(chunks):
    """With a detector that looks less far than the spans do, too."""
    for detector in (DETECTOR, SHORT):
        whole, parts = (find_beats(recording(size), detector) for size in (-1, chunks))
        same_tables(whole, parts)


def same_tables(whole, parts):
    for name in ("spans", "table"):
        one, other = (getattr(beats, name).compute(scheduler="sync") for beats in (whole, parts))
        pd.testing.assert_frame_equal(one, other, check_exact=True)


def test_beats_in_spans_are_kept_and_told():
    beats = find_beats(recording(2000))
    table, listed = beats.table.compute(scheduler="sync"), beats.spans.compute(scheduler="sync")
    assert (listed["stop"] > listed["start"]).all()
    assert (listed["start"].to_numpy()[1:] >= listed["stop"].to_numpy()[:-1]).all()
    np.testing.assert_allclose(listed["start_s"], listed["start"] / 100)
    np.testing.assert_allclose(listed["seconds"], (listed["stop"] - listed["start"]) / 100)
    expected = [
        next(
            (span.reason for span in listed.itertuples() if span.start <= sample < span.stop),
            None,
        )
        for sample in table["sample"]
    ]
    got = [None if pd.isna(reason) else reason for reason in table["span"]]
    assert got == expected
    assert got.count("noise") > 10
    assert got.count(None) > 50


def test_where_keeps_the_spans_and_concat_joins_them():
    parts = [find_beats(recording(name=f"r{seed}", seed=seed)) for seed in range(2)]
    chosen = parts[0].where(lambda table: table["span"].isna())
    assert chosen.table.compute()["span"].isna().all()
    pd.testing.assert_frame_equal(chosen.spans.compute(), parts[0].spans.compute())
    joined = Beats.concat(parts).spans.compute()
    assert joined["record"].unique().tolist() == ["r0", "r1"]
    assert len(joined) == sum(len(part.spans.compute()) for part in parts)


def test_every_gap_is_listed():
    x = counts(3000)[0]
    for start, stop in ((0, 10), (990, 1010), (2000, 2001), (2999, 3000)):
        x[start:stop] = np.nan
    beats = find_beats(Recording(da.from_array(x, chunks=(1000, 1)), 100), SHORT)
    listed = beats.spans.compute()
    assert listed[["start", "stop"]].to_numpy().tolist() == [
        [0, 10],
        [990, 1010],
        [2000, 2001],
        [2999, 3000],
    ]
    assert (listed["reason"] == "missing").all()


def test_hardly_anything_of_the_first_leads_of_mitdb_is_told(data_dir):
    """Only record 116's lead comes off: the rails of its converter are 0 and 2047."""
    expected = {
        "116": [("clipped", 1001.9, 1.2), ("clipped", 1390.8, 0.7), ("clipped", 1404.2, 0.7)]
    }
    for record in ("100", "104", "108", "116", "203", "207", "208", "232"):
        x = mitdb.first_lead(data_dir, record)
        got = [
            (reason, round(start, 1), round(length, 1)) for reason, start, length in told(x, 360.0)
        ]
        assert got == expected.get(record, [])
