"""Scores and latent coordinates of the beats that a worker holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

from ..arrays import data_frame, namespace, on_gpu, text_column
from .context import Context, inputs_of
from .profile import Profile, Regions, regions, views
from .vae import VAE, Network

#: Rows a batch, on a CPU and on a GPU. Every batch has so many, the last one padded: libraries pick
#: their kernels by the batch's size, and a beat's score must not depend on how many are beside it.
BATCH, BATCH_ON_GPU = 256, 8192

#: Batches whose inputs are made together, so that a partition's are never all in memory.
_BUNDLE = 16

#: The parts of a score, whose sum it is.
PARTS = ("shape", "timing", "amplitude")


#: Weight of what the network leaves of a QRS complex, as an energy, beside the typical beat's.
RESIDUAL = 0.5


class Scored(NamedTuple):
    """Scores of beats, NumPy or CuPy; NaN where a beat has none.

    Attributes
    ----------
    parts
        float32 of shape (n_beats, 3), in the order of `PARTS`.
    z
        Latent mean, float32 of shape (n_beats, latent).
    """

    parts: Any
    z: Any

    @property
    def score(self) -> Any:
        """The sum of the parts, float32 of shape (n_beats,)."""
        return self.parts[:, 0] + self.parts[:, 1] + self.parts[:, 2]


def latent_columns(latent: int) -> list[str]:
    """Return the names of the latent coordinates' columns."""
    return [f"z{i}" for i in range(latent)]


def surprise(z: torch.Tensor) -> torch.Tensor:
    """Return minus the logarithm of the chance of a value as high as `z` in a normal distribution.

    It is 0.7 of a usual value, 6.6 at three deviations and 15 at five. Surprises of things that
    have nothing to do with each other add up (Fisher RA. Statistical Methods for Research Workers,
    4th ed. Oliver and Boyd, 1932).
    """
    chance: torch.Tensor = torch.special.log_ndtr(-z)
    return -chance


def score_inputs(
    inputs: Any,
    early: Any,
    runs: Sequence[tuple[str, int]],
    network: Network,
    profiles: Mapping[str, Profile],
) -> Scored:
    """Score beats as the network sees them.

    Parameters
    ----------
    inputs
        float32 of shape (n_beats, n_leads, LENGTH), NumPy or CuPy.
    early
        How early each comes, float64 of shape (n_beats,), on the host.
    runs
        Names of their records in order, with the number of rows of each.
    network
        The network.
    profiles
        The profiles of the records; beats of one that has none get no score.
    """
    xp = namespace(inputs)
    n, n_leads = inputs.shape[:2]
    scored = Scored(
        xp.full((n, len(PARTS)), np.nan, dtype=xp.float32),
        xp.full((n, network.latent), np.nan, dtype=xp.float32),
    )
    if not n or not network.weights:
        return scored
    size = BATCH_ON_GPU if on_gpu(inputs) else BATCH
    batch = xp.zeros((size, *inputs.shape[1:]), dtype=xp.float32)
    x = from_dlpack(batch)
    vae = network.on(n_leads, x.device)
    where = regions(network.window)
    for name, rows in _batches(runs, size):
        if name not in profiles:
            continue
        count = rows.stop - rows.start
        batch[:count] = inputs[rows]
        batch[count:] = 0
        late = np.zeros(size)
        late[:count] = early[rows]
        profile = profiles[name].on(x.device)
        parts, z = _score(x, torch.from_numpy(late).to(x.device), vae, profile, where)
        scored.parts[rows] = xp.from_dlpack(parts)[:count]
        scored.z[rows] = xp.from_dlpack(z)[:count]
    null = ~(xp.isfinite(scored.parts).all(axis=1) & xp.isfinite(scored.z).all(axis=1))
    scored.parts[null] = np.nan
    scored.z[null] = np.nan
    return scored


def _batches(runs: Sequence[tuple[str, int]], size: int) -> Iterator[tuple[str, slice]]:
    """Cut runs of rows into batches of at most `size`."""
    start = 0
    for name, count in runs:
        stop = start + count
        for low in range(start, stop, size):
            yield name, slice(low, min(low + size, stop))
        start = stop


@torch.no_grad()
def _score(
    x: torch.Tensor, early: torch.Tensor, vae: VAE, profile: Profile, where: Regions
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the parts and the latent means of one batch."""
    z, _ = vae.encode(x)
    seen = views(x, vae.decode(z), profile, where)
    of_type, of_network, other_p, no_p = surprise(
        ((seen.logs - profile.middle) / profile.deviation).double()
    ).unbind(dim=1)
    p_wave = torch.maximum(other_p, no_p)
    # Of things that have little to do with each other the squares add up. Of what the network
    # leaves half is taken, for some of it is the distance from the typical beat once more.
    qrs = of_type.square() + RESIDUAL * of_network.square()
    p = p_wave.square()
    whole = torch.sqrt(qrs + p)
    # The share that the typical beat, as high as this one, would explain.
    of_qrs, of_p = seen.explained.unbind(dim=1)
    amplitude = of_qrs * (qrs + of_p * p) / whole.clamp(min=torch.finfo(whole.dtype).tiny)
    shape = whole - amplitude
    return torch.stack([shape, surprise(early), amplitude], dim=1).float(), z


def score_partition(
    table: Any,
    waves: Any,
    context: Context,
    profiles: Mapping[str, Profile],
    *,
    fs: float,
    network: Network,
    threshold: float | None,
) -> Any:
    """Score the beats of one partition.

    Parameters
    ----------
    table
        Partition of the beat table, pandas or cuDF.
    waves
        float32 of shape (n_beats, n_leads, n_window).
    context
        What their records tell of them.
    profiles
        What is usual in these.
    fs
        Sampling rate in Hz.
    network
        The network.
    threshold
        Score above which a beat is an anomaly; None for no anomalies.

    Returns
    -------
    table
        Row for row and with the index of `table`: score, anomaly, the parts, reason, z0, z1, ...
    """
    xp = namespace(waves)
    complete = table["complete"].to_numpy(dtype=bool)
    n = len(complete)
    parts = xp.full((n, len(PARTS)), np.nan, dtype=xp.float32)
    z = xp.full((n, network.latent), np.nan, dtype=xp.float32)
    bundle = _BUNDLE * (BATCH_ON_GPU if on_gpu(waves) else BATCH)
    for name, run in _batches(context.runs, n or 1):
        rows = np.flatnonzero(complete[run]) + run.start
        for start in range(0, len(rows), bundle):
            some = rows[start : start + bundle]
            chosen = xp.asarray(some)
            inputs = inputs_of(waves[chosen], context, some, fs, network.window)
            alone = [(name, len(some))]
            scored = score_inputs(inputs, context.early[some], alone, network, profiles)
            parts[chosen], z[chosen] = scored
    score = Scored(parts, z).score
    anomaly = score > (np.inf if threshold is None else threshold)
    columns = {"score": score, "anomaly": anomaly}
    columns |= {f"score_{part}": parts[:, i] for i, part in enumerate(PARTS)}
    # What is no anomaly needs no reason.
    code = xp.where(anomaly, xp.nan_to_num(parts).argmax(axis=1), len(PARTS))
    columns["reason"] = text_column([*PARTS, None], code.astype(xp.int32))
    columns |= {column: z[:, i] for i, column in enumerate(latent_columns(network.latent))}
    return data_frame(columns, waves, table.index)
