"""Data in shared memory of the host: written once by the owner, mapped by readers."""

from __future__ import annotations

import importlib
import mmap
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..errors import InputError
from .descriptor import Piece
from .leases import DATA, Lease

#: Types of the arrays that are shared, in the byte order of the machine.
ARRAY_TYPES = frozenset(
    np.dtype(name).str
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64"),
    )
)

#: Kinds of NumPy's that Arrow stores otherwise: bools as bits, dates with a mask. They travel as
#: whole numbers of their size.
_AS_INTEGERS = {"b": "u", "M": "i", "m": "i"}


def checked_dtype(array: Any) -> str:
    """Return the type of an array as text.

    Raises
    ------
    InputError
        When arrays of this type are not shared.
    """
    kind = str(array.dtype.str)
    if kind not in ARRAY_TYPES:
        raise InputError(
            "value",
            f"an array of {array.dtype}",
            "bools, whole numbers, and floats of 16, 32 and 64 bits",
            "Convert it, such as by .astype('float32')",
        )
    return kind


def lay_out_array(array: Any, folder: Path) -> Piece:
    """Write a NumPy array into a share's folder; return the fields that tell of it."""
    kind = checked_dtype(array)
    flat = np.asarray(array, order="C").reshape(-1)
    with new_file(folder) as file:
        file.write(flat.view(np.uint8).data)
    return {
        "memory": "host",
        "form": "array",
        "dtype": kind,
        "shape": list(array.shape),
        "bytes": flat.nbytes,
    }


def map_array(piece: Piece, folder: Path, lease: Lease) -> Any:
    """Return the array of a piece, read-only, in the owner's memory."""
    shape, dtype = tuple(piece["shape"]), np.dtype(piece["dtype"])
    if not piece["bytes"]:
        empty = np.empty(shape, dtype)
        empty.flags.writeable = False
        return empty
    return np.frombuffer(_Mapping.of(piece, folder, lease), dtype).reshape(shape)


def lay_out_table(frame: Any, folder: Path) -> Piece:
    """Write a pandas table into a share's folder as Arrow; return the fields that tell of it.

    Raises
    ------
    InputError
        When it has columns that Arrow does not give back as they were.
    """
    import pyarrow as pa

    _without_objects(frame)
    try:
        table = pa.Table.from_pandas(frame)
        for i, dtype in enumerate(frame.dtypes):
            if isinstance(dtype, np.dtype):
                # Without pandas' rules, by which a NaN is a null.
                values = frame.iloc[:, i].to_numpy()
                if dtype.kind in _AS_INTEGERS:
                    values = values.view(f"{_AS_INTEGERS[dtype.kind]}{dtype.itemsize}")
                table = table.set_column(i, table.field(i).name, pa.array(values))
        # One batch, since readers would join several; and one of no rows has its categories too.
        columns = [c.chunk(0) if c.num_chunks == 1 else c.combine_chunks() for c in table.columns]
        batch = pa.RecordBatch.from_arrays(columns, schema=table.schema)
        with new_file(folder) as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_batch(batch)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _refused(f"one that Arrow refuses ({error})") from error
    piece = {
        "memory": "host",
        "form": "table",
        "rows": len(frame),
        "columns": [[str(name), str(dtype)] for name, dtype in frame.dtypes.items()],
        "bytes": (folder / DATA).stat().st_size,
    }
    back = _as_frame(pa.memory_map(str(folder / DATA)), piece)
    if _kinds(back) != _kinds(frame):
        changed = [
            f"{name} ({dtype!r})"
            for name, dtype, other in zip(frame, frame.dtypes, back.dtypes, strict=True)
            if dtype != other
        ]
        raise _refused(f"columns that Arrow changes: {', '.join(changed) or 'the names or index'}")
    return piece


def map_table(piece: Piece, folder: Path, lease: Lease) -> Any:
    """Return the pandas table of a piece, read-only, in the owner's memory."""
    import pyarrow as pa

    return _as_frame(pa.py_buffer(_Mapping.of(piece, folder, lease)), piece)


def _as_frame(source: Any, piece: Piece) -> Any:
    """Return a table that lies in memory as Arrow as pandas' own, without copying columns."""
    pa, pandas = importlib.import_module("pyarrow"), importlib.import_module("pandas")
    table = pa.ipc.open_file(source).read_all()
    frame = table.to_pandas(split_blocks=True, use_threads=False)
    for i, (_, kind) in enumerate(piece["columns"]):
        column = frame.iloc[:, i]
        if str(column.dtype) != kind:
            values = pandas.Series(column.to_numpy().view(kind), frame.index, copy=False)
            frame.isetitem(i, values)
    return frame


def _without_objects(frame: Any) -> None:
    """Refuse columns and indices of Python objects, of which Arrow keeps only what it knows."""
    kinds = {str(name): dtype for name, dtype in frame.dtypes.items()}
    for level in range(frame.index.nlevels):
        kinds[f"the index {frame.index.names[level]}"] = frame.index.get_level_values(level).dtype
    objects = [
        name
        for name, dtype in kinds.items()
        if object in (dtype, getattr(getattr(dtype, "categories", None), "dtype", None))
    ]
    if objects:
        raise _refused(f"columns of Python objects: {', '.join(objects)}")


def _kinds(frame: Any) -> tuple[Any, ...]:
    """Return what has to be the same of a table and of what readers see."""
    index = frame.index
    levels = index.dtypes.tolist() if index.nlevels > 1 else [index.dtype]
    columns = frame.columns
    return len(frame), list(frame.dtypes), list(columns), columns.names, index.names, levels


def _refused(found: str) -> InputError:
    return InputError(
        "value",
        f"a table with {found}",
        "columns of numbers, bools, dates, categories and text, each name once",
        "Convert or drop these columns, such as by .astype('str')",
    )


def new_file(folder: Path) -> BinaryIO:
    """Make the file of a share's data, for its user alone."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    return os.fdopen(os.open(folder / DATA, flags, 0o600), "wb")


class _Mapping(mmap.mmap):
    """The file of a piece in this process's memory; what lies in it keeps it, and it the lease."""

    lease: Lease

    @classmethod
    def of(cls, piece: Piece, folder: Path, lease: Lease) -> _Mapping:
        descriptor = os.open(folder / DATA, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size != piece["bytes"]:
                raise InputError(
                    f"share {piece['share']}",
                    f"a file of {status.st_size} bytes",
                    f"the {piece['bytes']} bytes that the owner wrote",
                    "Share the name again",
                )
            mapping = cls(descriptor, piece["bytes"], prot=mmap.PROT_READ)
        finally:
            os.close(descriptor)
        mapping.lease = lease
        return mapping
