"""Training the network on the beats of one worker. Knows nothing of Dask's collections."""

from __future__ import annotations

import copy
import math
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from dask.system import CPU_COUNT
from torch.utils.dlpack import from_dlpack

from .vae import losses, new_network

#: Topic under which a worker logs an event an epoch.
TOPIC = "ecg_dask.training"

#: Training beats below which none are set aside for the early stop.
FEWEST_FOR_VALIDATION = 100

#: Epochs without a better validation loss, counted after the warm-up, that end training.
PATIENCE = 5

#: Smallest and largest batch, the latter on a CPU and on a GPU; in between a batch is a twentieth
#: of the beats. A GPU takes as long for a batch of a thousand as for one of a hundred.
SMALLEST_BATCH, LARGEST_BATCH, LARGEST_BATCH_ON_GPU = 32, 256, 1536

#: Beats whose gradient one thread computes at a time.
SHARD = 128

#: Adam's on a CPU and, for its larger batches, on a GPU. With the second a day's beats come to the
#: same validation loss in as many epochs: 4.60 after five, and 4.56 with the first.
LEARNING_RATE, LEARNING_RATE_ON_GPU = 2e-3, 8e-3

#: Weight of the divergence once training has warmed up. At 1 the network keeps too little of a beat
#: to tell the small differences that matter, such as a P wave's.
KL_WEIGHT = 0.1

#: Share of the beats with the greatest errors in the epoch before. Above the error that the others
#: stayed below, a beat's weight is the square of this error over its own, so that the network does
#: not learn what is rare.
TRIMMED = 0.1

# PyTorch's deterministic mode and number of threads are the process's: one training at a time.
_one_at_a_time = threading.Lock()


class Fit(NamedTuple):
    """What training gives.

    Attributes
    ----------
    weights
        The network's weights by name, on the host.
    epochs
        Epochs that were planned.
    n_validation
        Beats that were set aside for the early stop.
    history
        The training curve, a row an epoch.
    notes
        What a reader should know, a sentence each.
    """

    weights: dict[str, np.ndarray]
    epochs: int
    n_validation: int
    history: tuple[dict[str, float | None], ...]
    notes: tuple[str, ...]


