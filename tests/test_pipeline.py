"""Whole runs, in process, on one small cluster."""

import json
import os

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import wfdb
from distributed import LocalCluster

import ecg_dask
from ecg_dask import Detector, InputError, Model, evaluate, run
from ecg_dask.synthetic import synthetic, write_csv
from ecg_dask.writers import file_names, result_folder

COLUMNS = [
    "record",
    "sample",
    "time_s",
    "rr_prev_s",
    "rr_next_s",
    "amplitude",
    "quality",
    "complete",
    "span",
    "split",
]


SCORES = [
    "score",
    "anomaly",
    "score_shape",
    "score_timing",
    "score_amplitude",
    "reason",
    "group",
]


@pytest.fixture(scope="module", autouse=True)
def client():
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
        ) as cluster,
        cluster.get_client() as client,
    ):
        yield client


@pytest.fixture(scope="module")
def holter(tmp_path_factory):
    """Five minutes with a gap; beside it the truth."""
    ecg = synthetic(300.0, 250.0, seed=9, gaps=1, ventricular=0.05)
    path = tmp_path_factory.mktemp("holter") / "holter.csv"
    write_csv(ecg, path)
    return path, ecg.beats


@pytest.fixture(scope="module")
def result(holter, tmp_path_factory):
    out = tmp_path_factory.mktemp("result")
    summary = run(holter[0], out, fs=250, chunk=10_000, epochs=8)
    return out, summary


def test_the_folder_holds_what_the_contract_lists(result):
    out, _ = result
    assert sorted(path.name for path in out.iterdir()) == [
        "beats.parquet",
        "holter.beats",
        "model.pt",
        "report.html",
        "spans.parquet",
        "summary.json",
    ]


def test_the_table(result, holter):
    table = pd.read_parquet(result[0] / "beats.parquet")
    assert list(table.columns)[:18] == [*COLUMNS, *SCORES, "z0"]
    schema = pq.read_schema(result[0] / "beats.parquet")
    kinds = {
        name: str(schema.field(name).type) for name in ("sample", "anomaly", "rr_prev_s", "group")
    }
    assert kinds == {
        "sample": "int64",
        "anomaly": "bool",
        "rr_prev_s": "double",
        "group": "int16",
    }
    column = pq.read_table(result[0] / "beats.parquet")["rr_prev_s"]
    assert column.null_count == 2  # the record's start, and the gap
    found = evaluate(table["sample"], holter[1]["sample"], fs=250, tolerance_s=0.05)
    assert found.missed <= 2
    assert found.false <= 1
    incomplete = ~table["complete"]
    assert incomplete.any()
    assert table["score"].isna().equals(incomplete)
    assert not table["anomaly"][incomplete].any()


def test_anomalies_have_groups_and_reasons(result):
    table = pq.read_table(result[0] / "beats.parquet").to_pandas()
    summary = json.loads((result[0] / "summary.json").read_text())
    anomaly = table["anomaly"]
    assert anomaly.sum() >= 10
    assert table["group"].notna().equals(anomaly)
    assert table["reason"].notna().equals(anomaly)
    regrouped = ecg_dask.group_anomalies(table).to_numpy(dtype=float, na_value=np.nan)
    np.testing.assert_array_equal(table["group"], regrouped)
    parts = ["score_shape", "score_timing", "score_amplitude"]
    np.testing.assert_allclose(table[parts].sum(axis=1, skipna=False), table["score"], rtol=1e-5)
    counts = table["group"].value_counts()
    assert [group["beats"] for group in summary["groups"]] == counts.sort_index().tolist()
    assert sum(group["share"] for group in summary["groups"]) == pytest.approx(1)
    by_reason = summary["records"]["holter"]["anomalies_by_reason"]
    assert sum(by_reason.values()) == anomaly.sum()
    assert by_reason == {**dict.fromkeys(by_reason, 0), **table["reason"].value_counts()}
    report = (result[0] / "report.html").read_text()
    for number in range(1, len(counts) + 1):
        assert f"Group {number}: " in report


