"""Queries over tables of pandas; what GPUs answer is in `gpu/test_gpu_sql.py`."""

import pickle
from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecg_dask import InputError
from ecg_dask.beats import BEAT_COLUMNS
from ecg_dask.sql import ERRORS, answer, names_in, refused

NAMES = ["scored", "day 1.beats", 'q"q', "Other", "other"]


def beat_table():
    """Return a scored table of two records, with whatever may be missing in one."""
    table = pd.DataFrame(
        {
            "record": ["a", "a", "a", "b", "b"],
            "sample": [10, 260, 520, 15, 300],
            "time_s": [0.04, 1.04, 2.08, 0.06, 1.2],
            "rr_prev_s": [np.nan, 1.0, 1.04, np.nan, 1.14],
            "rr_next_s": [1.0, 1.04, np.nan, 1.14, np.nan],
            "amplitude": [1.0, 1.5, -2.0, 0.5, 0.25],
            "quality": [1.0, 0.5, 1.0, 1.0, 0.75],
            "complete": [False, True, True, True, True],
            "span": [None, "noise", None, None, None],
            "split": ["train", "train", "test", "train", "test"],
        }
    ).astype(BEAT_COLUMNS)
    table["score"] = np.array([np.nan, 1.5, 9.25, 2.0, 8.0], np.float32)
    table["anomaly"] = [False, False, True, False, True]
    return table


def ask(query, **tables):
    frame, engine = answer(query, {name: [table] for name, table in tables.items()})
    assert engine == "cpu"
    return frame


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("select * from scored", ["scored"]),
        ("SELECT * FROM Scored s", ["scored"]),
        ("-- first\n/* of\nall */ ((select 1 from scored))", ["scored"]),
        ('select * from "day 1.beats"', ["day 1.beats"]),
        ('select * from "DAY 1.BEATS"', ["day 1.beats"]),
        ("select * from `day 1.beats`", ["day 1.beats"]),
        ('select * from "q""q"', ['q"q']),
        ("select * from Other", ["Other"]),
        ("select * from other", ["other"]),
        ("select * from OTHER", ["Other", "other"]),
        ("select 'scored', 1 as scored -- from scored\n from other", ["other"]),
        ("select * from other where a in (select a from scored)", ["scored", "other"]),
        ("select (select max(a) from scored) m", ["scored"]),
        ("with x as (select * from scored) select * from x, other", ["scored", "other"]),
        ("select 1 from other union all select 1 from scored", ["scored", "other"]),
        ("from scored", ["scored"]),
        ("select * from scored.other", ["scored", "other"]),
        ("select scored.a from scored join other using (a)", ["scored", "other"]),
        ("select * from nobody", []),
        ("values (1, 2)", []),
    ],
)
def test_the_names_that_a_query_reads(query, names):
    assert names_in(query, NAMES) == names


@pytest.mark.parametrize(
    "query",
    [
        "",
        "-- nothing",
        "drop table scored",
        "delete from scored",
        "truncate table scored",
        "create table x as select * from scored",
        "insert into scored values (1)",
        "update scored set a = 1",
        "copy scored to 'x.csv'",
        "show tables",
        "explain select 1",
        "select 1; drop table scored",
        "with x as (select 1) delete from scored",
        "select * into x from scored",
        "select",
        "select ' from scored",
        "frm scored",
    ],
)
def test_only_one_statement_that_reads_is_answered(query):
    with pytest.raises(ERRORS) as caught:
        answer(query, {"scored": [beat_table()]})
    assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args
    text = str(refused(caught.value, {"scored": ["a", "b c"]}))
    assert text.startswith("query: found one that cannot be answered: ")
    assert 'one SELECT over scored (a, "b c"). Correct the query.' in text


