"""Small signals for tests: beats as spikes with a T wave, on noise, in whole numbers."""

import numpy as np

from ecg_dask import Detector

#: A detector whose windows are short, so that a halo is about a second.
SHORT = Detector(
    spacing_s=0.2,
    cell_s=0.1,
    peak_s=0.4,
    median_s=0.8,
    noise_s=0.4,
    rhythm_s=1.5,
    refine_s=0.05,
    refractory_s=0.15,
    before_s=0.1,
    after_s=0.15,
)


def counts(n_samples, fs=100.0, seed=0, n_leads=1, noise=6.0, faintest=0.6):
    """Return whole numbers as float32 of shape (n_samples, n_leads), and the beats' samples.

    The beats' heights are spread from 500 down to `faintest` times that; with much less than a
    detector's threshold, which of them are found hangs on their surroundings.
    """
    rng = np.random.default_rng(seed)
    at, t = [], 0.3
    while t < n_samples / fs:
        at.append(int(t * fs))
        t += rng.uniform(0.25, 1.1)
    time = np.arange(n_samples) / fs
    x = np.zeros((n_samples, n_leads))
    for sample in at:
        for lead in range(n_leads):
            height = rng.choice([500, 500, -500]) * faintest ** rng.random()
            since = time - sample / fs
            x[:, lead] += height * np.exp(-((since / 0.012) ** 2))
            x[:, lead] += height / 5 * np.exp(-(((since - 0.2) / 0.05) ** 2))
    x += rng.normal(0, noise, x.shape)
    return np.round(x).astype(np.float32), np.array(at, dtype=np.int64)


def with_gaps(x, spans):
    x = x.copy()
    for start, stop in spans:
        x[start:stop] = np.nan
    return x
