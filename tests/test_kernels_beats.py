"""The CPU kernels that work on candidates against obvious loops, and what they mean."""

import naive
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kernel_signals import gap_lists, gappy, small_numbers, some_recorded
from signals import with_gaps

from ecg_dask import kernels
from ecg_dask.kernels import cpu_beats
from ecg_dask.kernels.rules import FAR_FLANK, NEAR_FLANK, PER_CELL, QUIET
from ecg_dask.segment.detector import integrated_ricker


@given(
    seed=st.integers(0, 50),
    n=st.integers(0, 300),
    gaps=gap_lists,
    sizes=st.tuples(*[st.integers(1, 12)] * 3),
    n_candidates=st.integers(0, 20),
    radius=st.integers(0, 9),
)
@settings(max_examples=80, deadline=None)
def test_looks_equal_the_loops(seed, n, gaps, sizes, n_candidates, radius):
    """On whole numbers, many of them equal, so that the first of equals is told."""
    x = small_numbers(seed, n, gaps)
    rng = np.random.default_rng(seed)
    halves = [rng.integers(-2, 3, k).astype(np.float32) for k in sizes]
    at = some_recorded(x, seed, n_candidates)
    sharpness, position, at_edge = kernels.look(x, *halves, at, radius)
    expected = naive.look(x, *halves, at, radius)
    np.testing.assert_allclose(sharpness, expected[0], rtol=1e-6)
    np.testing.assert_array_equal(position, expected[1])
    np.testing.assert_array_equal(at_edge, expected[2])
    assert (sharpness.dtype, position.dtype, at_edge.dtype) == (np.float32, np.int64, np.bool_)


WAVELETS = [integrated_ricker(scale, 100, k) for scale, k in ((0.01, 4), (0.015, 6), (0.022, 9))]


@given(st.integers(0, 50), gap_lists, st.integers(1, 12))
@settings(max_examples=30, deadline=None)
def test_looks_have_the_bits_of_the_response(seed, gaps, radius):
    x = with_gaps(gappy(seed, 300), gaps)
    at = some_recorded(x, seed, 20)
    expected = naive.look(x, *WAVELETS, at, radius, kernels.response)
    for got, bits in zip(kernels.look(x, *WAVELETS, at, radius), expected, strict=True):
        np.testing.assert_array_equal(got, bits)


@given(st.integers(0, 50), gap_lists, st.integers(1, 12))
@settings(max_examples=20, deadline=None)
def test_looks_do_not_depend_on_the_block(seed, gaps, radius):
    x = with_gaps(gappy(seed, 300), gaps)
    at = some_recorded(x, seed, 5)
    sharpness, position, at_edge = kernels.look(x, *WAVELETS, at, radius)
    for b, i in enumerate(at):
        low = max(i - radius - 10, 0)
        block = x[low : i + radius + 11]
        got = kernels.look(block, *WAVELETS, at[b : b + 1] - low, radius)
        assert got[0][0] == sharpness[b]
        assert got[1][0] + low == position[b]
        assert got[2][0] == at_edge[b]


