import pickle

import numpy as np
import pandas as pd
import pytest
import wfdb
from hypothesis import given, settings
from hypothesis import strategies as st

from ecg_dask import synthetic as module
from ecg_dask.errors import InputError
from ecg_dask.synthetic import LEADS, Synthetic, synthetic, write_csv

CLEAN = {"noise_mv": 0, "wander_mv": 0}
CELL = module._CELL


def samples(ecg: Synthetic) -> np.ndarray:
    return ecg.recording.signal.compute(scheduler="sync")


@pytest.fixture(scope="module")
def rich() -> Synthetic:
    """Ten minutes, ten cells, with all that there is."""
    return synthetic(600, n_leads=2, ventricular=0.1, supraventricular=0.1, gaps=4, seed=7)


@pytest.fixture(scope="module")
def rich_samples(rich) -> np.ndarray:
    return samples(rich)


@pytest.fixture(scope="module")
def clean() -> Synthetic:
    return synthetic(1200, ventricular=0.1, supraventricular=0.1, seed=5, **CLEAN)


def test_recording(rich, rich_samples):
    recording = rich.recording
    assert recording.signal.shape == (150_000, 2)
    assert recording.signal.dtype == rich_samples.dtype == np.float32
    assert recording.leads == ("II", "V5")
    assert (recording.unit, recording.fs, recording.duration_s) == ("mV", 250, 600)
    beats = rich.beats
    assert list(beats.columns) == ["sample", "time_s", "symbol"]
    assert beats["sample"].dtype == np.int64
    assert (np.diff(beats["sample"]) > 0).all()
    assert beats["sample"].between(0, 149_999).all()
    np.testing.assert_array_equal(beats["time_s"], beats["sample"] / 250)
    # At 72 beats a minute, give or take 20.
    assert 520 < len(beats) < 920


@settings(max_examples=12, deadline=None)
@given(chunk=st.integers(2_000, 160_000))
def test_chunk_law(rich, rich_samples, chunk):
    cut = synthetic(
        600, n_leads=2, ventricular=0.1, supraventricular=0.1, gaps=4, seed=7, chunk=chunk
    )
    assert cut.recording.signal.chunks[0][0] == min(chunk, 150_000)
    np.testing.assert_array_equal(samples(cut), rich_samples)
    pd.testing.assert_frame_equal(cut.beats, rich.beats)


def test_chunks_of_single_samples():
    whole, single = synthetic(0.5), synthetic(0.5, chunk=1)
    assert single.recording.signal.numblocks == (125, 1)
    np.testing.assert_array_equal(samples(single), samples(whole))


def test_tiny_chunks_where_cells_meet():
    arguments = {"duration_s": 80, "ventricular": 0.1, "gaps": 1}
    near = slice(CELL - 60, CELL + 60)
    cut = synthetic(**arguments, chunk=37).recording.signal[near].compute(scheduler="sync")
    np.testing.assert_array_equal(cut, samples(synthetic(**arguments))[near])


def test_schedulers_agree(rich, rich_samples):
    threaded = rich.recording.signal.rechunk((10_000, 2)).compute(scheduler="threads")
    np.testing.assert_array_equal(threaded, rich_samples)


def test_waves_run_on_across_cells(clean, monkeypatch):
    monkeypatch.setattr(module, "_CELL", 5_000)
    other = synthetic(1200, ventricular=0.1, supraventricular=0.1, seed=5, **CLEAN)
    np.testing.assert_allclose(samples(other), samples(clean), atol=1e-6)


def test_noise_runs_on_across_cells():
    # At 2000 Hz the noise moves little from sample to sample.
    arguments = {"duration_s": 80, "fs": 2000, "n_leads": 12, "wander_mv": 0}
    noise = samples(synthetic(**arguments)) - samples(synthetic(**arguments, noise_mv=0))
    steps = np.diff(noise, axis=0)
    at_edges = steps[CELL - 1 :: CELL]
    assert at_edges.shape == (9, 12)
    assert steps.std() < 0.5 * noise.std()
    assert at_edges.std() == pytest.approx(steps.std(), rel=0.25)


