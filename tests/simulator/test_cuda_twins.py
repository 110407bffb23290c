"""The CUDA kernels under Numba's simulator against their CPU twins, bit for bit.

The simulator is chosen before Numba is imported, so these run in a process of their own, which
`tests/test_kernels_cuda.py` starts.
"""

import os

import numpy as np
import pytest

if os.environ.get("NUMBA_ENABLE_CUDASIM") != "1":
    pytest.skip("run by tests/test_kernels_cuda.py", allow_module_level=True)

from numba import cuda as numba_cuda
from numba.cuda.simulator import kernelapi
from signals import SHORT, counts, with_gaps

from ecg_dask import kernels
from ecg_dask.kernels import (
    cpu,
    cpu_beats,
    cpu_spans,
    cuda,
    cuda_beats,
    cuda_choose,
    cuda_crests,
    cuda_levels,
    cuda_noise,
    cuda_select,
    cuda_spans,
)
from ecg_dask.kernels import spans as span_kernels
from ecg_dask.segment.detector import detect, integrated_ricker
from ecg_dask.segment.spans import find_runs, widths

TAPS = integrated_ricker(0.015, 100, 6)


@pytest.fixture(autouse=True)
def exact_fma(monkeypatch):
    """Round a fused multiply-add as the hardware does, but for cases that these tests miss.

    The simulator rounds the product; in float64 it is exact.
    """

    def fma(self, a, b, c):
        return np.float32(np.float64(a) * np.float64(b) + np.float64(c))

    monkeypatch.setattr(kernelapi.FakeCUDAModule, "fma", fma)


@pytest.fixture(autouse=True)
def few_threads(monkeypatch):
    """Make blocks of fewer threads, for the simulator starts each of them."""
    monkeypatch.setattr(cuda_select, "ADDING", 64)
    monkeypatch.setattr(cuda_select, "GROUPS", 2)
    monkeypatch.setattr(cuda_levels, "THREADS", 32)
    monkeypatch.setattr(cuda_noise, "ON_ONE", 6)
    cuda_levels.levels_kernel.cache_clear()
    cuda_levels._running_medians.cache_clear()


@pytest.fixture(scope="module", params=["whole", "gaps"])
def x(request):
    signal = counts(420, seed=3)[0][:, 0]
    spans = [(0, 2), (90, 91), (200, 230), (231, 232), (419, 420)]
    return with_gaps(signal, spans if request.param == "gaps" else [])


def same(got, expected):
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one, other)
        assert np.asarray(one).dtype == np.asarray(other).dtype


def test_response(x):
    same([cuda.response(x, TAPS)], [cpu.response(x, TAPS)])


def whole_numbers(seed, n, spans):
    """Small whole numbers, which have many equals."""
    x = np.random.default_rng(seed).integers(-5, 6, n).astype(np.float32)
    return with_gaps(x, spans)


def taps_of(k, seed=0):
    return np.random.default_rng(seed + k).integers(-2, 3, k).astype(np.float32)


#: Taps, radius and sub-cell at 50, 250, 360 and 500 Hz, and odd ones.
WIDTHS = [(3, 1, 2), (15, 6, 8), (22, 9, 11), (30, 12, 16), (7, 2, 13), (5, 15, 8)]


@pytest.mark.parametrize(("k", "radius", "sub"), WIDTHS)
def test_crests_block_by_block(k, radius, sub):
    """Blocks within the recording, with an end of it, and with gaps, of an odd first sample."""
    taps = taps_of(k)
    fused = cuda_crests.fused_crests(taps.tobytes(), radius, sub, samples=8, tile=256)
    block = fused.cells * sub
    gap = 2 * block + block // 2
    spans = [(gap, gap + 1), (gap + 20, gap + 33), (3 * block - 1, 3 * block)]
    x = whole_numbers(k, 4 * block + 9, spans)
    expected = cpu.crests(x, taps, radius, 5, sub)
    got = np.full(expected[0].size, 9, np.float32), np.full(expected[0].size, 9, np.int64)
    fused.kernel[5, fused.threads](x, 5 % sub, *got)
    same(got, expected)