def test_ventricular_beats_score_higher(result, holter):
    table = pd.read_parquet(result[0] / "beats.parquet").dropna(subset=["score"])
    ventricular = holter[1]["sample"][holter[1]["symbol"] == "V"].to_numpy()
    distance = np.abs(table["sample"].to_numpy()[:, None] - ventricular).min(axis=1)
    is_v = distance <= 25
    assert is_v.sum() >= 10
    assert table["score"][is_v].median() > 2 * table["score"][~is_v].median()


def test_the_annotations_are_the_table(result):
    table = pd.read_parquet(result[0] / "beats.parquet")
    annotation = wfdb.rdann(str(result[0] / "holter"), "beats")
    assert annotation.fs == 250
    assert annotation.sample.tolist() == table["sample"].tolist()
    assert annotation.symbol == np.where(table["anomaly"], "?", "N").tolist()


def test_the_summary(result):
    summary = json.loads((result[0] / "summary.json").read_text())
    table = pd.read_parquet(result[0] / "beats.parquet")
    facts = summary["records"]["holter"]
    assert facts["samples"] == 75_000
    assert facts["seconds"] == 300
    assert facts["gaps"] == 1
    assert facts["missing"] > 0
    assert facts["beats"] == len(table)
    assert facts["incomplete"] == (~table["complete"]).sum()
    assert facts["anomalies"] == table["anomaly"].sum()
    assert facts["pruned"] >= 0
    assert list(summary["stages_s"]) == ["load", "segment", "train", "score", "report"]
    assert summary["versions"]["dask"]
    assert summary["device"] == "cpu"
    assert summary["parameters"]["detector"]["threshold"] == Detector().threshold
    assert summary["model"]["train_beats"] > 100


def test_what_cannot_be_analysed_is_listed(result, holter, tmp_path):
    listed = pd.read_parquet(result[0] / "spans.parquet")
    assert list(listed.columns) == ["record", "reason", "start", "stop", "start_s", "seconds"]
    facts = json.loads((result[0] / "summary.json").read_text())["records"]["holter"]
    assert listed["reason"].tolist() == ["missing"]
    assert (listed["stop"] - listed["start"]).tolist() == [facts["missing"]]
    assert facts["spans"]["counts"] == {"missing": 1, "flat": 0, "clipped": 0, "noise": 0}
    assert facts["spans"]["seconds"]["missing"] == facts["missing"] / 250
    assert facts["spans"]["longest"] == listed.drop(columns="record").to_dict("records")
    table = pq.read_table(result[0] / "beats.parquet")
    assert table["span"].null_count == len(table)
    assert str(table.schema.field("span").type) in ("string", "large_string")


def test_beats_in_spans_stay_and_a_summary_of_many_gaps_stays_small(tmp_path):
    x = synthetic(120.0, 250.0, seed=1).recording.signal.compute()[:, 0]
    x[5000:10_000] = np.random.default_rng(0).normal(0, 0.3, 5000)
    x[15_000::50] = np.nan
    np.save(tmp_path / "x.npy", x)
    summary = run(tmp_path / "x.npy", tmp_path / "out", fs=250, until="segment")
    facts = summary["records"]["x"]["spans"]
    assert facts["counts"]["missing"] == 300
    assert facts["seconds"]["missing"] == pytest.approx(300 / 250)
    assert facts["counts"]["noise"] == 1
    assert len(facts["longest"]) == facts["longest_at_most"] == 100
    assert facts["longest"][0]["reason"] == "noise"
    assert len(pd.read_parquet(tmp_path / "out" / "spans.parquet")) == 301
    table = pd.read_parquet(tmp_path / "out" / "beats.parquet")
    assert (table["span"] == "noise").sum() > 10


def test_the_model_scores_alike_when_loaded(result, holter):
    model = Model.load(result[0] / "model.pt")
    recording = ecg_dask.read(holter[0], fs=250, leads=0)
    scores = model.score(ecg_dask.find_beats(recording)).compute()
    table = pd.read_parquet(result[0] / "beats.parquet")
    np.testing.assert_allclose(scores["score"], table["score"], rtol=1e-5)
    np.testing.assert_array_equal(scores["anomaly"], table["anomaly"])


