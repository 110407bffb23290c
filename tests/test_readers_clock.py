"""Time columns: units, rates, jitter, jumps, and clocks that are none."""

import dask
import numpy as np
import pytest

import ecg_dask
from ecg_dask import InputError


@pytest.fixture(autouse=True)
def _one_thread():
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture
def read(tmp_path):
    """Write a time column beside a lead that counts rows from 1, and read it."""

    def read(times, header="time", **options):
        path = tmp_path / "rec.csv"
        lines = [f"{time},{row}" for row, time in enumerate(times, 1)]
        path.write_text("\n".join([f"{header},ecg" if header else "#", *lines]))
        return ecg_dask.read(path, **options)

    return read


def lengths_of_gaps(recording):
    """Return {row after a gap: missing samples}, and check that no row was lost or moved."""
    signal = recording.signal.compute()[:, 0]
    kept = np.flatnonzero(~np.isnan(signal))
    np.testing.assert_array_equal(signal[kept], np.arange(1, len(kept) + 1))
    gaps = np.diff(kept) - 1
    return {int(row) + 1: int(gaps[row]) for row in np.flatnonzero(gaps)}


@pytest.mark.parametrize(
    ("header", "form", "fs"),
    [
        ("time", "{0:.3f}", 250),
        ("Time", "{0:.6f}", 250),
        ("timestamp", "{1:.0f}", 250),
        ("t", "{2:.0f}", 250),
        ("elapsed time", "{3:.0f}", 250),
        ("time (ms)", "{1:.0f}", 250),
        ("t_ms", "{1:.0f}", 250),
        ("time_us", "{2:.0f}", 250),
        ("[s]", "{0:.3f}", 250),
        ("Time [µs]", "{2:.0f}", 250),
        ("millis", "{1:.0f}", 250),
        ("timestamp_ns", "{3:.0f}", 250),
        # A unit in the name holds, however odd the rate is.
        ("time (ms)", "{0:.3f}", 250_000),
        ("Time (min)", "{4:.9f}", 250),
        ("time_h", "{5:.11f}", 250),
        ("", "{0:.3f}", 250),
        ("col", "{1:.0f}", 250),
    ],
)
def test_units(read, header, form, fs):
    seconds = np.arange(50) / 250 + 3
    times = [form.format(t, t * 1e3, t * 1e6, t * 1e9, t / 60, t / 3600) for t in seconds]
    recording = read(times, header)
    assert recording.fs == fs
    assert recording.leads == ("ecg" if header else "lead0",)
    assert recording.notes == ()
    assert lengths_of_gaps(recording) == {}


def test_epoch(read):
    assert read([f"{1_700_000_000 + i / 250:.3f}" for i in range(50)]).fs == 250
    assert read([f"{1_700_000_000_000 + i * 4}" for i in range(50)]).fs == 250


def test_the_given_rate_tells_the_unit(read):
    # 0.05 is 20 Hz in seconds and 20 kHz in milliseconds.
    times = [f"{i * 0.05:.2f}" for i in range(50)]
    assert read(times).fs == 20
    assert read(times, fs=20_000).fs == 20_000
    with pytest.raises(InputError, match="1000 Hz given and 20 Hz in the time column time"):
        read(times, fs=1000)


def test_no_plausible_unit(read):
    with pytest.raises(InputError, match=r"column time: found a usual step of 1e\+11"):
        read([i * 10**11 for i in range(50)])


@pytest.mark.parametrize("fs", [125, 250, 256, 360, 500, 512, 1000, 952, 1100])
@pytest.mark.parametrize("digits", [3, 6])
def test_rates_from_rounded_times(read, fs, digits):
    recording = read([f"{i / fs:.{digits}f}" for i in range(2000)])
    assert recording.fs == fs
    assert recording.notes == ()
    assert lengths_of_gaps(recording) == {}


def test_a_rate_that_is_not_whole_is_noted(read):
    recording = read([f"{i / 128.4:.9f}" for i in range(500)])
    assert recording.fs == pytest.approx(128.4, rel=1e-9)
    assert recording.notes == ("fs of 128.4 Hz is the slope of the time column time",)


def test_whole_rates_are_taken_only_within_the_uncertainty(read):
    # Steps of 2.778 ms are 359.97 Hz; three of them cannot be told from 360 Hz.
    assert read([f"{i * 0.002778:.6f}" for i in range(4)]).fs == 360
    recording = read([f"{i * 0.002778:.6f}" for i in range(500)])
    assert recording.fs == pytest.approx(1 / 0.002778, rel=1e-9)


def test_given_rates(read):
    times = [f"{i / 250:.3f}" for i in range(500)]
    recording = read(times, fs=252)
    assert recording.fs == 252
    assert recording.notes == ("fs is 252 Hz as given; the time column time says 250 Hz",)
    assert read(times, fs=250).notes == ()
    with pytest.raises(InputError, match=r"fs of .*rec.csv: found 253 Hz given and 250 Hz"):
        read(times, fs=253)


@pytest.mark.parametrize("width", [0.02, 0.2, 0.4])
def test_jitter_is_no_jump(read, width):
    random = np.random.default_rng(5)
    n = 3000
    times = (np.arange(n) + random.uniform(-width, width, n)) * 4000
    recording = read([f"{t:.0f}" for t in times], "time_us")
    assert recording.fs == pytest.approx(250, rel=1e-3)
    assert lengths_of_gaps(recording) == {}