@pytest.mark.parametrize("form", ["csv", "parquet", "ipc", "json", "ndjson", "avro", "delta"])
@pytest.mark.parametrize("call", ["{form}", '"{form}"', "{FORM}"])
@pytest.mark.parametrize(
    "where", ["from", "from scored, ", "from scored where 1 in (select 1 from"]
)
def test_a_query_reads_no_files(tmp_path, form, call, where):
    secret = tmp_path / f"secret.{form}"
    frame = pl.DataFrame({"secret": [1]})
    writer = {"json": "write_ndjson", "ndjson": "write_ndjson"}.get(form, f"write_{form}")
    if form == "delta":
        secret.mkdir()
    else:
        getattr(frame, writer)(secret)
    name = call.format(form=f"read_{form}", FORM=f"READ_{form}".upper())
    query = f"select * {where} {name}('{secret}')" + ")" * where.count("(")
    with pytest.raises(ERRORS, match=r"read a file|table function"):
        answer(query, {"scored": [beat_table()]})
    with pytest.raises(ERRORS, match="not found"):
        answer(f"select * from '{secret}'", {"scored": [beat_table()]})


def test_a_count_by_record():
    found = ask(
        "select record, count(*) as n, avg(score) as mean from scored where anomaly "
        "group by record order by record",
        scored=beat_table(),
    )
    expected = pd.DataFrame({"record": ["a", "b"], "n": [1, 1], "mean": [9.25, 8.0]})
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)


def test_the_whole_table_comes_back_as_it_was():
    table = beat_table()
    pd.testing.assert_frame_equal(ask("select * from t", t=table), table)


def test_missing_numbers_are_null_and_come_back_as_nan():
    table = beat_table()
    found = ask("select sample from t where rr_prev_s is null order by sample", t=table)
    assert found["sample"].tolist() == [10, 15]
    found = ask("select sum(rr_prev_s) as s, count(score) as n, max(score) as m from t", t=table)
    assert found.to_dict("records") == [{"s": pytest.approx(3.18), "n": 4, "m": 9.25}]
    found = ask("select lag(sample) over (order by sample) as l, 0.0 / 0.0 as f from t", t=table)
    assert found["l"].dtype == pd.Int64Dtype()
    assert found["l"].isna().sum() == 1
    assert found["f"].isna().all()
    found = ask("select complete or null as c, null as nothing from t", t=table)
    assert found["c"].dtype == pd.BooleanDtype()
    assert found["c"].tolist() == [pd.NA, True, True, True, True]
    assert found["nothing"].isna().all()


def test_partitions_that_know_less_of_a_column():
    known = pd.DataFrame({"a": ["x"], "b": [1.5], "c": pd.Categorical(["y"])})
    less = pd.DataFrame({"a": [None], "b": [2], "c": pd.Categorical(["z"])})
    found, _ = answer("select * from t order by b", {"t": [less, known]})
    assert found["a"].isna().tolist() == [False, True]
    assert found["b"].tolist() == [1.5, 2.0]
    assert found["c"].tolist() == ["y", "z"]


def test_numbers_that_a_float_cannot_hold_stay_whole():
    large = 2**62 + 1
    table = pd.DataFrame({"a": [large, 1], "b": pd.array([large, None], dtype="Int64")})
    found = ask("select a, b, lag(a) over (order by a desc) as l from t order by a desc", t=table)
    assert found["a"].tolist()[0] == large
    assert found["b"].tolist() == [large, pd.NA]
    assert found["l"].tolist() == [pd.NA, large]


def test_names_and_columns_with_other_characters():
    table = pd.DataFrame({"a b": [1, 2], 'c"d': ["x", "ü"]})
    found = ask('select "a b" as x, "c""d" from "day 1.beats" order by x', **{"day 1.beats": table})
    assert found.columns.tolist() == ["x", 'c"d']
    assert found['c"d'].tolist() == ["x", "ü"]


def test_a_name_in_other_letters_is_found_where_only_one_is_meant():
    one, two = pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [2]})
    assert ask("select SCORED.a from SCORED", scored=one)["a"].tolist() == [1]
    assert ask("select a from Other", Other=one, other=two)["a"].tolist() == [1]
    assert ask("select a from other", Other=one, other=two)["a"].tolist() == [2]
    with pytest.raises(ERRORS, match="not found"):
        ask("select a from OTHER", Other=one, other=two)


