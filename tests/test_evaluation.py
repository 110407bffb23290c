import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import wfdb
from hypothesis import given
from hypothesis import strategies as st

from ecg_dask.errors import InputError
from ecg_dask.evaluation import END, Evaluation, evaluate, evaluate_directory, flutter_spans

FS = 100.0
beats = st.lists(st.integers(0, 60), max_size=12).map(sorted)
spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=3).map(
    lambda pairs: [(start, start + length) for start, length in pairs]
)


def most_pairs(detected: list[int], reference: list[int], tolerance: int) -> int:
    """Dynamic programming over both lists: the largest number of pairs in order."""
    best = [[0] * (len(reference) + 1) for _ in range(len(detected) + 1)]
    for i, found in enumerate(detected, 1):
        for j, true in enumerate(reference, 1):
            best[i][j] = max(best[i - 1][j], best[i][j - 1])
            if abs(found - true) <= tolerance:
                best[i][j] = max(best[i][j], best[i - 1][j - 1] + 1)
    return best[-1][-1]


@given(beats, beats, st.integers(0, 12))
def test_pairs_are_as_many_as_can_be(detected, reference, tolerance):
    result = evaluate(detected, reference, fs=FS, tolerance_s=tolerance / FS)
    pairs = most_pairs(detected, reference, tolerance)
    assert result.hits == pairs
    assert result.false == len(detected) - pairs
    assert result.missed == len(reference) - pairs
    assert not result.jitter_median_s > tolerance / FS


@given(beats, beats, spans)
def test_exclusion_only_takes_away(detected, reference, exclude):
    whole = evaluate(detected, reference, fs=FS, tolerance_s=0.05)
    part = evaluate(detected, reference, fs=FS, tolerance_s=0.05, exclude=exclude)
    outside = [sum(not any(a <= at < b for a, b in exclude) for at in reference)]
    assert part.hits + part.missed == outside[0]
    assert part.hits <= whole.hits
    assert part.false <= whole.false
    assert part.missed <= whole.missed
    beyond = [(-5, 0), (61, END)]
    assert evaluate(detected, reference, fs=FS, tolerance_s=0.05, exclude=beyond) == pytest.approx(
        whole, nan_ok=True
    )


def test_figures():
    result = evaluate([100, 195, 310, 333, 500], [100, 200, 300, 400], fs=FS, tolerance_s=0.1)
    assert result == pytest.approx((3, 2, 1, 3 / 4, 3 / 5, 6 / 9, 0.05, 0.095))
    assert isinstance(result, Evaluation)


def test_one_beat_detected_three_times_is_one_hit():
    result = evaluate([98, 100, 103], [100], fs=FS)
    assert (result.hits, result.false, result.missed) == (1, 2, 0)


@pytest.mark.parametrize(
    ("detected", "reference"),
    [([90, 100], [100]), ([100], [90, 100]), ([90, 100, 110], [100, 110]), ([100, 108], [100])],
)
def test_the_nearer_of_two_is_paired(detected, reference):
    assert evaluate(detected, reference, fs=FS).jitter_median_s == 0


def test_jitter_knows_no_constant_offset():
    reference = np.arange(0, 10_000, 100)
    late = evaluate(reference + 4, reference, fs=FS)
    assert late.jitter_median_s == 0.04
    assert late.jitter_p95_s == 0
    early = reference - 4
    early[::4] += 3
    assert evaluate(early, reference, fs=FS).jitter_p95_s == 0.03


@pytest.mark.parametrize(
    ("tolerance_s", "fs", "distance"), [(0.29, 100, 29), (0.15, 360, 54), (0.15, 250, 37)]
)
def test_tolerance_is_allowed_itself(tolerance_s, fs, distance):
    for sign in (-1, 1):
        near = evaluate([1000 + sign * distance], [1000], fs=fs, tolerance_s=tolerance_s)
        far = evaluate([1000 + sign * (distance + 1)], [1000], fs=fs, tolerance_s=tolerance_s)
        assert (near.hits, far.hits) == (1, 0)


def test_nothing_to_compare():
    empty = evaluate([], [], fs=FS)
    assert empty[:3] == (0, 0, 0)
    assert all(math.isnan(value) for value in empty[3:])
    unseen = evaluate([], [5, 9], fs=FS)
    assert unseen[:4] == (0, 0, 2, 0.0)
    assert math.isnan(unseen.positive_predictivity)
    assert unseen.f1 == 0
    invented = evaluate([5, 9], [], fs=FS)
    assert math.isnan(invented.sensitivity)
    assert (invented.positive_predictivity, invented.f1) == (0, 0)


