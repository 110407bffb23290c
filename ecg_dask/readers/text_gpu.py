"""Plain tables of numbers from a file into GPU memory: KvikIO reads, cuDF makes them numbers.

cuDF takes some cells for numbers that are none (a lone ``-``, blanks, ``1+2``), and says nothing of
cells too many. So a kernel looks at the bytes first, and what is not plain, missing samples
included, is left to the readers on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..errors import InputError
from .files import unreadable
from .text_blocks import Layout, owned_range


class GpuBlock(NamedTuple):
    """The leads of a range of lines, CuPy float32 (n_rows, n_leads), and its ends of lines."""

    samples: Any
    lines: int


def read_plain(
    path: str, layout: Layout, columns: Sequence[int], start: int, stop: int
) -> GpuBlock | None:
    """Read the leads of the lines that start in the bytes [start, stop), if they are plain.

    Parameters
    ----------
    path, layout
        The file, and how its table stands.
    columns
        Columns of the leads.
    start, stop
        Range of bytes.

    Returns
    -------
    GpuBlock or None
        None where a line has other cells than numbers, too few or too many of them, a value that
        float32 does not hold, or no line starts in the range.
    """
    if len(layout.separator.encode()) != 1 or layout.separator == " ":
        return None
    low, high = owned_range(path, layout, start, stop)
    if low == high:
        return None
    import cupy

    from ..kernels.cuda_text import text_counts

    raw = _bytes(path, low, high)
    text = cupy.asarray(raw)
    odd, ends, separators = text_counts(text, layout.separator, layout.decimal)
    last = text[-1:].tobytes()
    n_rows = ends + (last != b"\n")
    if odd or not (last == b"\n" or last.isdigit()):
        return None
    if separators != n_rows * (layout.n_columns - 1):
        return None
    # A line with too few cells has none in the last column.
    wanted = sorted({*columns, layout.n_columns - 1})
    parsed = dict(zip(wanted, _numbers(raw, layout, wanted), strict=True))
    if any(len(column) != n_rows or column.null_count for column in parsed.values()):
        return None
    leads = [parsed[i].astype("float32").values for i in columns]
    samples = leads[0][:, None] if len(leads) == 1 else cupy.stack(leads, axis=1)
    return GpuBlock(samples, ends) if bool(cupy.isfinite(samples).all()) else None


def _bytes(path: str, low: int, high: int) -> Any:
    """Read the bytes [low, high) into device memory, past the host where the system can do so."""
    import kvikio
    import rmm

    raw = rmm.DeviceBuffer(size=high - low)
    try:
        with kvikio.CuFile(path, "r") as file:
            n_read = file.read(raw, file_offset=low)
    except OSError as error:
        raise unreadable(path, error) from error
    if n_read != high - low:
        raise InputError(
            path,
            f"its end after {low + n_read:,} bytes where {high:,} were counted",
            "a file that stays as it is while it is read",
            "Wait until it is written, and read it again",
        )
    return raw


def _numbers(raw: Any, layout: Layout, columns: Sequence[int]) -> list[Any]:
    """Return columns of the table as cuDF float64 series, null where a cell is no number."""
    import cudf
    import pylibcudf

    csv = pylibcudf.io.csv
    names = [str(i) for i in range(layout.n_columns)]
    options = (
        csv.CsvReaderOptions.builder(pylibcudf.io.SourceInfo([raw]))
        .delimiter(layout.separator)
        .decimal(layout.decimal)
        .quoting(pylibcudf.io.types.QuoteStyle.NONE)
        .compression(pylibcudf.io.types.CompressionType.NONE)
        .build()
    )
    options.set_header(-1)
    options.set_names(names)
    options.set_use_cols_indexes(list(columns))
    # cuDF rounds after each digit of a float32, and once of a float64.
    kind = pylibcudf.DataType(pylibcudf.TypeId.FLOAT64)
    options.set_dtypes(dict.fromkeys(names, kind))
    table = csv.read_csv(options).tbl
    return [cudf.Series.from_pylibcudf(column) for column in table.columns()]
