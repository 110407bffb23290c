"""Things of the store in files: a folder a name, whose partitions the workers write and read.

``entry.json`` says what it is. ``table``, ``waves`` and ``signal`` are folders of Parquet files, a
file a partition: tables as they are, arrays as a column of lists of fixed size, NaN as NaN.
``records.parquet`` and ``spans.parquet`` belong to beats; a model is ``model.pt``.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from dask.delayed import Delayed, delayed

from ..arrays import on_host
from ..beats import Beats, TableParts, stack_waves
from ..errors import InputError
from ..gpu.pool import pool_here
from ..recording import Recording
from .entry import DISK, Entry
from .kinds import BEATS, MODEL, RECORDING, parts_of

ENTRY = "entry.json"

#: Version of the layout.
VERSION = 1

#: Key in a Parquet file's metadata of the index's name, as JSON, where the table was cuDF's.
_INDEX = b"ecg_dask.index"


def write(entry: Entry, value: Any, folder: Path) -> list[Delayed]:
    """Return the tasks that write a thing to a folder of its own.

    Parameters
    ----------
    entry
        What is known of it.
    value
        The thing, as the store holds it: of a model the delayed one.
    folder
        The folder, which the workers see.
    """
    made = delayed(_folder, pure=False)(str(folder))
    parts = parts_of(value)
    facts: dict[str, Any] = {}
    last: list[Delayed] = []
    if entry.kind == RECORDING:
        facts = _recording_facts(value)
    elif entry.kind == BEATS:
        facts = _beats_facts(value)
        last = [
            delayed(_write_table)(part, str(folder / f"{name}.parquet"), made)
            for name, part in (("records", value.records), ("spans", value.spans))
        ]
    elif entry.kind == MODEL:
        last = [delayed(_write_model)(value, str(folder / "model.pt"), made)]
    written = [
        delayed(_write_table if kind == "table" else _write_array)(
            part, str(folder / kind / _file(number)), made
        )
        for kind, blocks in parts.items()
        for number, part in enumerate(blocks)
    ]
    counts = {kind: len(blocks) for kind, blocks in parts.items()}
    about = {"version": VERSION, "entry": asdict(entry), "partitions": counts, "facts": facts}
    # Written last: a folder without it is one that was left unfinished.
    return [delayed(_write_about)(str(folder / ENTRY), about, [*written, *last])]


def entry_in(folder: Path) -> Entry:
    """Return what is known of the thing in a folder.

    Raises
    ------
    InputError
        When the folder holds none that `write` wrote.
    """
    return replace(Entry(**_about(folder)["entry"]), state=DISK)


def read(folder: Path) -> Any:
    """Return the thing in a folder, to be read by the workers; of a model the delayed one.

    Raises
    ------
    InputError
        When the folder holds none that `write` wrote.
    """
    about = _about(folder)
    kind, facts = about["entry"]["kind"], about["facts"]

    def parts(part: str, work: Any) -> list[Delayed]:
        paths = [str(folder / part / _file(number)) for number in range(about["partitions"][part])]
        # Names of their own, for files may hold something else by now.
        return [delayed(work, pure=False)(path) for path in paths]

    if kind == MODEL:
        return delayed(_read_model, pure=False)(str(folder / "model.pt"))
    if kind == RECORDING:
        return _recording(parts("signal", _read_array), facts)
    rows = parts("table", _read_table)
    meta = _computed(delayed(_empty)(rows[0]))
    if kind == BEATS:
        return _beats(rows, meta, parts("waves", _read_array), folder, facts)
    return dd.from_delayed(rows, meta=meta, verify_meta=False)


def folders(folder: Path) -> list[Path]:
    """Return the folders of things within a folder, by a task, since the client may not see it.

    Raises
    ------
    InputError
        When it is no folder with such things.
    """
    found = _computed(delayed(_folders, pure=False)(str(folder)))
    if not found:
        raise InputError(
            f"folder {folder}",
            "no snapshot of a store there",
            "a folder that Store.snapshot() wrote, on a file system that the workers see",
            "Check the path",
        )
    return [Path(one) for one in found]


def sweep(folder: Path, names: Sequence[str]) -> list[str]:
    """Remove the folders of things within a folder, but those of the given names, by a task.

    Returns
    -------
    list of str
        The names whose folders are there, complete.
    """
    left: list[str] = _computed(delayed(_sweep, pure=False)(str(folder), list(names)))
    return left


def _about(folder: Path) -> dict[str, Any]:
    about: dict[str, Any] = _computed(delayed(_read_about, pure=False)(str(folder)))
    return about


def _computed(value: Delayed) -> Any:
    (found,) = dask.compute(value)
    return found


def _recording_facts(recording: Recording) -> dict[str, Any]:
    return {
        "chunks": list(recording.signal.chunks[0]),
        "dtype": str(recording.signal.dtype),
        "fs": recording.fs,
        "leads": list(recording.leads or ()),
        "unit": recording.unit,
        "start": None if recording.start is None else recording.start.isoformat(),
        "name": recording.name,
        "source": recording.source,
        "notes": list(recording.notes),
    }


def _recording(blocks: Sequence[Delayed], facts: dict[str, Any]) -> Recording:
    meta = _computed(delayed(_empty_array)(2, facts["dtype"]))
    n_leads = len(facts["leads"])
    arrays = [
        da.from_delayed(block, (size, n_leads), dtype=facts["dtype"], meta=meta)
        for block, size in zip(blocks, facts["chunks"], strict=True)
    ]
    start = facts["start"]
    return Recording(
        da.concatenate(arrays),
        facts["fs"],
        leads=tuple(facts["leads"]),
        unit=facts["unit"],
        start=None if start is None else datetime.fromisoformat(start),
        name=facts["name"],
        source=facts["source"],
        notes=tuple(facts["notes"]),
    )


def _beats_facts(beats: Beats) -> dict[str, Any]:
    return {
        "shape": list(beats.waves.shape[1:]),
        "fs": beats.fs,
        "window": list(beats.window),
        "leads": list(beats.leads),
        "unit": beats.unit,
        "names": list(beats.names),
    }


def _beats(
    rows: list[Delayed], meta: Any, blocks: list[Delayed], folder: Path, facts: dict[str, Any]
) -> Beats:
    empty = _computed(delayed(_empty_array)(3, "float32"))
    first, last = facts["window"]
    return Beats(
        table=TableParts(rows, meta),
        waves=stack_waves(blocks, tuple(facts["shape"]), empty),
        fs=facts["fs"],
        window=(first, last),
        leads=tuple(facts["leads"]),
        unit=facts["unit"],
        records=delayed(_read_host_table, pure=False)(str(folder / "records.parquet")),
        names=tuple(facts["names"]),
        spans=delayed(_read_host_table, pure=False)(str(folder / "spans.parquet")),
    )


def _file(number: int) -> str:
    return f"{number:06}.parquet"


# What follows runs on workers.


def _folder(path: str) -> str:
    """Make an empty folder, with those above it."""
    try:
        shutil.rmtree(path, ignore_errors=True)
        Path(path).mkdir(parents=True)
    except OSError as error:
        raise InputError(
            f"folder {path}",
            f"a place that a worker cannot write ({error.strerror})",
            "a folder on a file system that all workers see and may write",
            "Choose another folder",
        ) from error
    return path


def _write_table(table: Any, path: str, made: str) -> int:
    return _write(_arrow(table), path)


def _arrow(table: Any) -> pa.Table:
    if isinstance(table, pd.DataFrame):
        return pa.Table.from_pandas(table)
    arrow = table.to_arrow(preserve_index=True)
    # cuDF gives an index without a name one.
    told = {**(arrow.schema.metadata or {}), _INDEX: json.dumps(table.index.name)}
    return arrow.replace_schema_metadata(told)


def _write_array(block: Any, path: str, made: str) -> int:
    block = np.ascontiguousarray(on_host(block))
    rows = block.reshape(len(block), math.prod(block.shape[1:]))
    values = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), max(rows.shape[1], 1))
    shape = json.dumps(block.shape[1:])
    return _write(pa.table({"rows": values}).replace_schema_metadata({"shape": shape}), path)


def _write(table: pa.Table, path: str) -> int:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        pq.write_table(table, path, compression="zstd")
    except OSError as error:
        raise InputError(
            path, f"an error while writing it ({error})", "a file system with room", "Make room"
        ) from error
    return os.path.getsize(path)


def _write_model(model: Any, path: str, made: str) -> None:
    model.save(path)


def _write_about(path: str, about: dict[str, Any], parts: Sequence[Any]) -> None:
    aside = Path(f"{path}.aside")
    aside.write_text(json.dumps(about))
    aside.replace(path)


def _read_about(folder: str) -> dict[str, Any]:
    try:
        about: dict[str, Any] = json.loads((Path(folder) / ENTRY).read_text())
    except (OSError, ValueError) as error:
        raise _unreadable(folder, error) from error
    if about.get("version") != VERSION:
        raise _unreadable(folder, f"version {about.get('version')} of the layout")
    return about


def _unreadable(path: str, found: object) -> InputError:
    return InputError(
        path,
        f"nothing that can be read ({found})",
        f"what a store wrote there, version {VERSION}",
        "Put the name anew, or drop it; if the folder is on another machine, mount it here",
    )


def _read_parquet(path: str) -> pa.Table:
    try:
        return pq.ParquetFile(path).read()
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def _read_host_table(path: str) -> pd.DataFrame:
    table: pd.DataFrame = _read_parquet(path).to_pandas()
    return table


def _read_table(path: str) -> Any:
    table = _read_parquet(path)
    if pool_here() is None:
        return table.to_pandas()
    frame = importlib.import_module("cudf").DataFrame.from_arrow(table)
    frame.index.name = json.loads(table.schema.metadata.get(_INDEX, b"null"))
    return frame


def _read_array(path: str) -> Any:
    table = _read_parquet(path)
    column = table.column("rows").combine_chunks()
    values = column.flatten().to_numpy(zero_copy_only=False)
    shape = json.loads(table.schema.metadata[b"shape"])
    return _library().asarray(values.reshape(len(column), *shape))


def _read_model(path: str) -> Any:
    from ..anomaly import Model

    return Model.load(path)


def _empty(part: Any) -> Any:
    return part.iloc[:0]


def _empty_array(ndim: int, dtype: str) -> Any:
    return _library().empty((0,) * ndim, dtype=dtype)


def _library() -> Any:
    """Return the array library of this worker."""
    return importlib.import_module("numpy" if pool_here() is None else "cupy")


def _folders(folder: str) -> list[str]:
    return sorted(str(path.parent) for path in Path(folder).glob(f"*/{ENTRY}"))


def _sweep(folder: str, names: Sequence[str]) -> list[str]:
    for path in Path(folder).glob("*"):
        if path.name not in names:
            shutil.rmtree(path, ignore_errors=True)
    return [path.parent.name for path in Path(folder).glob(f"*/{ENTRY}")]