def test_another_chunk_size_gives_the_same_beats_and_model(result, holter, tmp_path):
    run(holter[0], tmp_path, fs=250, chunk=31_000, epochs=8, until="score")
    first, second = (pd.read_parquet(d / "beats.parquet") for d in (result[0], tmp_path))
    pd.testing.assert_frame_equal(first[COLUMNS], second[COLUMNS], check_exact=True)
    pd.testing.assert_frame_equal(first, second, rtol=1e-5)
    one, other = (Model.load(d / "model.pt") for d in (result[0], tmp_path))
    assert all(np.array_equal(one.weights[name], other.weights[name]) for name in one.weights)
    assert not (tmp_path / "report.html").exists()


def test_an_existing_result_is_kept_unless_told(result, holter, tmp_path):
    run(holter[0], tmp_path, fs=250, until="segment")
    before = (tmp_path / "beats.parquet").read_bytes()
    with pytest.raises(InputError, match=r"beats\.parquet.*overwrite"):
        run(holter[0], tmp_path, fs=250, until="load")
    assert (tmp_path / "beats.parquet").read_bytes() == before
    run(holter[0], tmp_path, fs=250, until="load", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["summary.json"]
    assert json.loads((tmp_path / "summary.json").read_text())["groups"] is None


def test_a_failed_run_leaves_the_old_result_and_nothing_else(result, holter, tmp_path):
    run(holter[0], tmp_path, fs=250, until="segment")
    before = sorted((path.name, path.stat().st_mtime_ns) for path in tmp_path.iterdir())
    with pytest.raises(InputError, match="nowhere"):
        run([holter[0], "nowhere.csv"], tmp_path, fs=250, overwrite=True)
    assert sorted((path.name, path.stat().st_mtime_ns) for path in tmp_path.iterdir()) == before


def test_two_runs_into_one_folder_do_not_meet(tmp_path):
    """The one that ends first wins; the other finds a result and says so."""

    def overlap():
        with result_folder(tmp_path, False) as slow:
            (slow / "summary.json").write_text("slow")
            with result_folder(tmp_path, False) as fast:
                (fast / "summary.json").write_text("fast")

    with pytest.raises(InputError, match=r"a result already \(summary\.json\)"):
        overlap()
    assert (tmp_path / "summary.json").read_text() == "fast"
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


def test_what_a_killed_run_left_is_removed_when_it_is_old(tmp_path):
    for name in ("old", "young"):
        (tmp_path / f".unfinished-{name}").mkdir()
    os.utime(tmp_path / ".unfinished-old", (0, 0))
    with result_folder(tmp_path, False):
        pass
    assert [path.name for path in tmp_path.iterdir()] == [".unfinished-young"]


def test_several_records_share_a_model_and_are_told_apart(tmp_path):
    paths = []
    for i, (name, fs) in enumerate([("a/x.csv", 250.0), ("b/x.csv", 250.0), ("b/X y.csv", 250.0)]):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        signal = synthetic(60.0, fs, seed=i).recording.signal.compute()
        pd.DataFrame(signal, columns=["ECG (mV)"]).to_csv(path, index=False)
        paths.append(path)
    summary = run(paths, tmp_path / "out", fs=250, epochs=2)
    assert list(summary["records"]) == ["x", "x-2", "X y"]
    annotations = [facts["annotations"] for facts in summary["records"].values()]
    assert annotations == ["x.beats", "x-2.beats", "X_y.beats"]
    table = pd.read_parquet(tmp_path / "out" / "beats.parquet")
    assert table["record"].unique().tolist() == ["x", "x-2", "X y"]
    assert table["group"].notna().equals(table["anomaly"])
    told = ecg_dask.group_anomalies(table).to_numpy(dtype=float, na_value=np.nan)
    np.testing.assert_array_equal(table["group"].to_numpy(dtype=float, na_value=np.nan), told)
    counts = {name: facts["beats"] for name, facts in summary["records"].items()}
    assert table.groupby("record").size().to_dict() == counts
    for stem in ("x", "x-2", "X_y"):
        assert len(wfdb.rdann(str(tmp_path / "out" / stem), "beats").sample) > 20
    assert summary["model"]["train_beats"] > 100


@pytest.mark.parametrize("n_samples", [1, 2, 500])
def test_a_file_without_beats_is_a_result(tmp_path, n_samples):
    path = tmp_path / "flat.csv"
    path.write_text("ecg\n" + "0.5\n" * n_samples)
    summary = run(path, tmp_path / "out", fs=250)
    facts = summary["records"]["flat"]
    assert facts["beats"] == 0
    assert facts["annotations"] is None
    assert any("no beats" in note for note in facts["notes"])
    spans = facts["spans"]["counts"]
    assert spans == {"missing": 0, "flat": int(n_samples >= 250), "clipped": 0, "noise": 0}
    table = pd.read_parquet(tmp_path / "out" / "beats.parquet")
    assert len(table) == 0
    assert list(table.columns)[:17] == [*COLUMNS, *SCORES]
    assert summary["groups"] == []
    assert not list((tmp_path / "out").glob("*.beats"))
    assert "<html" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize("n_beats", [1, 2])
def test_one_and_two_beats_are_results(tmp_path, n_beats):
    x = np.zeros(3000)
    x[[1000, 1400][:n_beats]] = 1
    path = tmp_path / "few.npy"
    np.save(path, x)
    summary = run(path, tmp_path / "out", fs=250)
    assert summary["records"]["few"]["beats"] == n_beats
    assert (tmp_path / "out" / "report.html").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"until": "lunch"}, "until.*load, segment"),
        ({"lead": "V9"}, "V9.*allowed"),
        ({"epochs": 0}, "epochs"),
        ({"seed": -1}, "seed"),
        ({"alarms_per_hour": -1}, "alarms_per_hour"),
        ({"chunk": "many"}, "chunk"),
        ({"chunk": ""}, "chunk"),
        ({"chunk": 1}, "chunk.*1,000 samples"),
        ({"fs": 10.0}, "50 to 20000 Hz"),
        ({"fs": 1e9}, "50 to 20000 Hz"),
        ({"scheduler": "tcp://127.0.0.1:1"}, "active"),
        ({"workers": 2}, "active"),
    ],
)
def test_options_that_cannot_be(holter, tmp_path, options, words):
    with pytest.raises(InputError, match=words):
        run(holter[0], tmp_path / "out", **{"fs": 250, **options})
    assert not (tmp_path / "out").exists()


