"""Data in GPU memory: the owner's own blocks, mapped by other processes through CUDA IPC.

What is exported is the block of the driver's that the data lie in, which is the whole pool of the
worker; an offset says where in it. A block is opened once in a process.
"""

from __future__ import annotations

import ctypes
import importlib
import threading
import uuid
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import InputError
from .descriptor import Piece
from .host import checked_dtype, new_file
from .leases import DATA, Lease

#: Bytes of a handle of CUDA IPC.
_HANDLE_BYTES = 64

#: The driver's flag that lets a process of another GPU open a block; the only one there is.
_LAZY_PEER_ACCESS = 1


def lay_out_array(array: Any) -> tuple[Any, Piece]:
    """Return what keeps a CuPy array alive, as its bytes, and the fields that tell of it.

    A C-contiguous array is shared where it lies; another is copied once.
    """
    cupy = importlib.import_module("cupy")
    kind = checked_dtype(array)
    with array.device:
        flat = cupy.ascontiguousarray(array).reshape(-1).view(cupy.uint8)
        piece = {
            "memory": "cuda",
            "form": "array",
            "dtype": kind,
            "shape": list(array.shape),
            **_exported(flat),
        }
    return flat, piece


def map_array(piece: Piece, flat: Any) -> Any:
    """Return the CuPy array of a piece; `flat` are its bytes."""
    return flat.view(piece["dtype"]).reshape(piece["shape"])


def lay_out_table(frame: Any, folder: Path) -> tuple[Any, Piece]:
    """Pack a cuDF table into one buffer; return it as bytes and the fields that tell of it.

    What libcudf has to know of the buffer goes into the share's folder: it is believed unseen, and
    therefore is no part of the descriptor.

    Raises
    ------
    InputError
        When the table has types or names that cannot be told.
    """
    from ..gpu.pool import told_when_full

    cupy, plc = importlib.import_module("cupy"), importlib.import_module("pylibcudf")
    names = list(frame.columns)
    index, columns = _index_told(frame.index), frame.to_pylibcudf()[0].columns()
    if index["kind"] == "column":
        columns = [*columns, frame.index.to_pylibcudf()[0]]
    if not all(isinstance(name, str | int) for name in [*names, index["name"] or ""]):
        raise _refused("names that are neither text nor whole numbers")
    piece = {
        "memory": "cuda",
        "form": "table",
        "rows": len(frame),
        "columns": [[name, str(dtype)] for name, dtype in zip(names, frame.dtypes, strict=True)],
        "index": index,
    }
    back = _as_frame(plc.Table(columns), piece)
    changed = [
        f"{name} ({dtype})"
        for name, dtype, other in zip(names, frame.dtypes, back.dtypes, strict=True)
        if dtype != other
    ]
    if changed or back.index.dtype != frame.index.dtype:
        raise _refused(f"types that do not travel: {', '.join(changed) or 'that of the index'}")

    @told_when_full
    def pack(table: Any) -> Any:
        return plc.contiguous_split.pack(table).release()

    metadata, packed = pack(plc.Table(columns)) if columns else (b"", cupy.empty(0, cupy.uint8))
    with new_file(folder) as file:
        file.write(metadata)
    flat = cupy.asarray(packed) if packed.size else cupy.empty(0, cupy.uint8)
    return flat, {**piece, **_exported(flat)}


def map_table(piece: Piece, flat: Any, folder: Path) -> Any:
    """Return the cuDF table of a piece; `flat` are the bytes of its packed buffer."""
    plc = importlib.import_module("pylibcudf")
    table = plc.Table([])
    if metadata := (folder / DATA).read_bytes():
        table = plc.contiguous_split.unpack_from_memoryviews(
            memoryview(bytearray(metadata)), plc.gpumemoryview(flat)
        )
    return _as_frame(table, piece)


def _as_frame(table: Any, piece: Piece) -> Any:
    """Return a table of libcudf's as one of cuDF's, without copying columns."""
    cudf, plc = importlib.import_module("cudf"), importlib.import_module("pylibcudf")
    index, columns = piece["index"], table.columns()
    if index["kind"] == "range":
        rows = cudf.RangeIndex(index["start"], index["stop"], index["step"], name=index["name"])
    else:
        *columns, last = columns
        rows = cudf.Index.from_pylibcudf(last, {"name": index["name"]})
    names = [name for name, _ in piece["columns"]]
    return cudf.DataFrame.from_pylibcudf(plc.Table(columns), {"columns": names, "index": rows})


def _index_told(index: Any) -> Piece:
    """Return what is told of the index of a cuDF table: a range, or a column more."""
    cudf = importlib.import_module("cudf")
    if isinstance(index, cudf.MultiIndex):
        raise _refused("an index of several levels")
    if isinstance(index, cudf.RangeIndex):
        range_ = {"start": index.start, "stop": index.stop, "step": index.step}
        return {"kind": "range", "name": index.name, **range_}
    return {"kind": "column", "name": index.name}


def _refused(found: str) -> InputError:
    return InputError(
        "value",
        f"a table with {found}",
        "columns of numbers, bools, dates and text, named by text, and a plain index",
        "Convert or drop these columns, such as by .astype('str') or .reset_index()",
    )


