"""Scores and latent coordinates of the beats that a worker holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

from ..arrays import data_frame, namespace, on_gpu
from .inputs import model_inputs, row_scales
from .vae import network_from

#: Rows a batch, on a CPU and on a GPU. Every batch has so many, the last one padded: libraries pick
#: their kernels by the batch's size, and a beat's score must not depend on how many are beside it.
BATCH, BATCH_ON_GPU = 256, 8192

#: Batches whose inputs are made together, so that a partition's are never all in memory.
_BUNDLE = 16


def latent_columns(latent: int) -> list[str]:
    """Return the names of the latent coordinates' columns."""
    return [f"z{i}" for i in range(latent)]


def score_inputs(inputs: Any, weights: Mapping[str, np.ndarray], latent: int) -> tuple[Any, Any]:
    """Score beats as the network sees them.

    Parameters
    ----------
    inputs
        float32 of shape (n_beats, n_leads, LENGTH), NumPy or CuPy.
    weights
        The network's weights; none at all for a model that was not trained.
    latent
        Latent dimensions.

    Returns
    -------
    score
        float32 of shape (n_beats,): squared error of what the decoder makes of the latent mean,
        averaged over points and leads. NaN where there is no finite one.
    z
        float32 of shape (n_beats, latent): the latent mean; NaN where the score is.
    """
    xp = namespace(inputs)
    n, n_leads = inputs.shape[:2]
    score = xp.full(n, np.nan, dtype=xp.float32)
    z = xp.full((n, latent), np.nan, dtype=xp.float32)
    if not n or not weights:
        return score, z
    size = BATCH_ON_GPU if on_gpu(inputs) else BATCH
    batch = xp.zeros((size, *inputs.shape[1:]), dtype=xp.float32)
    x = from_dlpack(batch)
    network = network_from(weights, n_leads, latent, x.device)
    with torch.no_grad():
        for start in range(0, n, size):
            rows = inputs[start : start + size]
            batch[: len(rows)] = rows
            batch[len(rows) :] = 0
            mean, _ = network.encode(x)
            error = (network.decode(mean) - x).square().mean(dim=(1, 2))
            score[start : start + len(rows)] = xp.from_dlpack(error)[: len(rows)]
            z[start : start + len(rows)] = xp.from_dlpack(mean)[: len(rows)]
    null = ~(xp.isfinite(score) & xp.isfinite(z).all(axis=1))
    score[null] = np.nan
    z[null] = np.nan
    return score, z


def score_partition(
    table: Any,
    waves: Any,
    scales: Mapping[str, float],
    *,
    fs: float,
    window: tuple[float, float],
    weights: Mapping[str, np.ndarray],
    latent: int,
    threshold: float | None,
) -> Any:
    """Score the beats of one partition.

    Parameters
    ----------
    table
        Partition of the beat table, pandas or cuDF.
    waves
        float32 of shape (n_beats, n_leads, n_window).
    scales
        Scale of each record's beats.
    fs
        Sampling rate in Hz.
    window
        Seconds before and after the beat.
    weights, latent
        The network.
    threshold
        Score above which a beat is an anomaly; None for no anomalies.

    Returns
    -------
    table
        Row for row and with the index of `table`: score, anomaly, z0, z1, ...
    """
    xp = namespace(waves)
    complete = xp.asarray(table["complete"].to_numpy(dtype=bool))
    n = len(complete)
    score = xp.full(n, np.nan, dtype=xp.float32)
    z = xp.full((n, latent), np.nan, dtype=xp.float32)
    scale = xp.asarray(row_scales(table, scales))
    rows = xp.flatnonzero(complete)
    bundle = _BUNDLE * (BATCH_ON_GPU if on_gpu(waves) else BATCH)
    for start in range(0, len(rows), bundle):
        some = rows[start : start + bundle]
        inputs = model_inputs(waves[some], scale[some], fs, window)
        score[some], z[some] = score_inputs(inputs, weights, latent)
    anomaly = score > (np.inf if threshold is None else threshold)
    columns = {"score": score, "anomaly": anomaly}
    columns |= {name: z[:, i] for i, name in enumerate(latent_columns(latent))}
    return data_frame(columns, waves, table.index)
