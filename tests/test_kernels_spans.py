"""The kernels that look for spans, against obvious loops."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_signals import gap_lists, small_numbers

from ecg_dask import kernels
from ecg_dask.kernels.rules import PER_CELL


def cell_bounds(x, cell):
    """Return the least and greatest recorded sample of each whole cell."""
    rows = x[: len(x) // cell * cell].reshape(-1, cell)
    low = np.where(np.isnan(rows), np.inf, rows).min(axis=1, initial=np.inf)
    high = np.where(np.isnan(rows), -np.inf, rows).max(axis=1, initial=-np.inf)
    return low.astype(np.float32), high.astype(np.float32)


def naive_rails(low, high, begin, length, upper, lower, share):
    rail = []
    for first, top, bottom in zip(begin, upper, lower, strict=True):
        cells = [c for c in range(first, first + length) if 0 <= c < len(low)]
        changing = [c for c in cells if low[c] < high[c]]
        few = share * len(changing)
        highest = all(high[c] <= top for c in cells) and len(changing) > 0
        lowest = all(low[c] >= bottom for c in cells) and len(changing) > 0
        at_top = sum(high[c] >= top for c in changing)
        at_bottom = sum(low[c] <= bottom for c in changing)
        rail.append((highest and at_top <= few) + 2 * (lowest and at_bottom <= few))
    return np.array(rail, np.int8)


@given(
    seed=st.integers(0, 99),
    n=st.integers(0, 120),
    gaps=gap_lists,
    length=st.integers(1, 9),
    share=st.sampled_from([0.25, 0.5, 0.75, 1.0]),
)
@settings(max_examples=80, deadline=None)
def test_rails_equal_the_loops(seed, n, gaps, length, share):
    """Surroundings within the cells, across their ends, and outside; some cells are level."""
    rng = np.random.default_rng(seed)
    low, high = cell_bounds(small_numbers(seed, 2 * n, gaps), 2)
    begin = rng.integers(-12, n + 12, n)
    upper, lower = rng.integers(1, 4, n), rng.integers(-3, 0, n)
    asked = low, high, begin, length, upper.astype(np.float32), lower.astype(np.float32), share
    got = kernels.rails(*asked)
    np.testing.assert_array_equal(got, naive_rails(*asked))
    assert got.dtype == np.int8


def naive_plateaus(x, first, cell, upper, lower, rail, plateau, entry, steep):
    found = []
    for bit, levels in ((1, upper), (2, lower)):
        for c in np.flatnonzero(rail & bit):
            level, begin = levels[c], first + c * cell
            around = range(begin - plateau - entry, begin + cell + plateau + entry)
            near = [x[i] if 0 <= i < len(x) else np.nan for i in around]
            steps = [abs(b - a) for a, b in pairwise(near) if abs(b - a) > 0]
            height = steep * min(steps, default=np.inf)

            def value(i):
                return x[i] if 0 <= i < len(x) else np.nan

            def on(i, level=level):
                """Tell whether one of the stretches of a plateau's length around i is level."""
                starts = range(i - plateau + 1, i + 1)
                return any(all(value(j + k) == level for k in range(plateau)) for j in starts)

            i, end = begin, begin + cell
            while i < end:
                if not on(i):
                    i += 1
                    continue
                start = i
                while i < end and on(i):
                    i += 1
                before = value(start - 1) != level and abs(value(start - entry) - level) >= height
                behind = value(i) != level and abs(value(i - 1 + entry) - level) >= height
                found.append((start, i, level, before or behind))
    return np.array(found, float).reshape(-1, 4).T