@given(st.integers(0, 50), gap_lists, st.integers(-20, 20))
@settings(max_examples=20, deadline=None)
def test_looks_stay_when_negated_or_scaled(seed, gaps, power):
    x = with_gaps(gappy(seed, 300), gaps)
    at = some_recorded(x, seed, 20)
    scaled = kernels.look(-x * np.float32(2.0**power), *WAVELETS, at, 5)
    for got, expected in zip(scaled, kernels.look(x, *WAVELETS, at, 5), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_looks_at_what_is_level_or_alone():
    level = np.full(9, 3, np.float32)
    sharpness, position, at_edge = kernels.look(level, *WAVELETS, np.array([0, 4, 8]), 2)
    assert sharpness.tolist() == [0, 0, 0]
    assert position.tolist() == [0, 2, 6]
    assert at_edge.tolist() == [True, False, False]
    alone = np.array([np.nan, 3, np.nan], np.float32)
    assert [part.tolist() for part in kernels.look(alone, *WAVELETS, np.array([1]), 2)] == [
        [0],
        [1],
        [True],
    ]


def surroundings(seed, n, n_candidates, head, sub=5):
    """Return crests, level, noise, summits, their samples and their sharpness, drawn at random.

    Levels are silent (0) or not known (-1) here and there, and crests and noise are missing.
    """
    rng = np.random.default_rng(seed)
    value = rng.gamma(0.5, 9, n).astype(np.float32) + np.float32(1e-3)
    n_cells = (head + n - 1) // PER_CELL + 1 if n else 0
    level = rng.gamma(3, 5, n_cells).astype(np.float32)
    noise = (level * rng.gamma(0.5, 0.02, n_cells)).astype(np.float32)
    level[rng.random(n_cells) < 0.1] = rng.choice([0, -1])
    noise[rng.random(n_cells) < 0.1] = rng.choice([0, -1])
    summit = np.sort(rng.permutation(n)[:n_candidates]).astype(np.int64)
    at = summit * sub + rng.integers(0, sub, summit.size)
    missing = rng.random(n) < 0.1
    missing[summit] = False
    value[missing] = -1
    sharpness = rng.gamma(9, 0.06, summit.size).astype(np.float32)
    sharpness[rng.random(summit.size) < 0.1] = 0
    return value, level, noise, summit, at, sharpness


@given(
    seed=st.integers(0, 999),
    n=st.integers(1, 150),
    n_candidates=st.sampled_from([0, 1, 2, 3, 10, 60]),
    head=st.integers(0, PER_CELL - 1),
    reach=st.integers(1, 900),
    sure=st.floats(0.01, 3),
)
@settings(max_examples=150, deadline=None)
def test_merits_equal_the_formula(seed, n, n_candidates, head, reach, sure):
    given_ = surroundings(seed, n, n_candidates, head)
    first, expected = naive.merits(*given_, head, reach, sure)
    # Nearer than rounding, who is sure hangs on it.
    assume((abs(first - sure) > 1e-5 * sure).all())
    got = kernels.merits(*given_, head, reach, sure)
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    assert got.dtype == np.float32


@given(st.integers(0, 999), st.integers(1, 120), st.integers(0, 40), st.integers(0, 40))
@settings(max_examples=60, deadline=None)
def test_merits_depend_on_nothing_beyond_their_reach(seed, reach, before, behind):
    """Two reaches of candidates, a neighbour's neighbours, and the flank of the last one."""
    n, sub, head = 400, 5, 3
    value, level, noise, summit, at, sharpness = surroundings(seed, n, 80, head, sub)
    merit = kernels.merits(value, level, noise, summit, at, sharpness, head, reach, 0.6)
    room = 2 * reach + (FAR_FLANK + 1) * sub
    # A core of 20 sub-cells, and the least that it must know of, more or less cut at a cell.
    core = 190 * sub, 210 * sub
    low = max((core[0] - room) // sub - before, 0)
    high = min((core[1] + room) // sub + 1 + behind, n)
    within = (summit >= low) & (summit < high)
    cells = slice((head + low) // PER_CELL, (head + high - 1) // PER_CELL + 1)
    got = kernels.merits(
        value[low:high],
        level[cells],
        noise[cells],
        summit[within] - low,
        at[within] - low * sub,
        sharpness[within],
        (head + low) % PER_CELL,
        reach,
        0.6,
    )
    owned = (at >= core[0]) & (at < core[1])
    np.testing.assert_array_equal(got[owned[within]], merit[owned])


@given(st.integers(0, 999), st.integers(-20, 20), st.integers(0, 9**6))
@settings(max_examples=30, deadline=None)
def test_merits_know_no_scale_and_no_place(seed, power, shift):
    value, level, noise, *rest = surroundings(seed, 150, 40, 2)
    summit, at, sharpness = rest
    merit = kernels.merits(value, level, noise, *rest, 2, 200, 0.6)
    scale = np.float32(4.0**power)
    scaled = (np.where(array >= 0, scale * array, array) for array in (value, level, noise))
    got = kernels.merits(*scaled, summit, at + shift, sharpness, 2, 200, 0.6)
    np.testing.assert_array_equal(got, merit)


def weigh(beats, candidate, *, height=0.1, sharp=0.6, noise=0.0, crests=()):
    """Return the merit of a candidate among beats of height 1 and sharpness 0.6.

    Places are in sub-cells, of 4 samples; `crests` are further ones, (place, height) each.
    """
    summit = np.sort(np.array([*beats, candidate], dtype=np.int64))
    value = np.zeros(600, np.float32)
    value[list(beats)] = 1
    for place, crest in crests:
        value[place] = crest
    value[candidate] = height
    here = int(np.searchsorted(summit, candidate))
    sharpness = np.full(summit.size, 0.6, np.float32)
    sharpness[here] = sharp
    level, middle = np.ones(75, np.float32), np.full(75, noise, np.float32)
    got = kernels.merits(value, level, middle, summit, 4 * summit, sharpness, 0, 1200, 0.6)
    return got[here]


BEATS = [50, 90, 130, 170, 210, 250, 290, 330, 370, 410, 450]
PAUSE = [beat for beat in BEATS if beat != 250]


def test_a_candidate_in_a_pause_has_more_merit_than_one_that_splits_an_interval():
    in_a_pause = weigh(PAUSE, 250)
    assert in_a_pause > 3 * weigh(BEATS, 230)
    # Where the beat was missed, rather than soon after one, where a T wave would be.
    assert in_a_pause > 3 * weigh(PAUSE, 222)
    # The longer the pause the less it says: beyond two intervals there is room enough.
    longer = [beat for beat in BEATS if not 210 < beat < 330]
    assert weigh(longer, 270) == pytest.approx(1.5 * in_a_pause, rel=0.3)


def test_a_blunt_candidate_has_less_merit_than_a_sharp_one():
    assert weigh(PAUSE, 250, sharp=0.3) < 0.5 * weigh(PAUSE, 250)
    # More than as sharp as the others is no better: an electrode's spike is no QRS complex.
    assert weigh(PAUSE, 250, sharp=2.0) < 1.5 * weigh(PAUSE, 250)


def test_merit_grows_with_the_height_and_falls_with_the_noise():
    quiet = weigh(PAUSE, 250)
    assert weigh(PAUSE, 250, height=0.2) == pytest.approx(2 * quiet)
    assert weigh(PAUSE, 250, noise=0.01) < 0.5 * quiet
    assert weigh(PAUSE, 250, noise=0.04) < 0.6 * weigh(PAUSE, 250, noise=0.01)
    # Where nothing is known of the noise, it is silent.
    assert weigh(PAUSE, 250, noise=-1.0) == quiet


def test_what_stands_beside_a_candidate_lowers_its_merit_and_what_is_part_of_it_does_not():
    free = weigh(PAUSE, 250)
    for side in (-1, 1):
        for distance in range(1, 12):
            beside = weigh(PAUSE, 250, crests=[(250 + side * distance, 0.05)])
            if NEAR_FLANK <= distance <= FAR_FLANK:
                assert beside < 0.9 * free
            else:
                assert beside == free


def test_blunt_waves_after_each_beat_are_no_neighbours():
    """Strong at first, and no longer when the first round has weighed them."""
    beats = np.array(BEATS)
    summit = np.sort(np.concatenate([beats, beats + 12]))
    waves = np.isin(summit, beats + 12)
    value = np.zeros(600, np.float32)
    value[beats], value[beats + 12] = 1, 0.4
    sharpness = np.where(waves, 0.1, 0.6).astype(np.float32)
    level, noise = np.ones(75, np.float32), np.full(75, 0.02, np.float32)
    merit = kernels.merits(value, level, noise, summit, 4 * summit, sharpness, 0, 1200, 0.6)
    plain = kernels.merits(value, level, noise, beats, 4 * beats, sharpness[~waves], 0, 1200, 0.6)
    np.testing.assert_array_equal(merit[~waves], plain)
    assert merit[waves].max() < 0.2 < 2 < merit[~waves].min()


def test_a_candidate_alone_where_all_is_silent_is_its_own_measure():
    nowhere = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32)
    value = np.array([-1, 0, 8, 0], np.float32)
    for level in (0, -1):
        silent = np.full(1, level, np.float32)
        assert kernels.merits(value, silent, silent, *nowhere, 0, 99, 0.5).size == 0
        one = np.array([2]), np.array([9]), np.ones(1, np.float32)
        merit = kernels.merits(value, silent, silent, *one, 0, 99, 0.5)
        assert merit == pytest.approx(QUIET**-0.5)


@given(
    n=st.sampled_from([0, 1, 2, 3, 30]),
    data=st.data(),
    refractory=st.integers(1, 9),
)
@settings(max_examples=100, deadline=None)
def test_prune_equals_the_loops(n, data, refractory):
    def several(values):
        return data.draw(st.lists(values, min_size=n, max_size=n))

    position = np.cumsum(several(st.integers(1, 9)), dtype=np.int64)
    energy = np.array(several(st.integers(1, 4)), dtype=np.float32)
    accepted = np.array(several(st.booleans()), dtype=bool)
    got = cpu_beats.prune(accepted, position, energy, refractory)
    for flags, expected in zip(
        got, naive.prune(accepted, position, energy, refractory), strict=True
    ):
        np.testing.assert_array_equal(flags, expected)
        assert flags.dtype == np.bool_


def test_pruning_keeps_the_greater_and_the_first_of_equals():
    position = np.array([0, 5, 10, 14, 30, 33, 36])
    energy = np.array([1, 1, 2, 1, 3, 2, 1], np.float32)
    kept, dropped = cpu_beats.prune(np.ones(7, bool), position, energy, 5)
    assert kept.tolist() == [True, True, True, False, True, False, False]
    assert dropped.tolist() == [not keep for keep in kept]
    # One that was not accepted is neither kept nor dropped, and drops none.
    accepted = np.array([True] * 4 + [False] + [True] * 2)
    kept, dropped = cpu_beats.prune(accepted, position, energy, 5)
    assert kept.tolist() == [True, True, True, False, False, True, False]
    assert dropped.tolist() == [False, False, False, True, False, False, True]


@given(
    seed=st.integers(0, 50),
    n=st.integers(0, 300),
    gaps=gap_lists,
    n_beats=st.integers(0, 20),
    near=st.integers(1, 6),
    far=st.integers(0, 12),
    plateau=st.integers(2, 5),
)
@settings(max_examples=80, deadline=None)
def test_measures_equal_the_loops(seed, n, gaps, n_beats, near, far, plateau):
    """Small whole numbers have plateaus."""
    x = small_numbers(seed, n, gaps)
    position = some_recorded(x, seed, n_beats)
    margin = np.random.default_rng(seed).uniform(1, 9, position.size).astype(np.float32)
    widths = near, near + far, near + far + 9, plateau
    got = cpu_beats.measure(x, position, margin, *widths)
    for column, expected in zip(got, naive.measure(x, position, margin, *widths), strict=True):
        np.testing.assert_allclose(column, expected, rtol=1e-6, atol=1e-6)
        assert column.dtype == np.float32


def test_amplitude_has_a_sign_and_quality_knows_none():
    x = np.zeros(101, np.float32)
    x[50] = 4
    x[53:56] = 1
    margin = np.array([4], np.float32)
    amplitude, quality = cpu_beats.measure(x, np.array([50]), margin, 3, 6, 20, 3)
    assert (amplitude[0], quality[0]) == (4 - 3 / 8, 0.75)
    negative = cpu_beats.measure(-2 * x, np.array([50]), margin, 3, 6, 20, 3)
    assert (negative[0][0], negative[1][0]) == (-2 * amplitude[0], 0.75)
    # Clipped, and with half of its surroundings missing.
    x[49:52] = 4
    assert cpu_beats.measure(x, np.array([50]), margin, 3, 6, 20, 3)[1] == [0.375]
    assert cpu_beats.measure(x, np.array([50]), margin, 3, 6, 20, 4)[1] == [0.75]
    x[51:] = np.nan
    amplitude, quality = cpu_beats.measure(x, np.array([50]), margin, 3, 6, 20, 4)
    assert (amplitude[0], quality[0]) == (4, np.float32(0.75) * np.float32(21) / np.float32(41))
    # Without a flank there is nothing to measure from.
    x[:49] = np.nan
    assert np.isnan(cpu_beats.measure(x, np.array([50]), margin, 3, 6, 20, 4)[0][0])
