"""Obvious loops that the kernels are compared with. Slow, and nothing else."""

import numpy as np

from ecg_dask.kernels.rules import APART, FAR_FLANK, NEAR_FLANK, PER_CELL, QUIET, ROOM, STRONG
from ecg_dask.segment.detector import CANDIDATE, SURE, integrated_ricker


def runs(x):
    """Return the (start, stop) of each run of recorded samples."""
    found, start = [], None
    for i, value in enumerate(x):
        if np.isnan(value):
            if start is not None:
                found.append((start, i))
            start = None
        elif start is None:
            start = i
    if start is not None:
        found.append((start, len(x)))
    return found


def run_of(x, i):
    return next((a, b) for a, b in runs(x) if a <= i < b)


def convolve(x, wavelet):
    """Convolve each run with a symmetric wavelet that sums to 0, its ends held level."""
    radius = len(wavelet) // 2
    out = np.full(len(x), np.nan)
    for start, stop in runs(x):
        held = np.pad(x[start:stop].astype(np.float64), radius, mode="edge")
        out[start:stop] = np.convolve(held, wavelet, mode="valid")
    return out


def energy(w, radius):
    out = np.full(len(w), np.nan)
    for start, stop in runs(w):
        for i in range(start, stop):
            near = w[max(i - radius, start) : min(i + radius + 1, stop)]
            out[i] = np.sum(near.astype(np.float64) ** 2)
    return out


def response(x, taps):
    """Sum taps[m] * (d[i - m] - d[i + m + 1]), d being each run's first difference."""
    out = np.full(len(x), np.nan)
    for start, stop in runs(x):
        d = {j: float(x[j]) - float(x[j - 1]) for j in range(start + 1, stop)}
        for i in range(start, stop):
            pairs = [d.get(i - m, 0.0) - d.get(i + m + 1, 0.0) for m in range(len(taps))]
            out[i] = sum(tap * pair for tap, pair in zip(taps, pairs, strict=True))
    return out


def halved_sum(values):
    """Add float32 values of a power of two in number, halves first."""
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    return halved_sum(values[:half]) + halved_sum(values[half:])


def energy_in_blocks(w, radius):
    """Sum squares in float32 in the order that `ecg_dask.kernels.crests` states."""
    out = np.full(len(w), np.nan, np.float32)
    for start, stop in runs(w):
        for i in range(start, stop):
            window = [
                w[j] * w[j] if start <= j < stop else np.float32(0)
                for j in range(i - radius, i + radius + 1)
            ]
            total, size = None, 1
            while size <= 2 * radius + 1:
                if size & (2 * radius + 1):
                    block, window = window[:size], window[size:]
                    total = halved_sum(block) if total is None else total + halved_sum(block)
                size *= 2
            assert not window
            out[i] = total
    return out


