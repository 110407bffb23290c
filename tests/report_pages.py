"""Small made-up recordings and pages for the tests of the report."""

from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import dask.array as da
import numpy as np
import pandas as pd

from ecg_dask.anomaly import group_facts
from ecg_dask.beats import empty_table, span_table
from ecg_dask.report import (
    GroupTemplate,
    Picked,
    RecordView,
    WorstBeat,
    envelope,
    write_report,
)

START = datetime(2024, 3, 5, 23, 50, 0)


def view(name="100", signal=None, fs=50.0, bin_samples=1, **facts):
    if signal is None:
        signal = np.sin(np.arange(3000) / 5)
    signal = np.asarray(signal, dtype=np.float32)
    low, high = envelope(da.from_array(signal[:, None]), bin_samples=bin_samples).compute()
    facts = {"unit": "mV", "leads": ("MLII",), "missing": int(np.isnan(signal).sum())} | facts
    return RecordView(
        name=name,
        fs=fs,
        n_samples=len(signal),
        low=low,
        high=high,
        bin_samples=bin_samples,
        **facts,
    )


def unanalysed(*spans, name="100", fs=50.0):
    """A table of spans from (reason, start, stop) in samples."""
    reasons, starts, stops = zip(*spans, strict=True)
    return span_table(name, reasons, np.array(starts), np.array(stops), fs)


def scored(name="100", samples=range(50, 3000, 50), fs=50.0, anomalies=(3,), latent=2):
    """A beat at each of `samples`; a quarter is held out, `anomalies` score 9, others 1 to 2."""
    sample = np.asarray(samples, dtype=np.int64)
    n = len(sample)
    table = empty_table().reindex(range(n))
    rng = np.random.default_rng(n)
    table = table.assign(
        record=name,
        sample=sample,
        time_s=sample / fs,
        rr_prev_s=np.diff(sample, prepend=np.nan) / fs if n else np.empty(0),
        rr_next_s=np.diff(sample, append=np.nan) / fs if n else np.empty(0),
        amplitude=np.float32(1),
        quality=np.float32(1),
        complete=True,
        split=np.where(np.arange(n) < n * 3 // 4, "train", "test"),
        score=rng.uniform(1, 2, n),
        anomaly=np.isin(np.arange(n), anomalies),
    )
    table.loc[table["anomaly"], "score"] = 9.0
    table["score_shape"] = table["score"] * 0.75
    table["score_timing"] = table["score_amplitude"] = table["score"] * 0.125
    table["reason"] = pd.Series(np.where(table["anomaly"], "shape", None), dtype="str")
    table["group"] = table["anomaly"].astype("Int16").replace(0, pd.NA)
    for i in range(latent):
        table[f"z{i}"] = rng.normal(size=n)
    return table


def model(epochs=4, **more):
    history = [
        {
            "epoch": i + 1,
            "loss": 10 / (i + 1),
            "reconstruction": 9 / (i + 1),
            "kl": 1.0,
            "kl_weight": min(1.0, (i + 1) / 2),
            "validation": 11 / (i + 1),
        }
        for i in range(epochs)
    ]
    facts = {
        "history": history,
        "threshold": 5.0,
        "threshold_rule": "the rule in words",
        "latent": 2,
        "n_train": 44,
        "n_held_out": 15,
        "notes": ("A note of the model.",),
    }
    return SimpleNamespace(**(facts | more))


TIMES_S = np.arange(-20, 30) / 50
WAVE = np.exp(-((TIMES_S / 0.05) ** 2)).astype(np.float32)


def worst(name="100", n=1, parts=(5.0, 3.0, 1.0)):
    return [
        WorstBeat(
            record=name,
            sample=200 + 50 * i,
            time_s=4.0 + i,
            score=9.0 - i,
            parts=dict(zip(("shape", "timing", "amplitude"), parts, strict=True)),
            wave=WAVE,
            median_wave=WAVE / 2,
            n_median=40,
            times_s=TIMES_S,
            reconstruction=WAVE[::2] * 0.9,
            points_s=TIMES_S[::2],
        )
        for i in range(n)
    ]


def groups(table):
    """A template of each group of a table, beside the median of its first beat's record."""
    return [
        GroupTemplate(
            facts=facts,
            wave=WAVE,
            n_wave=facts["beats"],
            record=first["record"],
            time_s=first["time_s"],
            median_wave=WAVE / 2,
            n_median=40,
            times_s=TIMES_S,
        )
        for facts in group_facts(table)
        for first in [table[table["group"] == facts["group"]].iloc[0]]
    ]


def page(path: Path, **parts) -> str:
    """Write a page, an ordinary one unless `parts` say otherwise, and return its text."""
    given = {
        "records": [view()],
        "scored": scored(),
        "model": model(),
        "worst": worst(),
        "summary": {"versions": {"ecg_dask": "0.1.0"}},
    } | parts
    given["scored"] = pd.DataFrame(given["scored"])
    found = groups(given["scored"]) if "group" in given["scored"] else []
    given["picked"] = Picked(given.pop("worst"), given.pop("groups", found))
    write_report(path, **given)
    return path.read_text(encoding="utf-8")