def test_an_out_that_cannot_be_a_folder(holter, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match=r"out .*file"):
        run(holter[0], tmp_path / "file", fs=250)
    with pytest.raises(InputError, match="no file"):
        run([], tmp_path / "out")
    with pytest.raises(InputError, match="an empty name"):
        run(holter[0], "", fs=250)
    (tmp_path / "parts" / "beats.parquet").mkdir(parents=True)
    with pytest.raises(InputError, match="a folder among"):
        run(holter[0], tmp_path / "parts", fs=250, overwrite=True)


def test_file_names_are_safe_and_differ():
    names = ["a b", "a_b", "a/b", "A_B", "ok-1"]
    stems = file_names(names)
    assert stems == {"a b": "a_b", "a_b": "a_b-2", "a/b": "a_b-3", "A_B": "A_B-4", "ok-1": "ok-1"}


@pytest.mark.parametrize("record", ["100", "104", "207", "208", "232"])
def test_mitdb_records(data_dir, tmp_path, record):
    path = data_dir / "mitdb" / record
    summary = run(path, tmp_path, epochs=1, chunk=200_000)
    table = ecg_dask.evaluation.evaluate_directory(tmp_path, path)
    assert table["sensitivity"][0] > 0.99
    assert table["positive_predictivity"][0] > 0.99
    facts = summary["records"][record]
    assert facts["samples"] == 650_000
    assert (tmp_path / "report.html").stat().st_size > 100_000


def test_three_mitdb_records_in_one_model(data_dir, tmp_path):
    paths = [data_dir / "mitdb" / record for record in ("100", "208", "232")]
    summary = run(paths, tmp_path, lead="all", epochs=1)
    assert list(summary["records"]) == ["100", "208", "232"]
    assert summary["records"]["232"]["leads"] == ["MLII", "V1"]
    model = Model.load(tmp_path / "model.pt")
    assert model.n_leads == 2
    table = pd.read_parquet(tmp_path / "beats.parquet")
    n_complete = table["complete"].groupby(table["split"]).sum()
    assert model.n_held_out == n_complete["test"]
    assert n_complete["train"] / 2 < model.n_train <= n_complete["train"]
