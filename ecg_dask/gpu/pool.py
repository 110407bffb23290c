"""The memory pool of this process, if it works on a GPU: what tasks ask about it."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, ParamSpec, TypeVar

from dask.utils import format_bytes, parse_bytes

from ..errors import InputError

#: Share of a GPU's memory that the pools of its workers take when no size is asked for. The rest
#: is for CUDA contexts, code, and the libraries' own small buffers.
DEFAULT_SHARE = 0.8

#: What `pool` may be besides a size: CUDA's own pool, which gives memory back to other processes.
ASYNC = "async"

#: Kind of a pool that RMM had already.
FOUND = "found"

#: Granularity of RMM's pools, in bytes.
_ALIGNMENT = 256

P = ParamSpec("P")
R = TypeVar("R")


class Pool(NamedTuple):
    """The memory pool of a worker.

    Attributes
    ----------
    kind
        ``"cuda"``, `ASYNC`, or `FOUND` for one that was there already.
    size
        Bytes it may hold.
    workers
        Workers of the cluster that have one like it.
    """

    kind: str
    size: int
    workers: int = 1


_here: Pool | None = None


def pool_here() -> Pool | None:
    """Return the pool of this process; None in a process that does not work on a GPU."""
    return _here


def enter(pool: Pool) -> None:
    """Note that this process has a pool, for good."""
    global _here
    _here = pool


def pool_bytes(pool: str | None, total: int, free: int, workers: int = 1) -> int:
    """Return the bytes of a worker's pool.

    Parameters
    ----------
    pool
        Size a GPU as text, such as ``"40 GiB"``, ``"async"``, or None for `DEFAULT_SHARE` of the
        memory that is free.
    total, free
        Bytes of the GPU's memory.
    workers
        Workers that share the GPU and therefore the size.

    Raises
    ------
    InputError
        When `pool` is no size, or larger than the GPU.
    """
    size = int(DEFAULT_SHARE * free)
    if pool is not None and pool != ASYNC:
        try:
            size = int(parse_bytes(pool))
        except (ValueError, AttributeError):
            size = 0
        if not 0 < size <= total:
            raise InputError(
                "pool",
                repr(pool),
                f'a size up to the {format_bytes(total)} of the GPU, such as "8 GiB", or "{ASYNC}"',
                "Choose such a size, or leave it out",
            )
    return size // workers // _ALIGNMENT * _ALIGNMENT


def told_when_full(task: Callable[P, R]) -> Callable[P, R]:
    """Make a task on partitions say in words that the pool was too small for them."""

    @functools.wraps(task)
    def told(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return task(*args, **kwargs)
        except (MemoryError, RuntimeError) as error:
            if _here is None or not _out_of_memory(error):
                raise
            raise InputError(
                "pool",
                f"{format_bytes(_here.size)}, too little for {task.__name__} on "
                f"{_described(args, kwargs)}",
                "a pool that holds about fifteen times a partition's samples, or, to train, "
                "three times the training beats",
                "Choose a smaller chunk, a larger pool, or fewer workers on a GPU",
            ) from error

    return told


@told_when_full
def on_device(array: Any) -> Any:
    """Return an array in the memory that this process works on: the GPU's where it has a pool."""
    return array if _here is None else importlib.import_module("cupy").asarray(array)


def _out_of_memory(error: BaseException) -> bool:
    """Tell whether an error is RMM's, CuPy's or PyTorch's way of saying so."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or "out of memory" in text or "out_of_memory" in text


def _described(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Describe the largest array among a task's arguments."""
    arrays = [arg for arg in _flat([*args, *kwargs.values()]) if hasattr(arg, "nbytes")]
    if not arrays:
        return "a partition"
    largest = max(arrays, key=lambda array: array.nbytes)
    shape = " x ".join(f"{n:,}" for n in largest.shape)
    total = sum(array.nbytes for array in arrays)
    return f"a partition of {shape} values, {format_bytes(total)} in all"


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value
