"""The same answers from the GPU's engine and the CPU's, over tables of cuDF and of pandas."""

import importlib.util

import numpy as np
import pandas as pd
import pytest

from ecg_dask.beats import BEAT_COLUMNS

pytest.importorskip("polars")
from ecg_dask.sql import ERRORS, answer

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("cudf_polars") is None, reason="cudf-polars is not installed"
)

#: What the GPU's engine does itself.
ON_GPU = [
    "select * from scored order by record, sample",
    "select sample, score from scored where anomaly and quality >= 0.5 order by sample",
    "select sample from scored where rr_prev_s is null order by sample",
    "select record, count(*) as n, sum(cast(score as double)) as s, avg(rr_prev_s) as m, "
    "min(sample) as a, max(amplitude) as b from scored where complete group by record "
    "order by record",
    "select count(*) as n, count(score) as c, sum(rr_prev_s) as s from scored",
    "select distinct record, split from scored order by record, split",
    "select upper(record) as r, length(span) as l from scored order by record, sample",
    "select case when score > 5 then 'high' else 'low' end as k, count(*) as n from scored "
    "group by k order by k",
    "select s.sample, c.weight from scored s join weights c on s.record = c.record "
    "where s.span is not null order by s.sample, c.weight",
    "select s.record, c.weight from scored s left join weights c on s.record = c.record "
    "order by s.record desc, s.sample limit 7",
    "select record from scored group by record having sum(score) > 1000000",
    "select cast(sample as double) / 250 as t, sample % 7 as r, -sample as n from scored "
    "order by record, sample",
    "with worst as (select * from scored where anomaly) "
    "select record, count(*) as n from worst group by record order by record",
    "select record from scored where anomaly union all select record from weights order by record",
]

#: What one engine may leave to the other.
ON_EITHER = [
    "select sample from scored where record like 'a%' order by score desc nulls last, sample",
    "select sample, row_number() over (partition by record order by sample) as i from scored "
    "order by record, sample",
    "select sample, lag(sample) over (order by sample, record) as l from scored "
    "order by sample, record",
    "select median(time_s) as m, stddev(time_s) as d, quantile_cont(time_s, 0.9) as q from scored",
    "select record, array_agg(sample order by sample) as a from scored group by record "
    "order by record",
    "select cast(sample as decimal(18, 3)) / 3 as d, sum(cast(score as decimal(18, 4))) as s "
    "from scored group by sample order by sample limit 20",
    "select score / 0 as x, 0.0 / 0.0 as y, sample // 0 as z from scored order by sample, record",
    "select null as nothing, 'text' as t, complete or null as f from scored order by sample",
    "select initcap(span) as i, substr(record, 1, 1) as c from scored order by sample, record",
    "select regexp_like(record, '^a.') as r from scored order by sample, record",
]


def tables():
    """Return tables of pandas with texts, flags, NaN and nulls."""
    random, n = np.random.default_rng(5), 3000
    columns = {
        "record": random.choice(["a1", "a2", "ü"], n),
        "sample": np.sort(random.integers(0, 10**7, n)),
        "span": random.choice(np.array(["noise", "flat", None], object), n),
        "split": random.choice(["train", "test"], n),
        "complete": random.random(n) < 0.9,
    }
    floats = {name: random.normal(0, 3, n) for name in BEAT_COLUMNS if name not in columns}
    scored = pd.DataFrame({name: (columns | floats)[name] for name in BEAT_COLUMNS})
    scored = scored.astype(BEAT_COLUMNS)
    scored["score"] = random.normal(0, 5, n).astype(np.float32)
    scored.loc[::7, ["score", "rr_prev_s"]] = np.nan
    scored["anomaly"] = (scored["score"] > 5).to_numpy()
    weights = pd.DataFrame({"record": ["a1", "a2", "x"], "weight": [1, 2, 3]})
    return {"scored": [scored.iloc[:1000], scored.iloc[1000:]], "weights": [weights]}


@pytest.fixture(scope="module")
def on_host():
    return tables()


@pytest.fixture(scope="module")
def on_device(on_host):
    import cudf

    return {
        name: [cudf.from_pandas(part, nan_as_null=False) for part in parts]
        for name, parts in on_host.items()
    }


def check_same(found, expected):
    assert type(found).__module__.startswith("cudf")
    host = found.to_pandas()
    for name in expected:
        if expected[name].dtype == object:
            assert host[name].map(plain).tolist() == expected[name].map(plain).tolist()
        elif isinstance(expected[name].dtype, np.dtype | pd.StringDtype):
            pd.testing.assert_series_equal(host[name], expected[name], check_dtype=False, rtol=1e-6)
        else:
            # Whole numbers and flags of which one is missing.
            missing = expected[name].isna().tolist()
            assert host[name].isna().tolist() == missing
            assert host[name].dropna().tolist() == expected[name].dropna().tolist()
    assert list(host) == list(expected)


def plain(value):
    return list(value) if isinstance(value, list | np.ndarray) else value


@pytest.mark.parametrize("query", ON_GPU)
def test_the_gpus_engine_gives_the_cpus_answer(on_host, on_device, query):
    expected, engine = answer(query, on_host)
    assert engine == "cpu"
    found, engine = answer(query, on_device)
    assert engine == "gpu"
    check_same(found, expected)


@pytest.mark.parametrize("query", ON_EITHER)
def test_what_it_cannot_do_the_cpus_engine_does(on_host, on_device, query):
    expected, _ = answer(query, on_host)
    found, engine = answer(query, on_device)
    assert engine in ("cpu", "gpu")
    check_same(found, expected)
    found, engine = answer(query, on_device, engine="cpu")
    assert engine == "cpu"
    check_same(found, expected)


def test_missing_floats_are_nan_on_the_gpu_too(on_device):
    found, _ = answer("select score from scored", on_device)
    assert found["score"].null_count == 0
    assert int((found["score"] != found["score"]).sum()) == 429


def test_a_wrong_query_is_told_alike(on_host, on_device):
    for query in ("select nope from scored", "select cast(record as int) from scored"):
        said = []
        for given in (on_host, on_device):
            with pytest.raises(ERRORS) as caught:
                answer(query, given)
            said.append(str(caught.value))
        assert said[0] == said[1]


def test_it_takes_its_memory_from_the_pool(on_device):
    import rmm

    before = rmm.mr.get_current_device_resource()
    counted = rmm.mr.StatisticsResourceAdaptor(before)
    rmm.mr.set_current_device_resource(counted)
    try:
        _, engine = answer("select record, sum(score) from scored group by record", on_device)
        assert engine == "gpu"
        assert counted.allocation_counts.total_bytes > 0
    finally:
        rmm.mr.set_current_device_resource(before)
    assert rmm.mr.get_current_device_resource() is before