def crests(e, first, sub):
    found = {}
    for i, value in enumerate(e):
        best = found.setdefault((first + i) // sub, (-1.0, -1))
        if value > best[0]:
            found[(first + i) // sub] = (value, i)
    value, index = zip(*(found[c] for c in sorted(found)), strict=True)
    return np.array(value, dtype=np.float32), np.array(index, dtype=np.int64)


def summits(value, index, floor, first, sub, per_cell, spacing):
    found = []
    for c, height in enumerate(value):
        cell = (first // sub + c) // per_cell - first // sub // per_cell
        near = (index >= 0) & (abs(index - index[c]) <= spacing)
        equal_and_earlier = near & (value == height) & (index < index[c])
        beaten = np.any(near & (value > height)) or np.any(equal_and_earlier)
        if index[c] >= 0 and height > floor[cell] and not beaten:
            found.append(c)
    return np.array(found, dtype=np.int64)


def cell_maxima(e, first, cell):
    cells = {}
    for i, value in enumerate(e):
        c = (first + i) // cell
        cells.setdefault(c, -1.0)
        if not np.isnan(value):
            cells[c] = max(cells[c], value)
    return np.array([cells[c] for c in sorted(cells)], dtype=np.float32)


def usual_maxima(maxima, peak_cells, median_radius):
    n = len(maxima)
    high = []
    for c in range(n):
        begin = c - peak_cells // 2
        near = [maxima[j] for j in range(begin, begin + peak_cells) if 0 <= j < n]
        high.append(max(near) if maxima[c] >= 0 else None)
    out = []
    for c in range(n):
        near = [
            high[j]
            for j in range(c - median_radius, c + median_radius + 1)
            if 0 <= j < n and high[j] is not None
        ]
        out.append(sorted(near)[(len(near) - 1) // 2] if near else -1)
    return np.array(out, dtype=np.float32)


def cell_middles(value, first, cell):
    cells = {}
    for i, crest in enumerate(value):
        cells.setdefault((first + i) // cell, []).extend([crest] if crest >= 0 else [])
    middles = [sorted(cells[c])[len(cells[c]) // 2] if cells[c] else -1 for c in sorted(cells)]
    return np.array(middles, dtype=np.float32)


def look(x, narrow, taps, wide, at, radius, response=response):
    """Look at each candidate; `response` may be a function that rounds as the kernels do."""
    steep, usual, broad = (abs(response(x, kernel)) for kernel in (narrow, taps, wide))
    sharpness, position, at_edge = [], [], []
    for i in at:
        start, stop = run_of(x, i)
        near = range(max(i - radius, start), min(i + radius + 1, stop))
        below = max(usual[j] for j in near)
        ratio = max(steep[j] for j in near) / below if below else 0 * below
        sharpness.append(ratio * ratio)
        position.append(max(near, key=lambda j: (broad[j], -j)))
        at_edge.append(position[-1] in (start, stop - 1))
    return np.array(sharpness), np.array(position, dtype=np.int64), np.array(at_edge, dtype=bool)


def merits(value, level, noise, summit, at, sharpness, head, reach, sure):
    """Return the merits of the first and of the second round."""
    shares, alone = [], []
    for s, sharp in zip(summit, sharpness, strict=True):
        cell = (head + s) // PER_CELL
        full = float(level[cell] if level[cell] > 0 else value[s])
        beside = [s + side * d for side in (-1, 1) for d in range(NEAR_FLANK, FAR_FLANK + 1)]
        flank = max([0.0, *(float(value[j]) for j in beside if 0 <= j < len(value))]) / full
        quiet = np.sqrt(max(float(noise[cell]), 0.0) / full + QUIET)
        shares.append(float(value[s]) / full)
        alone.append(shares[-1] * np.sqrt(min(float(sharp), 1.0)) / (quiet * (1 + np.sqrt(flank))))

    def among(strong):
        found = []
        for b, i in enumerate(at):
            near = [j for j in range(len(at)) if strong[j] and abs(at[j] - i) <= reach]
            merit = alone[b]
            before = min([i - at[j] for j in near if j < b], default=reach)
            behind = min([at[j] - i for j in near if j > b], default=reach)
            if len(near) > 1:
                interval = np.mean(np.diff([at[j] for j in near]))
                merit *= min(min(before, behind) / interval, APART)
                merit *= min((before + behind) / interval, ROOM)
            usual = np.mean([float(sharpness[j]) for j in near]) if near else 0.0
            merit *= min(float(sharpness[b]) / usual, 1.0) ** 0.75 if usual else 1.0
            found.append(merit)
        return np.array(found)

    first = among([share > STRONG for share in shares])
    return first, among(first > sure)


def prune(accepted, position, energy, refractory):
    taken = [b for b in range(len(accepted)) if accepted[b]]
    kept = np.zeros(len(accepted), bool)
    for place, b in enumerate(taken):
        earlier = [j for j in taken[:place][-1:] if position[b] - position[j] < refractory]
        later = [j for j in taken[place + 1 :][:1] if position[j] - position[b] < refractory]
        kept[b] = not any(energy[j] >= energy[b] for j in earlier) and not any(
            energy[j] > energy[b] for j in later
        )
    return kept, accepted & ~kept


def measure(x, position, margin, near, far, wide, plateau):
    amplitude, quality = [], []
    for s, times in zip(position, margin, strict=True):
        start, stop = run_of(x, s)
        seen = [j for j in range(s - wide, s + wide + 1) if start <= j < stop]
        flanks = [float(x[s]) - float(x[j]) for j in seen if near <= abs(j - s) <= far]
        amplitude.append(np.mean(flanks) if flanks else np.nan)
        good = (1 - 1 / times) * len(seen) / (2 * wide + 1)
        a = b = s
        while a > start and x[a - 1] == x[s]:
            a -= 1
        while b + 1 < stop and x[b + 1] == x[s]:
            b += 1
        quality.append(good / 2 if b - a + 1 >= plateau else good)
    return np.array(amplitude), np.array(quality)


def detect(x, first, core, detector, fs):
    """Return sample, next sample, amplitude, quality and the number of pruned candidates."""
    w = detector.widths(fs)
    narrow = integrated_ricker(detector.narrow_s, fs, w.narrow)
    taps = integrated_ricker(detector.wavelet_s, fs, w.wavelet)
    wide = integrated_ricker(detector.wide_s, fs, w.wide_wavelet)
    value, index = crests(energy(response(x, taps), w.energy), first, w.sub)
    head = first // w.sub
    level = usual_maxima(cell_maxima(value, head, PER_CELL), w.peak_cells, w.median_radius)
    noise = usual_maxima(cell_middles(value, head, PER_CELL), 1, w.noise_radius)
    summit = summits(value, index, CANDIDATE * level, first, w.sub, PER_CELL, w.spacing)
    at = index[summit]
    sharpness, position, at_edge = look(x, narrow, taps, wide, at, w.refine)
    merit = merits(
        value,
        level,
        noise,
        summit,
        at,
        sharpness,
        head % PER_CELL,
        w.rhythm,
        SURE * detector.threshold,
    )[1]
    accepted = merit > detector.threshold
    kept, dropped = prune(accepted & ~at_edge, position, value[summit], w.refractory)
    beats = [int(first + s) for s in position[kept]]
    following = [
        after if after - sample < w.after else np.iinfo(np.int64).max
        for sample, after in zip(beats, [*beats[1:], np.iinfo(np.int64).max], strict=True)
    ]
    owned = [core[0] <= sample < core[1] for sample in beats]
    pruned = sum(core[0] <= first + s < core[1] for s in position[accepted & (at_edge | dropped)])
    amplitude, quality = measure(
        x,
        position[kept][owned],
        merit[kept][owned] / detector.threshold,
        w.near,
        w.far,
        w.wide,
        w.plateau,
    )
    return np.array(beats)[owned], np.array(following)[owned], amplitude, quality, pruned


def cut(block, position, before, after, keep):
    waves = np.zeros((len(position), block.shape[1], before + after), np.float32)
    complete = np.ones(len(position), bool)
    for b, s in enumerate(position):
        for lead in range(block.shape[1]):
            for k in range(before + after):
                j = s - before + k
                if not 0 <= j < len(block) or np.isnan(block[j, lead]):
                    complete[b] = False
                elif k - before < keep[b]:
                    waves[b, lead, k] = block[j, lead]
    return waves, complete