def default_epochs(n_beats: int) -> int:
    """Return the epochs for `n_beats` training beats: 250,000 beats in all, but 4 to 30 epochs."""
    # Longer training also learns the rare shapes, which then no longer stand out.
    return min(max(250_000 // max(n_beats, 1), 4), 30)


def validation_rows(counts: Sequence[int]) -> np.ndarray:
    """Return which rows are set aside for the early stop: the last tenth of each record.

    Parameters
    ----------
    counts
        Training beats a record, in the order of the rows.

    Returns
    -------
    array
        bool of shape (sum of counts,); all False for fewer than `FEWEST_FOR_VALIDATION` beats.
    """
    chosen = np.zeros(sum(counts), dtype=bool)
    if len(chosen) >= FEWEST_FOR_VALIDATION:
        for stop, count in zip(np.cumsum(counts), counts, strict=True):
            chosen[stop - count // 10 : stop] = True
    return chosen


def fit(
    inputs: Any,
    counts: Sequence[int],
    usual: np.ndarray,
    *,
    epochs: int | None,
    latent: int,
    seed: int,
) -> Fit:
    """Train a network.

    The loss of a beat is its squared error, summed over points and leads, plus the divergence
    summed over latent dimensions, weighted; a batch's loss is the mean over its beats, those with
    the greatest errors weighted down (`TRIMMED`). The divergence's weight grows from 0 to
    `KL_WEIGHT` over the first third of the epochs (at least one). Training ends after `PATIENCE`
    epochs past that without a lower loss on the last tenth of each record's beats, and the weights
    with the lowest are kept.

    A batch is divided into shards of a fixed size. Each thread computes the gradients of whole
    shards, PyTorch's own threads being off, and they are added in order: the same seed gives the
    same bits on any number of cores, and a core that is busy elsewhere costs only its share.
    PyTorch's threads would wait for each other in each layer of so small a network, and that took
    thirty times longer beside one busy process. On a GPU a batch is one shard, and batches are
    larger, for there each costs the same.

    Parameters
    ----------
    inputs
        float32 of shape (n_beats, n_leads, LENGTH), C-ordered and writable; PyTorch works on its
        memory.
    counts
        Beats a record, in the order of `inputs`.
    usual
        bool of shape (n_beats,), on the host: which beats are trained on, two or more.
    epochs
        Epochs at most; None for `default_epochs`.
    latent
        Latent dimensions.
    seed
        Seed of the initial weights, the order of the beats and the noise.
    """
    data = from_dlpack(inputs)
    epochs = default_epochs(int(usual.sum())) if epochs is None else epochs
    chosen = validation_rows(counts)
    if not (usual & ~chosen).any():
        chosen = np.zeros_like(chosen)
    train, validation = (np.flatnonzero(usual & rows) for rows in (~chosen, chosen))
    with _one_at_a_time, _reproducible(), _pool() as pool:
        trainer = _Trainer(data, train, validation, epochs, latent, seed, pool)
        notes: tuple[str, ...] = ()
        try:
            trainer.run()
        except KeyboardInterrupt:
            if trainer.best is None:
                raise
            notes = (f"Training was interrupted after {len(trainer.history)} of {epochs} epochs.",)
        return Fit(
            weights=trainer.weights(),
            epochs=epochs,
            n_validation=len(validation),
            history=tuple(trainer.history),
            notes=(*trainer.notes, *notes),
        )


class _Trainer:
    """The state of one training, so that an interruption can keep the best weights."""

    def __init__(
        self,
        data: torch.Tensor,
        train: np.ndarray,
        validation: np.ndarray,
        epochs: int,
        latent: int,
        seed: int,
        pool: Executor,
    ) -> None:
        self.data = data
        self.on_gpu = data.is_cuda
        self.largest_batch = LARGEST_BATCH_ON_GPU if self.on_gpu else LARGEST_BATCH
        self.rate = LEARNING_RATE_ON_GPU if self.on_gpu else LEARNING_RATE
        self.shard = self.largest_batch if self.on_gpu else SHARD
        self.map: Callable[..., Iterable[Any]] = map if self.on_gpu else pool.map
        self.epochs = epochs
        self.warm_up = max(epochs // 3, 1)
        self.generator = torch.Generator(data.device).manual_seed(seed)
        start = torch.Generator().manual_seed(seed)
        self.network = new_network(data.shape[1], latent, start).to(data.device)
        self.train = torch.from_numpy(train).to(data.device)
        self.validation = torch.from_numpy(validation).to(data.device)
        self.noise = torch.randn(
            (len(self.validation), latent), generator=self.generator, device=data.device
        )
        self.latent = latent
        #: Error above which a beat is weighted down; none in the first epoch.
        self.limit = torch.tensor(math.inf, device=data.device)
        self.best: dict[str, Any] | None = None
        self.history: list[dict[str, float | None]] = []
        self.notes: list[str] = []

    def run(self) -> None:
        """Train until the epochs are over, the patience is, or the loss is no number."""
        lowest = math.inf
        waited = 0
        optimizer = torch.optim.Adam(self.network.parameters(), lr=self.rate, fused=self.on_gpu)
        for epoch in range(1, self.epochs + 1):
            row = self._epoch(epoch, optimizer)
            loss = row["loss"] if row["validation"] is None else row["validation"]
            self.history.append(row)
            _announce({**row, "epochs": self.epochs})
            if loss is None or not math.isfinite(loss):
                self.notes.append(f"The loss was no finite number in epoch {epoch}.")
                return
            if row["validation"] is None or loss < lowest:
                lowest, waited = loss, 0
                self.best = copy.deepcopy(self.network.state_dict())
            elif epoch > self.warm_up:
                waited += 1
                if waited == PATIENCE:
                    return

    def _epoch(self, epoch: int, optimizer: torch.optim.Optimizer) -> dict[str, float | None]:
        n = len(self.train)
        size = min(max(n // 20, SMALLEST_BATCH), self.largest_batch)
        order = torch.randperm(n, generator=self.generator, device=self.data.device)
        batches = self.train[order].tensor_split(math.ceil(n / size))
        errors, divergences = [], []
        parameters = list(self.network.parameters())
        weight = 0.0
        for step, rows in enumerate(batches):
            grown = min((epoch - 1 + (step + 1) / len(batches)) / self.warm_up, 1.0)
            weight = KL_WEIGHT * grown
            noise = torch.randn(
                (len(rows), self.latent), generator=self.generator, device=self.data.device
            )
            scale = 1 / len(rows) if self.on_gpu else 1.0
            gradient = partial(self._gradient, weight, scale)
            shards = list(self.map(gradient, *self._shards(rows, noise)))
            grads = (grad for grad, _, _ in shards)
            for parameter, *parts in zip(parameters, *grads, strict=True):
                # On a GPU there is one, and each step less is a kernel less.
                parameter.grad = (
                    parts[0] if self.on_gpu else torch.stack(parts).sum(dim=0) / len(rows)
                )
            optimizer.step()
            errors += [error for _, error, _ in shards]
            divergences += [divergence for _, _, divergence in shards]
        error, divergence = (
            torch.stack([torch.cat(part).double().sum() for part in (errors, divergences)]) / n
        ).tolist()
        self.limit = torch.cat(errors).sort().values[int((1 - TRIMMED) * (n - 1))]
        return {
            "epoch": epoch,
            "loss": error + weight * divergence,
            "reconstruction": error,
            "kl": divergence,
            "kl_weight": weight,
            "validation": self._validate(),
        }

    def _gradient(
        self, weight: float, scale: float, rows: torch.Tensor, noise: torch.Tensor
    ) -> tuple[tuple[torch.Tensor, ...], torch.Tensor, torch.Tensor]:
        """Return the gradients of a shard's loss times `scale`, and errors and divergences."""
        reconstruction, kl = losses(self.network, self.data[rows], noise)
        error = reconstruction.detach()
        # A beat without an error keeps its weight.
        trim = (self.limit / error.clamp(min=1e-12)).clamp(max=1.0).square()
        loss = (trim * (reconstruction + weight * kl)).sum() * scale
        gradients = torch.autograd.grad(loss, list(self.network.parameters()))
        return gradients, error, kl.detach()

    def _validate(self) -> float | None:
        """Loss of the beats set aside, at `KL_WEIGHT` and with the same noise in every epoch."""
        if not len(self.validation):
            return None
        total = math.fsum(self.map(self._loss, *self._shards(self.validation, self.noise)))
        return total / len(self.validation)

    @torch.no_grad()
    def _loss(self, rows: torch.Tensor, noise: torch.Tensor) -> float:
        reconstruction, kl = losses(self.network, self.data[rows], noise)
        return float((reconstruction + KL_WEIGHT * kl).sum())

    def _shards(
        self, rows: torch.Tensor, noise: torch.Tensor
    ) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
        n = math.ceil(len(rows) / self.shard)
        return rows.tensor_split(n), noise.tensor_split(n)

    def weights(self) -> dict[str, np.ndarray]:
        """Return the best weights, or the present ones before the first epoch's end."""
        state = self.network.state_dict() if self.best is None else self.best
        return {name: tensor.cpu().numpy().copy() for name, tensor in state.items()}


def _pool() -> Executor:
    """Return a thread a core. PyTorch counts its own threads in each, and gets one."""
    return ThreadPoolExecutor(CPU_COUNT, initializer=torch.set_num_threads, initargs=(1,))


@contextmanager
def _reproducible() -> Iterator[None]:
    """Turn PyTorch's own threads off and its deterministic algorithms on."""
    threads = torch.get_num_threads()
    strict = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(strict, warn_only=warn_only)
        torch.set_num_threads(threads)


def _announce(event: dict[str, Any]) -> None:
    """Log an event of a worker that runs this task; without a worker there is nobody to tell."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return
    try:
        worker = distributed.get_worker()
    except ValueError:
        return
    worker.log_event(TOPIC, event)
