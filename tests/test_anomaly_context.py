"""What a record's table tells of its beats: scale, timing, and which beats are usual."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from anomaly_beats import make_table
from hypothesis import given, settings
from hypothesis import strategies as st

from ecg_dask.anomaly import context
from ecg_dask.anomaly.context import contexts, runs_of, split_runs, timing, told, usual_beats


def cut(table: pd.DataFrame, cuts: list[int]) -> list[context.Context]:
    """Return the contexts of a table's partitions."""
    edges = [0, *cuts, len(table)]
    return contexts([told(table.iloc[start:stop]) for start, stop in pairwise(edges)])


def joined(parts: list[context.Context], name: str) -> np.ndarray:
    return np.concatenate([getattr(part, name) for part in parts])


def irregular(n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rr_s = 0.8 * np.exp(0.05 * rng.normal(size=n))
    rr_s[rng.random(n) < 0.1] *= 0.6
    rr_s[rng.random(n) < 0.05] = np.nan
    return rr_s


def naive_timing(rr_s: list[float]) -> tuple[list[float], list[bool]]:
    """The same by loops over windows whose ends are repeated."""
    known = [value == value and value > 0 for value in rr_s]
    typical = np.median([value for value, k in zip(rr_s, known, strict=True) if k])
    log = [float(np.log(v if k else typical)) for v, k in zip(rr_s, known, strict=True)]

    def window(values: list[float], at: int, length: int) -> list[float]:
        last = len(values) - 1
        return sorted(
            values[min(max(i, 0), last)] for i in range(at - length // 2, at + length // 2 + 1)
        )

    ahead = [window(log, i, 31)[15] - log[i] if known[i] else 0.0 for i in range(len(log))]
    spread = [1.4826 * window([abs(a) for a in ahead], i, 61)[30] for i in range(len(log))]
    early = [a / (0.05 + 0.25 * s) for a, s in zip(ahead, spread, strict=True)]
    # Rank 54 of 61 is the 90th percentile.
    on_time = [window(log, i, 61)[54] - log[i] < 0.2 for i in range(len(log))]
    return early, on_time


@pytest.mark.parametrize("n", [1, 2, 5, 200])
def test_timing_is_that_of_obvious_loops(n: int) -> None:
    rr_s = irregular(n, seed=n)
    rr_s[n // 2] = 0.8
    early, on_time = timing(rr_s)
    expected, punctual = naive_timing(rr_s.tolist())
    np.testing.assert_allclose(early, expected, rtol=1e-12, atol=1e-12)
    assert on_time.tolist() == punctual


def test_an_early_beat_is_early_and_a_late_one_is_not() -> None:
    rr_s = np.full(100, 0.8)
    rr_s[0] = np.nan
    rr_s[50], rr_s[51] = 0.5, 1.1
    early, on_time = timing(rr_s)
    assert early.argmax() == 50
    assert early[50] > 6
    assert early[51] < 0
    assert early[0] == 0
    assert np.flatnonzero(~on_time).tolist() == [50]


def test_in_bigeminy_the_long_intervals_are_on_time() -> None:
    rr_s = np.tile([0.5, 0.5, 1.1], 40)
    _, on_time = timing(rr_s)
    assert on_time.tolist() == [False, False, True] * 40


def test_no_intervals() -> None:
    early, on_time = timing(np.empty(0))
    assert early.size == on_time.size == 0
    early, _ = timing(np.full(3, np.nan))
    assert early.tolist() == [0, 0, 0]


def test_usual_beats_are_on_time_complete_and_for_training_while_there_are_enough() -> None:
    on_time, complete, train = (np.ones(50, bool) for _ in range(3))
    on_time[:10], complete[10:20], train[40:] = False, False, False
    assert np.flatnonzero(usual_beats(on_time, complete, train)).tolist() == list(range(20, 40))
    on_time[20] = False
    expected = [*range(10), *range(20, 40)]
    assert np.flatnonzero(usual_beats(on_time, complete, train)).tolist() == expected
    train[:] = False
    assert np.array_equal(usual_beats(on_time, complete, train), complete)


@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(0, 90), max_size=5).map(sorted))
def test_contexts_do_not_depend_on_partitions(cuts: list[int]) -> None:
    table = pd.concat([make_table(60, "a"), make_table(30, "b")], ignore_index=True)
    table["rr_prev_s"] = irregular(90, seed=1)
    whole, parts = cut(table, []), cut(table, cuts)
    for name in ("scale", "early", "on_time", "usual", "sample"):
        assert joined(parts, name).tobytes() == joined(whole, name).tobytes()
    assert [len(part.scale) for part in parts] == np.diff([0, *cuts, 90]).tolist()


def test_a_record_is_scaled_by_the_median_height_of_its_complete_beats() -> None:
    table = pd.concat([make_table(5, "a"), make_table(4, "b"), make_table(2, "c")])
    table["amplitude"] = np.float32([1, -3, 2, 100, np.nan, 0, 0, 0, 0, 7, 9])
    table["complete"] = [True] * 3 + [False] + [True] * 5 + [False] * 2
    for cuts in ([], [2, 7], [4, 5]):
        assert joined(cut(table, cuts), "scale").tolist() == [2.0] * 5 + [1.0] * 6


def test_records_are_told_apart() -> None:
    table = pd.concat([make_table(40, "a"), make_table(40, "b")], ignore_index=True)
    table.loc[40:, "rr_prev_s"] = 0.4
    (both,) = cut(table, [])
    (alone,) = cut(table.iloc[40:], [])
    assert np.array_equal(both.early[40:], alone.early)
    assert both.runs == (("a", 40), ("b", 40))


def test_a_sample_of_the_usual_beats_is_even(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "LARGEST_SAMPLE", 20)
    (part,) = cut(make_table(100), [])
    assert part.usual.sum() == 75
    assert np.flatnonzero(part.sample).tolist() == list(range(0, 75, 4))


def test_runs_of_what_is_kept() -> None:
    runs = (("a", 3), ("b", 2), ("c", 1))
    kept = np.array([True, False, True, False, False, True])
    assert runs_of(runs, kept) == (("a", 2), ("c", 1))
    parts = split_runs(np.arange(6), runs)
    assert [(name, part.tolist()) for name, part in parts] == [
        ("a", [0, 1, 2]),
        ("b", [3, 4]),
        ("c", [5]),
    ]