@pytest.mark.parametrize("width", [0, 0.02, 0.1])
def test_jumps_become_missing_samples(read, width):
    random = np.random.default_rng(5)
    n = 3000
    lost = {700: 1, 1200: 255, 1201: 3, 2999: 10_000}
    rows = np.arange(n) + np.sum([(np.arange(n) >= row) * k for row, k in lost.items()], axis=0)
    times = (rows + random.uniform(-width, width, n)) * 4000
    recording = read([f"{t:.0f}" for t in times], "time_us", chunk=500)
    assert lengths_of_gaps(recording) == lost
    assert recording.fs == pytest.approx(250, rel=1e-4)
    assert recording.notes[-1] == "4 jumps in the time column became 10259 missing samples"


def test_samples_stay_proportional_to_time_over_many_jumps(read):
    random = np.random.default_rng(3)
    rows = np.cumsum(1 + (random.random(20_000) < 0.004) * random.integers(1, 50, 20_000))
    recording = read([f"{(row - rows[0]) / 360:.3f}" for row in rows])
    assert recording.fs == 360
    assert recording.n_samples == rows[-1] - rows[0] + 1
    signal = recording.signal.compute()[:, 0]
    np.testing.assert_array_equal(np.flatnonzero(~np.isnan(signal)), rows - rows[0])


def test_late_stamps_that_catch_up_are_no_jump(read):
    late = np.zeros(1000)
    late[500:504] = [14, 11, 7.5, 3.9]
    late[800] = -3
    recording = read([f"{i * 4 + late[i]:.1f}" for i in range(1000)], "t_ms")
    assert lengths_of_gaps(recording) == {}
    assert recording.fs == 250
    assert recording.notes == ()


def test_rows_that_share_seconds(read):
    times = [f"07:{30 + i // 3000:02d}:{i // 50 % 60:02d}" for i in range(20, 5020)]
    recording = read(times)
    assert recording.fs == 50
    assert lengths_of_gaps(recording) == {}
    # Seven seconds are missing between two seconds of the clock.
    gone = times[:1030] + times[1380:]
    assert lengths_of_gaps(read(gone)) == {1030: 350}


def test_midnight(read):
    now = np.datetime64("2016-06-11T23:59:59.500") + (np.arange(500) * 4).astype("timedelta64[ms]")
    times = [str(time)[11:] for time in now]
    # A partition a row puts midnight between two of them.
    for chunk in (None, 1):
        recording = read(times, chunk=chunk)
        assert recording.fs == 250
        assert lengths_of_gaps(recording) == {}
    assert lengths_of_gaps(read(times[:100] + times[150:])) == {100: 50}


def test_elapsed_times_get_hours_after_an_hour(read):
    seconds = np.arange(3590, 3610, 0.02)
    times = [
        f"{s // 60:.0f}:{s % 60:05.2f}" if s < 3600 else f"1:00:{s - 3600:05.2f}" for s in seconds
    ]
    for chunk in (None, 7):
        recording = read(times, "Elapsed", chunk=chunk)
        assert recording.fs == 50
        assert lengths_of_gaps(recording) == {}


def test_columns_named_min_and_max_are_leads(tmp_path):
    path = tmp_path / "rec.csv"
    path.write_text("t_ms,min,max\n" + "".join(f"{i * 4},{i % 7},{i % 9}\n" for i in range(50)))
    assert ecg_dask.read(path).leads == ("min", "max")


def test_two_days_of_a_clock_without_dates(read):
    seconds = np.arange(0, 2.4 * 86_400, 50)
    times = [f"{s // 3600 % 24:02.0f}:{s // 60 % 60:02.0f}:{s % 60:02.0f}" for s in seconds]
    for chunk in (None, 100):
        recording = read(times, chunk=chunk)
        assert recording.fs == pytest.approx(0.02)
        assert recording.duration_s == pytest.approx(2.4 * 86_400, abs=50)


def test_back_in_time(read):
    times = [i * 4 - 12 * (i == 70) for i in range(100)]
    for chunk in (1, 13, None):
        with pytest.raises(InputError, match=r"line 72, column t_ms: found a time 0.008 s before"):
            read(times, "t_ms", chunk=chunk)


def test_more_than_a_week(read):
    week = 7 * 86_400
    for chunk in (1, 13, None):
        with pytest.raises(InputError, match=r"line 72, column time: found a time 7 days after"):
            read([f"{i / 50 + week * (i >= 70):.3f}" for i in range(100)], chunk=chunk)
    recording = read([f"{i / 50 + (week - 1) * (i >= 70):.3f}" for i in range(100)])
    assert recording.n_samples == 100 + (week - 1) * 50


def test_bursts_are_refused(read):
    with pytest.raises(InputError, match="column t_ms: found 29 jumps in 300 rows, as when rows"):
        read([f"{i // 10 * 40 + i % 10 * 0.1:.1f}" for i in range(300)], "t_ms")


def test_one_row_and_a_time_that_stands_still(read):
    with pytest.raises(InputError, match="too few rows in the time column time"):
        read([5])
    assert read([5], fs=100).n_samples == 1
    with pytest.raises(InputError, match="too few rows in the time column time"):
        read([5] * 20)
    assert read([5] * 20, fs=100).n_samples == 20
    assert read([0, 0.004]).fs == 250


def test_other_times_are_left_out(tmp_path):
    path = tmp_path / "rec.csv"
    path.write_text(
        "date,clock,t_ms,ecg\n"
        + "".join(f"2016-06-11,07:03:{i / 100:05.2f},{i * 10},{i}\n" for i in range(50))
    )
    recording = ecg_dask.read(path)
    assert recording.leads == ("ecg",)
    assert recording.fs == 100
    assert recording.notes == (
        "Column t_ms was left out: another time",
        "Column date was left out: no numbers",
    )