@pytest.mark.parametrize(("k", "radius", "sub"), [(33, 3, 4), (4, 16, 4), (4, 3, 17)])
def test_crests_of_narrow_and_wide_widths(k, radius, sub):
    x = whole_numbers(k, 200, [(90, 91), (130, 160)])
    for taps in (taps_of(k), taps_of(0)):
        same(cuda.crests(x, taps, radius, 77, sub), cpu.crests(x, taps, radius, 77, sub))


def test_crests_round_as_on_the_cpu(x):
    same(cuda.crests(x, TAPS, 3, 7, 3), cpu.crests(x, TAPS, 3, 7, 3))


def test_sorting():
    """All sizes, with equals and the infinite."""
    rng = np.random.default_rng(1)
    rows = np.round(rng.normal(0, 20, (129, 128))).astype(np.float32)
    rows[:, 5] = np.inf
    expected = rows.copy()
    for size in range(129):
        expected[size, :size].sort()

    @numba_cuda.jit
    def sort_rows(rows):
        size = numba_cuda.grid(1)
        if size < 129:
            cuda_levels._sort(rows[size], size)

    sort_rows[5, 32](rows)
    np.testing.assert_array_equal(rows, expected)


@pytest.mark.parametrize(
    ("peak_cells", "level_radius", "noise_radius"), [(8, 20, 8), (5, 1, 2), (1, 9, 12)]
)
def test_levels(peak_cells, level_radius, noise_radius):
    """Over several blocks, with windows with missing cells and cells with missing crests."""
    rng = np.random.default_rng(level_radius)
    value = np.round(rng.gamma(0.5, 9, 3500)).astype(np.float32)
    for start, stop in [(0, 3), (700, 705), (740, 760), (900, 1500), (2000, 2001), (3400, 3500)]:
        value[start:stop] = -1
    value[1700:1705] = np.inf
    widths = peak_cells, level_radius, noise_radius
    same(cuda_beats.levels(value, 3, *widths), cpu_beats.levels(value, 3, *widths))


@pytest.mark.parametrize(
    ("sub", "spacing", "n"),
    [(8, 50, 2200), (3, 20, 2200), (1, 0, 2200), (4, 3, 2200), (1, 50, 7000)],
)
def test_candidates(sub, spacing, n):
    """Over several blocks, with gaps and many equals."""
    x = whole_numbers(1, n * sub, [(90, 91), (200, 230), (300, 450)])
    value, index = cpu.crests(x, taps_of(0), 1, 1001, sub)
    head = 1001 // sub % 8
    level, _ = cpu_beats.levels(value, head, 8, 20, 8)
    expected = cpu_beats.candidates(value, index, level, 0.5, head, sub, spacing)
    assert expected[0].size > 50
    assert (expected[0] >= 2048).any()
    same(cuda_beats.candidates(value, index, level, 0.5, head, sub, spacing), expected)


#: Narrow, usual and wide taps and the radius, of 250 Hz and odd ones, and wider than registers are.
LOOKS = [(8, 15, 22, 15), (9, 3, 4, 5), (2, 3, 50, 4), (2, 3, 4, 33)]


@pytest.mark.parametrize(("narrow", "usual", "wide", "radius"), LOOKS)
def test_look(narrow, usual, wide, radius):
    spans = [(0, 2), (60, 61), (200, 230), (231, 232), (233, 236), (340, 350)]
    x = whole_numbers(wide, 540, spans)
    # Where nothing happens, the first sample that is looked at has it.
    x[380:530] = 2
    at = np.flatnonzero(x == x)
    # The widest work on a block a candidate.
    every = 23 if max(wide, radius) < 33 else 99
    at = np.union1d(at[::every], [2, 61, 199, 230, 232, 236, 455, 539])
    halves = [taps_of(k, seed=1) for k in (narrow, usual, wide)]
    expected = cpu_beats.look(x, *halves, at, radius)
    assert 0 < expected[2].sum() < at.size
    same(cuda_beats.look(x, *halves, at, radius), expected)