def _exported(flat: Any) -> Piece:
    """Return the fields that tell where in which block of the GPU's memory bytes lie.

    Raises
    ------
    InputError
        When the block cannot be opened by another process.
    """
    cupy, driver = _cupy_and_driver()
    # What computes the data has to have done so before another process looks at them.
    cupy.cuda.runtime.deviceSynchronize()
    told = {"gpu": _uuid(flat.device.id), "bytes": int(flat.nbytes)}
    if not told["bytes"]:
        return {**told, "handle": "", "block": 0, "offset": 0}
    handle = driver.CUipcMemHandle()
    failed, base, size = driver.cuMemGetAddressRange(driver.CUdeviceptr(flat.data.ptr))
    if not failed:
        failed, handle = driver.cuIpcGetMemHandle(base)
    if failed:
        raise InputError(
            "pool",
            f"memory that other processes cannot map ({failed.name}), as that of pool='async'",
            "a pool with a size, which is one block of the driver's",
            'Start the workers with one, such as connect(device="gpu", pool="8 GiB")',
        )
    return {
        **told,
        "handle": ctypes.string_at(handle.getPtr(), _HANDLE_BYTES).hex(),
        "block": int(size),
        "offset": int(flat.data.ptr) - int(base),
    }


def mapped(piece: Piece, lease: Lease) -> Any:
    """Return the bytes of a piece of another process, as a CuPy array that keeps the lease.

    Raises
    ------
    InputError
        When this process does not see the GPU, or cannot open the block.
    """
    cupy, _ = _cupy_and_driver()
    number = _visible(piece["gpu"])
    with cupy.cuda.Device(number):
        if not piece["bytes"]:
            return cupy.empty(0, cupy.uint8)
        block = _opened(bytes.fromhex(piece["handle"]), number)
        region = _Region(block, lease, number)
        memory = cupy.cuda.UnownedMemory(block.pointer, piece["block"], region, number)
        start = cupy.cuda.MemoryPointer(memory, piece["offset"])
        return cupy.ndarray((piece["bytes"],), cupy.uint8, start)


class _Block:
    """A block of another process's GPU memory, mapped here until nothing refers to it."""

    def __init__(self, handle: bytes, number: int) -> None:
        cupy, driver = _cupy_and_driver()
        cupy.cuda.runtime.deviceSynchronize()  # There is no context before the first call.
        told = driver.CUipcMemHandle()
        ctypes.memmove(told.getPtr(), handle, _HANDLE_BYTES)
        failed, pointer = driver.cuIpcOpenMemHandle(told, _LAZY_PEER_ACCESS)
        if failed:
            raise InputError(
                "GPU memory of the owner",
                f"a block that cannot be mapped ({failed.name})",
                "a process that sees the owner's GPU and shares its process namespace",
                "Start this process on the owner's host, in containers with one IPC and process "
                "namespace, and share the name again",
            )
        self.pointer = int(pointer)
        # At the end of the process the driver closes it, after all that still uses it.
        weakref.finalize(self, _close, number, pointer).atexit = False


class _Region:
    """What the arrays in a block of another process keep: the mapping, and the lease."""

    def __init__(self, block: _Block, lease: Lease, number: int) -> None:
        weakref.finalize(self, _leave, number, block, lease).atexit = False


def _leave(number: int, *_kept: object) -> None:
    """Wait for what still reads; the mapping and the lease go with the arguments."""
    cupy, _ = _cupy_and_driver()
    with suppress(cupy.cuda.runtime.CUDARuntimeError), cupy.cuda.Device(number):
        cupy.cuda.runtime.deviceSynchronize()


def _close(number: int, pointer: Any) -> None:
    """Unmap a block; any thread may come to it, so the GPU is chosen first."""
    cupy, driver = _cupy_and_driver()
    with suppress(cupy.cuda.runtime.CUDARuntimeError), cupy.cuda.Device(number):
        cupy.cuda.runtime.deviceSynchronize()
        driver.cuIpcCloseMemHandle(pointer)


_blocks: weakref.WeakValueDictionary[bytes, _Block] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def _opened(handle: bytes, number: int) -> _Block:
    with _lock:
        block = _blocks.get(handle)
        if block is None:
            block = _blocks[handle] = _Block(handle, number)
        return block


def _visible(gpu: str) -> int:
    """Return the number, in this process, of the GPU with a UUID."""
    cupy, _ = _cupy_and_driver()
    try:
        numbers = range(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError:
        numbers = range(0)
    seen = {_uuid(number): number for number in numbers}
    if gpu not in seen:
        raise InputError(
            "GPU of this process",
            ", ".join(seen) or "none",
            f"{gpu}, in whose memory the data lie",
            f"Start this process there: CUDA_VISIBLE_DEVICES={gpu}",
        )
    return seen[gpu]


def _uuid(number: int) -> str:
    """Return the UUID of a GPU by its number in this process, as the driver's tools print it."""
    _, driver = _cupy_and_driver()
    _, told = driver.cuDeviceGetUuid(driver.CUdevice(number))
    return f"GPU-{uuid.UUID(bytes=bytes(told.bytes))}"


def _cupy_and_driver() -> tuple[Any, Any]:
    """Return CuPy and the bindings of the driver.

    Raises
    ------
    InputError
        When they are not installed.
    """
    try:
        cupy = importlib.import_module("cupy")
        return cupy, importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise InputError(
            "data in GPU memory",
            f"a process without the package {error.name}",
            "CuPy and cuda-bindings",
            "Install ecg_dask with its extra gpu-cu12 or gpu-cu13",
        ) from error
