"""A trained autoencoder with its threshold: scoring, saving and loading."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
from dask.delayed import delayed
from dask.graph_manipulation import clone

from ..beats import Beats, one_layer
from ..errors import InputError
from ..gpu.pool import told_when_full
from .context import NO_CONTEXT, Context, delayed_contexts, finite_inputs, runs_of, split_runs
from .inputs import LENGTH, check_alike
from .profile import Profile, profiles
from .scoring import score_partition
from .vae import Network

#: Name of the entry of a model file's metadata that holds the parameters, and its version.
ENTRY = "ecg_dask.model"
VERSION = 2


@dataclass(frozen=True, eq=False)
class Model:
    """A variational autoencoder of beats and the score above which a beat does not belong.

    Attributes
    ----------
    weights
        float32 arrays by name; empty when there were too few beats to train on, and then every
        score is null.
    window
        Seconds before and after the beat that a wave covers.
    n_leads
        Leads of a wave.
    latent
        Latent dimensions.
    seed
        Seed of the training.
    epochs
        Epochs that were planned; `history` tells how many were done.
    threshold
        Score above which a beat is an anomaly; None when there was nothing to set it by.
    threshold_rule
        How the threshold was set, in words.
    n_train
        Usual beats of the training part, `n_validation` of them set aside for the early stop.
    n_validation
        See `n_train`.
    n_held_out
        Complete beats of the held-out part.
    history
        The training curve, a row an epoch: ``epoch``, ``loss``, ``reconstruction`` and ``kl``
        (means over beats, sums over points and over latent dimensions), ``kl_weight`` at the
        epoch's end, and ``validation``, the loss of the beats set aside or None.
    notes
        What a reader should know, a sentence each.
    """

    weights: Mapping[str, np.ndarray] = field(repr=False)
    window: tuple[float, float]
    n_leads: int
    latent: int
    seed: int
    epochs: int
    threshold: float | None = None
    threshold_rule: str = ""
    n_train: int = 0
    n_validation: int = 0
    n_held_out: int = 0
    history: tuple[dict[str, float | None], ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()

    def __sizeof__(self) -> int:
        return sum(part.nbytes for part in self.weights.values())

    def score(self, beats: Beats) -> dd.DataFrame:
        """Score beats, each partition where it is.

        Nothing is computed here. A beat's score does not depend on its partition. It does depend
        on what is usual in its record, so hand over whole records: on all its intervals, on the
        median height of its complete beats, and on a sample of at most 2,048 beats of the training
        part that come on time. That takes the whole table, and these waves, before the first beat
        is scored: of recordings whose waves do not fit into the workers' memory, persist the table
        first.

        Parameters
        ----------
        beats
            Beats with the model's window and number of leads, of any sampling rate.

        Returns
        -------
        dask.dataframe.DataFrame
            Rows, order, index and partitions are those of ``beats.table``. ``score`` (float32):
            the sum of ``score_shape``, ``score_timing`` and ``score_amplitude`` (float32 each, 0 or
            more): how surprising a beat's QRS complex and P wave are beside the record's typical
            beats and what the network makes of it, how early it comes, and what of the first a
            change of height explains. A surprise is minus the natural logarithm of the chance of
            such a value, or a higher one, in a normal distribution as wide as the usual beats'.
            ``anomaly`` (bool): whether the score is above the threshold. ``reason`` (str): the
            largest of the parts of an anomaly, ``"shape"``, ``"timing"`` or ``"amplitude"``, else
            null. ``z0``, ``z1``, ... (float32): latent mean. A beat that is not complete has null
            scores, null coordinates and no anomaly.

        Raises
        ------
        InputError
            When window or number of leads are not the model's.
        """
        check_alike("beats", beats, self.window, self.n_leads)
        # One task holds the model, so that a graph carries it once.
        model = delayed(self, traverse=False)
        pairs = beats.partitions()
        known = delayed_contexts([table for table, _ in pairs])
        # Waves that are not on the workers yet are cut twice: those of the sample by the same tasks
        # as the others would all be kept until the last profile is there.
        samples = [
            delayed(sampled)(waves, known, i, beats.fs, self.window)
            for i, waves in enumerate(clone([waves for _, waves in pairs]))
        ]
        usual = delayed(profiles_of)(samples, model)
        (usual,) = one_layer([usual], f"profiles-{usual.key}")
        parts = [
            delayed(_score_partition)(table, waves, known, i, usual, model, beats.fs)
            for i, (table, waves) in enumerate(pairs)
        ]
        meta = self._score(beats.table._meta, beats.waves._meta[:0], NO_CONTEXT, {}, beats.fs)
        return dd.from_delayed(
            parts, meta=meta, divisions=tuple(beats.table.divisions), verify_meta=False
        )

    @property
    def network(self) -> Network:
        """What scores beats."""
        return Network(self.weights, self.latent, self.window)

    def _score(
        self, table: Any, waves: Any, context: Context, usual: Mapping[str, Profile], fs: float
    ) -> Any:
        return score_partition(
            table, waves, context, usual, fs=fs, network=self.network, threshold=self.threshold
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as one safetensors file, the parameters as JSON in its metadata.

        The file is written beside its place and renamed.

        Raises
        ------
        InputError
            When the file cannot be written.
        """
        from safetensors.numpy import save

        path = Path(path)
        parameters = {
            part.name: getattr(self, part.name) for part in fields(self) if part.name != "weights"
        }
        text = json.dumps({"version": VERSION, "length": LENGTH, **parameters})
        aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            try:
                aside.write_bytes(save(dict(self.weights), metadata={ENTRY: text}))
                os.replace(aside, path)
            finally:
                aside.unlink(missing_ok=True)
        except Exception as error:
            # The library wraps the system's errors in its own.
            raise InputError(
                str(path), str(error), "a file in a folder that exists", "Choose another path"
            ) from error

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Model:
        """Read a model that `save` wrote.

        Raises
        ------
        InputError
            When there is no such file, or when it holds no model of this version.
        """
        from safetensors import SafetensorError, safe_open

        def refused(found: str) -> InputError:
            return InputError(
                str(path),
                found,
                f"a model that Model.save() wrote, version {VERSION}",
                "Name such a file, or train a model",
            )

        try:
            with safe_open(os.fspath(path), framework="numpy") as file:
                text = (file.metadata() or {}).get(ENTRY)
                weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except OSError as error:
            raise refused(f"no file to read ({error})") from error
        except (SafetensorError, TypeError, ValueError) as error:
            raise refused(f"no safetensors file ({error})") from error
        if text is None:
            raise refused("a safetensors file without the parameters of a model")
        try:
            parameters = json.loads(text)
            if (parameters.pop("version"), parameters.pop("length")) != (VERSION, LENGTH):
                raise refused("a model of another version")
            for name in ("window", "history", "notes"):
                parameters[name] = tuple(parameters[name])
            model = Model(weights=weights, **parameters)
            if weights:
                model.network.on(model.n_leads, "cpu")
        except (AttributeError, KeyError, RuntimeError, TypeError, json.JSONDecodeError) as error:
            raise refused(f"parameters that are no model's ({error})") from error
        return model


@told_when_full
def sampled(
    waves: Any, known: Sequence[Context], number: int, fs: float, window: tuple[float, float]
) -> list[tuple[str, Any]]:
    """Return the beats of one partition that its records' statistics are made of."""
    context = known[number]
    inputs, kept = finite_inputs(waves, context, context.sample, fs, window)
    return split_runs(inputs, runs_of(context.runs, kept))


def profiles_of(samples: Sequence[Sequence[tuple[str, Any]]], model: Model) -> dict[str, Profile]:
    """Make the profiles of the records by a model's network."""
    return profiles(samples, model.network)


@told_when_full
def _score_partition(
    table: Any,
    waves: Any,
    known: Sequence[Context],
    number: int,
    usual: Mapping[str, Profile],
    model: Model,
    fs: float,
) -> Any:
    return model._score(table, waves, known[number], usual, fs)