@pytest.mark.parametrize(
    ("detected", "reference", "expected"),
    [
        ([100], [100], (1, 0, 0)),
        ([200], [200], (0, 0, 0)),
        ([], [200], (0, 0, 0)),
        ([200], [], (0, 0, 0)),
        # A pair counts where its reference beat is: the span is half-open.
        ([205], [199], (1, 0, 0)),
        ([195], [200], (0, 0, 0)),
        ([305], [299], (0, 0, 0)),
        ([299], [300], (1, 0, 0)),
        ([300], [], (0, 1, 0)),
        ([], [300], (0, 0, 1)),
    ],
)
def test_excluded_span(detected, reference, expected):
    for exclude in ([(200, 300)], [(250, 300), (200, 250)], [(200, 300), (220, 240), (7, 7)]):
        assert evaluate(detected, reference, fs=FS, exclude=exclude)[:3] == expected


@pytest.mark.parametrize("kind", [list, np.array, pd.Series, lambda x: np.array(x, np.float32)])
def test_kinds_of_arrays(kind):
    assert evaluate(kind([1, 100, 100]), kind([3, 101]), fs=FS)[:3] == (2, 1, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"detected": [3, 2]}, "detected: found 2 after 3 at index 1"),
        ({"reference": [0.0, 0.5]}, "reference: found 0.5 at index 1"),
        ({"reference": [0.0, math.nan]}, "reference: found nan at index 1"),
        ({"reference": [0.0, math.inf]}, "reference: found inf at index 1"),
        ({"detected": [[1, 2]]}, r"detected: found an array of shape \(1, 2\)"),
        ({"detected": ["a"]}, "detected: found values of type <U1"),
        ({"detected": [[1], [2, 3]]}, "detected: found"),
        ({"fs": 0}, "fs: found 0"),
        ({"fs": "360"}, "fs: found '360'"),
        ({"tolerance_s": -0.1}, "tolerance_s: found -0.1"),
        ({"tolerance_s": math.nan}, "tolerance_s: found nan"),
        ({"exclude": [(5, 4)]}, "exclude: found a span that stops before it starts"),
        ({"exclude": [(0, 1.5)]}, "exclude: found"),
        ({"exclude": [(0, 1 << 70)]}, "exclude: found"),
        ({"exclude": [3]}, "exclude: found"),
    ],
)
def test_refused(change, message):
    arguments = {"detected": [1], "reference": [1], "fs": FS, **change}
    with pytest.raises(InputError, match=message):
        evaluate(arguments.pop("detected"), arguments.pop("reference"), **arguments)


@pytest.mark.parametrize(
    ("symbols", "expected"),
    [
        ("NNN", []),
        ("N[!]N", [(1, 3)]),
        ("[]N[]", [(0, 1), (3, 4)]),
        ("N[!!", [(1, END)]),
        ("!]N", [(0, 1)]),
        ("[[]]N", [(0, 2)]),
    ],
)
def test_flutter_spans(symbols, expected):
    assert flutter_spans(np.arange(len(symbols)), list(symbols)) == expected


def write_run(folder: Path, records: dict[str, list[int]], fs: float | None = 360.0) -> Path:
    folder.mkdir()
    rows = [(name, at) for name, samples in records.items() for at in samples]
    table = pd.DataFrame(rows, columns=["record", "sample"]).astype({"sample": "Int64"})
    table.assign(time_s=table["sample"] / 360).to_parquet(folder / "beats.parquet")
    facts = {} if fs is None else {"fs": fs}
    summary = {"records": dict.fromkeys(records, facts)}
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def write_reference(folder: Path, samples: list[int], symbols: str, fs: float | None = 360) -> Path:
    wfdb.wrann("100", "atr", np.array(samples), list(symbols), fs=fs, write_dir=str(folder))
    return folder / "100"


def test_directory(tmp_path):
    # The other record has a row that could not be used, so it must not even be looked at.
    run = write_run(tmp_path / "out", {"99": [1, None], "100": [100, 410, 700, 1010, 1600]})
    reference = write_reference(tmp_path, [50, 100, 400, 900, 1000, 1200], "+NV[N]")
    result = evaluate_directory(run, reference)
    assert list(result.columns) == ["record", "tolerance_s", *Evaluation._fields]
    assert list(result["record"]) == ["100", "100"]
    assert list(result["tolerance_s"]) == [0.15, 0.05]
    # The beat in the flutter is left out, and its detection too.
    assert result.loc[0, ["hits", "false", "missed"]].tolist() == [2, 2, 0]
    for path in (f"{reference}.atr", str(reference)):
        pd.testing.assert_frame_equal(evaluate_directory(str(run), path), result)
    narrow = evaluate_directory(run, reference, tolerance_s=[0.02])
    assert narrow.loc[0, ["hits", "false", "missed"]].tolist() == [1, 3, 1]


