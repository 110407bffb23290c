"""Queries over names in the store, and the command as a user runs it: a process of its own."""

import json
import subprocess
import sys

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster

import ecg_dask
from ecg_dask import InputError, Store
from ecg_dask.sql_command import MOST_SHOWN, as_json, check_file, show, write_file
from ecg_dask.synthetic import synthetic

COUNTS = "select record, count(*) as n from scored where anomaly group by record order by record"


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None, protocol="tcp"
    ) as made:
        yield made


@pytest.fixture(scope="module")
def store(cluster):
    with Client(cluster) as client:
        made = Store(client)
        scored = pd.DataFrame(
            {
                "record": ["a", "b", "a", "b", "c", "a"],
                "score": np.array([1, 9, 8, 7, np.nan, 2], np.float32),
                "anomaly": [False, True, True, True, False, False],
            }
        )
        made.put("scored", dd.from_pandas(scored, npartitions=3))
        made.put("weights", pd.DataFrame({"record": ["a", "b"], "weight": [0.5, 2.0]}))
        made.put("beats", ecg_dask.find_beats(synthetic(60.0, 250.0, seed=2).recording))
        made.put("many", pd.DataFrame({"i": np.arange(1234)}))
        yield made


def call(store, *arguments, status=0):
    tool = [sys.executable, "-m", "ecg_dask", "sql", "--scheduler", store._client.scheduler.address]
    done = subprocess.run(
        [*tool, *map(str, arguments)], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_an_answer_stays_on_a_worker_until_it_is_fetched(store):
    answer = store.sql(COUNTS)
    assert isinstance(answer, dd.DataFrame)
    assert answer.npartitions == 1
    assert answer.dtypes.astype(str).to_dict() == {"record": "str", "n": "int64"}
    assert answer.compute().to_dict("list") == {"record": ["a", "b"], "n": [1, 2]}


def test_tables_are_joined_and_beats_mean_their_table(store):
    joined = "select sum(score * weight) as s from scored join weights using (record)"
    assert store.sql(joined).compute()["s"].tolist() == [0.5 * 11 + 2 * 16]
    beats = store.get("beats").table.compute()
    found = store.sql("select * from beats order by sample").compute()
    pd.testing.assert_frame_equal(found, beats.reset_index(drop=True))


def test_an_answer_is_a_name_that_the_next_query_reads(store):
    store.sql("select * from scored where anomaly", out="worst")
    entry = store.entry("worst")
    assert entry.kind == "table"
    assert entry.made_from == {"scored": store.entry("scored").id}
    assert entry.parameters["engine"] == "cpu"
    assert store.sql("select count(*) as n from worst").compute()["n"].tolist() == [3]
    with pytest.raises(InputError, match="table of that name already"):
        store.sql("select 1 as a", out="worst")
    store.sql("select 1 as a", out="worst", overwrite=True)
    assert store.get("worst").compute()["a"].tolist() == [1]
    store.drop("worst")


@pytest.mark.parametrize(
    "query", ["select nope from scored", "select * from nobody", "drop table scored", "select"]
)
def test_a_wrong_query_tells_all_names_and_columns(store, query):
    with pytest.raises(InputError) as caught:
        store.sql(query)
    text = str(caught.value)
    assert "scored (record, score, anomaly)" in text
    assert "weights (record, weight)" in text
    assert "beats (record, sample, time_s, " in text
    assert "waves" not in text
    assert {entry.name for entry in store.list()} >= {"scored", "weights", "beats"}


def test_the_command_prints_a_table(store):
    said = call(store, COUNTS).stdout.split()
    assert said == ["record", "n", said[2], "a", "1", "b", "2"]
    said = call(store, "select i from many order by i").stdout
    assert f"The first {MOST_SHOWN} of 1,234 rows" in said
    assert "49" in said
    assert "50 " not in said.replace(f"first {MOST_SHOWN} ", "")


def test_the_command_prints_csv_and_json(store):
    assert call(store, COUNTS, "--format", "csv").stdout == "record,n\na,1\nb,2\n"
    query = "select record, score from scored order by record, score"
    found = json.loads(call(store, query, "--format", "json").stdout)
    assert found[0] == {"record": "a", "score": 1.0}
    assert found[-1] == {"record": "c", "score": None}


def test_the_command_writes_files_and_names(store, tmp_path):
    path = tmp_path / "counts.parquet"
    done = call(store, COUNTS, "--out", path, "--name", "counts", "--format", "csv")
    assert done.stdout == "record,n\na,1\nb,2\n"
    assert done.stderr == f"counts: 2 rows of record, n\n{path}: 2 rows of record, n\n"
    assert pd.read_parquet(path).to_dict("list") == {"record": ["a", "b"], "n": [1, 2]}
    assert store.get("counts").compute()["n"].tolist() == [1, 2]
    path = tmp_path / "many.csv"
    assert call(store, "select * from many", "--out", path).stdout == f"{path}: 1,234 rows of i\n"
    assert len(path.read_text().splitlines()) == 1235
    assert call(store, COUNTS, "--name", "counts", "--overwrite").stdout.startswith("counts: 2")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["counts.parquet", "many.csv"]


def test_the_command_tells_what_is_wrong_in_words(store, tmp_path):
    said = call(store, "select nope from scored", status=1).stderr
    assert 'unable to find column "nope"' in said
    assert "scored (record, score, anomaly)" in said
    assert "not on a GPU" in call(store, COUNTS, "--engine", "gpu", status=1).stderr
    said = call(store, COUNTS, "--name", "scored", status=1).stderr
    assert "table of that name already" in said
    (tmp_path / "x.csv").write_text("mine")
    assert "--overwrite" in call(store, COUNTS, "--out", tmp_path / "x.csv", status=1).stderr
    assert (tmp_path / "x.csv").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "overwrite", "words"),
    [
        ("x.xlsx", False, "names that end in .csv or .parquet"),
        ("none/x.csv", False, "no such folder"),
        ("there.csv", False, "a file from before"),
        ("folder.csv", True, "something that is no file"),
    ],
)
def test_a_file_that_cannot_be_the_answers_is_told(tmp_path, name, overwrite, words):
    (tmp_path / "there.csv").touch()
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match=words):
        check_file(tmp_path / name, overwrite)
    check_file(tmp_path / "there.csv", True)
    check_file(tmp_path / "new.parquet", False)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "x.csv"
    write_file(path, pd.DataFrame({"a": [1, None]}))
    assert path.read_text() == 'a\n1.0\n""\n'

    class Broken:
        def __str__(self):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_file(path, pd.DataFrame({"a": [1, Broken()]}))
    assert path.read_text() == 'a\n1.0\n""\n'
    assert [file.name for file in tmp_path.iterdir()] == ["x.csv"]


def test_cells_that_have_no_text_of_their_own(capsys):
    frame = pd.DataFrame(
        {
            "record": ["[red]a", "b"],
            "n": pd.array([1, None], dtype="Int64"),
            "x": [1 / 3, np.inf],
            "l": [np.array([1, 2]), None],
            "ok": pd.array([None, True], dtype="boolean"),
            "t": pd.to_datetime(["2024-01-01", None]),
        }
    )
    show(frame, 2)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["[red]a", "1", "0.333333", "[1", "2]", "2024-01-01", "00:00:00"] in lines
    assert ["b", "inf", "True"] in lines
    show(pd.DataFrame({"a": ["x" * 300]}), 1)
    assert "x" * 300 in capsys.readouterr().out
    assert json.loads(as_json(frame)) == [
        {
            "record": "[red]a",
            "n": 1,
            "x": 1 / 3,
            "l": [1, 2],
            "ok": None,
            "t": "2024-01-01 00:00:00",
        },
        {"record": "b", "n": None, "x": None, "l": None, "ok": True, "t": None},
    ]
