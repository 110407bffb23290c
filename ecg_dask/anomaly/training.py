"""train(): gather the training beats on one worker, fit, set the threshold on the others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import dask
import numpy as np
from dask.delayed import delayed
from torch.utils.dlpack import from_dlpack

from ..arrays import namespace, on_gpu, on_host
from ..beats import Beats, one_layer
from ..errors import InputError
from ..gpu.pool import told_when_full
from .fit import fit
from .inputs import (
    check_alike,
    delayed_scales,
    model_inputs,
    row_scales,
    selected,
)
from .model import Model
from .scoring import score_inputs
from .threshold import DEVIATIONS, FEWEST_HELD_OUT, alarm_threshold, robust_threshold

#: Latent dimensions when none are asked for.
LATENT = 8

#: Most beats that are trained on, a week of them: of more, every second, third, ... one is taken.
MOST_TRAINING_BEATS = 500_000


class Rows(NamedTuple):
    """What training needs of one partition.

    Attributes
    ----------
    inputs
        The complete beats as the network sees them, float32 (n, n_leads, LENGTH).
    train
        bool (n,), on the host: which of them are of the training part.
    records
        Name of the record of each beat of the training part, on the host.
    rr_s
        Known intervals before a beat, all beats of the training part, and of the held-out part.
    """

    inputs: Any
    train: np.ndarray
    records: np.ndarray
    rr_s: tuple[np.ndarray, np.ndarray]


class Scores(NamedTuple):
    """Scores of a partition's complete beats, and intervals of all its beats, on the host.

    Attributes
    ----------
    train, held_out
        Score, float32 (n,), of the training part and of the held-out part.
    rr_s
        As in `Rows`.
    """

    train: np.ndarray
    held_out: np.ndarray
    rr_s: tuple[np.ndarray, np.ndarray]


def train(
    beats: Beats | Sequence[Beats],
    *,
    epochs: int | None = None,
    latent: int | None = None,
    seed: int = 0,
    alarms_per_hour: float | None = None,
) -> Model:
    """Train a variational autoencoder on the complete beats of the training part.

    The training runs as one task on one worker, under whatever scheduler Dask has. It logs an
    event an epoch under the topic ``ecg_dask.training`` when a worker runs it. The same seed gives
    the same model on any number of cores of one kind, however the beats are cut into partitions.

    Parameters
    ----------
    beats
        The beats, or a list of them, which may differ in sampling rate.
    epochs
        Epochs at most. None: 250,000 divided by the number of training beats, but 4 to 30.
    latent
        Latent dimensions, 1 to 64. None: 8.
    seed
        Seed of everything random.
    alarms_per_hour
        Anomalies that the held-out part may have, an hour of its time. None: the threshold is
        ``exp(median + 3.5 * 1.4826 * MAD)`` of the held-out beats' log scores. With fewer than 20
        complete held-out beats, the training beats help to set it in either case.

    Returns
    -------
    Model
        With fewer than two complete training beats it is a model without weights, which scores
        every beat as null; ``notes`` tells so.

    Raises
    ------
    InputError
        When an argument is not as described, or when the beats of a list differ in window or in
        number of leads.
    """
    several = [beats] if isinstance(beats, Beats) else list(beats)
    if not several:
        raise InputError("beats", "an empty list", "one Beats or more", "Give at least one")
    first = several[0]
    for i, other in enumerate(several[1:], start=1):
        check_alike(f"beats[{i}]", other, first.window, len(first.leads))
    check_options(epochs=epochs, latent=latent, seed=seed, alarms_per_hour=alarms_per_hour)
    epochs = None if epochs is None else int(epochs)
    latent = LATENT if latent is None else int(latent)

    rows, sources = [], []
    for i, part in enumerate(several):
        pairs = part.partitions()
        scales = delayed_scales([table for table, _ in pairs])
        for table, waves in pairs:
            rows.append(delayed(take_rows)(table, waves, scales, part.fs, part.window))
            sources.append(i)
    untrained = Model(
        weights={},
        window=first.window,
        n_leads=len(first.leads),
        latent=latent,
        seed=int(seed),
        epochs=epochs or 0,
    )
    # Every so many beats of all are taken, wherever partitions begin.
    begins = delayed(running_counts)([delayed(_n_training)(part) for part in rows])
    (begins,) = one_layer([begins], f"begins-{begins.key}")
    trained = delayed(fit_model)(
        [delayed(training_rows)(part, begins, i) for i, part in enumerate(rows)],
        begins,
        sources,
        delayed(untrained, traverse=False),
        epochs,
    )
    scores = [delayed(score_rows)(part, trained) for part in rows]
    model: Model = dask.compute(delayed(calibrate)(trained, scores, alarms_per_hour))[0]
    return model


def check_options(
    *,
    epochs: int | None = None,
    latent: int | None = None,
    seed: int = 0,
    alarms_per_hour: float | None = None,
) -> None:
    """Refuse options that `train` cannot use, before any work is done.

    Raises
    ------
    InputError
        When one is not as `train` describes it.
    """
    if epochs is not None:
        _require_whole("epochs", epochs, 1, 1_000_000)
    if latent is not None:
        _require_whole("latent", latent, 1, 64)
    _require_whole("seed", seed, 0, 2**63 - 1)
    rate = 0.0 if alarms_per_hour is None else alarms_per_hour
    if not isinstance(rate, int | float) or not 0 <= rate < math.inf:
        raise InputError(
            "alarms_per_hour", repr(alarms_per_hour), "a number from 0 on", "Choose such a number"
        )


def _require_whole(name: str, value: object, lowest: int, highest: int) -> None:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not lowest <= value <= highest:  # type: ignore[operator]
        raise InputError(
            name, repr(value), f"a whole number from {lowest} to {highest}", "Choose such a number"
        )


@told_when_full
def take_rows(
    table: Any, waves: Any, scales: Mapping[str, float], fs: float, window: tuple[float, float]
) -> Rows:
    """Prepare the complete beats of one partition."""
    xp = namespace(waves)
    complete = table["complete"].to_numpy(dtype=bool)
    train_part = (table["split"] == "train").to_numpy(dtype=bool)
    scale = row_scales(table, scales)[complete]
    inputs = model_inputs(selected(waves, complete), scale, fs, window)
    # Finite samples can still overflow; such beats are scored as null and teach nothing.
    finite = on_host(xp.isfinite(inputs).all(axis=(1, 2)))
    kept = complete.copy()
    kept[complete] = finite
    rr_s = table["rr_prev_s"].to_numpy(dtype=np.float64, na_value=np.nan)
    known = np.isfinite(rr_s)
    return Rows(
        inputs=selected(inputs, finite),
        train=train_part[kept],
        records=table["record"].to_numpy()[kept & train_part],
        rr_s=(rr_s[known & train_part], rr_s[known & ~train_part]),
    )


def _n_training(rows: Rows) -> int:
    return int(rows.train.sum())


def running_counts(counts: Sequence[int]) -> list[int]:
    """Return how many beats stand before each partition's first, and before the end."""
    begins: list[int] = np.cumsum([0, *counts]).tolist()
    return begins


