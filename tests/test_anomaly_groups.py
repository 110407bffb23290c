"""Groups of anomalies: against a loop that joins groups one by one, and whatever may be odd."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecg_dask import group_anomalies
from ecg_dask.anomaly import group_facts, groups, reason_counts


def table_of(z, anomaly, record=None):
    z = np.asarray(z, dtype=np.float32)
    z = z[:, None] if z.ndim == 1 else z
    table = pd.DataFrame(
        {
            "record": pd.Series(["a"] * len(z) if record is None else list(record), dtype="str"),
            "sample": 200 * np.arange(len(z), dtype=np.int64),
            "anomaly": np.asarray(anomaly, dtype=bool),
        }
    )
    table = table.assign(score_shape=1.0, score_timing=0.7, score_amplitude=0.0)
    return table.assign(**{f"z{i}": z[:, i] for i in range(z.shape[1])})


def within(parts, x):
    """The squared distances of points from the centroid of their part, summed."""
    return sum(((x[part] - x[part].mean(axis=0)) ** 2).sum() for part in map(list, parts))


def naive_parts(x, width):
    """Join the two parts that add least, again and again; take the fewest that are narrow."""
    parts = [{i} for i in range(len(x))]
    fewest = parts
    while True:
        if len(parts) <= 6 and (len(fewest) > 6 or within(parts, x) / len(x) <= width):
            fewest = parts
        if len(parts) == 1:
            return fewest
        added = [
            (within([parts[i] | parts[j]], x) - within([parts[i], parts[j]], x), i, j)
            for i, j in combinations(range(len(parts)), 2)
        ]
        _, i, j = min(added)
        joined = parts[i] | parts[j]
        parts = [part for k, part in enumerate(parts) if k not in (i, j)] + [joined]


def parts_of(group):
    number = group.to_numpy(dtype=np.int64, na_value=0)
    return {frozenset(np.flatnonzero(number == i).tolist()) for i in range(1, number.max() + 1)}


def blobs(n, n_blobs, seed, spread=1.0):
    """Usual beats around (7, 7, 7) and, after them, anomalies in blobs around other places."""
    rng = np.random.default_rng(seed)
    usual = 7 + rng.normal(size=(40, 3))
    centres = 7 + rng.normal(scale=10, size=(n_blobs, 3))
    odd = centres[rng.integers(n_blobs, size=n)] + spread * rng.normal(size=(n, 3))
    return table_of(np.vstack([usual, odd]), np.arange(40 + n) >= 40)


def coordinates(table):
    z = table[["z0", "z1", "z2"]].to_numpy(dtype=np.float64)
    usual = ~table["anomaly"].to_numpy()
    x = z - np.median(z[usual], axis=0)
    return x[~usual], 1.4826**2 * np.median((x[usual] ** 2).sum(axis=1))


@pytest.mark.parametrize("spread", [0.1, 0.7, 3.0])
@pytest.mark.parametrize("n_blobs", [1, 2, 4, 9])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 25])
def test_the_groups_are_those_of_an_obvious_loop(n, n_blobs, spread):
    table = blobs(n, n_blobs, seed=n + n_blobs, spread=spread)
    expected = naive_parts(*coordinates(table))
    found = parts_of(group_anomalies(table))
    assert found == {frozenset(40 + i for i in part) for part in expected}


def test_a_beat_stays_with_those_it_was_joined_to_though_another_centroid_is_nearer():
    table = blobs(25, 2, seed=1, spread=2.0)
    x, width = coordinates(table)
    expected = {frozenset(40 + i for i in part) for part in naive_parts(x, width)}
    found = parts_of(group_anomalies(table))
    assert found == expected
    centroids = {part: x[[i - 40 for i in part]].mean(axis=0) for part in found}
    nearest = [min(found, key=lambda part: ((one - centroids[part]) ** 2).sum()) for one in x]
    assert not all(40 + i in part for i, part in enumerate(nearest))


@pytest.mark.parametrize("n_blobs", [1, 3, 5])
def test_narrow_blobs_are_found_and_only_they(n_blobs):
    table = blobs(60, n_blobs, seed=3, spread=0.1)
    assert group_anomalies(table).max() == n_blobs


def test_equal_places_in_latent_space_are_told_apart_by_score():
    rng = np.random.default_rng(0)
    table = table_of(rng.normal(size=(140, 3)), np.arange(140) >= 100)
    table["score_timing"] = np.where(np.arange(140) < 120, 0.7, 5000.0)
    table["score_shape"] = np.where(np.arange(140) < 100, 1.0, 50.0)
    assert group_anomalies(table)[100:].tolist() == [1] * 20 + [2] * 20


def test_one_that_is_like_no_other_has_a_group_of_its_own():
    rng = np.random.default_rng(0)
    z = np.vstack([rng.normal(size=(100, 2)), 0.5 * rng.normal(size=(30, 2)) + 5, [[-40, 0]]])
    group = group_anomalies(table_of(z, np.arange(131) >= 100))
    assert group.tolist()[100:] == [1] * 30 + [2]


def test_usual_beats_that_the_threshold_missed_do_not_widen_the_groups():
    rng = np.random.default_rng(0)
    odd = 0.1 * rng.normal(size=(60, 2)) + np.repeat([[9, 0], [0, 9], [9, 9]], 20, axis=0)
    usual = 0.1 * rng.normal(size=(100, 2))
    usual[:40] += 50
    group = group_anomalies(table_of(np.vstack([usual, odd]), np.arange(160) >= 100))
    assert group.max() == 3


def test_more_anomalies_than_are_clustered_go_to_the_nearest_centroid(monkeypatch):
    monkeypatch.setattr(groups, "MOST_CLUSTERED", 15)
    table = blobs(80, 4, seed=5)
    x, width = coordinates(table)
    chosen = [int(79 * k / 14) for k in range(15)]
    parts = [[chosen[i] for i in part] for part in naive_parts(x[chosen], width)]
    expected = {frozenset(part): set(part) for part in parts}
    for i in set(range(80)) - set(chosen):
        near = min(parts, key=lambda part: ((x[i] - x[part].mean(axis=0)) ** 2).sum())
        expected[frozenset(near)].add(i)
    found = parts_of(group_anomalies(table))
    assert found == {frozenset(40 + i for i in part) for part in expected.values()}


def test_many_anomalies_are_grouped_in_little_memory():
    rng = np.random.default_rng(1)
    odd = np.repeat(20 * np.eye(3), [60_000, 10_000, 30_000], axis=0)
    z = np.vstack([np.zeros((40, 3)), odd]) + 0.1 * rng.normal(size=(100_040, 3))
    group = group_anomalies(table_of(z, np.arange(100_040) >= 40))
    assert group[40:].tolist() == [1] * 60_000 + [3] * 10_000 + [2] * 30_000


def test_records_are_told_from_their_own_usual_beats():
    rng = np.random.default_rng(2)
    shift = np.repeat([0.0, 30.0], [90, 30])[:, None]
    z = 0.1 * rng.normal(size=(120, 2)) + shift
    anomaly = np.arange(120) % 6 == 0
    z[anomaly] += [4.0, -4.0]
    table = table_of(z, anomaly, np.repeat(["a", "b"], [90, 30]))
    assert group_anomalies(table)[anomaly].tolist() == [1] * 20
    alone = table.assign(record="a")
    assert group_anomalies(alone)[anomaly].tolist() == [1] * 15 + [2] * 5


def test_a_record_of_anomalies_alone_is_told_from_their_median():
    z = np.concatenate(
        [np.linspace(-1, 1, 20), np.full(4, 3.0), np.full(5, 50.0), np.full(2, -9.0)]
    )
    anomaly = np.arange(31) >= 20
    table = table_of(z, anomaly, np.repeat(["a", "b", "c"], [24, 5, 2]))
    assert group_anomalies(table)[anomaly].tolist() == [2] * 4 + [1] * 7


NULLS = [np.nan, 3.0, np.nan, 5.0, 5.0]


@pytest.mark.parametrize(
    ("z", "anomaly", "expected"),
    [
        ([], [], []),
        ([1.0], [False], [None]),
        ([1.0], [True], [1]),
        ([np.nan], [True], [None]),
        ([1.0, 2.0], [True, True], [1, 2]),
        ([2.0, 2.0], [True, True], [1, 1]),
        ([0.0, 2.0, 2.0], [False, True, True], [None, 1, 1]),
        ([0.0, 2.0, 9.0, 9.0], [False, True, True, True], [None, 2, 1, 1]),
        ([0.0, 1.0, 2.0], [False, False, False], [None] * 3),
        (NULLS, [True, False, False, True, True], [None, None, None, 1, 1]),
        ([4.0] * 50, [True] * 50, [1] * 50),
        ([4.0] * 50, [False] * 20 + [True] * 30, [None] * 20 + [1] * 30),
        # Ten places that are equally far from each other, and room for six groups.
        (np.eye(10), [True] * 10, [1] * 5 + [2, 3, 4, 5, 6]),
    ],
)
def test_little_and_odd_is_a_result(z, anomaly, expected):
    group = group_anomalies(table_of(z, anomaly))
    assert str(group.dtype) == "Int16"
    assert group.name == "group"
    found = [None if value is pd.NA else value for value in group]
    if len(expected) == 10:
        # Which of equal steps are done first is the library's choice, how many is not.
        assert sorted(set(found)) == [1, 2, 3, 4, 5, 6]
    else:
        assert found == expected


def test_a_table_without_coordinates_has_no_groups():
    table = table_of(np.empty((3, 0)), [True] * 3)
    assert group_anomalies(table).isna().all()


def test_the_index_stays():
    table = blobs(10, 2, seed=0).set_index(np.arange(50) % 7)
    group = group_anomalies(table)
    assert group.index.equals(table.index)
    assert (
        group.to_numpy()[40:].tolist()
        == group_anomalies(table.reset_index(drop=True))[40:].tolist()
    )


@st.composite
def tables(draw):
    """Few places, so that many are equal, in several records; some of them unknown."""
    n = draw(st.integers(0, 40))
    values = st.sampled_from([0.0, 0.5, 1.0, 7.0, -3.0, 100.0, np.nan])
    z = draw(st.lists(st.tuples(values, values), min_size=n, max_size=n))
    anomaly = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    record = sorted(draw(st.lists(st.sampled_from("abc"), min_size=n, max_size=n)))
    return table_of(np.reshape(np.array(z, dtype=float), (n, 2)), anomaly, record)


@settings(max_examples=200)
@given(tables(), st.randoms(use_true_random=False))
def test_groups_are_numbered_by_size_whatever_the_order_of_the_rows(table, random):
    group = group_anomalies(table)
    known = np.isfinite(table[["z0", "z1"]]).all(axis=1)
    assert group.notna().equals(table["anomaly"] & known)
    counts = group.value_counts().sort_index()
    assert counts.index.tolist() == list(range(1, len(counts) + 1))
    assert len(counts) <= 6
    firsts = [group[group == number].index[0] for number in counts.index]
    told = list(zip(-counts, firsts, strict=True))
    assert told == sorted(told)
    order = list(range(len(table)))
    random.shuffle(order)
    shuffled = group_anomalies(table.iloc[order])
    assert shuffled.sort_index().equals(group)


def test_facts_of_groups_and_reasons():
    table = table_of(np.zeros(8), [True] * 7 + [False], list("aabbbaab"))
    words = ["shape", "timing", "shape", "shape", "timing", "amplitude", "shape", None]
    table["reason"] = pd.Series(words, dtype="str")
    table["group"] = pd.array([2, 2, 1, 1, 1, 1, pd.NA, pd.NA], dtype="Int16")
    assert group_facts(table) == [
        {
            "group": 1,
            "beats": 4,
            "share": 4 / 6,
            "reasons": {"shape": 2, "timing": 1, "amplitude": 1},
            "records": {"b": 3, "a": 1},
        },
        {
            "group": 2,
            "beats": 2,
            "share": 2 / 6,
            "reasons": {"shape": 1, "timing": 1, "amplitude": 0},
            "records": {"a": 2},
        },
    ]
    assert list(group_facts(table)[0]["records"]) == ["b", "a"]
    assert reason_counts(table) == {"shape": 4, "timing": 2, "amplitude": 1}
    assert group_facts(table[:0]) == []
    assert reason_counts(table[:0]) == {"shape": 0, "timing": 0, "amplitude": 0}
