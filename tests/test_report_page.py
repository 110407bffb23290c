import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from bokeh.resources import Resources
from report_pages import START, model, page, scored, unanalysed, view, worst

from ecg_dask.beats import BEAT_COLUMNS
from ecg_dask.report.view import elapsed

NASTY = "<b>x</b>&\"'</script><img src=http://example.org/x.png>"


def visible(html):
    """What a reader sees without figures: the page's text without scripts, styles and tags."""
    html = re.sub(r"<(script|style)\b.*?</\1>", " ", html, flags=re.S)
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def test_the_header_tells_the_facts_and_what_was_lost(tmp_path):
    signal = np.sin(np.arange(3000) / 5)
    signal[1000:1100] = np.nan
    record = view(
        signal=signal,
        start=START,
        source="/data/100.csv",
        notes=("A jump of 2 s became missing samples.",),
        gaps=1,
        pruned=17,
        spans=unanalysed(("missing", 1000, 1100), ("noise", 2000, 2400)),
    )
    table = scored()
    table.loc[0, ["complete", "score"]] = [False, np.nan]
    summary = {"parameters": {"detector": {"refractory_s": 0.28}}, "records": ["left out"]}
    summary |= {"model": {"history": "left out"}, "groups": ["left out"]}
    html = page(tmp_path / "r.html", records=[record], scored=table, summary=summary)
    text = visible(html)
    for fact in (
        "ECG report: 100",
        "Found 59 beats in 0:01:00 (h:mm:ss) of ECG from one recording; of the 58 scored beats "
        "1 is an anomaly.",
        "not a medical device",
        "Source /data/100.csv",
        "Leads MLII",
        "Unit mV",
        "Sampling rate 50 Hz",
        "Start 2024-03-05 23:50:00",
        "Duration 0:01:00 (h:mm:ss)",
        "Samples a lead 3,000",
        "Missing samples 100 (2.0 s)",
        "Gaps 1",
        "Cannot be analysed 10.0 s (16.67%)",
        "missing: 2.0 s in 1 span; noise: 8.0 s in 1 span.",
        "noise 23:50:40.0 8.00",
        "missing 23:50:20.0 2.00",
        "Beats 59",
        "Pruned candidates 17",
        "Incomplete beats, not scored 1",
        "Anomalies 1 (1.72% of scored)",
        "Mean heart rate 60.0 beats/min",
        "A jump of 2 s became missing samples.",
        "Training beats 44",
        "Held-out beats 15",
        "Latent size 2",
        "Epochs 4",
        "Threshold of the score 5",
        "Rule of the threshold the rule in words",
        "A note of the model.",
        "parameters / detector / refractory_s 0.28",
    ):
        assert fact in text
    assert "left out" not in text


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ((1.0, 7.25, 0.75), "score 9, mostly timing, early shape 1.0, timing 7.2, amplitude 0.8"),
        ((8.0, 0.5, 0.5), "score 9, mostly shape shape 8.0, timing 0.5, amplitude 0.5"),
        ((0.0, 0.0, 9.0), "score 9, mostly amplitude shape 0.0, timing 0.0, amplitude 9.0"),
    ],
)
def test_a_worst_beat_tells_which_part_raised_it(tmp_path, parts, words):
    text = visible(page(tmp_path / "r.html", worst=worst(parts=parts)))
    assert (
        f"The worst beat the beat what the network makes of it median beat of its record 1. "
        f"100 0:00:04.0 {words}" in text
    )


def test_groups_tell_their_share_their_reasons_and_their_records(tmp_path):
    names = ["100", "200", "300", "400", "500"]
    table = pd.concat([scored(name, anomalies=(4, 5)) for name in names], ignore_index=True)
    odd = np.flatnonzero(table["anomaly"])
    table.loc[odd[:7], "group"] = 1
    table.loc[odd[7:9], "group"] = 2
    table.loc[odd[9], "group"] = 3
    table.loc[odd[:4], "reason"] = "timing"
    views = [view(name) for name in names]
    text = visible(page(tmp_path / "r.html", records=views, scored=table, worst=[]))
    for words in (
        "Group 1: 7 beats, 70.0% of the anomalies 100 (2), 200 (2), 300 (2) and 1 more; "
        "first at 0:00:05.0 of 100 mostly timing, early (shape 3, timing 4)",
        "Group 2: 2 beats, 20.0% of the anomalies 400 (1), 500 (1); first at 0:00:06.0 of 400 "
        "mostly shape",
        "Group 3: 1 beat, 10.0% of the anomalies 500; first at 0:00:06.0 mostly shape",
        "the median of 1 to 7 beats, evenly chosen, of the record that most of its group are of",
        "made of 40 complete beats",
    ):
        assert words in text


def test_the_page_refers_to_nothing_outside_itself(tmp_path):
    html = page(tmp_path / "r.html")
    assert "default-src 'none'" in html
    for script in Resources(mode="inline", components=["bokeh"]).js_raw:
        html = html.replace(script, "")
    assert len(html) < 1_000_000
    assert not re.findall(r"https?://|\bsrc\s*=|<link|@import|url\(", html)


def test_names_are_text_and_never_markup(tmp_path):
    record = view(NASTY, leads=(NASTY,), unit=NASTY, source=NASTY, notes=(NASTY,))
    html = page(
        tmp_path / "r.html",
        records=[record, view("other")],
        scored=scored(NASTY),
        worst=worst(NASTY),
        model=model(notes=(NASTY,), threshold_rule=NASTY),
        summary={NASTY: NASTY},
    )
    assert "<img" not in html
    assert "<b>x" not in html
    assert html.count("&lt;b&gt;x&lt;/b&gt;&amp;") >= 8
    assert html.count("<script") == html.count("</script>")


