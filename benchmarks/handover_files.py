"""Table and waves of beats as files of three formats, from and to the memory of a CPU or a GPU.

CSV and Parquet are written and read by Arrow on a CPU and by cuDF on a GPU, the waves as a column
a sample; a pickle holds both as the host has them.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ecg_dask.arrays import on_gpu, on_host
from ecg_dask.beats import BEAT_COLUMNS

CSV, PARQUET, PICKLE = "csv", "parquet", "pickle"

#: The files' names without their suffixes.
TABLE, WAVES, BEATS = "table", "waves", "beats"


class Format(NamedTuple):
    """How one format is written and read.

    Attributes
    ----------
    write
        Takes a folder, the table, and the waves of shape (n_beats, n_leads, n_window).
    read
        Takes the folder, and whether to read to a GPU; returns table and waves, these of shape
        (n_beats, n_leads * n_window).
    """

    write: Callable[[Path, Any, Any], None]
    read: Callable[[Path, bool], tuple[Any, Any]]


def write_csv(folder: Path, table: Any, waves: Any) -> None:
    """Write two CSV files."""
    for name, frame in ((TABLE, table), (WAVES, _columns(waves))):
        path = str(folder / f"{name}.csv")
        if on_gpu(waves):
            frame.to_csv(path, index=False)
        else:
            import pyarrow as pa
            import pyarrow.csv

            pa.csv.write_csv(pa.Table.from_pandas(frame, preserve_index=False), path)


def read_csv(folder: Path, to_gpu: bool) -> tuple[Any, Any]:
    """Read two CSV files."""
    paths = [str(folder / f"{name}.csv") for name in (TABLE, WAVES)]
    if to_gpu:
        import cudf

        return cudf.read_csv(paths[0], dtype=BEAT_COLUMNS), _rows(cudf.read_csv(paths[1]))
    table, waves = (pd.read_csv(path, engine="pyarrow") for path in paths)
    return table.astype(BEAT_COLUMNS), _rows(waves)


def write_parquet(folder: Path, table: Any, waves: Any) -> None:
    """Write two Parquet files."""
    for name, frame in ((TABLE, table), (WAVES, _columns(waves))):
        frame.to_parquet(str(folder / f"{name}.parquet"), index=False)


def read_parquet(folder: Path, to_gpu: bool) -> tuple[Any, Any]:
    """Read two Parquet files."""
    paths = [str(folder / f"{name}.parquet") for name in (TABLE, WAVES)]
    library: Any = pd
    if to_gpu:
        import cudf as library
    return library.read_parquet(paths[0]), _rows(library.read_parquet(paths[1]))


def write_pickle(folder: Path, table: Any, waves: Any) -> None:
    """Write one pickle."""
    with (folder / f"{BEATS}.pickle").open("wb") as file:
        pickle.dump((on_host(table), on_host(waves)), file, pickle.HIGHEST_PROTOCOL)


def read_pickle(folder: Path, to_gpu: bool) -> tuple[Any, Any]:
    """Read one pickle."""
    with (folder / f"{BEATS}.pickle").open("rb") as file:
        table, waves = pickle.load(file)
    waves = waves.reshape(len(waves), -1)
    if to_gpu:
        import cudf
        import cupy

        return cudf.from_pandas(table, nan_as_null=False), cupy.asarray(waves)
    return table, waves


FORMATS = {
    CSV: Format(write_csv, read_csv),
    PARQUET: Format(write_parquet, read_parquet),
    PICKLE: Format(write_pickle, read_pickle),
}


def _columns(waves: Any) -> Any:
    """Return waves as a table with a column a sample, where they are."""
    rows = waves.reshape(len(waves), -1)
    library: Any = pd
    if on_gpu(waves):
        import cudf as library
    frame = library.DataFrame(rows)
    frame.columns = [str(i) for i in range(rows.shape[1])]
    return frame


def _rows(frame: Any) -> Any:
    """Return such a table as an array again, a row after the other."""
    values = frame.values.astype("float32", copy=False)
    if on_gpu(values):
        import cupy

        return cupy.ascontiguousarray(values)
    return np.ascontiguousarray(values)