@pytest.mark.parametrize(
    "query",
    [
        "with scored as (select 7 as a) select * from scored",
        "WITH scored AS (SELECT 7 AS a) SELECT * FROM scored",
        'with "q""q" as (select 7 as a) select * from "q""q"',
        "with scored as (select * from scored where anomaly) select * from scored",
        "with x as (select 1), Scored(a)as(select 2) select * from scored",
        'with /* one */ "SCORED" as -- two\n (select 7 as a) select * from "SCORED"',
        "select * from (with `scored` as (select 7) select * from `scored`) x",
    ],
)
def test_a_query_that_defines_the_name_of_a_table_is_told(query):
    """Polars would read the table in its place."""
    with pytest.raises(ERRORS, match="choose another name"):
        ask(query, **dict.fromkeys(NAMES, beat_table()))


def test_a_query_may_define_other_names():
    query = (
        "with x as (select * from t where anomaly and record <> 'with t as (' /* t as ( */),"
        ' "t as (" as (select 1 as b) -- t as (\n'
        "select x.sample from x order by sample"
    )
    assert ask(query, t=beat_table())["sample"].tolist() == [300, 520]


def test_no_row_is_an_answer():
    found = ask("select record, score from t where score > 1000", t=beat_table())
    assert found.shape == (0, 2)
    assert found["score"].dtype == np.float32
    nothing = beat_table().iloc[:0]
    assert ask("select count(*) as n from t", t=nothing)["n"].tolist() == [0]


@given(st.lists(st.integers(0, 5), max_size=4))
def test_partitions_change_no_answer(cuts):
    table = beat_table()
    ends = [0, *sorted(cuts), len(table)]
    parts = [table.iloc[a:b] for a, b in pairwise(ends)]
    query = "select record, count(*) n, max(sample) m, sum(rr_prev_s) s from t group by record"
    found, _ = answer(f"{query} order by record", {"t": parts})
    pd.testing.assert_frame_equal(found, ask(f"{query} order by record", t=table))


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("select * from nobody", "relation 'nobody' was not found"),
        ("select nope from scored", 'unable to find column "nope"'),
        ("select sample + record from scored", "arithmetic on dtypes i64 and str"),
        ("select frob(sample) from scored", "unsupported function 'frob'"),
        ("select cast(record as int) from scored", "conversion from `str` to `i32` failed"),
        ("select sample, sample from scored", "duplicate output name 'sample'"),
        ("select * from scored where", "sql parser error"),
        ("select * from scored limit -1", "LIMIT"),
    ],
)
def test_a_wrong_query_is_told_with_the_names_and_columns(query, words):
    with pytest.raises(ERRORS) as caught:
        ask(query, scored=beat_table())
    schemas = {"scored": ["record", "sample"], 'q"q': ["x"]}
    text = str(refused(pickle.loads(pickle.dumps(caught.value)), schemas))
    assert words in text
    assert 'over scored (record, sample); "q""q" (x). Correct the query.' in text
    assert "\n" not in text
    assert "FAILED HERE" not in text
    assert "This error occurred" not in text


def test_a_store_without_tables_is_told():
    with pytest.raises(ERRORS) as caught:
        answer("select * from scored", {})
    assert "Put a table or beats into the store first" in str(refused(caught.value, {}))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (pd.DataFrame({"x": [1, "a", b"c"]}), "table t: found columns that SQL cannot read"),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), "Duplicate column names"),
    ],
)
def test_a_column_that_is_no_column_of_sql_is_told(table, words):
    with pytest.raises(InputError, match=words):
        ask("select * from t", t=table)


def test_an_engine_that_cannot_run_here_is_told():
    for engine, words in (("gpu", "not on a GPU"), ("tpu", "auto, cpu, gpu")):
        with pytest.raises(InputError, match=words):
            answer("select 1", {"t": [beat_table()]}, engine=engine)
    assert answer("select 1 as a", {}, engine="cpu").engine == "cpu"


def test_an_engine_that_panics_is_told(monkeypatch):
    def panic(*_):
        raise pl.exceptions.PanicException("index out of bounds")

    # No query is known that does it.
    monkeypatch.setattr(pl.SQLContext, "execute", panic)
    with pytest.raises(ERRORS, match="index out of bounds"):
        ask("select 1 as a", t=beat_table())