def test_several_recordings_have_a_table_and_a_part_each(tmp_path):
    names = ["100", "200", "300"]
    html = page(
        tmp_path / "r.html",
        records=[view(name, bin_samples=2) for name in names],
        scored=pd.concat([scored("100"), scored("300", anomalies=(4, 5))], ignore_index=True),
        worst=worst("300", n=12),
    )
    text = visible(html)
    assert "ECG report: 3 recordings" in text
    assert "of the 118 scored beats 3 are anomalies" in text
    assert "100 unknown 0:01:00 50 0.0 59 60.0 1" in text
    assert "200 unknown 0:01:00 50 0.0 0 unknown 0" in text
    assert "300 unknown 0:01:00 50 0.0 59 60.0 2" in text
    assert "The twelve worst beats" in text
    assert [f'id="series-{i}"' in html for i in range(4)] == [True, True, True, False]


def beats_alone():
    return scored()[list(BEAT_COLUMNS)]


def one_beat():
    return scored(samples=[500], anomalies=()).assign(split="test")


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (
            {"scored": scored(samples=[]), "model": None, "worst": []},
            [
                "Found no beats",
                "No model was trained",
                "No two neighbouring beats",
                "No held-out beat has a score",
                "No beat is an anomaly, so there are no groups.",
                "no worst one",
            ],
        ),
        ({"scored": one_beat()}, ["Found 1 beat in", "No two neighbouring beats"]),
        ({"scored": scored(samples=[500, 600])}, ["Found 2 beats in", "1 beat has a known length"]),
        (
            {"scored": beats_alone(), "model": None},
            ["Found 59 beats", "No beat has an anomaly score", "No model", "no groups"],
        ),
        (
            {
                "scored": scored().assign(score=np.nan, anomaly=False, group=pd.NA, z0=np.nan),
                "model": model(epochs=0, threshold=None, threshold_rule=""),
                "worst": [],
            },
            ["The model gave no beat a score", "No epoch of training", "No held-out beat"],
        ),
        (
            {"model": SimpleNamespace()},
            ["No epoch of training", "Epochs 0"],
        ),
        ({"records": [view(signal=[0.5, 1.0])], "scored": scored(samples=[])}, ["0:00:00"]),
        (
            {"records": [view(signal=[np.nan] * 100, gaps=1)], "scored": scored(samples=[])},
            ["Every sample of this recording is missing", "Missing samples 100 (2.0 s)"],
        ),
        ({"records": [view(signal=np.zeros(500))]}, ["Every sample is in this page"]),
        ({"summary": {}}, ["None were recorded."]),
        ({"scored": scored(latent=1)}, ["it has one coordinate"]),
        ({"scored": scored(latent=5)}, ["of its 5 coordinates the first two principal components"]),
    ],
)
def test_little_or_nothing_is_told_in_words(tmp_path, parts, words):
    text = visible(page(tmp_path / "r.html", **parts))
    for word in words:
        assert word in text


def test_points_of_the_latent_space_are_limited_but_no_anomaly_is_dropped(tmp_path):
    n = 200_000
    table = scored(samples=range(n), anomalies=(150_001, 150_003))
    text = visible(page(tmp_path / "r.html", scored=table))
    assert "20,002 points are drawn: 20,000 evenly chosen ones and every anomaly" in text
    assert "Anomalies (2) are ringed" in text


def test_gaps_that_no_bin_shows_are_counted(tmp_path):
    signal = np.sin(np.arange(3000) / 5)
    signal[1000:1100] = signal[2001:2003] = np.nan
    record = view(signal=signal, bin_samples=10, gaps=2)
    text = visible(page(tmp_path / "r.html", records=[record]))
    assert "Not drawn, since shorter than the page can tell: 1 of 2 gaps." in text
    assert "lowest and the highest of every 10 samples (0.2 s)" in text


def test_the_longest_spans_are_listed_and_the_rest_counted(tmp_path):
    spans = [("flat", 200 * i, 200 * i + 10 + i) for i in range(12)]
    record = view(spans=unanalysed(*spans, ("clipped", 2500, 2600)))
    text = visible(page(tmp_path / "r.html", records=[record]))
    assert "flat: 3.7 s in 12 spans; clipped: 2.0 s in 1 span." in text
    assert "Reason From Length (s) clipped 0:00:50.0 2.00 flat 0:00:44.0 0.42 flat" in text
    assert "The 10 longest of 13 spans" in text
    assert "Cannot be analysed nothing" in visible(page(tmp_path / "none.html"))


def test_a_failure_leaves_the_old_page_and_no_half_one(tmp_path):
    path = tmp_path / "r.html"
    path.write_text("old")
    with pytest.raises(KeyError):
        page(path, worst=worst("no such record"))
    assert path.read_text() == "old"
    page(path)
    assert path.read_text() != "old"
    assert [child.name for child in tmp_path.iterdir()] == ["r.html"]


def test_moments_are_times_of_day_when_the_start_is_known():
    assert view(start=START).moment(0) == "23:50:00.0"
    assert view(start=START).moment(599.94) == "23:59:59.9"
    assert view(start=START).moment(599.96) == "00:00:00.0 (+1 d)"
    assert view(start=START).moment(600 + 86_400 + 3723.25) == "01:02:03.2 (+2 d)"
    assert view().moment(90_061.5) == "25:01:01.5"
    assert view(start=START.replace(year=1900)).start_text == "23:50:00, day unknown"
    assert view().start_text == "unknown"
    assert elapsed(59.6) == "0:01:00"
    assert elapsed(359_999) == "99:59:59"
