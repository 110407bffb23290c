"""Beats of known shape for the tests of the autoencoder."""

from collections.abc import Sequence
from itertools import pairwise

import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask import delayed

from ecg_dask.beats import Beats, empty_table, stack_waves

WINDOW = (0.25, 0.45)


def bump(t: np.ndarray, centre_s: float, width_s: float) -> np.ndarray:
    return np.exp(-0.5 * ((t - centre_s) / width_s) ** 2)


def make_waves(
    n: int, fs: float = 250.0, odd: Sequence[int] = (), seed: int = 0, noise: float = 0.02
) -> np.ndarray:
    """Return P-QRS-T shaped beats of one lead; those numbered in `odd` are inverted and wide."""
    rng = np.random.default_rng(seed)
    t = np.arange(-round(WINDOW[0] * fs), round(WINDOW[1] * fs)) / fs
    size = rng.normal(1, 0.1, (n, 1))
    t_wave = rng.normal(0.3, 0.05, (n, 1))
    x = size * (bump(t, 0, 0.012) + 0.12 * bump(t, -0.16, 0.02) - 0.2 * bump(t, 0.028, 0.01))
    x += t_wave * bump(t, 0.26, 0.05)
    x[list(odd)] = 1.1 * bump(t, -0.06, 0.05) - 1.3 * bump(t, 0.12, 0.03)
    x += noise * rng.normal(size=x.shape)
    return x[:, None].astype(np.float32)


def make_table(n: int, record: str = "a") -> pd.DataFrame:
    """Return the table of `n` beats, 0.8 s apart, all complete."""
    rr_prev_s = np.full(n, 0.8)
    rr_next_s = np.full(n, 0.8)
    rr_prev_s[:1] = rr_next_s[n - 1 :] = np.nan
    return pd.DataFrame(
        {
            "record": pd.Series([record] * n, dtype="str"),
            "sample": 200 * np.arange(n, dtype=np.int64),
            "time_s": 0.8 * np.arange(n),
            "rr_prev_s": rr_prev_s,
            "rr_next_s": rr_next_s,
            "amplitude": np.ones(n, dtype=np.float32),
            "quality": np.ones(n, dtype=np.float32),
            "complete": np.ones(n, dtype=bool),
            "split": pd.Series(["train"] * (3 * n // 4) + ["test"] * (n - 3 * n // 4), dtype="str"),
        }
    )


def make_beats(
    waves: np.ndarray,
    table: pd.DataFrame | None = None,
    *,
    fs: float = 250.0,
    cuts: Sequence[int] = (),
    window: tuple[float, float] = WINDOW,
) -> Beats:
    """Return beats with partitions that begin at `cuts`."""
    table = make_table(len(waves)) if table is None else table
    edges = [0, *cuts, len(waves)]
    rows, blocks = [], []
    for start, stop in pairwise(edges):
        rows.append(delayed(table.iloc[start:stop].reset_index(drop=True)))
        blocks.append(delayed(waves[start:stop].copy()))
    return Beats(
        table=dd.from_delayed(rows, meta=empty_table(), verify_meta=False),
        waves=stack_waves(blocks, waves.shape[1:], waves[:0]),
        fs=fs,
        window=window,
        leads=tuple(f"lead{i}" for i in range(waves.shape[1])),
        unit="mV",
        records=delayed(pd.DataFrame)(),
    )
