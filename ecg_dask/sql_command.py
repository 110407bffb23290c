"""The command ``ecg-dask sql``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .command_line import in_words, on_scheduler
from .errors import InputError
from .stages.session import opened

if TYPE_CHECKING:
    import pandas as pd

#: Rows that are printed as a table at most.
MOST_SHOWN = 50

_SUFFIXES = (".csv", ".parquet")


@click.command()
@click.argument("query")
@on_scheduler
@click.option("--name", metavar="NAME", help="Keep the answer on the workers, by this name.")
@click.option("--out", metavar="FILE", help="Write the answer to FILE.csv or FILE.parquet.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json"]),
    help=f"How to print it: a table of at most {MOST_SHOWN} rows (default), CSV, or a JSON list.",
)
@click.option(
    "--engine",
    type=click.Choice(["auto", "cpu", "gpu"]),
    default="auto",
    help="Where to run it; auto: on the GPU if the tables are there and it can.",
)
@click.option("--overwrite", is_flag=True, help="Replace NAME or FILE.")
def sql(
    query: str,
    scheduler: str | None,
    scheduler_file: str | None,
    name: str | None,
    out: str | None,
    form: str | None,
    engine: str,
    overwrite: bool,
) -> None:
    """Answer a query over the tables in the store, such as scored; beats mean their table.

    QUERY is one SELECT in Polars' dialect. Names with other characters than letters, digits and _
    stand in double quotes. With --name or --out, nothing is printed but what was made, unless
    --format says how.
    """
    path = None if out is None else Path(out)
    with in_words():
        if path is not None:
            check_file(path, overwrite)
        with opened(scheduler, scheduler_file) as (_, store):
            table = store.sql(query, out=name, overwrite=overwrite, engine=engine)
            printed = form or (None if name or out else "table")
            whole = path is not None or printed in ("csv", "json")
            some = MOST_SHOWN if printed else 0
            rows, frame = fetched(table, None if whole else some)
        if path is not None:
            write_file(path, frame)
    for made in filter(None, (name, out)):
        click.echo(f"{made}: {rows:,} rows of {', '.join(map(str, frame.columns))}", err=bool(form))
    if printed == "table":
        show(frame.head(MOST_SHOWN), rows)
    elif printed is not None:
        click.echo(as_json(frame) if printed == "json" else frame.to_csv(index=False), nl=False)


def check_file(path: Path, overwrite: bool) -> None:
    """Refuse a file that cannot be the answer's."""
    if path.suffix not in _SUFFIXES:
        raise InputError(
            "--out",
            f"the file name {path.name!r}",
            f"names that end in {' or '.join(_SUFFIXES)}",
            "Choose one of these formats, or --format and a pipe",
        )
    if not path.parent.is_dir():
        raise InputError(str(path), "no such folder", "a folder that exists", "Make the folder")
    if path.exists() and not (overwrite and path.is_file()):
        raise InputError(
            str(path),
            "a file from before" if path.is_file() else "something that is no file",
            "a new file",
            "Choose another name, or overwrite a file (--overwrite)",
        )


def fetched(table: Any, most: int | None) -> tuple[int, pd.DataFrame]:
    """Return the number of rows of an answer, and at most so many of them from its worker."""
    import dask
    from dask.delayed import delayed

    (part,) = table.to_delayed(optimize_graph=False)
    ((rows, frame),) = dask.compute(delayed(_head)(part, most))
    return rows, frame


def _head(part: Any, most: int | None) -> tuple[int, pd.DataFrame]:
    from .arrays import on_host

    return len(part), on_host(part if most is None else part.head(most))


def write_file(path: Path, frame: pd.DataFrame) -> None:
    """Write an answer beside its place, and move it there."""
    from .writers import write_table

    aside = path.with_name(f".unfinished-{os.getpid()}-{path.name}")
    try:
        if path.suffix == ".csv":
            frame.to_csv(aside, index=False)
        else:
            write_table(aside, frame)
        aside.replace(path)
    except OSError as error:
        remedy = "Make room there or choose another place"
        raise InputError(str(path), str(error), "a place to write to", remedy) from error
    finally:
        aside.unlink(missing_ok=True)


def show(frame: pd.DataFrame, rows: int) -> None:
    """Print an answer as a table, and how many of its rows that are when not all."""
    import pandas as pd
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=box.SIMPLE_HEAD)
    for column in frame.columns:
        right = pd.api.types.is_numeric_dtype(frame[column])
        shown.add_column(Text(str(column)), justify="right" if right else "left")
    for row in frame.itertuples(index=False, name=None):
        shown.add_row(*(Text(_cell(value)) for value in row))
    # Into a pipe or a file nothing is cut.
    console = Console(width=None if sys.stdout.isatty() else 10_000)
    console.print(shown)
    if rows > len(frame):
        console.print(f"The first {len(frame)} of {rows:,} rows; --format csv prints all.")


def _cell(value: Any) -> str:
    import pandas as pd

    if pd.api.types.is_scalar(value) and pd.isna(value):
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def as_json(frame: pd.DataFrame) -> str:
    """Return an answer as a JSON list of objects; what is missing or infinite is null."""
    import json

    known = frame.notna() & ~frame.isin([float("inf"), float("-inf")])
    rows = frame.astype(object).where(known, None).to_dict("records")
    return json.dumps(rows, default=_plain, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    """Return what JSON does not know as what it knows."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
