"""Tables as Parquet files."""

from __future__ import annotations

from pathlib import Path

import pandas as pd


def write_table(path: Path, table: pd.DataFrame) -> None:
    """Write a table; unknown numbers (NaN) and texts become nulls."""
    import pyarrow as pa
    import pyarrow.parquet

    arrow = pa.Table.from_pandas(table, preserve_index=False)
    # A reader that knows nothing of pandas finds plain columns.
    pa.parquet.write_table(arrow.replace_schema_metadata(None), path)
