"""Chunk law: beats and waves do not depend on how the recording is cut, bit for bit."""

from dataclasses import replace

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from signals import SHORT, counts, with_gaps

from ecg_dask import Detector, Recording, find_beats
from ecg_dask.segment.detector import detect
from ecg_dask.segment.halos import block_halo, find_block, merge_short

FS = 100.0


@st.composite
def partitions(draw, n):
    """Chunk sizes that add up to n, with single samples and long stretches among them."""
    cuts = draw(st.lists(st.integers(0, n), max_size=12, unique=True))
    near = draw(st.lists(st.integers(1, 3), max_size=len(cuts)))
    cuts = sorted({0, n, *cuts, *(min(c + d, n) for c, d in zip(cuts, near, strict=False))})
    return np.diff(cuts).tolist()


def signal(seed, n=3000, n_leads=1):
    x = counts(n, FS, seed, n_leads, faintest=0.05)[0]
    return with_gaps(x, [(700, 701), (1500, 1600)] if seed % 2 else [])


def computed(beats):
    table = beats.table.compute(scheduler="sync")
    return (
        table,
        beats.waves.compute(scheduler="sync"),
        beats.records.compute(scheduler="sync"),
    )


@given(st.data(), st.integers(0, 9), st.sampled_from(["window", "interval"]))
@settings(max_examples=25, deadline=None)
def test_any_chunks_give_the_same_beats(data, seed, embed):
    detector = replace(SHORT, embed=embed)
    x = signal(seed, n_leads=2)
    whole = computed(find_beats(Recording(da.from_array(x, chunks=-1), FS), detector))
    chunks = data.draw(partitions(len(x)))
    parts = computed(
        find_beats(Recording(da.from_array(x, chunks=(tuple(chunks), 2)), FS), detector)
    )
    pd.testing.assert_frame_equal(whole[0], parts[0], check_exact=True)
    np.testing.assert_array_equal(whole[1], parts[1])
    pd.testing.assert_frame_equal(whole[2], parts[2])
    assert len(whole[0]) > 20


@given(st.data(), st.integers(0, 9))
@settings(max_examples=25, deadline=None)
def test_a_core_of_any_length_with_its_halo_gives_its_beats(data, seed):
    """Without the merging of short chunks: cores down to a single sample."""
    x = np.ascontiguousarray(signal(seed, 2000)[:, 0])
    halo = SHORT.halo(FS)
    whole = detect(x, 0, (0, len(x)), SHORT, FS)
    start, found = 0, []
    for size in data.draw(partitions(len(x))):
        first, last = max(start - halo, 0), min(start + size + halo, len(x))
        found.append(detect(x[first:last].copy(), first, (start, start + size), SHORT, FS))
        start += size
    for name in ("sample", "next_sample", "amplitude", "quality"):
        joined = np.concatenate([getattr(part, name) for part in found])
        np.testing.assert_array_equal(joined, getattr(whole, name))
    assert sum(part.pruned for part in found) == whole.pruned


#: What a block says of its core, and of nothing else.
OWNED = ("sample", "next_sample", "amplitude", "quality", "pruned")

#: Detectors for noise alone, each of which looks far for one reason and hardly for the others.
NEAR = Detector(
    threshold=0.05,
    spacing_s=0.11,
    cell_s=0.02,
    peak_s=0.02,
    median_s=0.02,
    noise_s=0.02,
    rhythm_s=0.01,
    refine_s=0.05,
    refractory_s=0.01,
    before_s=0.01,
    after_s=0.01,
)
FAR = {
    "level": replace(NEAR, cell_s=0.1, peak_s=1.6, median_s=0.1, noise_s=0.1),
    "spacing": replace(NEAR, spacing_s=0.6),
    "refractory": replace(NEAR, refractory_s=0.6, threshold=0.02),
    "noise": replace(NEAR, cell_s=0.1, peak_s=0.1, median_s=0.1, noise_s=1.6),
    "rhythm": replace(NEAR, rhythm_s=0.8, threshold=0.4),
    "after": replace(NEAR, after_s=0.8),
    "before": replace(NEAR, before_s=0.8),
    "plain": NEAR,
}


@pytest.mark.parametrize("reason", FAR)
def test_what_lies_beyond_the_halo_has_no_say(reason):
    detector, n, found = FAR[reason], 1200, 0
    halo = detector.halo(FS)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=n).astype(np.float32)
        other = (100 * rng.normal(size=n)).astype(np.float32)
        for start in range(300, 900, 7):
            core = (start, start + 5)
            y = other.copy()
            y[start - halo : start + 5 + halo] = x[start - halo : start + 5 + halo]
            plain, changed = detect(x, 0, core, detector, FS), detect(y, 0, core, detector, FS)
            for name in OWNED:
                np.testing.assert_array_equal(getattr(plain, name), getattr(changed, name))
            found += plain.sample.size
    assert found > 10


def test_intervals_pass_blocks_without_beats_but_no_gap():
    x = np.zeros((8000, 1), np.float32)
    for sample in (200, 280, 5000, 5090, 7900):
        x[sample, 0] = 500
    x[5400:5410] = np.nan
    chunks = ((1000,) * 8, (1,))
    table = find_beats(Recording(da.from_array(x, chunks=chunks), FS), SHORT).table
    assert table.npartitions == 8
    table = table.compute(scheduler="sync")
    assert table["sample"].tolist() == [200, 280, 5000, 5090, 7900]
    np.testing.assert_array_equal(table["rr_prev_s"], [np.nan, 0.8, 47.2, 0.9, np.nan])
    np.testing.assert_array_equal(table["rr_next_s"], [0.8, 47.2, 0.9, np.nan, np.nan])
    assert table["split"].tolist() == ["train"] * 3 + ["test"] * 2


def test_the_tasks_of_neighbours_exchange_small_slices(monkeypatch):
    """Whole neighbours do not travel: a block's halos are no longer than stated."""
    x = signal(0, 6000)
    seen = []

    def spy(left, core, right, **options):
        seen.append([None if part is None else len(part) for part in (left, core, right)])
        # A view would keep the whole neighbour in memory.
        assert all(part is None or part.base is None for part in (left, right))
        return find_block(left, core, right, **options)

    monkeypatch.setattr("ecg_dask.segment.halos.find_block", spy)
    find_beats(Recording(da.from_array(x, chunks=(2000, 1)), FS), SHORT).table.compute(
        scheduler="sync"
    )
    halo = block_halo(SHORT, FS)
    assert sorted(seen, key=str) == sorted(
        [[None, 2000, halo], [halo, 2000, halo], [halo, 2000, None]], key=str
    )


@pytest.mark.parametrize(
    ("chunks", "merged"),
    [
        ((5, 5, 5), (15,)),
        ((1, 1, 1), (3,)),
        ((9, 1, 9), (9, 10)),
        ((12, 3), (15,)),
        ((0,), (0,)),
        ((0, 7, 0, 2), (9,)),
    ],
)
def test_short_chunks_are_merged(chunks, merged):
    assert merge_short(chunks, 8) == merged


def test_the_same_recording_gives_the_same_tasks():
    """Two calls share their tasks, so what one has computed is there for the other."""
    recording = Recording(da.from_array(signal(0, 6000), chunks=(2000, 1)), FS)
    keys = [set(find_beats(recording, SHORT).records.__dask_graph__()) for _ in range(2)]
    assert keys[0] == keys[1]
