"""The stages of `through_dask.py` without Dask: one process, one array, plain calls.

    python benchmarks/bare.py [-t cpu|gpu] [--pool SIZE] [--epochs N] FILE [FILE ...]

The file is read whole, by cuDF on a GPU and by pandas on a CPU; what works on the samples and
beats are the functions that the pipeline's tasks call. `stages.py` runs this and sets it beside the
pipeline.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from day_files import FS
from stage_runs import Steps, arrived, measure, options_of


def read_on_gpu(path: Path) -> tuple[int, Any]:
    """Return the samples, CuPy float32 of shape (n_samples, 1)."""
    import cudf

    # cuDF rounds a float32 after each digit, a float64 once.
    table = cudf.read_csv(str(path), header=None, names=["mV"], dtype={"mV": "float64"})
    signal = table["mV"].astype("float32").values[:, None]
    return arrived(signal, signal), signal


def read_on_cpu(path: Path) -> tuple[int, Any]:
    """Return the samples, NumPy float32 of shape (n_samples, 1)."""
    import pandas as pd

    table = pd.read_csv(path, header=None, names=["mV"], dtype="float32", engine="pyarrow")
    return len(table), table.to_numpy()


def segment(signal: Any) -> tuple[Any, Any]:
    """Find the beats, cut them out, and make their table."""
    from ecg_dask import Detector
    from ecg_dask.segment.halos import cut_block, find_block, place_stretches, table_block

    options = {"first": 0, "detector": Detector(), "fs": FS}
    found = find_block(None, signal, None, **options)
    waves = cut_block(None, signal, None, found, **options)
    placed = place_stretches([found.stretch], [len(signal)], FS)
    table = table_block(found, placed, 0, "day", FS)
    arrived(table, waves)
    return table, waves


def count(beats: tuple[Any, Any]) -> int:
    """Return the number of beats."""
    return len(beats[0])


def train(beats: tuple[Any, Any], epochs: int) -> Any:
    """Fit the model on the training beats, and set its threshold on the held-out ones."""
    from ecg_dask import Detector, Model
    from ecg_dask.anomaly.context import contexts, told
    from ecg_dask.anomaly.model import profiles_of
    from ecg_dask.anomaly.training import (
        LATENT,
        calibrate,
        fit_model,
        running_counts,
        sampled,
        score_rows,
        take_rows,
        training_rows,
    )

    table, waves = beats
    window = Detector().before_s, Detector().after_s
    rows = take_rows(table, waves, contexts([told(table)]), 0, FS, window)
    begins = running_counts([int(rows.train.sum())])
    untrained = Model(weights={}, window=window, n_leads=1, latent=LATENT, seed=0, epochs=epochs)
    model = fit_model([training_rows(rows, begins, 0)], begins, [0], untrained, epochs)
    usual = profiles_of([sampled(rows)], model)
    return calibrate(model, [score_rows(rows, usual, model)], None)


def score(beats: tuple[Any, Any], model: Any) -> int:
    """Score every beat, and return how many are anomalies."""
    from ecg_dask.anomaly.context import contexts, told
    from ecg_dask.anomaly.model import profiles_of, sampled
    from ecg_dask.anomaly.scoring import score_partition

    table, waves = beats
    known = contexts([told(table)])
    usual = profiles_of([sampled(waves, known, 0, FS, model.window)], model)
    scored = score_partition(
        table,
        waves,
        known[0],
        usual,
        fs=FS,
        network=model.network,
        threshold=model.threshold,
    )
    arrived(scored, waves)
    return int(scored["anomaly"].sum())


def main() -> None:
    options = options_of(__doc__)
    read = read_on_cpu
    if options.type == "gpu":
        from dask.utils import parse_bytes

        from ecg_dask.gpu.memory import set_up
        from ecg_dask.gpu.pool import Pool

        set_up(Pool("cuda", parse_bytes(options.pool)))
        read = read_on_gpu
    measure(Steps(read, segment, count, partial(train, epochs=options.epochs), score), options)


if __name__ == "__main__":
    main()
