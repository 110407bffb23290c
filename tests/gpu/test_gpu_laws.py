"""The device law and the chunk law on a real GPU."""

import os

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from signals import SHORT, counts, with_gaps

from ecg_dask import Detector, Recording, find_beats
from ecg_dask.segment.halos import cut_block, find_block

FS = 360.0


@pytest.fixture(scope="module")
def mitdb():
    """Return the first leads of all records, int16, by name."""
    path = os.environ.get("ECG_DASK_MITDB_LEADS")
    if not path:
        pytest.skip("ECG_DASK_MITDB_LEADS does not name an .npz of first leads (CONTRIBUTING.md)")
    with np.load(path) as leads:
        return {name: leads[name] for name in leads.files}


def both(x, fs, detector):
    """Return what one block gives on the CPU and on the GPU."""
    import cupy

    found = []
    for core in (x, cupy.asarray(x)):
        options = {"first": 0, "detector": detector, "fs": fs}
        columns, stretch = result = find_block(None, core, None, **options)
        waves = cut_block(None, core, None, result, **options)
        if core is not x:
            columns = {name: column.get() for name, column in columns.items()}
            waves = waves.get()
        found.append((columns, waves, stretch))
    return found


def check(x, fs, detector):
    (cpu, cpu_waves, cpu_stretch), (gpu, gpu_waves, gpu_stretch) = both(x, fs, detector)
    for name in ("sample", "complete"):
        np.testing.assert_array_equal(cpu[name], gpu[name])
    for name in ("amplitude", "quality", "rr_prev_s", "rr_next_s"):
        np.testing.assert_allclose(cpu[name], gpu[name], rtol=1e-6)
    np.testing.assert_array_equal(cpu_waves, gpu_waves)
    assert cpu_stretch[:-1] == gpu_stretch[:-1]
    for one, other in zip(cpu_stretch.runs, gpu_stretch.runs, strict=True):
        np.testing.assert_array_equal(one, other)
    return cpu["sample"].size


def test_the_same_beats_as_on_the_cpu_on_all_of_mitdb(mitdb):
    assert len(mitdb) == 48
    n_beats = sum(check(x.astype(np.float32)[:, None], FS, Detector()) for x in mitdb.values())
    assert n_beats > 109_000


@pytest.mark.parametrize("fs", [100.0, 250.0, 1000.0])
def test_the_same_beats_as_on_the_cpu_with_gaps(fs):
    x = counts(int(120 * fs), fs, seed=5, n_leads=2)[0]
    x = with_gaps(x, [(0, 3), (2000, 2400), (5000, 5001)])
    assert check(x, fs, Detector()) > 50


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 900), min_size=1, max_size=30),
    gaps=st.lists(st.tuples(st.integers(0, 5990), st.integers(1, 40)), max_size=4),
)
def test_any_chunks_give_the_same_beats(sizes, gaps):
    import cupy

    x = counts(6000, seed=2)[0]
    x = with_gaps(x, [(start, start + n) for start, n in gaps])
    cuts = np.unique(np.clip(np.cumsum([0, *sizes]), 0, 6000))
    chunks = tuple(int(n) for n in np.diff([*cuts, 6000]) if n)
    device = cupy.asarray(x)
    found = []
    for cut in (chunks, (6000,)):
        signal = da.from_array(device, chunks=(cut, (1,)), asarray=False)
        beats = find_beats(Recording(signal, 100.0), SHORT)
        with dask.config.set(scheduler="synchronous"):
            table, waves = dask.compute(beats.table, beats.waves)
        found.append((table.to_pandas(), waves.get()))
    pd.testing.assert_frame_equal(found[0][0], found[1][0], check_exact=True)
    np.testing.assert_array_equal(found[0][1], found[1][1])