def test_seed():
    first, again, other = (synthetic(30, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(samples(first), samples(again))
    assert first.recording.signal.name == again.recording.signal.name
    assert not np.array_equal(first.beats["sample"], other.beats["sample"])
    noise = [
        samples(synthetic(30, seed=seed, wander_mv=0)) - samples(synthetic(30, seed=seed, **CLEAN))
        for seed in (1, 2)
    ]
    assert abs(np.corrcoef(*(each[:, 0] for each in noise))[0, 1]) < 0.05
    synthetic(1, seed=2**64 - 1).recording.signal.compute(scheduler="sync")


def test_a_seed_stays_what_it_was():
    ecg = synthetic(20, seed=2026, ventricular=0.1, supraventricular=0.1)
    assert ecg.beats["sample"].tolist()[:6] == [128, 393, 653, 825, 1151, 1414]
    assert "".join(ecg.beats["symbol"]) == "NNNVNNNNANVNNNNNANNN"
    np.testing.assert_allclose(
        samples(ecg)[::1000, 0], [-0.027093, -0.1765, 0.28465, -0.077211, -0.05292], atol=2e-6
    )


def test_beats_depend_on_nothing_else(rich, rich_samples):
    plain = synthetic(600, ventricular=0.1, supraventricular=0.1, seed=7, **CLEAN)
    both = plain.beats.merge(rich.beats, how="left", indicator=True)
    present = both["_merge"] == "both"
    assert present.sum() == len(rich.beats)
    missing = np.isnan(rich_samples).all(axis=1)
    np.testing.assert_array_equal(missing[plain.beats["sample"]], ~present)


def test_a_lead_does_not_depend_on_the_others():
    one, three = synthetic(30), synthetic(30, n_leads=3)
    np.testing.assert_array_equal(samples(one)[:, 0], samples(three)[:, 0])
    twelve = synthetic(30, n_leads=12, **CLEAN)
    assert twelve.recording.leads == tuple(LEADS)
    signal = dict(zip(LEADS, samples(twelve).T, strict=True))
    np.testing.assert_allclose(signal["I"] + signal["III"], signal["II"], atol=0.02)
    noise = samples(three) - samples(synthetic(30, n_leads=3, noise_mv=0))
    assert abs(np.corrcoef(noise.T) - np.eye(3)).max() < 0.1


@pytest.mark.parametrize(("ventricular", "supraventricular"), [(0, 0), (0.02, 0.1), (0.4, 0)])
def test_number_of_ectopics(ventricular, supraventricular):
    ecg = synthetic(3600, fs=50, ventricular=ventricular, supraventricular=supraventricular)
    symbol = ecg.beats["symbol"].to_numpy()
    n = len(symbol)
    assert abs(np.sum(symbol == "V") - n * ventricular) <= 2
    assert abs(np.sum(symbol == "A") - n * supraventricular) <= 2
    ectopic = symbol != "N"
    assert not (ectopic[1:] & ectopic[:-1]).any()


def test_peaks_are_where_the_truth_says(clean):
    signal, beats = samples(clean)[:, 0], clean.beats
    inner = beats[beats["sample"].between(30, len(signal) - 31)]
    near = signal[inner["sample"].to_numpy()[:, None] + np.arange(-30, 31)]
    sign = np.sign(near[:, 30])
    peak = np.argmax(near * sign[:, None], axis=1) - 30
    assert np.abs(peak).max() <= 2
    assert np.mean(np.abs(peak) <= 1) > 0.99
    height = np.abs(near[:, 30])
    assert height.min() > 0.7
    assert height.max() < 2
    # The ventricular ones come upright and upside down.
    assert set(sign[inner["symbol"] == "V"]) == {-1, 1}
    assert set(sign[inner["symbol"] != "V"]) == {1}


def test_width_of_qrs(clean):
    signal = samples(clean)[:, 0]
    widths = {"N": [], "A": [], "V": []}
    for at, symbol in zip(clean.beats["sample"], clean.beats["symbol"], strict=True):
        near = np.abs(signal[max(at - 30, 0) : at + 31])
        high = np.flatnonzero(near > 0.15 * abs(signal[at]))
        widths[symbol].append((high[-1] - high[0] + 1) / 250)
    assert 0.05 < np.median(widths["N"]) < 0.09
    assert 0.05 < np.median(widths["A"]) < 0.09
    assert 0.12 < np.median(widths["V"]) < 0.16
    assert min(widths["V"]) > 0.1


def mean_near(ecg: Synthetic, symbol: str, offset_s: float) -> np.ndarray:
    at = ecg.beats.loc[ecg.beats["symbol"] == symbol, "sample"].to_numpy()
    place = at + round(offset_s * 250)
    return samples(ecg)[place[(place >= 0) & (place < ecg.recording.n_samples)], 0]


def test_p_and_t_waves(clean):
    assert np.median(mean_near(clean, "N", -0.15)) > 0.08
    assert np.median(mean_near(clean, "A", -0.11)) < -0.05
    assert abs(np.median(mean_near(clean, "V", -0.16))) < 0.04
    assert np.median(mean_near(clean, "N", 0.25)) > 0.15
    # The T wave of a ventricular beat is opposed to its QRS.
    beats = clean.beats[clean.beats["symbol"] == "V"]
    signal = samples(clean)[:, 0]
    at = beats["sample"].to_numpy()
    assert np.mean(np.sign(signal[at]) == -np.sign(signal[at + 67])) > 0.8


def test_qt_follows_the_interval(clean):
    signal = samples(clean)[:, 0]
    at = clean.beats["sample"].to_numpy()
    sinus = clean.beats["symbol"].to_numpy()[1:-1] == "N"
    interval = np.diff(at)[:-1][sinus]
    peak = np.argmax(signal[at[1:-1][sinus, None] + np.arange(30, 90)], axis=1) + 30
    assert np.corrcoef(peak, np.cbrt(interval))[0, 1] > 0.9


def test_rhythm(clean):
    symbol, rr = clean.beats["symbol"].to_numpy(), np.diff(clean.beats["time_s"])
    for at in range(2, len(symbol) - 1):
        before, coupling, after = rr[at - 2 : at + 1]
        if symbol[at] == "N" or symbol[at - 2] != "N":
            continue
        assert coupling < 0.9 * before
        pause = (coupling + after) / before
        assert 1.8 < pause < 2.2 if symbol[at] == "V" else 1.5 < pause < 1.98
    day = synthetic(86_400, fs=50, ventricular=0, supraventricular=0)
    hourly = np.diff(day.beats["sample"].to_numpy()).astype(float)
    rate = 60 * 50 / hourly[: len(hourly) // 24 * 24].reshape(24, -1).mean(axis=1)
    assert 15 < np.ptp(rate) < 40
    # Breathing is the strongest rhythm between 0.1 and 0.4 Hz.
    even = np.interp(
        np.arange(0, 3000, 0.5), day.beats["time_s"][:-1], np.diff(day.beats["time_s"])
    )
    spectrum = np.abs(np.fft.rfft(np.hanning(len(even)) * (even - even.mean())))
    hertz = np.fft.rfftfreq(len(even), 0.5)
    band = (hertz > 0.1) & (hertz < 0.4)
    assert hertz[band][np.argmax(spectrum[band])] == pytest.approx(0.24, abs=0.005)


def test_noise():
    for fs in (250, 1000):
        noise = samples(synthetic(120, fs, noise_mv=0.05, wander_mv=0)) - samples(
            synthetic(120, fs, **CLEAN)
        )
        assert noise.std() == pytest.approx(0.05, rel=0.05)
        power = np.abs(np.fft.rfft(noise[:, 0])) ** 2
        hertz = np.fft.rfftfreq(len(noise), 1 / fs)
        assert power[(hertz > 15) & (hertz < 110)].sum() > 0.9 * power.sum()


def test_wander():
    wander = samples(synthetic(600, noise_mv=0, wander_mv=0.2)) - samples(synthetic(600, **CLEAN))
    assert wander.std() == pytest.approx(0.2, rel=0.05)
    power = np.abs(np.fft.rfft(wander[:, 0])) ** 2
    assert power[np.fft.rfftfreq(len(wander), 1 / 250) < 0.5].sum() > 0.99 * power.sum()


def test_gaps(rich, rich_samples):
    missing = np.isnan(rich_samples)
    assert (missing[:, 0] == missing[:, 1]).all()
    edges = np.flatnonzero(np.diff(missing[:, 0].astype(int), prepend=0, append=0))
    lengths = np.diff(edges)[::2]
    assert len(lengths) == 4
    assert lengths.min() >= 2 * 250 - 1
    assert lengths.max() <= 8 * 250 + 1
    assert not missing[rich.beats["sample"], 0].any()
    assert not np.isnan(samples(synthetic(60))).any()


def test_tasks_carry_the_beats_they_need():
    ecg = synthetic(6000, chunk=65_536)
    graph = dict(ecg.recording.signal.__dask_graph__())
    assert len(graph) > 23
    # 23 tasks that each carried all 7,000 beats would be 4 MB.
    assert len(pickle.dumps(graph)) < 400_000


def test_short_ones():
    ecg = synthetic(0.004)
    assert samples(ecg).shape == (1, 1)
    assert len(ecg.beats) == 0
    assert ecg.beats["sample"].dtype == np.int64


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"duration_s": 0}, "duration_s: found 0"),
        ({"duration_s": float("inf")}, "duration_s: found inf"),
        ({"fs": 49}, "fs: found 49"),
        ({"fs": float("nan")}, "fs: found nan"),
        ({"n_leads": 0}, "n_leads: found 0"),
        ({"n_leads": 13}, "n_leads: found 13; allowed: 1 to 12"),
        ({"seed": -1}, "seed: found -1"),
        ({"seed": 1.5}, "seed: found 1.5"),
        ({"ventricular": -0.1}, "ventricular and supraventricular: found -0.1 and 0.01"),
        ({"ventricular": 0.2, "supraventricular": 0.3}, "found 0.2 and 0.3"),
        ({"noise_mv": -1}, "noise_mv: found -1"),
        ({"wander_mv": float("nan")}, "wander_mv: found nan"),
        ({"gaps": 4}, "gaps: found 4; allowed: 0 to 3"),
        ({"chunk": 0}, "chunk: found 0"),
    ],
)
def test_refused(change, message):
    with pytest.raises(InputError, match=message):
        synthetic(**{"duration_s": 60, **change})