@pytest.mark.parametrize("silent", [False, True])
def test_merits(silent):
    rng = np.random.default_rng(5)
    value = rng.gamma(0.5, 9, 1500).astype(np.float32)
    value[rng.random(1500) < 0.1] = -1
    index = np.where(value < 0, -1, np.arange(1500) * 8 + rng.integers(0, 8, 1500))
    level, noise = cpu_beats.levels(value, 3, 8, 20, 8)
    if silent:
        level[50:100] = 0
    summit, at, _ = cpu_beats.candidates(value, index, level, 0.01, 3, 8, 50)
    assert at.size > cuda_beats.THREADS // 2
    sharpness = rng.gamma(1, 0.7, at.size).astype(np.float32)
    sharpness[::3] = 0
    weighed = value, level, noise, summit, at, sharpness, 3, 400, 0.6
    expected = cpu_beats.merits(*weighed)
    assert np.unique(expected).size > at.size // 2
    same([cuda_beats.merits(*weighed)], [expected])


@pytest.mark.parametrize(
    ("refractory", "near", "far", "wide", "plateau"),
    [(50, 20, 35, 70, 5), (30, 4, 40, 20, 3), (60, 70, 300, 800, 9)],
)
def test_choose(refractory, near, far, wide, plateau):
    """More candidates than a block has, with gaps, plateaus, equals, edges, and a core."""
    n = 150
    rng = np.random.default_rng(near)
    x = whole_numbers(2, 30 * n, [(a, a + 1 + a % 50) for a in range(100, 30 * n, 333)])
    for start in rng.integers(0, x.size, 40):
        x[start : start + 9] = x[start]
    recorded = np.flatnonzero(x == x)
    position = np.union1d(rng.choice(recorded, n), recorded[[0, -1]])
    merit = rng.gamma(1, 0.5, position.size).astype(np.float32)
    energy = rng.integers(0, 9, position.size).astype(np.float32)
    at_edge = rng.random(position.size) < 0.1
    assert position.size > cuda_choose.THREADS
    core = 1000 + 200, 1000 + x.size - 300
    weighed = x, merit, 0.3, position, at_edge, energy, refractory, 1000, core
    measures = near, far, wide, plateau
    sample, following, *_ = cpu_beats.choose(*weighed, 10**6, *measures)
    # One is just too far away to follow.
    after = int(np.sort(following - sample)[10])
    expected = cpu_beats.choose(*weighed, after, *measures)
    assert expected[0].size > 20
    assert expected[4] > 10
    assert (expected[1] < 10**9).any()
    same(cuda_beats.choose(*weighed, after, *measures), expected)


def test_rails():
    """Over several blocks; surroundings within the cells, across their ends, and outside."""
    rng = np.random.default_rng(3)
    n = cuda_spans.THREADS + 50
    rows = rng.integers(-3, 4, (n, 2)).astype(np.float32)
    low, high = rows.min(axis=1), rows.max(axis=1)
    low[60:70], high[60:70] = np.inf, -np.inf
    begin = np.arange(n) - 4
    begin[:5] -= 20
    upper, lower = (rng.choice(levels, n).astype(np.float32) for levels in ([2, 3], [-3, -2]))
    asked = low, high, begin, 9, upper, lower, 0.5
    expected = cpu_spans.rails(*asked)
    assert set(expected) == {0, 1, 2, 3}
    same([cuda_spans.rails(*asked)], [expected])


