"""What the model is compared with: other scores of the same beats, none of which sees a label.

A beat is a row of points, the model's input. `trained` are the beats that a method may learn from,
float32 of shape (n_trained, LENGTH), and `beats` those that it scores, (n_beats, LENGTH); every
method returns a score a beat, the higher the less it belongs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from anomaly_data import Floats
from scipy.ndimage import median_filter
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import NearestNeighbors

import ecg_dask

#: Weight of the prematurity beside the isolation forest's score.
PREMATURITY_WEIGHT = 0.3

#: Beats whose intervals a beat's own is compared with.
NEIGHBOURS_IN_TIME = 31

#: Nearest training beats whose mean distance is a score.
NEIGHBOURS = 5

COMPONENTS = 8


def isolation_forest(trained: Floats, beats: Floats, seed: int) -> Floats:
    """Return how few random cuts part a beat from the others (scikit-learn's defaults).

    Notes
    -----
    Liu FT, Ting KM, Zhou ZH. Isolation Forest. ICDM 2008. https://doi.org/10.1109/ICDM.2008.17
    """
    forest = IsolationForest(random_state=seed).fit(trained)
    score: Floats = -forest.score_samples(beats)
    return score


def nearest_beats(trained: Floats, beats: Floats) -> Floats:
    """Return the mean distance to the `NEIGHBOURS` nearest training beats."""
    neighbours = min(NEIGHBOURS, len(trained))
    found = NearestNeighbors(n_neighbors=neighbours, algorithm="brute").fit(trained)
    distance, _ = found.kneighbors(beats)
    score: Floats = distance.mean(axis=1)
    return score


def pca_error(trained: Floats, beats: Floats) -> Floats:
    """Return the mean squared error of what `COMPONENTS` principal components make of a beat."""
    components = min(COMPONENTS, len(trained))
    # Of 128 points a covariance is quick, and in double precision as good as any other way.
    pca = PCA(components, svd_solver="covariance_eigh").fit(trained.astype(np.float64))
    again = pca.inverse_transform(pca.transform(beats))
    score: Floats = np.square(again - beats).mean(axis=1)
    return score


def distance_to_median(trained: Floats, beats: Floats) -> Floats:
    """Return the mean squared distance to the training beats' median, point by point."""
    score: Floats = np.square(beats - np.median(trained, axis=0)).mean(axis=1)
    return score


def prematurity(rr_prev_s: Floats) -> Floats:
    """Return ``max(0, -log(interval before / local median of the intervals))`` of each beat.

    Parameters
    ----------
    rr_prev_s
        Seconds since the beat before, of all beats of a record in order, NaN where unknown; such a
        beat is not premature.
    """
    known = np.isfinite(rr_prev_s)
    if not known.any():
        return np.zeros(len(rr_prev_s))
    # The filter knows no missing values.
    interval = np.where(known, rr_prev_s, np.median(rr_prev_s[known]))
    local = median_filter(interval, NEIGHBOURS_IN_TIME, mode="nearest")
    early: Floats = np.maximum(0, -np.log(interval / local))
    return np.where(known, early, 0.0)


def plain_vae(model: ecg_dask.Model, beats: Floats) -> Floats:
    """Return the mean squared error of the trained autoencoder's reconstruction, and no more."""
    if not model.weights:
        return np.full(len(beats), np.nan)
    network: Any = model.network.on(model.n_leads, "cpu")
    with torch.no_grad():
        x = torch.tensor(beats)[:, None]
        mean, _ = network.encode(x)
        score: Floats = (network.decode(mean) - x).square().mean(dim=(1, 2)).numpy()
    return score