@given(
    seed=st.integers(0, 99),
    n=st.integers(0, 300),
    gaps=gap_lists,
    cell=st.integers(8, 40),
    first=st.integers(0, 40),
    plateau=st.integers(2, 6),
    entry=st.integers(1, 3),
    steep=st.integers(1, 4),
)
@settings(max_examples=100, deadline=None)
def test_plateaus_equal_the_loops(seed, n, gaps, cell, first, plateau, entry, steep):
    """Plateaus at both limits, across cells, next to gaps and ends, and a cell that is cut."""
    x = with_plateaus(seed, n, gaps)
    n_cells = max(-(-(n - first) // cell), 0)
    rng = np.random.default_rng(seed)
    rail = rng.integers(0, 4, n_cells).astype(np.int8)
    upper, lower = np.full(n_cells, 3, np.float32), np.full(n_cells, -3, np.float32)
    asked = x, first, cell, upper, lower, rail, plateau, entry, float(steep)
    got = kernels.plateaus(*asked)
    np.testing.assert_array_equal(got, naive_plateaus(*asked))
    assert got.dtype == np.float64


def with_plateaus(seed, n, gaps):
    """Return small whole numbers that are often held at 3 or -3 for a while."""
    x = small_numbers(seed, n, gaps)
    rng = np.random.default_rng(seed)
    for start in rng.integers(0, max(n, 1), n // 15):
        held = slice(start, start + rng.integers(1, 12))
        x[held] = np.where(np.isnan(x[held]), np.nan, rng.choice([-3, 3]))
    return x


def naive_noisy(crests, radius, pause, quiet, faint, rhythm, regularity):
    cells = crests.reshape(-1, PER_CELL)
    n = len(cells)

    def around(c, radius):
        return range(max(c - radius, 0), min(c + radius + 1, n))

    loud = [row.max() for row in cells]
    quietest = [min((v for v in row if v >= 0), default=np.float32(-1)) for row in cells]
    noisy, floor = np.zeros(n, bool), np.full(n, np.inf, np.float32)
    for c in range(n):
        loudest = max(loud[i] for i in around(c, radius))
        least = np.float32(quiet) * loudest
        seen = [i for i in around(c, radius) if quietest[i] >= 0]
        spread = [i for i in seen if quietest[i] >= least]
        if loud[c] < 0 or loudest <= 0 or len(seen) <= radius or 2 * len(spread) <= len(seen):
            continue
        if loudest < np.float32(faint) * max(loud[i] for i in around(c, pause)):
            continue
        window = np.zeros((2 * radius + 1, PER_CELL), np.float32)
        for i in around(c, radius):
            window[i - c + radius] = np.maximum(cells[i], 0)
        values = np.rint(255 * np.sqrt(window.ravel() / loudest)).astype(int)
        values -= values.sum() // len(values)
        lags = range(rhythm[0], rhythm[1] + 1)
        best = max(0, *(sum(values[:-lag] * values[lag:]) for lag in lags))
        noisy[c] = best < np.float32(regularity) * np.float32(sum(values**2))
        if noisy[c]:
            floor[c] = least
    told = noisy.astype(np.int8)
    for c in range(n):
        lowest = min(floor[i] for i in around(c, radius))
        told[c] += 2 * (lowest <= quietest[c] and loud[c] >= 0)
    return told


def some_crests(seed, n_cells):
    """Return energies that are noise, beats of a rhythm, faint, silent or missing by turns."""
    rng = np.random.default_rng(seed)
    crests = np.round(100 + rng.gamma(2, 50, n_cells * PER_CELL)).astype(np.float32)
    for start in rng.integers(0, max(crests.size, 1), 6):
        part = crests[start : start + rng.integers(1, 150)]
        kind = rng.integers(4)
        if kind == 0:
            part[:] = rng.choice([0, -1])
        elif kind == 1:
            part *= np.float32(2.0**-8)
        else:
            part[:: rng.integers(3, 9)] = 3000
    # Moments of quiet in noise.
    crests[rng.integers(0, max(crests.size, 1), crests.size // 60)] = 1
    return crests


@given(
    seed=st.integers(0, 999),
    n_cells=st.integers(0, 60),
    radius=st.integers(1, 6),
    pause=st.integers(1, 12),
    regularity=st.sampled_from([0.1, 0.3]),
)
@settings(max_examples=80, deadline=None)
def test_noisy_equals_the_loops(seed, n_cells, radius, pause, regularity):
    asked = some_crests(seed, n_cells), radius, pause, 0.03, 0.01, (3, 9), regularity
    got = kernels.noisy(*asked)
    np.testing.assert_array_equal(got, naive_noisy(*asked))
    assert got.dtype == np.int8


def test_the_drawn_crests_have_all_kinds_of_cells():
    told = [kernels.noisy(some_crests(k, 60), 4, 9, 0.03, 0.01, (3, 9), 0.3) for k in range(20)]
    assert set(np.concatenate(told)) == {0, 1, 2, 3}


def test_infinite_energy_is_no_rhythm_and_nothing_beside_it_is_restless():
    crests = np.full(20 * PER_CELL, np.inf, np.float32)
    asked = 2, 4, 0.03, 0.01, (3, 9), 0.3
    assert kernels.noisy(crests, *asked).tolist() == [1] * 20
    crests[: 10 * PER_CELL] = 1
    assert kernels.noisy(crests, *asked)[:8].tolist() == [0] * 8
