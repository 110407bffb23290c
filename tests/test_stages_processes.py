"""Steps against a scheduler and workers that outlive them.

The first test runs each as a process of its own; the others run the same commands in this process,
where importing PyTorch is paid once.
"""

import json
import os
from dataclasses import asdict

import dask
import pandas as pd
import pyarrow.parquet as pq
import pytest
import wfdb
from click.testing import CliRunner
from distributed import Client
from stage_clusters import cluster, tool

from ecg_dask import Detector, find_beats
from ecg_dask.cli import main
from ecg_dask.result import parts_on_host
from ecg_dask.store import Store
from ecg_dask.synthetic import synthetic, write_csv
from ecg_dask.writers import write_table

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two recordings of a few minutes, one with a gap."""
    made = tmp_path_factory.mktemp("stages")
    write_csv(synthetic(240.0, 250.0, seed=9, gaps=1, ventricular=0.05), made / "holter.csv")
    write_csv(synthetic(120.0, 250.0, seed=4, ventricular=0.05), made / "other.csv")
    return made


@pytest.fixture(scope="module")
def running(folder):
    with cluster(folder) as started:
        yield started


@pytest.fixture(scope="module")
def call(folder, running):
    def called(*arguments, status=0):
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setenv("ECG_DASK_SCHEDULER", running.address)
            done = CliRunner().invoke(main, list(map(str, arguments)))
        assert done.exit_code == status, done.output
        assert done.exception is None or isinstance(done.exception, SystemExit)
        return done

    return called


@pytest.fixture
def store(running):
    with Client(running.address, set_as_default=True) as client:
        yield Store(client)


@pytest.fixture(scope="module")
def result(call, running, folder):
    """What the single command makes, and the same by steps: day, beats, model, scored."""
    options = ["--fs", 250, "--chunk", 10_000, "--epochs", 3]
    run_alone(["holter.csv"], "single", options, running, folder)
    call("stage", "load", "holter.csv", "--out", "day", "--fs", 250, "--chunk", 10_000)
    call("stage", "segment", "--in", "day", "--out", "beats")
    call("stage", "train", "--in", "beats", "--out", "model", "--epochs", 3)
    call("stage", "score", "--in", "model", "--in", "beats", "--out", "scored")
    return folder / "single"


def run_alone(files, out, options, running, folder):
    """Run the single command, in a process where no client is active."""
    tool("run", *files, "--out", out, *options, "--scheduler", running.address, cwd=folder)


def rows_of(table):
    """Return the rows of a table in the store, in its order."""
    (parts,) = dask.compute(parts_on_host([table.to_delayed()]))
    return pd.concat(parts[0], ignore_index=True)


def assert_same_table(table, expected, folder):
    """Compare as the file would be that `run` writes, bit for bit."""
    write_table(folder / "own.parquet", rows_of(table))
    assert pq.read_table(folder / "own.parquet").equals(pq.read_table(expected))


def test_five_processes_make_the_table_of_one_command_while_a_worker_dies(tmp_path, folder):
    with cluster(tmp_path) as running:

        def call(*arguments):
            return tool(*arguments, scheduler=running.address, cwd=tmp_path).stdout

        file = folder / "holter.csv"
        options = ["--fs", 250, "--chunk", 10_000]
        call(
            "run", file, "--out", "single", *options, "--epochs", 3, "--scheduler", running.address
        )
        assert call("stage", "load", file, "--out", "day", *options).startswith(
            "day: 60,000 samples"
        )
        assert "beats: " in call("stage", "segment", "--in", "day", "--out", "beats")
        with Client(running.address, set_as_default=False) as client:
            held = client.has_what()
            address = max(held, key=lambda worker: len(held[worker]))
            assert held[address]
            pid = client.run(os.getpid, workers=[address])[address]
        running.kill(pid)
        trained = call("stage", "train", "--in", "beats", "--out", "model", "--epochs", 3)
        assert trained.startswith("model: trained on ")
        running.start_worker()
        scored = call("stage", "score", "--in", "beats", "--in", "model", "--out", "scored")
        query = "select record, count(*) as n from scored where anomaly group by record"
        counted = call("stage", "sql", query, "--out", "counts")
        table = pd.read_parquet(tmp_path / "single" / "beats.parquet")
        assert table["anomaly"].sum() > 5
        anomalies = f"{len(table):,} beats, {table['anomaly'].sum():,} anomalies"
        assert scored == f"scored: {anomalies}\n"
        assert counted == "counts: 1 rows, 2 columns\n"
        with Client(running.address) as client:
            store = Store(client)
            assert_same_table(store.get("scored"), tmp_path / "single" / "beats.parquet", tmp_path)
            counts = rows_of(store.get("counts"))
            assert counts.to_dict("records") == [{"record": "holter", "n": table["anomaly"].sum()}]


def test_the_report_is_that_of_one_command(result, call, folder):
    done = call("stage", "report", "--in", "scored", "--in", "day", "--in", "model", "--out", "own")
    assert done.stdout == "own: own/report.html\n"
    own = folder / "own"
    assert sorted(path.name for path in own.iterdir()) == sorted(
        path.name for path in result.iterdir()
    )
    for name in ("beats.parquet", "spans.parquet"):
        assert pq.read_table(own / name).equals(pq.read_table(result / name))
    for name in ("model.pt", "holter.beats"):
        assert (own / name).read_bytes() == (result / name).read_bytes()
    one, other = (json.loads((place / "summary.json").read_text()) for place in (own, result))
    for name in ("records", "model", "groups", "versions", "device"):
        assert one[name] == other[name]
    assert one["recipe"]["step"] == "report"
    assert one["parameters"]["inputs"]["day"]["fs"] == 250
    refused = call(
        "stage",
        "report",
        *("--in", "scored", "--in", "day", "--in", "model"),
        "--out",
        "own",
        status=1,
    )
    assert "a result already" in refused.stderr


def test_of_some_of_the_scored_rows_a_report_is_made_too(result, call, folder):
    query = "select * from scored where sample > 20000 and quality > 0.5 order by score"
    call("stage", "sql", query, "--out", "some")
    call("stage", "report", "--in", "some", "--in", "day", "--in", "model", "--out", "of-some")
    whole = pd.read_parquet(result / "beats.parquet")
    expected = whole[(whole["sample"] > 20_000) & (whole["quality"] > 0.5)]
    assert 0 < len(expected) < len(whole)
    own = pd.read_parquet(folder / "of-some" / "beats.parquet")
    pd.testing.assert_frame_equal(own, expected.reset_index(drop=True), check_exact=True)
    facts = json.loads((folder / "of-some" / "summary.json").read_text())["records"]["holter"]
    assert facts["beats"] == len(own)
    assert facts["notes"][-1].startswith(f"{len(whole) - len(own)} of {len(whole)} beats")
    annotated = wfdb.rdann(str(folder / "of-some" / "holter"), "beats")
    assert annotated.sample.tolist() == own["sample"].tolist()


def test_several_recordings_share_a_model(result, call, running, folder, store, tmp_path):
    files = ["holter.csv", "other.csv"]
    for file in files:
        name = file.split(".")[0]
        call("stage", "load", file, "--out", name, "--fs", 250)
        call("stage", "segment", "--in", name, "--out", f"{name}-beats")
    both = ["--in", "holter-beats", "--in", "other-beats"]
    call("stage", "train", *both, "--out", "shared", "--epochs", 2, "--alarms-per-hour", 60)
    call("stage", "score", *both, "--in", "shared", "--out", "both")
    options = ["--fs", 250, "--epochs", 2, "--alarms-per-hour", 60, "--until", "score"]
    run_alone(files, "of-both", options, running, folder)
    assert_same_table(store.get("both"), folder / "of-both" / "beats.parquet", tmp_path)
    said = call(
        "stage",
        "report",
        "--in",
        "holter",
        "--in",
        "shared",
        "--in",
        "both",
        "--out",
        "x",
        status=1,
    )
    assert "scored beats of other, and recordings of holter" in said.stderr
    call(
        "stage",
        "report",
        *("--in", "holter", "--in", "other"),
        "--in",
        "shared",
        "--in",
        "both",
        "--out",
        "x",
    )
    assert json.loads((folder / "x" / "summary.json").read_text())["records"].keys() == {
        "holter",
        "other",
    }
    twice = call(
        "stage",
        "score",
        *("--in", "holter-beats", "--in", "beats"),
        "--in",
        "shared",
        "--out",
        "y",
        status=1,
    )
    assert "the record holter in two of the beats" in twice.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["segment", "--in", "nowhere", "--out", "x"], ["nowhere", "no such name"]),
        (
            ["segment", "--in", "beats", "--out", "x"],
            ["beats, which is of kind beats", "a recording"],
        ),
        (["score", "--in", "beats", "--out", "x"], ["no name of kind model"]),
        (["segment", "--in", "day", "--out", "beats"], ["name beats", "--overwrite"]),
        (["segment", "--in", "day", "--out", "a/b"], ["name", "'a/b'"]),
        (["load", "nowhere.csv", "--out", "x", "--fs", "250"], ["nowhere.csv", "no such file"]),
        (["load", "holter.csv", "--out", "x", "--fs", "250", "--chunk", "10"], ["1,000 samples"]),
        (["train", "--in", "beats", "--out", "x", "--epochs", "0"], ["epochs"]),
        (["sql", "select nothing from scored", "--out", "x"], ["nothing", "scored"]),
        (["sql", "drop table scored", "--out", "x"], ["scored"]),
        (
            ["report", "--in", "day", "--in", "model", "--in", "bare", "--out", "new"],
            ["bare", "score_shape"],
        ),
        (
            ["report", "--in", "day", "--in", "model", "--in", "moved", "--out", "new"],
            ["beats of holter", "are no beats of the recording"],
        ),
    ],
)
def test_what_cannot_be_done_is_told_in_words(result, call, store, folder, arguments, words):
    names = [entry.name for entry in store.list()]
    if "bare" not in names:
        scored = rows_of(store.get("scored"))
        store.put("bare", scored[["record", "sample"]])
        store.put("moved", scored.assign(sample=scored["sample"] + 1))
    said = call("stage", *arguments, status=1).stderr
    for word in [*words, "allowed"]:
        assert word in said
    assert "x" not in [entry.name for entry in store.list()]
    assert not (folder / "new").exists()


def test_a_detector_of_ones_own_is_found_by_the_report(result, call, store, folder):
    """The beats of another detector, put by a module; the report cuts as that one does."""
    # Of another window, since the default one would find these beats as well.
    detector = Detector(threshold=0.9, refractory_s=0.3, before_s=0.3)
    beats = find_beats(store.get("day"), detector)
    store.put("strict", beats, parameters={"detectors": {"holter": asdict(detector)}})
    store.put("strict-good", store.get("strict").where(_is_good), made_from=["strict"])
    assert len(store.get("strict").table) < len(store.get("beats").table)
    call("stage", "train", "--in", "strict-good", "--out", "strict-model", "--epochs", 1)
    call("stage", "score", "--in", "strict-good", "--in", "strict-model", "--out", "strict-scored")
    # What the scored table was made of is no longer needed.
    for name in ("strict", "strict-good"):
        store.drop(name)
    names = ["--in", "day", "--in", "strict-scored", "--in", "strict-model"]
    call("stage", "report", *names, "--out", "strict")
    own = pd.read_parquet(folder / "strict" / "beats.parquet")
    assert own["sample"].tolist() == rows_of(store.get("strict-scored"))["sample"].tolist()


def _is_good(table):
    return table["quality"] > 0.6


def test_names_are_listed_and_dropped(result, call, store, folder):
    store.put("odd.name", pd.DataFrame({"a": [1, 2]}))
    listed = {entry["name"]: entry for entry in json.loads(call("store", "list", "--json").stdout)}
    assert listed["beats"]["kind"] == "beats"
    assert list(listed["beats"]["made_from"]) == ["day"]
    assert listed["beats"]["recipe"]["inputs"] == {"day": listed["day"]["id"]}
    assert listed["odd.name"]["recipe"] is None
    assert "\nbeats: beats, " in "\n" + call("store", "list").stdout
    assert call("store", "drop", "odd.name").stdout == "odd.name: dropped\n"
    assert "odd.name" not in call("store", "list").stdout
    assert "no such name" in call("store", "drop", "odd.name", status=1).stderr


def test_names_outlive_the_scheduler_in_a_snapshot(call, store, tmp_path):
    store.put("kept", pd.DataFrame({"a": [1, 2]}), overwrite=True)
    call("store", "snapshot", tmp_path / "names")
    store.drop("kept")
    refused = call("store", "restore", tmp_path / "names", status=1)
    assert "allowed" in refused.stderr
    assert "kept: table" in call("store", "restore", tmp_path / "names", "--overwrite").stdout
    assert rows_of(store.get("kept"))["a"].tolist() == [1, 2]


def test_a_scheduler_without_workers_is_told(tmp_path):
    with cluster(tmp_path, workers=0) as running:
        done = tool("store", "list", status=1, scheduler=running.address)
        assert "no worker" in done.stderr
