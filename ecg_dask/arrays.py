"""Which library an array belongs to, so that one body serves NumPy and CuPy."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
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


def data_frame(columns: Mapping[str, Any], like: Any, index: Any = None) -> Any:
    """Return a table in the memory of the array `like`: cuDF's or pandas'.

    Missing numbers are NaN in both.
    """
    if on_gpu(like):
        cudf = importlib.import_module("cudf")
        frame = cudf.DataFrame(dict(columns), nan_as_null=False)
    else:
        frame = importlib.import_module("pandas").DataFrame(columns)
    if index is not None:
        # Not by the constructor, which would look for the index in columns that have one.
        frame.index = index
    return frame


def text_column(words: Sequence[str | None], code: Any) -> Any:
    """Return a column of text, ``words[code]`` in each row, in the memory of the array `code`."""
    if on_gpu(code):
        cudf, plc = importlib.import_module("cudf"), importlib.import_module("pylibcudf")
        table = plc.Table([cudf.Series(list(words), dtype="str").to_pylibcudf()[0]])
        rows = plc.Column.from_cuda_array_interface(code)
        # A tenth of the time that Series.take() takes, which looks at the codes first.
        gathered = plc.copying.gather(table, rows, plc.copying.OutOfBoundsPolicy.DONT_CHECK)
        return cudf.Series.from_pylibcudf(gathered.columns()[0])
    pandas = importlib.import_module("pandas")
    return pandas.Series(pandas.array(list(words), dtype="str").take(code))


def on_host(value: Any) -> Any:
    """Return an array of NumPy, or a table of pandas, of what is one or CuPy's or cuDF's."""
    if on_gpu(value):
        return value.get()
    return value.to_pandas() if hasattr(value, "to_pandas") else value
