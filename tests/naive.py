"""Obvious loops that the kernels are compared with. Slow, and nothing else."""

import numpy as np


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


def cell_maxima(e, first, cell):
    cells = {}
    for i, value in enumerate(e):
        c = (first + i) // cell
        cells.setdefault(c, -1.0)
        if not np.isnan(value):
            cells[c] = max(cells[c], value)
    return np.array([cells[c] for c in sorted(cells)], dtype=np.float32)


def thresholds(maxima, peak_cells, median_radius, factor):
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
        out.append(np.float32(factor) * sorted(near)[(len(near) - 1) // 2] if near else -1)
    return np.array(out, dtype=np.float32)


def peaks(e, floor, first, cell, radius):
    found = []
    for i, value in enumerate(e):
        if np.isnan(value) or not value > floor[(first + i) // cell - first // cell]:
            continue
        start, stop = run_of(e, i)
        before = e[max(i - radius, start) : i]
        behind = e[i + 1 : min(i + radius + 1, stop)]
        if all(value > other for other in before) and all(value >= other for other in behind):
            found.append(i)
    return np.array(found, dtype=np.int64)


def strongest(w, index, radius):
    position, at_edge = [], []
    for i in index:
        start, stop = run_of(w, i)
        near = range(max(i - radius, start), min(i + radius + 1, stop))
        best = max(near, key=lambda j: (abs(w[j]), -j))
        position.append(best)
        at_edge.append(best in (start, stop - 1))
    return np.array(position, dtype=np.int64), np.array(at_edge, dtype=bool)


def measure(x, e, peak, position, near, far, wide, plateau):
    amplitude, quality = [], []
    for i, s in zip(peak, position, strict=True):
        start, stop = run_of(x, s)
        seen = [j for j in range(s - wide, s + wide + 1) if start <= j < stop]
        flanks = [x[s] - x[j] for j in seen if near <= abs(j - s) <= far]
        amplitude.append(np.mean(flanks) if flanks else np.nan)
        noise = [e[j] for j in seen if near <= abs(j - s)]
        good = max(0, 1 - np.sqrt(np.mean(noise) / e[i])) if noise else 0
        good *= len(seen) / (2 * wide + 1)
        level = [j for j in range(s - plateau, s + plateau + 1) if 0 <= j < len(x)]
        a = b = s
        while a - 1 in level and x[a - 1] == x[s]:
            a -= 1
        while b + 1 in level and x[b + 1] == x[s]:
            b += 1
        quality.append(good / 2 if b - a + 1 >= plateau else good)
    return np.array(amplitude), np.array(quality)


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
