"""Ends law: every signal ends in a result or in an error that says what to do."""

import dask.array as da
import numpy as np
import pytest
from signals import SHORT, counts

from ecg_dask import Beats, Detector, InputError, Recording, find_beats


@pytest.mark.parametrize("n_samples", [0, 1, 2, 3, 50])
@pytest.mark.parametrize("value", [0.0, 1.0, np.nan, np.inf])
def test_signals_without_beats(n_samples, value):
    x = np.full((n_samples, 2), value, np.float32)
    beats = find_beats(Recording(da.from_array(x, chunks=-1), 250))
    assert len(beats.table.compute()) == 0
    assert beats.waves.compute().shape == (0, 2, 174)
    records = beats.records.compute()
    assert records.loc[0, "missing"] == (0 if np.isfinite(value) else n_samples)
    assert len(beats.where(lambda table: table["quality"] > 0.5).table.compute()) == 0


@pytest.mark.parametrize("n_beats", [1, 2])
def test_one_and_two_beats(n_beats):
    x = np.zeros((1000, 1), np.float32)
    x[[300, 600][:n_beats]] = 1
    table = find_beats(Recording(da.from_array(x, chunks=-1), 250)).table.compute()
    assert table["sample"].tolist() == [300, 600][:n_beats]
    assert table["split"].tolist() == [["test"], ["train", "test"]][n_beats - 1]


def test_a_signal_with_infinite_samples_keeps_its_other_beats():
    x, at = counts(2000)
    plain = find_beats(Recording(da.from_array(x, chunks=-1), 100), SHORT).table.compute()
    x[at[4] + 30] = np.inf
    table = find_beats(Recording(da.from_array(x, chunks=-1), 100), SHORT).table.compute()
    assert len(table) >= len(plain) - 1
    assert np.isfinite(table["amplitude"]).all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"signal": np.zeros((5, 1))}, "ndarray"),
        ({"signal": da.zeros(5)}, "2-D"),
        ({"signal": da.zeros((5, 1), dtype="int32")}, "int32"),
        ({"signal": da.zeros((5, 0))}, "no leads"),
        ({"fs": 0}, "positive"),
        ({"fs": float("nan")}, "positive"),
        ({"fs": "fast"}, "positive"),
        ({"leads": ("a", "b")}, "one name a column"),
        ({"name": ""}, "empty"),
    ],
)
def test_recordings_that_cannot_be(arguments, words):
    with pytest.raises(InputError, match=words):
        Recording(**{"signal": da.zeros((5, 1)), "fs": 250, **arguments})


@pytest.mark.parametrize(
    "options",
    [
        {"wavelet_s": 0},
        {"threshold": -1.0},
        {"refine_s": 0.2},
        {"embed": "row"},
        {"median_s": 100},
        {"cell_s": float("nan")},
        {"before_s": "1"},
    ],
)
def test_detectors_that_cannot_be(options):
    with pytest.raises(InputError, match=f"Detector.{next(iter(options))}.*allowed"):
        Detector(**options)


def test_a_rate_too_low_for_a_qrs_complex():
    with pytest.raises(InputError, match="50 to 20000 Hz"):
        find_beats(Recording(da.zeros((500, 1)), 25))


def test_beats_of_several_rates_are_not_joined():
    parts = [find_beats(Recording(da.zeros((500, 1)), fs)) for fs in (250, 360)]
    with pytest.raises(InputError, match="360 Hz"):
        Beats.concat(parts)
    with pytest.raises(InputError, match="no beats"):
        Beats.concat([])
