"""The parts of the accuracy benchmark: pairing, rows, tables and the other detectors."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from signals import counts

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import accuracy
from accuracy_report import merge, page, read_rows, readme_tables, write_report
from accuracy_rows import Condition, Detected, Reference, auroc, pair, quality_auroc, table_rows
from peers import PEERS, Peer

import ecg_dask

CLEAN, NOISY = Condition(0), Condition(0, "muscle", 6)


def test_pairs_are_one_to_one_the_nearest_first():
    found, true = np.array([90, 100, 104, 300]), np.array([101, 260, 303])
    assert pair(found, true, 15).tolist() == [[1, 0], [3, 2]]
    # 104 goes to 101, and 100 to what is left.
    assert pair(np.array([100, 102]), np.array([95, 102]), 15).tolist() == [[1, 1], [0, 0]]
    assert pair(found, true, 0).tolist() == []
    assert pair(np.zeros(0, int), true, 5).shape == (0, 2)
    assert pair(found, np.array([91]), 1).tolist() == [[0, 0]]


def test_pairs_are_as_many_as_evaluate_has_hits():
    rng = np.random.default_rng(0)
    for _ in range(50):
        true = np.cumsum(rng.integers(80, 400, 100))
        found = np.unique(true + rng.integers(-60, 60, 100))
        hits = ecg_dask.evaluate(found, true, fs=360, tolerance_s=0.05).hits
        assert len(pair(found, true, 18)) == hits > 10


def test_auroc_is_the_share_of_ordered_couples():
    rng = np.random.default_rng(1)
    score, positive = rng.integers(0, 5, 200) / 4, rng.random(200) < 0.7
    above = score[positive][:, None] - score[~positive]
    expected = np.mean((above > 0) + 0.5 * (above == 0))
    assert auroc(score, positive) == (pytest.approx(expected), positive.sum(), (~positive).sum())
    assert np.isnan(auroc(score, np.ones(200, bool))[0])


def detected(record, sample, **fields):
    return Detected("ecg_dask", record, fields.pop("condition", CLEAN), np.array(sample), **fields)


def test_rows_add_records_up_and_take_a_constant_offset_off():
    beats = np.arange(1000, 21_000, 500)
    references = {
        "a": Reference(500.0, beats, [(20_000, 90_000)]),
        "b": Reference(500.0, beats, []),
    }
    late = beats + 40  # 80 ms
    rows = table_rows(
        [detected("a", [*late, 30_000]), detected("b", [200, *late[1:-1], late[-1] + 10])],
        references,
    )
    table = pd.DataFrame(rows).set_index(["record", "tolerance_ms"])
    wide, near = table.loc["all", 150], table.loc["all", 50]
    assert (wide.hits, wide.false, wide.missed) == (38 + 39, 1, 1)
    assert (wide.records, wide.offset_ms, wide.jitter_median_ms) == (2, 80, 0)
    assert table.loc["b", 150].jitter_p95_ms == 0
    assert table.loc["b", 150].hits == 39
    assert wide.sensitivity == wide.positive_predictivity == wide.f1 == 77 / 78
    assert wide.f1_aligned == wide.f1
    assert (near.hits, near.false, near.missed) == (0, 38 + 41 - 1, 38 + 40)
    assert (near.f1, near.offset_ms, near.f1_aligned) == (0, 80, 77 / 78)
    assert np.isnan(near.jitter_p95_ms)


def test_aligned_f1_counts_again_without_the_offset():
    beats = np.arange(1000, 21_000, 500)
    rng = np.random.default_rng(2)
    sample = beats + 20 + rng.integers(-15, 16, len(beats))
    near = table_rows([detected("a", sample)], {"a": Reference(500.0, beats, [])})[2]
    assert near["tolerance_ms"] == 50
    assert near["f1"] < 0.9
    assert near["f1_aligned"] > near["f1"]


def test_quality_counts_what_lies_outside_flutter():
    beats = np.arange(1000, 5000, 500)
    sample = np.sort([*beats, 1250, 1750, 4100])
    quality = np.where(np.isin(sample, beats), 0.9, 0.1)
    quality[sample == 1750] = 0.9
    reference = {"a": Reference(500.0, beats, [(4000, 4600)])}
    one = detected("a", sample, quality=quality)
    assert quality_auroc([one], reference) == (pytest.approx((1 + 0.5) / 2), 6, 2)


def rows_of(detector, condition, hits, record="all", tolerance_ms=150, **more):
    row = dict.fromkeys(["sensitivity", "positive_predictivity", "f1", "f1_aligned"], hits / 1000)
    return {
        "detector": detector,
        "record": record,
        "condition": condition,
        "lead": 0,
        "tolerance_ms": tolerance_ms,
        "records": 48,
        "hits": hits,
        "false": 1,
        "missed": 2,
        "failed": 0,
        "offset_ms": 1.0,
        "jitter_median_ms": 2.0,
        "jitter_p95_ms": 3.0,
        "version": f"{detector} 1",
        "measured": "2026-01-01",
        "machine": "here",
        **row,
        **more,
    }


def test_a_run_of_ours_replaces_our_rows_only(tmp_path):
    noises = [f"{kind}-{level}" for kind in accuracy.KINDS for level in accuracy.LEVELS_DB]
    old = [
        rows_of(detector, condition, hits, tolerance_ms=tolerance_ms)
        for detector, hits in (("ecg_dask", 900), ("sleepecg", 950))
        for condition in ("clean", *noises)
        for tolerance_ms in (150, 50)
    ]
    old += [rows_of("ecg_dask", "muscle", 7), rows_of("ecg_dask", "baseline", 8)]
    write_report(merge(read_rows(tmp_path), pd.DataFrame(old)), tmp_path, "first")
    before = read_rows(tmp_path)
    assert len(before) == len(old)

    new = [rows_of("ecg_dask", "clean", 990), rows_of("ecg_dask", "clean", 991, record="100")]
    new += [rows_of("ecg_dask", "clean", 800, record="100", tolerance_ms=50)]
    new += [rows_of("ecg_dask", "muscle-6", 970, quality_auroc=0.75, measured="2026-02-02")]
    write_report(merge(before, pd.DataFrame(new)), tmp_path, "second")
    after = read_rows(tmp_path)
    theirs = before[before.detector == "sleepecg"].reset_index(drop=True)
    pd.testing.assert_frame_equal(
        after[after.detector == "sleepecg"].reset_index(drop=True), theirs, check_dtype=False
    )
    ours = after[after.detector == "ecg_dask"].set_index(["condition", "record"])
    assert ours.loc["clean"].hits.tolist() == [990, 991, 800]
    assert ours.loc["muscle-6"].hits.tolist() == [970]
    assert ours.loc["muscle-12"].hits.tolist() == [900, 900]
    # Its levels are no longer those that were pooled.
    assert "muscle" not in ours.index
    assert ours.loc["baseline"].hits.tolist() == [8]

    text = (tmp_path / "accuracy.md").read_text()
    assert text == page(after, "second")
    assert "| muscle, 6 dB | **97.00** | 95.00 |" in text
    assert "| muscle, 12 dB | 90.00 | **95.00** |" in text
    assert "2026-01-01" in text
    assert "2026-02-02" in text
    assert "Not measured: xqrs" in text
    assert "| 100 | 991 | 1 | 2 | 99.10 | 99.10 | 99.10 | 80.00 | 2.0 | 3.0 |" in text
    assert not list(tmp_path.glob(".*"))

    said = readme_tables(before)
    assert "| ecg_dask | 900 | 1 | 2 | 90.00 | 90.00 | 90.00 (90.00) |" in said
    assert "95.0 / 95.0 / 95.0 / 95.0" in said


@pytest.mark.parametrize("name", PEERS)
def test_other_detectors_find_clear_beats_and_leave_the_signal_alone(name):
    peer = PEERS[name]
    if peer.version is None:
        pytest.skip(f"{peer.package} is not installed (benchmark extra)")
    signal, beats = counts(30 * 360, fs=360.0, noise=2)
    lead = signal[:, 0].astype(float) / 500
    kept = lead.copy()
    found = peer.detect(lead, 360.0)
    assert found.dtype == np.int64
    assert (np.diff(found) > 0).all()
    # Beats 0.25 s apart are more than some of them allow.
    assert ecg_dask.evaluate(found, beats, fs=360).f1 > 0.7
    np.testing.assert_array_equal(lead, kept)


def test_what_a_detector_fails_on_counts_as_nothing_found(data_dir, monkeypatch):
    def fail(lead, fs):
        raise ValueError("no beats at all")

    monkeypatch.setitem(accuracy.PEERS, "xqrs", Peer("wfdb", "one that fails", fail))
    path = data_dir / "mitdb" / "100"
    (result,) = accuracy.measure(path, NOISY, ["xqrs"], "cpu")
    assert "no beats at all" in result.failed
    row = table_rows([result], {"100": accuracy.read_reference(path)})[0]
    assert (row["hits"], row["false"], row["missed"], row["failed"]) == (0, 0, 2273, 1)