def test_an_annotation_beyond_the_record_is_of_another_one(tmp_path):
    run = write_run(tmp_path / "out", {"100": [100]})
    summary = json.loads((run / "summary.json").read_text())
    summary["records"]["100"]["samples"] = 500
    (run / "summary.json").write_text(json.dumps(summary))
    write_reference(tmp_path, [100, 400], "NN")
    assert evaluate_directory(run, tmp_path / "100")["hits"].tolist() == [1, 1]
    write_reference(tmp_path, [100, 900], "NN")
    with pytest.raises(InputError, match="sample 900, where 100 has 500 samples"):
        evaluate_directory(run, tmp_path / "100")


def test_directory_of_parts(tmp_path):
    run = write_run(tmp_path / "out", {"100": []})
    (run / "beats.parquet").unlink()
    (run / "beats.parquet").mkdir()
    for part in range(12):
        table = pd.DataFrame({"record": ["100"], "sample": [1000 * part + 500]})
        table.to_parquet(run / "beats.parquet" / f"part.{part}.parquet")
    reference = write_reference(tmp_path, [1000 * part + 500 for part in range(12)], "N" * 12)
    assert evaluate_directory(run, reference)["hits"].tolist() == [12, 12]


def test_named_record_and_other_extension(tmp_path):
    run = write_run(tmp_path / "out", {"day": [100, 400]})
    write_reference(tmp_path, [100, 400], "NN")
    (tmp_path / "100.atr").rename(tmp_path / "100.qrs")
    result = evaluate_directory(run, tmp_path / "100", extension="qrs", record="day")
    assert result["f1"].tolist() == [1, 1]
    with pytest.raises(InputError, match=r"no record '100'; allowed: a record of: day"):
        evaluate_directory(run, tmp_path / "100", extension="qrs")


def test_record_without_beats(tmp_path):
    run = write_run(tmp_path / "out", {"99": [5], "100": []})
    result = evaluate_directory(run, write_reference(tmp_path, [100, 400], "NN"))
    assert result["missed"].tolist() == [2, 2]


def test_rate_from_either_side(tmp_path):
    reference = write_reference(tmp_path, [100], "N", fs=None)
    run = write_run(tmp_path / "out", {"100": [110]})
    assert evaluate_directory(run, reference)["jitter_median_s"][0] == pytest.approx(10 / 360)
    bare = write_run(tmp_path / "bare", {"100": [110]}, fs=None)
    with pytest.raises(InputError, match="fs of 100: found no sampling rate"):
        evaluate_directory(bare, reference)
    reference = write_reference(tmp_path, [100], "N", fs=250)
    assert evaluate_directory(bare, reference)["jitter_median_s"][0] == pytest.approx(10 / 250)
    with pytest.raises(InputError, match="250 Hz in the annotation and 360 Hz"):
        evaluate_directory(run, reference)


def test_directory_refused(tmp_path):
    reference = write_reference(tmp_path, [100], "N")
    run = write_run(tmp_path / "out", {"100": [100]})
    with pytest.raises(InputError, match=r"nowhere.summary\.json: found no such file"):
        evaluate_directory(tmp_path / "nowhere", reference)
    with pytest.raises(InputError, match="absent"):
        evaluate_directory(run, tmp_path / "absent", record="100")

    pd.DataFrame({"record": ["100"]}).to_parquet(run / "beats.parquet")
    with pytest.raises(InputError, match=r"beats\.parquet: found .*sample"):
        evaluate_directory(run, reference)
    pd.DataFrame({"sample": [1]}).to_parquet(run / "beats.parquet")
    with pytest.raises(InputError, match=r"beats\.parquet: found .*record"):
        evaluate_directory(run, reference)
    pd.DataFrame({"record": ["100"], "sample": [None]}).to_parquet(run / "beats.parquet")
    with pytest.raises(InputError, match=r"sample of .*beats\.parquet: found"):
        evaluate_directory(run, reference)
    (run / "beats.parquet").write_text("record,sample\n")
    with pytest.raises(InputError, match=r"beats\.parquet: found"):
        evaluate_directory(run, reference)
    (run / "beats.parquet").unlink()
    with pytest.raises(InputError, match=r"beats\.parquet: found no such file"):
        evaluate_directory(run, reference)

    for text in ("{", "[]", "{}", '{"records": []}', '{"records": {"100": {"fs": -1}}}'):
        (run / "summary.json").write_text(text)
        with pytest.raises(InputError, match=r"summary\.json: found"):
            evaluate_directory(run, reference)