def training_rows(
    rows: Rows, begins: Sequence[int], number: int
) -> tuple[Any, list[tuple[str, int]]]:
    """Return a partition's training beats, and how many of each record follow one another.

    Parameters
    ----------
    rows
        The partition's beats.
    begins
        What `running_counts` gave of all partitions' training beats.
    number
        Number of the partition.
    """
    step = _step(begins)
    chosen = np.arange(begins[number], begins[number + 1]) % step == 0
    train = rows.train.copy()
    train[rows.train] = chosen
    runs: list[tuple[str, int]] = []
    for name in rows.records[chosen].tolist():
        if runs and runs[-1][0] == name:
            runs[-1] = (name, runs[-1][1] + 1)
        else:
            runs.append((name, 1))
    return selected(rows.inputs, train), runs


def _step(begins: Sequence[int]) -> int:
    """Return 1 to train on every beat, 2 for every second one, and so on."""
    return max(-(-begins[-1] // MOST_TRAINING_BEATS), 1)


@told_when_full
def fit_model(
    parts: Sequence[tuple[Any, list[tuple[str, int]]]],
    begins: Sequence[int],
    sources: Sequence[int],
    model: Model,
    epochs: int | None,
) -> Model:
    """Gather the training beats, one copy of them, and train.

    Parameters
    ----------
    parts
        What `training_rows` gave, in the order of records and samples.
    begins
        As for `training_rows`.
    sources
        Number of the Beats that a part is of: equal names in two of them are two records.
    model
        The model without weights.
    epochs
        Epochs at most, or None.
    """
    records: list[tuple[int, str]] = []
    counts: list[int] = []
    for source, (_, runs) in zip(sources, parts, strict=True):
        for name, count in runs:
            if records and records[-1] == (source, name):
                counts[-1] += count
            else:
                records.append((source, name))
                counts.append(count)
    n_train, step = begins[-1], _step(begins)
    if n_train < 2:
        note = f"Not trained: {n_train} complete training beats, 2 or more are needed."
        return replace(model, n_train=n_train, notes=(note,))
    notes = (f"Trained on one in {step} of {n_train:,} beats.",) if step > 1 else ()
    some = [inputs for inputs, _ in parts if len(inputs)]
    # PyTorch must not be given an array that came from another process: those are read-only.
    alone = len(some) == 1 and on_gpu(some[0])
    gathered = some[0] if alone else namespace(some[0]).concatenate(some)
    done = fit(gathered, counts, epochs=epochs, latent=model.latent, seed=model.seed)
    return replace(
        model,
        weights=done.weights,
        epochs=done.epochs,
        n_train=n_train,
        n_validation=done.n_validation,
        history=done.history,
        notes=(*notes, *done.notes),
    )


@told_when_full
def score_rows(rows: Rows, model: Model) -> Scores:
    """Score the complete beats of a partition."""
    score, _ = score_inputs(rows.inputs, model.weights, model.latent)
    host = from_dlpack(score).cpu().numpy()
    return Scores(host[rows.train], host[~rows.train], rows.rr_s)


def calibrate(
    model: Model,
    parts: Sequence[Scores],
    alarms_per_hour: float | None,
) -> Model:
    """Set the model's threshold.

    Parameters
    ----------
    model
        The trained model.
    parts
        What `score_rows` gave.
    alarms_per_hour
        Anomalies allowed in an hour, or None.
    """
    scores = np.concatenate([part.held_out for part in parts])
    n_held_out = len(scores)
    intervals = [part.rr_s[1] for part in parts]
    source = f"{n_held_out} complete held-out beats"
    if n_held_out < FEWEST_HELD_OUT:
        scores = np.concatenate([scores, *(part.train for part in parts)])
        intervals += [part.rr_s[0] for part in parts]
        source = f"{len(scores)} complete beats, training beats among them"
    # This sum is exact, and so does not depend on the partitions.
    seconds = math.fsum(interval for some in intervals for interval in some)
    scores = scores[np.isfinite(scores)]
    if not scores.size:
        return replace(model, n_held_out=n_held_out, threshold_rule="none: there are no scores")
    if alarms_per_hour is None:
        threshold = robust_threshold(scores)
        rule = f"exp(median + {DEVIATIONS:g} * 1.4826 * MAD) of the log scores of {source}"
    else:
        threshold = alarm_threshold(scores, seconds, alarms_per_hour)
        rule = f"at most {alarms_per_hour:g} an hour above it, of {source} in {seconds:.0f} s"
    return replace(model, threshold=threshold, threshold_rule=rule, n_held_out=n_held_out)
