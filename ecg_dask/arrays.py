"""Which library an array belongs to, so that one body serves NumPy and CuPy."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any


def on_gpu(array: Any) -> bool:
    """Tell whether `array` lives in GPU memory (it is a CuPy array)."""
    return type(array).__module__.partition(".")[0] == "cupy"


def namespace(array: Any) -> ModuleType:
    """Return the array library of `array`: ``cupy`` for a CuPy array, else ``numpy``."""
    if on_gpu(array):
        return importlib.import_module("cupy")
    return importlib.import_module("numpy")


def dataframe_library(array: Any) -> ModuleType:
    """Return the table library that shares memory with `array`: ``cudf`` or ``pandas``."""
    if on_gpu(array):
        return importlib.import_module("cudf")
    return importlib.import_module("pandas")