@pytest.mark.parametrize("n_leads", [1, 3])
def test_csv(tmp_path, n_leads):
    ecg = synthetic(90, n_leads=n_leads, gaps=2, ventricular=0.1, chunk=4_321)
    written = write_csv(ecg, tmp_path / "holter.csv")
    lines = (tmp_path / "holter.csv").read_text().splitlines()
    assert lines[0] == ",".join(f"{lead} (mV)" for lead in tuple(LEADS)[:n_leads])
    assert len(lines) == 1 + 22_500
    assert max(map(len, lines[1:])) <= 7 * n_leads
    rounded = np.round(samples(ecg), 3)
    gap = int(np.argmax(np.isnan(rounded[:, 0])))
    assert lines[1 + gap] == ",".join(["nan"] * n_leads)
    table = pd.read_csv(tmp_path / "holter.csv", dtype=np.float32)
    np.testing.assert_array_equal(table.to_numpy(), rounded)

    truth = wfdb.rdann(str(tmp_path / "holter"), "atr")
    np.testing.assert_array_equal(truth.sample, ecg.beats["sample"])
    assert truth.symbol == ecg.beats["symbol"].tolist()
    assert truth.fs == 250
    assert written == (
        tmp_path / "holter.csv",
        tmp_path / "holter.atr",
        22_500,
        ecg.beats["symbol"].value_counts().to_dict(),
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["holter.atr", "holter.csv"]


def test_csv_is_the_same_for_any_chunk(tmp_path):
    for name, chunk in (("whole", None), ("parts", 1_111)):
        write_csv(synthetic(60, gaps=1, chunk=chunk), tmp_path / f"{name}.csv")
    assert (tmp_path / "whole.csv").read_bytes() == (tmp_path / "parts.csv").read_bytes()


def test_rows_written_twice_are_there_once(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("II\n")
    block = np.array([[0.5], [-0.0004], [np.nan]], np.float32)
    for _ in range(2):
        assert module._write_rows(block, str(path), 3) == len("II\n0.5\n0\nnan\n")
    assert path.read_text() == "II\n0.5\n0\nnan\n"


def test_csv_without_beats(tmp_path):
    write_csv(synthetic(20), tmp_path / "a.csv")
    written = write_csv(synthetic(0.1), tmp_path / "a.csv", overwrite=True)
    assert (written.annotations, written.rows, written.beats) == (None, 25, {})
    # The truth of the file that was there before is gone with it.
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_csv_is_not_overwritten_unasked(tmp_path):
    ecg = synthetic(20)
    (tmp_path / "a.atr").write_text("mine")
    with pytest.raises(InputError, match=r"a\.atr from before"):
        write_csv(ecg, tmp_path / "a.csv")
    assert (tmp_path / "a.atr").read_text() == "mine"
    write_csv(ecg, tmp_path / "a.csv", overwrite=True)
    assert wfdb.rdann(str(tmp_path / "a"), "atr").ann_len == len(ecg.beats)


def test_failure_leaves_no_half_file(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(module, "_write_rows", fail)
    with pytest.raises(InputError, match=r"a\.csv: found disk full"):
        write_csv(synthetic(20), tmp_path / "a.csv")
    assert list(tmp_path.iterdir()) == []


def test_csv_in_the_place_of_a_folder(tmp_path):
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(InputError, match=r"a\.csv: found .*directory"):
        write_csv(synthetic(20), tmp_path / "a.csv", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


@pytest.mark.parametrize("name", ["a b.csv", "a.b.csv", "a.txt", "a", ".csv", "no/folder.csv"])
def test_csv_name_refused(tmp_path, name):
    with pytest.raises(InputError, match=r"path: found the file name|no such folder"):
        write_csv(synthetic(1), tmp_path / name)
    assert list(tmp_path.iterdir()) == []
