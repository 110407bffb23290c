"""What the network makes of a beat, in the unit of its recording."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..anomaly.inputs import HEIGHT, LENGTH, model_inputs, resampling

_Floats = npt.NDArray[np.float32]


def points_s(window: tuple[float, float]) -> npt.NDArray[np.float64]:
    """Return the times of the network's `LENGTH` points, in seconds from the beat."""
    before_s, after_s = window
    return (np.arange(LENGTH) + 0.5) * (before_s + after_s) / LENGTH - before_s


def reconstructions(
    waves: Sequence[_Floats],
    scales: Sequence[float],
    next_s: Sequence[float],
    fs: Sequence[float],
    model: Any,
) -> list[_Floats]:
    """Return what the network makes of the first lead of beats.

    Parameters
    ----------
    waves
        Of each beat float32 of shape (n_leads, n_window).
    scales
        Of each beat the scale of its record, in the unit of its wave.
    next_s
        Of each beat the seconds to the next one, NaN where unknown.
    fs
        Of each beat the sampling rate in Hz.
    model
        The trained model.

    Returns
    -------
    list
        Of each beat float32 of shape (LENGTH,), in the unit of its wave, at `points_s`.
    """
    if not waves:
        return []
    network = model.network
    vae = network.on(len(waves[0]), "cpu")
    found = []
    for wave, scale, rr_s, rate in zip(waves, scales, next_s, fs, strict=True):
        alone = np.array([scale], np.float32)
        inputs = model_inputs(wave[None], alone, rate, network.window, np.array([rr_s]))
        with torch.no_grad():
            z, _ = vae.encode(torch.from_numpy(inputs))
            made = vae.decode(z)[0, 0].numpy()
        # What the network sees is the beat at some points, without a mean and at another scale.
        index, weight = resampling(wave.shape[1], rate, network.window)
        first = (wave[0, index[:, 0]] * weight[:, 0]).sum()
        unit = scale / HEIGHT
        found.append((first + unit * (made - inputs[0, 0, 0])).astype(np.float32))
    return found
