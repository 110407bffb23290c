"use strict";

// The whole series in the browser: every change of the visible span picks the part of the
// envelope that is on screen and reduces it to about as many columns as the screen has.
window.EcgReport = (() => {
  const COLUMNS = 2000; // of the signal, about two for every pixel
  const RATE_COLUMNS = 1000;
  const MAX_TICKS = 400; // detected beats that are marked one by one
  const MAX_SPANS = 200; // anomalies that get a line over the full height
  const MISSING = -32768; // in an envelope of 16-bit integers
  const DAY_MS = 86400000;

  const all = [];

  const pad = (value, width = 2) => String(value).padStart(width, "0");

  // ms: on the time axis; midnight: of the first day, or null when the start is unknown
  function timeText(ms, midnight, decimals = 0, seconds = true) {
    const scale = 10 ** decimals;
    let ticks = Math.round(((ms - (midnight ?? 0)) / 1000) * scale);
    let days = 0;
    if (midnight !== null) {
      days = Math.floor(ticks / (86400 * scale));
      ticks -= days * 86400 * scale;
    }
    const sign = ticks < 0 ? "-" : "";
    ticks = Math.abs(ticks);
    const whole = Math.floor(ticks / scale);
    const hours = Math.floor(whole / 3600);
    let text = `${sign}${midnight === null ? hours : pad(hours)}:${pad(Math.floor(whole / 60) % 60)}`;
    if (seconds || midnight === null) text += `:${pad(whole % 60)}`;
    if (decimals) text += `.${pad(ticks % scale, decimals)}`;
    return days ? `${text} (+${days} d)` : text;
  }

  function tickText(tick, ticks, midnight) {
    const step = ticks.length > 1 ? ticks[1] - ticks[0] : 1000;
    const decimals = step >= 1000 ? 0 : step >= 100 ? 1 : step >= 10 ? 2 : 3;
    const text = timeText(tick, midnight, decimals, step < 60000);
    // The day is told where it changes only; repeated at each tick it would not fit.
    return (tick - (midnight ?? 0)) % DAY_MS === 0 ? text : text.split(" ")[0];
  }

  function spanText(ms) {
    const s = ms / 1000;
    const part = (value, unit) => `${Number(value.toPrecision(3))} ${unit}`;
    return s < 120 ? part(s, "s") : s < 7200 ? part(s / 60, "min") : part(s / 3600, "h");
  }

  // First index at which a sorted array reaches a value.
  function reach(sorted, value) {
    let low = 0;
    let high = sorted.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] < value) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // A band between two polylines as closed outlines, one for each run without NaN.
  function outline(x, low, high, width) {
    const outX = [];
    const outY = [];
    let first = 0;
    for (let i = 0; i <= x.length; i++) {
      if (i < x.length && low[i] === low[i]) continue;
      if (i - first === 1) {
        // A column alone between two gaps would be a point, which nothing draws.
        const [left, right] = [x[first] - width / 2, x[first] + width / 2];
        outX.push(left, right, right, left, NaN);
        outY.push(high[first], high[first], low[first], low[first], NaN);
      } else if (i > first) {
        for (let k = first; k < i; k++) { outX.push(x[k]); outY.push(high[k]); }
        for (let k = i - 1; k >= first; k--) { outX.push(x[k]); outY.push(low[k]); }
        outX.push(NaN);
        outY.push(NaN);
      }
      first = i + 1;
    }
    return { x: outX, y: outY };
  }

  function signalColumns(series, start, end, columns) {
    const { low, high } = series.bins.data;
    const upper = high ?? low;
    const binMs = series.bin_samples * series.sample_ms;
    const from = Math.max(0, Math.floor((start - series.start_ms) / binMs) - 1);
    const to = Math.min(low.length, Math.ceil((end - series.start_ms) / binMs) + 1);
    const group = Math.max(1, Math.ceil((to - from) / columns));
    const x = [];
    const lows = [];
    const highs = [];
    // Groups begin at fixed bins, so that the picture does not flicker while it is moved.
    for (let bin = from - (from % group); bin < to; bin += group) {
      let least = Infinity;
      let most = -Infinity;
      for (let k = bin; k < Math.min(bin + group, low.length); k++) {
        if (low[k] === MISSING || low[k] !== low[k]) continue;
        if (low[k] < least) least = low[k];
        if (upper[k] > most) most = upper[k];
      }
      const middle = bin * series.bin_samples + (group * series.bin_samples - 1) / 2;
      x.push(series.start_ms + middle * series.sample_ms);
      lows.push(least === Infinity ? NaN : series.offset + series.scale * least);
      highs.push(least === Infinity ? NaN : series.offset + series.scale * most);
    }
    const least = lows.reduce((a, b) => (b < a ? b : a), Infinity);
    const most = highs.reduce((a, b) => (b > a ? b : a), -Infinity);
    return { ...outline(x, lows, highs, group * binMs), columns: x.length, least, most };
  }

  function rateColumns(series, first, last) {
    const { sample, rr } = series.beats.data;
    const group = Math.max(1, Math.ceil((last - first) / RATE_COLUMNS));
    const x = [];
    const low = [];
    const high = [];
    const mean = [];
    const dots = { x: [], y: [] }; // single intervals, once few enough are in view
    const add = (...values) => [x, low, high, mean].forEach((list, i) => list.push(values[i]));
    for (let beat = first - (first % group); beat < last; beat += group) {
      let [sum, count, shortest, longest, broken] = [0, 0, Infinity, 0, false];
      const stop = Math.min(beat + group, rr.length);
      for (let k = beat; k < stop; k++) {
        if (rr[k] !== rr[k]) { broken = true; continue; }
        sum += rr[k];
        count += 1;
        shortest = Math.min(shortest, rr[k]);
        longest = Math.max(longest, rr[k]);
      }
      const middle = series.start_ms + ((sample[beat] + sample[stop - 1]) / 2) * series.sample_ms;
      if (broken) add(middle, NaN, NaN, NaN);
      if (count) add(middle, 60 / longest, 60 / shortest, (60 * count) / sum);
      if (count && last - first <= MAX_TICKS) {
        dots.x.push(middle);
        dots.y.push(60 / shortest);
      }
    }
    return { band: outline(x, low, high, 0), line: { x, y: mean }, dots };
  }

  function redraw(series) {
    const { start, end } = series.x_range;
    const drawn = signalColumns(series, start, end, COLUMNS);
    series.view.data = { x: drawn.x, y: drawn.y };
    series.drawn = drawn;

    const toSample = (ms) => (ms - series.start_ms) / series.sample_ms;
    const place = (at) => series.start_ms + at * series.sample_ms;
    const { sample } = series.beats.data;
    const first = reach(sample, toSample(start));
    const last = reach(sample, toSample(end));
    const few = last - first <= MAX_TICKS;
    const ticks = [];
    // No subarray: that of Bokeh's own arrays returns the whole array.
    if (few) for (let k = first; k < last; k++) ticks.push(place(sample[k]));
    series.ticks.data = { x: ticks };

    const bad = series.anomalies.data;
    const from = reach(bad.sample, toSample(start));
    const to = reach(bad.sample, toSample(end));
    const group = Math.max(1, Math.ceil((to - from) / COLUMNS));
    const marks = [];
    for (let i = from; i < to; i += group) {
      let worst = i;
      for (let k = i + 1; k < Math.min(i + group, to); k++) {
        if (bad.score[k] > bad.score[worst]) worst = k;
      }
      marks.push(worst);
    }
    const x = marks.map((i) => place(bad.sample[i]));
    series.marks.data = {
      x,
      time: x.map((ms) => timeText(ms, series.midnight, 1)),
      score: marks.map((i) => bad.score[i]),
      rr: marks.map((i) => (bad.rr[i] === bad.rr[i] ? `${bad.rr[i].toFixed(3)} s` : "unknown")),
    };
    series.spans.data = { x: to - from <= MAX_SPANS ? x : [] };

    if (series.rate_band) {
      const rate = rateColumns(series, Math.max(0, first - 1), Math.min(sample.length, last + 1));
      series.rate_band.data = rate.band;
      series.rate_line.data = rate.line;
      series.rate_dots.data = rate.dots;
    }
    if (series.shown) {
      const decimals = end - start < 1000 ? 3 : end - start < 60000 ? 1 : 0;
      const many = (n, one, more) => `${n.toLocaleString("en")} ${n === 1 ? one : more}`;
      series.shown.textContent =
        `${timeText(start, series.midnight, decimals)} to ${timeText(end, series.midnight, decimals)}` +
        ` (${spanText(end - start)}): ${many(last - first, "beat", "beats")},` +
        ` ${many(to - from, "anomaly", "anomalies")}`;
    }
  }

  function show(series, middle, span) {
    const { start_ms: least, end_ms: most } = series;
    const width = Math.min(span, most - least);
    const start = Math.min(Math.max(middle - width / 2, least), most - width);
    series.x_range.setv({ start, end: start + width });
  }

  // Show the amplitudes in view from the lowest to the highest, with room for the marks.
  function fit(series) {
    redraw(series); // a change of the span may still be waiting
    const { least, most } = series.drawn;
    if (least > most) return;
    const span = most - least || Math.abs(most) || 1;
    series.y_range.setv({ start: least - 0.08 * span, end: most + 0.15 * span });
  }

  // Go to the next (step 1) or previous (step -1) anomaly and keep at most ten seconds in view.
  function jump(series, step) {
    const { sample } = series.anomalies.data;
    if (!sample.length) return;
    const { start, end } = series.x_range;
    const span = Math.min(end - start, 10000);
    const now = (start + end) / 2;
    const whole = end - start >= series.end_ms - series.start_ms - 1;
    const last = sample.length - 1;
    const time = (i) => series.start_ms + sample[i] * series.sample_ms;
    const slack = series.sample_ms / 2;
    let i = step > 0 ? 0 : last;
    // From the whole record the first (or last) one is next; else those beyond the one shown.
    if (!whole) {
      const shown = series.at;
      if (shown !== undefined && time(shown) >= start && time(shown) <= end) i = shown + step;
      else if (step > 0) i = reach(sample, (now + slack - series.start_ms) / series.sample_ms);
      else i = reach(sample, (now - slack - series.start_ms) / series.sample_ms) - 1;
    }
    series.at = Math.min(Math.max(i, 0), last);
    show(series, time(series.at), span);
  }

  function listen(series, index) {
    let waiting = false;
    const later = () => {
      if (waiting) return;
      waiting = true;
      setTimeout(() => { waiting = false; redraw(series); }, 15); // start and end change in turn
    };
    series.x_range.properties.start.change.connect(later);
    series.x_range.properties.end.change.connect(later);
    const middle = () => (series.x_range.start + series.x_range.end) / 2;
    const box = document.getElementById(`series-${index}`);
    series.shown = box.querySelector(".shown");
    for (const button of box.querySelectorAll("button[data-span]")) {
      button.addEventListener("click", () => show(series, middle(), Number(button.dataset.span)));
    }
    box.querySelector("button[data-fit]").addEventListener("click", () => fit(series));
    for (const button of box.querySelectorAll("button[data-step]")) {
      button.addEventListener("click", () => jump(series, Number(button.dataset.step)));
    }
  }

  function start(list) {
    for (const series of list) {
      const index = all.push(series) - 1;
      listen(series, series.index);
      if (series.overview) {
        const drawn = signalColumns(series, series.start_ms, series.end_ms, 1200);
        series.overview.data = { x: drawn.x, y: drawn.y };
      }
      redraw(all[index]);
    }
    for (const button of document.querySelectorAll("button[data-series]")) {
      const series = all.find((one) => one.index === Number(button.dataset.series));
      if (!series) continue;
      button.addEventListener("click", () => {
        show(series, series.start_ms + Number(button.dataset.time) * 1000, 10000);
        document.getElementById(`series-${series.index}`).scrollIntoView({ block: "center" });
      });
    }
    document.documentElement.dataset.ready = "yes";
  }

  return { all, start, tickText };
})();
