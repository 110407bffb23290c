"""Kernels compiled once and kept on disk as PTX, so that later processes compile nothing.

An entry's name is a digest of all that the PTX depends on; an entry that is damaged, and a folder
that cannot be written, mean that a kernel is compiled.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
from numba import types


class _NoConstantError(TypeError):
    """A closure holds something of which it is not known how a kernel depends on it."""


def ptx_of(kernel: Any, kinds: Any, capability: str, compile_it: Callable[[], str]) -> str:
    """Return a kernel's PTX, from disk or compiled.

    Parameters
    ----------
    kernel
        What ``numba.cuda.jit`` made.
    kinds
        Kinds of its arguments.
    capability
        Compute capability that it is compiled for, such as ``"90"``.
    compile_it
        Compiles it.
    """
    try:
        digest = _digest(kernel.py_func, kinds, capability)
    except _NoConstantError:
        return compile_it()
    try:
        path = folder() / f"{digest}.ptx"
    except RuntimeError:
        # A user without a home directory.
        return compile_it()
    with contextlib.suppress(OSError, ValueError):
        told, ptx = path.read_text("utf-8").split("\n", 1)
        if told == _sum(ptx):
            return ptx
    ptx = compile_it()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            file.write(f"{_sum(ptx)}\n{ptx}")
        # Several workers may write the same at once.
        os.replace(file.name, path)
    return ptx


def folder() -> Path:
    """Return where the PTX is kept: ``ECG_DASK_CACHE_DIR``, or in the user's cache."""
    chosen = os.environ.get("ECG_DASK_CACHE_DIR")
    if chosen:
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path("~/.cache").expanduser()) / "ecg_dask"


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _digest(function: Any, kinds: Any, capability: str) -> str:
    named = [_environment(), repr(kinds), capability, *_described(function)]
    return _sum("\n".join(named))


@functools.cache
def _environment() -> str:
    """Return the versions of all that compiles, and a digest of the kernels' sources."""
    told = [platform.python_version()]
    for name in ("numba", "numba-cuda", "llvmlite", "numpy"):
        with contextlib.suppress(PackageNotFoundError):
            told.append(f"{name} {version(name)}")
    # What else Numba's code depends on.
    told += [f"{name} {os.environ.get(name)}" for name in ("NUMBA_OPT", "NUMBA_CUDA_DEBUGINFO")]
    sources = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        sources.update(path.read_bytes())
    return ", ".join([*told, sources.hexdigest()])


def _described(function: Any) -> Iterator[str]:
    """Name a function and the constants in its closure, and the functions there likewise."""
    yield f"{function.__module__}.{function.__qualname__}"
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield name
        yield from _constant(cell.cell_contents)


def _constant(value: Any) -> Iterator[str]:
    if hasattr(value, "py_func") or isinstance(value, FunctionType):
        yield from _described(getattr(value, "py_func", value))
    elif value is None or isinstance(value, bool | int | float | str | np.generic | types.Type):
        yield f"{type(value).__name__} {value!r}"
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape} {value.tobytes().hex()}"
    elif isinstance(value, tuple):
        yield "("
        for item in value:
            yield from _constant(item)
        yield ")"
    else:
        raise _NoConstantError(type(value))
