"""train(): gather the training beats on one worker, fit, set the threshold on the others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import dask
import numpy as np
from dask.delayed import delayed

from ..arrays import namespace, on_gpu, on_host
from ..beats import Beats, one_layer
from ..errors import InputError
from ..gpu.pool import told_when_full
from .context import Context, delayed_contexts, finite_inputs, runs_of, split_runs, told
from .fit import fit
from .inputs import check_alike, selected
from .model import Model, profiles_of
from .profile import Profile
from .scoring import score_inputs
from .threshold import ABOVE_MEDIAN, FEWEST_HELD_OUT, alarm_threshold, robust_threshold

#: Latent dimensions when none are asked for.
LATENT = 8

#: Most beats that are trained on, a week of them: of more, every second, third, ... one is taken.
MOST_TRAINING_BEATS = 500_000


class Rows(NamedTuple):
    """What training needs of one partition: its complete beats.

    Attributes
    ----------
    inputs
        The beats as the network sees them, float32 (n, n_leads, LENGTH).
    runs
        Names of their records in order, with the number of beats of each.
    train, on_time, usual, sample
        bool (n,), on the host: which are of the training part, and as in `Context`.
    early
        As in `Context`, float64 (n,).
    rr_s
        Known intervals before a beat, all beats of the training part, and of the held-out part.
    """

    inputs: Any
    runs: tuple[tuple[str, int], ...]
    train: np.ndarray
    on_time: np.ndarray
    usual: np.ndarray
    sample: np.ndarray
    early: np.ndarray
    rr_s: tuple[np.ndarray, np.ndarray]


class TrainingRows(NamedTuple):
    """A partition's beats of the training part.

    Attributes
    ----------
    inputs
        As in `Rows`.
    runs
        As in `Rows`.
    usual
        bool (n,), on the host: which of them are trained on.
    """

    inputs: Any
    runs: list[tuple[str, int]]
    usual: np.ndarray


class Scores(NamedTuple):
    """Scores of a partition's complete beats, and intervals of all its beats, on the host.

    Attributes
    ----------
    train, held_out
        Score, float32 (n,), of the training part and of the held-out part.
    on_time
        bool (n,), for both: which of them come on time.
    rr_s
        As in `Rows`.
    """

    train: np.ndarray
    held_out: np.ndarray
    on_time: tuple[np.ndarray, np.ndarray]
    rr_s: tuple[np.ndarray, np.ndarray]


def train(
    beats: Beats | Sequence[Beats],
    *,
    epochs: int | None = None,
    latent: int | None = None,
    seed: int = 0,
    alarms_per_hour: float | None = None,
) -> Model:
    """Train a variational autoencoder on the usual beats of the training part.

    Usual are the complete beats that come on time, by the intervals of their record, or all
    complete ones where fewer than 20 do. No label is used.

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
        12 above the median score of the held-out beats that come on time. With fewer than 20 of
        these, the training beats help to set it in either case.

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
        known = delayed_contexts([table for table, _ in pairs])
        for number, (table, waves) in enumerate(pairs):
            rows.append(delayed(take_rows)(table, waves, known, number, part.fs, part.window))
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
    samples = [delayed(sampled)(part) for part in rows]
    scores = []
    for i in range(len(several)):
        # Equal names in two of the list are two records.
        own = [number for number, source in enumerate(sources) if source == i]
        usual = delayed(profiles_of)([samples[number] for number in own], trained)
        scores += [delayed(score_rows)(rows[number], usual, trained) for number in own]
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
    table: Any,
    waves: Any,
    known: Sequence[Context],
    number: int,
    fs: float,
    window: tuple[float, float],
) -> Rows:
    """Prepare the complete beats of one partition.

    Parameters
    ----------
    table, waves
        The partition.
    known
        What `contexts` gave of all partitions.
    number
        Number of the partition.
    fs
        Sampling rate in Hz.
    window
        Seconds before and after the beat.
    """
    context, here = known[number], told(table)
    inputs, kept = finite_inputs(waves, context, here.complete, fs, window)
    known_rr = np.isfinite(here.rr_s)
    return Rows(
        inputs=inputs,
        runs=runs_of(context.runs, kept),
        train=here.train[kept],
        on_time=context.on_time[kept],
        usual=context.usual[kept],
        sample=context.sample[kept],
        early=context.early[kept],
        rr_s=(here.rr_s[known_rr & here.train], here.rr_s[known_rr & ~here.train]),
    )


def _n_training(rows: Rows) -> int:
    return int(rows.train.sum())


