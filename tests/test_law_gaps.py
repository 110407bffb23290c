"""Gap law: missing samples cost only the beats beside them."""

import dask.array as da
import mitdb
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from signals import SHORT, counts, with_gaps

from ecg_dask import Detector, Recording, find_beats
from ecg_dask.segment.detector import detect

FS = 100.0


def beats(x, fs=FS, detector=SHORT):
    return detect(np.ascontiguousarray(x, np.float32), 0, (0, len(x)), detector, fs).sample


@given(st.integers(0, 20), st.integers(0, 2400), st.integers(1, 300))
@settings(max_examples=60, deadline=None)
def test_both_sides_of_a_gap_are_recordings_of_their_own(seed, start, length):
    """With a level that does not adapt across it, a gap's edge is exactly a record's end."""
    x = counts(2500, seed=seed)[0][:, 0]
    stop = min(start + length, len(x))
    # A gap longer than the level's median: no cell of the other side takes part.
    gap = with_gaps(np.concatenate([x[:stop], np.zeros(600, np.float32), x[stop:]]), [])
    gap[start : stop + 600] = np.nan
    got = beats(gap)
    before, behind = beats(x[:start]), beats(x[stop:]) + stop + 600
    # Cells lie at multiples of their length: the right side's are those of the joined signal
    # only where it starts at one.
    np.testing.assert_array_equal(got[got < start], before)
    if (stop + 600) % SHORT.widths(FS).cell == 0:
        np.testing.assert_array_equal(got[got >= stop], behind)


def test_gaps_in_mitdb_cost_only_beats_beside_them(data_dir):
    """100 gaps of 1 sample to 10 s; beats farther than 0.5 s change for at most one of them."""
    rng = np.random.default_rng(4)
    disturbed = lost = 0
    records = mitdb.names(data_dir)
    for i in range(100):
        x = mitdb.first_lead(data_dir, records[i % len(records)])
        x = x[rng.integers(0, len(x) - 60_000) :][:60_000]
        length = int(10 ** rng.uniform(0, np.log10(3600)))
        start = int(rng.integers(0, len(x) - length))
        plain = beats(x, 360.0, Detector())
        got = beats(with_gaps(x, [(start, start + length)]), 360.0, Detector())

        def far(samples, start=start, stop=start + length):
            return samples[(samples < start - 180) | (samples >= stop + 180)]

        disturbed += not np.array_equal(far(plain), far(got))
        lost += plain.size - got.size
        assert np.isnan(with_gaps(x, [(start, start + length)])[got]).sum() == 0
    assert disturbed <= 1
    assert lost > 0


def test_a_missing_sample_in_a_window_makes_a_beat_incomplete():
    x, at = counts(2000, n_leads=2)
    x[at[5] + 12, 1] = np.nan
    table = find_beats(Recording(da.from_array(x, chunks=-1), FS), SHORT).table.compute()
    near = (table["sample"] - at[5]).abs() < 3
    assert near.sum() == 1
    assert not table["complete"][near].any()
    # The second lead's sample is none of the first lead's: no interval is cut.
    assert table["rr_prev_s"].isna().sum() == 1


def test_what_was_lost_is_counted():
    x = with_gaps(counts(3000)[0], [(0, 10), (990, 1010), (2000, 2001)])
    beats_ = find_beats(Recording(da.from_array(x, chunks=(1000, 1)), FS, name="r"), SHORT)
    table, records = beats_.table.compute(), beats_.records.compute()
    assert records.loc[0, ["missing", "gaps"]].tolist() == [31, 3]
    assert records.loc[0, "samples"] == 3000
    assert records.loc[0, "beats"] == len(table)
    assert table["rr_prev_s"].isna().sum() == 3


def test_a_clipped_beat_stays_and_is_flagged():
    x, at = counts(4000, fs=250.0, noise=1.0, faintest=1.0)
    plain = detect(x[:, 0].copy(), 0, (0, len(x)), SHORT, 250.0)
    height = x[at[7], 0]
    near = slice(at[7] - 12, at[7] + 13)
    limit = 0.6 * abs(height)
    x[near, 0] = np.clip(x[near, 0], -limit, limit)
    clipped = detect(x[:, 0].copy(), 0, (0, len(x)), SHORT, 250.0)
    np.testing.assert_allclose(clipped.sample, plain.sample, atol=5)
    place = int(np.argmin(np.abs(clipped.sample - at[7])))
    assert clipped.quality[place] <= 0.5
    assert np.delete(clipped.quality, place).min() > 0.5