@pytest.mark.parametrize(("first", "cell", "plateau", "entry"), [(0, 16, 3, 1), (13, 24, 5, 2)])
def test_plateaus(first, cell, plateau, entry):
    """Over several blocks, across cells, next to gaps and ends, and in a cell that is cut."""
    rng = np.random.default_rng(cell)
    n_cells = cuda_spans.THREADS + 20
    x = whole_numbers(cell, first + n_cells * cell - 3, [(0, 9), (400, 405), (700, 950)])
    for start in rng.integers(0, x.size, x.size // 20):
        held = x[start : start + rng.integers(1, 40)]
        held[held == held] = rng.choice([-5, 5])
    x[-6:] = 5
    rail = rng.integers(0, 4, n_cells).astype(np.int8)
    rail[-1] = 3
    upper, lower = np.full(n_cells, 5, np.float32), np.full(n_cells, -5, np.float32)
    asked = x, first, cell, upper, lower, rail, plateau, entry, 4.0
    expected = cpu_spans.plateaus(*asked)
    assert x.size in expected[1]
    assert 10 < expected[3].sum() < expected.shape[1] - 10
    same(cuda_spans.plateaus(*asked), expected)
    nowhere = *asked[:5], np.zeros(n_cells, np.int8), *asked[6:]
    assert cuda_spans.plateaus(*nowhere).shape == (4, 0)


@pytest.mark.parametrize(("radius", "pause", "rhythm"), [(3, 8, (5, 13)), (2, 1, (2, 35))])
def test_noisy(radius, pause, rhythm):
    """Over several blocks: noise, beats of a rhythm, silence, gaps, pauses, and the infinite."""
    rng = np.random.default_rng(radius)
    n_cells = 150
    crests = np.round(100 + rng.gamma(2, 50, 8 * n_cells)).astype(np.float32)
    crests[200:600:6] = 3000
    crests[300:600] *= np.float32(rng.choice([1, 1, 2.0**-8]))
    crests[rng.integers(0, crests.size, 20)] = 1
    crests[700:760] *= np.float32(2.0**-9)
    crests[800:850], crests[870:871], crests[900:960] = -1, -1, 0
    # A cell of noise alone, which is too little to tell.
    crests[608:640], crests[648:688] = -1, -1
    crests[1100:1103] = np.inf
    asked = crests, radius, pause, 0.03, 0.01, rhythm, 0.3
    expected = cpu_spans.noisy(*asked)
    assert set(expected) == {0, 1, 2, 3}
    same([cuda_spans.noisy(*asked)], [expected])


def test_nothing_in_nothing_out():
    empty, none = np.empty(0, np.float32), np.empty(0, np.int64)
    assert cuda.response(empty, TAPS).size == 0
    same(cuda.crests(empty, TAPS, 3, 7, 4), (empty, none))
    same(cuda_beats.levels(empty, 2, 8, 20, 8), (empty, empty))
    same(cuda_beats.candidates(empty, none, empty, 0.01, 2, 4, 20), (none, none, empty))
    edges = np.empty(0, bool)
    same(cuda_beats.look(empty, TAPS, TAPS, TAPS, none, 5), (empty, none, edges))
    same([cuda_beats.merits(empty, empty, empty, none, none, empty, 2, 9, 0.5)], [empty])
    got = cuda_beats.choose(empty, empty, 0.5, none, edges, empty, 9, 7, (7, 7), 9, 2, 3, 5, 3)
    same(got, (none, none, empty, empty, 0))
    byte = np.empty(0, np.int8)
    same([cuda_spans.rails(empty, empty, none, 3, empty, empty, 0.5)], [byte])
    assert cuda_spans.plateaus(empty, 0, 8, empty, empty, byte, 3, 1, 6.0).shape == (4, 0)
    same([cuda_spans.noisy(empty, 2, 3, 0.1, 0.1, (2, 5), 0.3)], [byte])


def test_the_detector_on_the_cuda_kernels_finds_the_same_beats(x, monkeypatch):
    expected = detect(x, 50, (60, 440), SHORT, 100.0)
    assert expected.sample.size > 4
    monkeypatch.setattr(kernels, "_twin", lambda array: cuda)
    monkeypatch.setattr(kernels, "_beats_twin", lambda array: cuda_beats)
    same(detect(x, 50, (60, 440), SHORT, 100.0), expected)


def test_spans_on_the_cuda_kernels_are_the_same(monkeypatch):
    fs = 50.0
    w = widths(fs)
    rng = np.random.default_rng(2)
    x = np.round(rng.normal(0, 20, round(12 * fs))).astype(np.float32)
    x[100:200], x[300:310], x[400:404] = 99, np.nan, -99
    energy = np.round(rng.gamma(9, 9, -(-x.size // w.sub))).astype(np.float32)
    expected = find_runs(x, energy, 0, (0, x.size), fs)
    assert set(expected.reason) >= {0, 3, 4, 6, 7}
    monkeypatch.setattr(span_kernels, "_twin", lambda array: cuda_spans)
    same(find_runs(x, energy, 0, (0, x.size), fs), expected)