@told_when_full
def sampled(rows: Rows) -> list[tuple[str, Any]]:
    """Return the beats that their records' statistics are made of."""
    return split_runs(selected(rows.inputs, rows.sample), runs_of(rows.runs, rows.sample))


def running_counts(counts: Sequence[int]) -> list[int]:
    """Return how many beats stand before each partition's first, and before the end."""
    begins: list[int] = np.cumsum([0, *counts]).tolist()
    return begins


def training_rows(rows: Rows, begins: Sequence[int], number: int) -> TrainingRows:
    """Return a partition's beats of the training part.

    Parameters
    ----------
    rows
        The partition's beats.
    begins
        What `running_counts` gave of all partitions' training beats.
    number
        Number of the partition.
    """
    train = rows.train.copy()
    train[train] = np.arange(begins[number], begins[number + 1]) % _step(begins) == 0
    return TrainingRows(
        selected(rows.inputs, train), list(runs_of(rows.runs, train)), rows.usual[train]
    )


def _step(begins: Sequence[int]) -> int:
    """Return 1 to train on every beat, 2 for every second one, and so on."""
    return max(-(-begins[-1] // MOST_TRAINING_BEATS), 1)


@told_when_full
def fit_model(
    parts: Sequence[TrainingRows],
    begins: Sequence[int],
    sources: Sequence[int],
    model: Model,
    epochs: int | None,
) -> Model:
    """Gather the beats of the training part, one copy of them, and train on the usual ones.

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
    for source, part in zip(sources, parts, strict=True):
        for name, count in part.runs:
            if records and records[-1] == (source, name):
                counts[-1] += count
            else:
                records.append((source, name))
                counts.append(count)
    usual = np.concatenate([part.usual for part in parts])
    n_train, step = int(usual.sum()), _step(begins)
    if n_train < 2:
        note = f"Not trained: {n_train} usual beats of the training part, 2 or more are needed."
        return replace(model, n_train=n_train, notes=(note,))
    notes = (f"Trained on one in {step} of {begins[-1]:,} beats.",) if step > 1 else ()
    some = [part.inputs for part in parts if len(part.inputs)]
    # PyTorch must not be given an array that came from another process: those are read-only.
    alone = len(some) == 1 and on_gpu(some[0])
    gathered = some[0] if alone else namespace(some[0]).concatenate(some)
    done = fit(gathered, counts, usual, epochs=epochs, latent=model.latent, seed=model.seed)
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
def score_rows(rows: Rows, usual: Mapping[str, Profile], model: Model) -> Scores:
    """Score the complete beats of a partition."""
    scored = score_inputs(rows.inputs, rows.early, rows.runs, model.network, usual)
    score, train = on_host(scored.score), rows.train
    on_time = rows.on_time[train], rows.on_time[~train]
    return Scores(score[train], score[~train], on_time, rows.rr_s)


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
    train, held_out = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("train", "held_out")
    )
    model = replace(model, n_held_out=len(held_out))
    finite = np.isfinite(train), np.isfinite(held_out)
    if not (finite[0].any() or finite[1].any()):
        return replace(model, threshold_rule="none: there are no scores")
    if alarms_per_hour is None:
        on_time = [np.concatenate([part.on_time[i] for part in parts]) for i in range(2)]
        usual = [known & punctual for known, punctual in zip(finite, on_time, strict=True)]
        scores, source = held_out[usual[1]], "held-out beats that come on time"
        if len(scores) < FEWEST_HELD_OUT:
            scores = np.concatenate([scores, train[usual[0]]])
            source = "beats that come on time, training beats among them"
        if not len(scores):
            scores, source = np.concatenate([train[finite[0]], held_out[finite[1]]]), "beats"
        threshold = robust_threshold(scores)
        rule = f"median + {ABOVE_MEDIAN:g} of the scores of {len(scores)} {source}"
        return replace(model, threshold=threshold, threshold_rule=rule)
    scores, source = held_out[finite[1]], "held-out beats"
    intervals = [part.rr_s[1] for part in parts]
    if len(held_out) < FEWEST_HELD_OUT:
        scores = np.concatenate([scores, train[finite[0]]])
        source = "beats, training beats among them"
        intervals += [part.rr_s[0] for part in parts]
    # This sum is exact, and so does not depend on the partitions.
    seconds = math.fsum(interval for some in intervals for interval in some)
    threshold = alarm_threshold(scores, seconds, alarms_per_hour)
    rule = f"at most {alarms_per_hour:g} an hour above it, of {len(scores)} {source}"
    return replace(model, threshold=threshold, threshold_rule=f"{rule} in {seconds:.0f} s")
