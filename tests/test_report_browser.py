"""The page in a real browser: what it draws, and what it draws after zooming."""

import html
import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from report_pages import START, model, page, scored, unanalysed, view, worst

CHROMIUM = shutil.which("chromium")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

# The script of a test runs when the page is ready, and what it returns becomes the title.
PROBE = """<script>
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const canvases = (root) => [...root.querySelectorAll("*")].flatMap((node) => [
  ...(node.tagName === "CANVAS" ? [node] : []),
  ...(node.shadowRoot ? canvases(node.shadowRoot) : []),
]);
const colours = (node) => {
  const { width, height } = node;
  if (!width || !height) return 0;
  const { data } = node.getContext("2d").getImageData(0, 0, width, height);
  let n = 0;
  for (let i = 0; i < data.length; i += 4) {
    const least = Math.min(data[i], data[i + 1], data[i + 2]);
    if (data[i + 3] > 200 && Math.max(data[i], data[i + 1], data[i + 2]) - least > 25) n += 1;
  }
  return n;
};
const waiting = setInterval(async () => {
  if (document.documentElement.dataset.ready !== "yes") return;
  clearInterval(waiting);
  const all = EcgReport.all;
  try { document.title = JSON.stringify(await (async () => { BODY })()); }
  catch (error) { document.title = JSON.stringify({ error: String(error) }); }
}, 20);
</script></body>"""


@pytest.fixture
def browse(tmp_path):
    def run(body, **parts):
        text = page(tmp_path / "page.html", **parts)
        path = tmp_path / "probed.html"
        path.write_text(text.replace("</body>", PROBE.replace("BODY", body)), encoding="utf-8")
        done = subprocess.run(
            [
                str(CHROMIUM),
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                f"--user-data-dir={tmp_path / 'profile'}",
                "--enable-logging=stderr",
                "--window-size=1280,1000",
                "--virtual-time-budget=20000",
                "--dump-dom",
                path.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        said = re.findall(r':CONSOLE[^\]]*\] "(.*)", source', done.stderr)
        wrong = [
            line for line in said if not re.match(r"\[bokeh [\d.]+\] (setting log|document)", line)
        ]
        assert wrong == []
        title = re.search(r"<title>(.*?)</title>", done.stdout, flags=re.S)
        assert title is not None
        found = json.loads(html.unescape(title[1]))
        assert not (isinstance(found, dict) and "error" in found), found
        return found

    return run


def test_every_figure_is_drawn_and_nothing_is_fetched(browse):
    table = scored(latent=4, anomalies=(7, 9, 20, 30))
    table.loc[9, "group"] = 2
    found = browse(
        """
        await sleep(300);
        const roots = Bokeh.documents[0].roots().length;
        const drawn = [...document.querySelectorAll("[data-root-id]")].map((div) =>
          Math.max(...canvases(div).map(colours)));
        const loaded = performance.getEntriesByType("resource").map((entry) => entry.name);
        const wide = document.documentElement.scrollWidth;
        const beats = [...document.querySelectorAll(".beats [data-root-id]")];
        const lines = beats.map((div) =>
          Bokeh.documents[0].get_model_by_id(div.dataset.rootId).renderers.length);
        const groups = [...document.querySelectorAll("#groups figcaption b")]
          .map((title) => title.textContent.split(",")[0]);
        const key = [...document.querySelectorAll(".key .line")]
          .map((line) => getComputedStyle(line).borderTopStyle);
        const places = [];
        for (const button of document.querySelectorAll("#groups button")) {
          button.click();
          await sleep(200);
          places.push((all[0].x_range.start + all[0].x_range.end) / 2000);
        }
        return { roots, drawn, lines, groups, key, places, wide,
          loaded: loaded.filter((name) => !/^(data|blob):/.test(name)) };
        """,
        worst=worst(n=3),
        scored=table,
        model=model(),
    )
    # One record, beat lengths, three curves, latent space, scores, two groups, and three beats.
    assert found["roots"] == len(found["drawn"]) == 12
    assert found["groups"] == ["Group 1: 3 beats", "Group 2: 1 beat"]
    assert found["places"] == pytest.approx([8, 10], abs=0.01)
    # The median beat, the template, and of a worst beat what the network makes of it.
    assert found["lines"] == [2, 2, 3, 3, 3]
    assert found["key"] == ["solid", "solid", "solid", "dashed", "solid"]
    assert min(found["drawn"]) > 20
    assert found["loaded"] == []
    assert found["wide"] <= 1280


def test_what_is_drawn_is_the_envelope_of_what_is_in_view(browse):
    fs, bin_samples = 50.0, 3
    rng = np.random.default_rng(0)
    signal = rng.normal(0, 0.1, 60_000).astype(np.float32)
    signal[31_234] = 5.0
    signal[45_000] = -4.0
    signal[20_000:26_000] = np.nan
    record = view(signal=signal, fs=fs, bin_samples=bin_samples, start=START, gaps=1)
    found = browse(
        """
        const one = all[0];
        const look = async (from_s, to_s) => {
          const [start, end] = [from_s, to_s].map((s) => one.start_ms + s * 1000);
          one.x_range.setv({ start, end });
          await sleep(200);
          const { x, y } = one.view.data;
          const at = (ms) => (ms - one.start_ms) / 1000;
          const finite = x.map((_, i) => i).filter((i) => y[i] === y[i]);
          const top = finite.reduce((a, b) => (y[b] > y[a] ? b : a));
          return { least: Math.min(...finite.map((i) => y[i])), most: y[top], top_s: at(x[top]),
            columns: one.drawn.columns, first_s: at(x[finite[0]]),
            xs: finite.map((i) => at(x[i])), shown: one.shown.textContent };
        };
        const initial = { columns: one.drawn.columns, shown: one.shown.textContent };
        return { initial, whole: await look(0, 1200), minute: await look(600, 660),
          gap: await look(390, 530), second: await look(624, 626) };
        """,
        records=[record],
        scored=scored(samples=range(100, 60_000, 40), anomalies=(500, 777, 1400)),
    )
    assert found["initial"]["columns"] == 2000
    assert found["initial"]["shown"].startswith("23:50:00 to 00:10:00 (+1 d) (20 min): 1,498 beats")
    step = 9 / 65_000  # of the 16 bits that an amplitude is kept in
    assert found["whole"]["most"] == pytest.approx(5, abs=step)
    assert found["whole"]["least"] == pytest.approx(-4, abs=step)
    for name, from_s, to_s in (("minute", 600, 660), ("second", 624, 626)):
        inside = signal[int(from_s * fs) : int(to_s * fs)]
        drawn = found[name]
        assert drawn["most"] == pytest.approx(inside.max(), abs=step)
        # The neighbour bins that reach into the figure from outside are drawn as well.
        beside = signal[int((from_s - 0.2) * fs) : int((to_s + 0.2) * fs)]
        assert beside.min() - step <= drawn["least"] <= inside.min() + step
        assert drawn["top_s"] == pytest.approx(31_234 / fs, abs=bin_samples / fs)
        assert drawn["columns"] == pytest.approx((to_s - from_s) * fs / bin_samples, abs=3)
    assert "00:00:00.0 (+1 d) to" not in found["minute"]["shown"]
    assert found["second"]["shown"].startswith("00:00:24.0 (+1 d) to 00:00:26.0 (+1 d) (2 s): ")
    in_gap = [x for x in found["gap"]["xs"] if 400.1 < x < 519.9]
    assert in_gap == []
    assert min(found["gap"]["xs"]) < 400 < 520 < max(found["gap"]["xs"])


def test_buttons_rates_and_marks(browse):
    table = scored(samples=range(100, 60_000, 40), anomalies=(500, 777, 1400))
    table.loc[700:, "sample"] += 10
    table["rr_prev_s"] = np.diff(table["sample"], prepend=np.nan) / 50
    found = browse(
        """
        const one = all[0];
        const middle_s = () => ((one.x_range.start + one.x_range.end) / 2 - one.start_ms) / 1000;
        const press = async (selector) => {
          document.querySelector(selector).click();
          await sleep(200);
          return [middle_s(), (one.x_range.end - one.x_range.start) / 1000];
        };
        const marks = one.marks.data.x.map((ms) => (ms - one.start_ms) / 1000);
        const unticked = one.ticks.data.x.length;
        const found = [];
        for (const step of [1, 1, 1, 1, -1]) found.push(await press(`[data-step="${step}"]`));
        const ticks = one.ticks.data.x.length;
        const minute = await press('[data-span="60000"]');
        const rate = Array.from(one.rate_dots.data.y);
        const fitted = await press("[data-fit]");
        const y = [one.y_range.start, one.y_range.end];
        const beat = await press("#worst button");
        return { marks, unticked, found, ticks, minute, rate, y, beat };
        """,
        records=[view(signal=np.sin(np.arange(60_000) / 5) * 2)],
        scored=table,
        worst=worst(),
    )
    times_s = (table["sample"] / 50)[table["anomaly"]].tolist()
    assert found["marks"] == pytest.approx(times_s)
    assert found["unticked"] == 0
    expected = [times_s[i] for i in (0, 1, 2, 2, 1)]
    assert [middle for middle, _ in found["found"]] == pytest.approx(expected, abs=0.01)
    assert [span for _, span in found["found"]] == pytest.approx([10] * 5)
    assert found["ticks"] in (12, 13)
    assert found["minute"][1] == pytest.approx(60)
    centre, half = times_s[1], 30
    near = table[(table["sample"] / 50 - centre).abs() < half]
    assert set(np.round(found["rate"], 3)) == {75.0}
    assert len(found["rate"]) == pytest.approx(len(near), abs=2)
    assert found["y"] == pytest.approx([-2 - 0.08 * 4, 2 + 0.15 * 4], abs=0.01)
    assert found["beat"] == pytest.approx([worst()[0].time_s, 10], abs=1.1)


def test_odd_recordings_raise_no_error_in_the_browser(browse):
    signals = {
        "two samples": [0.5, 1.0],
        "all missing": [np.nan] * 9,
        "flat": np.zeros(500),
        "spike": np.r_[np.sin(np.arange(1000)), 1e6],
        "lone samples": np.where(np.arange(100) % 2, np.nan, 1.0),
    }
    found = browse(
        """
        const distinct = (one) => new Set(one.view.data.y).size;
        return all.map((one) => [one.index, one.view.data.x.length, distinct(one), one.drawn.most]);
        """,
        records=[view(name, signal=signal) for name, signal in signals.items()],
        scored=scored("flat", samples=[100, 160]),
        model=None,
        worst=[],
    )
    assert [row[0] for row in found] == [0, 2, 3, 4]
    assert [row[3] for row in found] == pytest.approx([1, 0, 1e6, 1], rel=1e-3)
    # Beside a spike a million times the signal the signal still has its shape.
    assert found[2][2] > 500
    assert [row[1] for row in found] == [2 * 2 + 1, 2 * 500 + 1, 2 * 1001 + 1, 5 * 50]


def test_spans_are_shaded_by_reason_and_a_button_leads_to_each(browse):
    signal = np.sin(np.arange(60_000) / 5)
    signal[1000:2000] = np.nan
    spans = [
        ("missing", 1000, 2000),
        ("flat", 10_000, 12_000),
        ("clipped", 20_000, 20_500),
        ("noise", 30_000, 40_000),
        ("noise", 50_000, 50_100),
    ]
    found = browse(
        """
        const legends = [...Bokeh.documents[0].all_models]
          .filter((model) => model.name === "unanalysed");
        const legend = legends[0];
        const strips = Object.fromEntries(legend.items.map((item) => {
          const { x0, x1 } = item.renderers[0].data_source.data;
          return [item.label.value, [Array.from(x0), Array.from(x1)]];
        }));
        const buttons = [...document.querySelectorAll("table.spans button")];
        const places = [];
        for (const button of buttons) {
          button.click();
          await sleep(100);
          places.push((all[0].x_range.start + all[0].x_range.end) / 2000);
        }
        return { n: legends.length, strips, places };
        """,
        records=[view(signal=signal, gaps=1, spans=unanalysed(*spans))],
        scored=scored(samples=range(100, 60_000, 40)),
        worst=[],
    )
    assert found["n"] == 1
    assert found["strips"] == {
        "missing": [[20_000], [40_000]],
        "flat": [[200_000], [240_000]],
        "clipped": [[400_000], [410_000]],
        "noise": [[600_000, 1_000_000], [800_000, 1_002_000]],
    }
    assert found["places"] == pytest.approx([600, 200, 20, 400, 1000], abs=0.1)
