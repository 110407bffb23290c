"""SQL over tables: a query of Polars' dialect, answered where the tables are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
import polars as pl
import polars.selectors as cs
import pyarrow as pa

from .errors import InputError

#: Where a query may run; auto: on the GPU if the tables are there and it can, else on the CPU.
ENGINES = ("auto", "cpu", "gpu")

#: What Polars raises on a query that it cannot answer; `refused` puts it in words.
ERRORS = (pl.exceptions.PolarsError,)

#: First words of the statements that read. Polars knows others, which would change only its own
#: list of tables.
_READING = ("select", "with", "values", "from")

#: Polars' table functions that read files, on the worker, whatever the store holds.
_FILE_FUNCTIONS = ("read_csv", "read_ipc", "read_json", "read_parquet")

#: The first word of a query, behind blanks, comments and brackets.
_FIRST_WORD = re.compile(r"(?:\s|\(|--[^\n]*(?:\n|$)|/\*.*?\*/)*(\w*)", re.DOTALL)

#: What is neither a name nor a word of a query: texts and comments. Quoted names are the group.
_ASIDE = re.compile(r"""("(?:[^"]|"")*"|`[^`]*`)|'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/""", re.DOTALL)

#: A name that a query gives to a part of itself: ``NAME as (``, ``NAME (columns) as (``.
_DEFINED = re.compile(
    r"""("(?:[^"]|"")*"|`[^`]*`|\w+\b)\s*(?:\([^()]*\)\s*)?\bas\s*\(""", re.IGNORECASE
)

#: Where Polars' messages begin to tell of its own plans.
_PLAN = re.compile(r"\n\n(?:Resolved plan|This error occurred|You might want)")

#: pandas' types of whole numbers and flags that may be missing, by Arrow's.
_NULLABLE = {
    pa.bool_(): pd.BooleanDtype(),
    **{
        pa.from_numpy_dtype(kind.lower()): pd.api.types.pandas_dtype(kind)
        for kind in ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
    },
}


class Answer(NamedTuple):
    """The answer to a query.

    Attributes
    ----------
    frame
        The rows: cuDF's if one of the tables is, else pandas'.
    engine
        Which engine found them, ``"cpu"`` or ``"gpu"``.
    """

    frame: Any
    engine: str


def names_in(query: str, names: Iterable[str]) -> list[str]:
    """Return which of `names` a query reads, in their order.

    Upper and lower case are told apart only where `names` needs it.

    Raises
    ------
    polars.exceptions.PolarsError
        When the query cannot be parsed, does not only read, names a function that reads files, or
        defines (``with NAME as``) one of `names`.
    """
    known = list(names)
    wanted = {
        name
        for relation in _relations(query, known)
        # Polars takes the first part of ``a.b`` for a table; another version might the second.
        for spelled in (relation, *relation.split("."))
        for name in _alike(spelled, known)
    }
    return [name for name in known if name in wanted]


def answer(query: str, tables: Mapping[str, Sequence[Any]], *, engine: str = "auto") -> Answer:
    """Answer a query over tables that are here.

    Both engines find the same rows; their order is fixed only where the query has an ``order by``.

    Parameters
    ----------
    query
        One statement in Polars' dialect that reads. Missing numbers are null in it, those that
        pandas and cuDF tables have as NaN too.
    tables
        The partitions of each table, of pandas or cuDF, by name. Their index is left out.
    engine
        One of `ENGINES`. ``"gpu"`` needs a table of cuDF and the package cudf-polars.

    Returns
    -------
    Answer
        In it missing floats are NaN again. In a table of pandas whole numbers and flags of which
        one is missing have pandas' nullable types.

    Raises
    ------
    InputError
        When a table has a column that Arrow does not know, or the engine cannot run here.
    polars.exceptions.PolarsError
        When the query is wrong (see `refused`).
    """
    if engine not in ENGINES:
        raise InputError("engine", repr(engine), ", ".join(ENGINES), "Choose one of these")
    on_gpu = any(_is_cudf(part) for parts in tables.values() for part in parts)
    if engine == "gpu" and not on_gpu:
        raise InputError(
            "engine",
            "'gpu' for tables that are not on a GPU",
            "gpu for tables that GPU workers hold",
            "Choose auto or cpu",
        )
    relations = _relations(query, list(tables))
    frames = {name: _polars_frame(name, parts) for name, parts in tables.items()}
    for relation in relations:
        alike = _alike(relation, list(tables))
        if len(alike) == 1:
            # As the query spells it.
            frames.setdefault(relation, frames[alike[0]])
    try:
        rows, engine = _collected(pl.SQLContext(frames).execute(query), engine, on_gpu)
    except pl.exceptions.PanicException as error:
        # It is no Exception, and cannot be pickled.
        raise pl.exceptions.ComputeError(str(error)) from None
    rows = rows.with_columns(
        cs.float().fill_null(float("nan")), cs.by_dtype(pl.Null).cast(pl.String)
    )
    arrow = rows.to_arrow(compat_level=pl.CompatLevel.oldest())
    return Answer(_cudf_frame(arrow) if on_gpu else _pandas_frame(arrow), engine)


def refused(error: BaseException, schemas: Mapping[str, Iterable[str]]) -> InputError:
    """Return what to tell of a query that Polars refused.

    Parameters
    ----------
    error
        One of `ERRORS`.
    schemas
        The columns of every table that can be named.
    """
    said = " ".join(_PLAN.split(str(error))[0].split()).rstrip(".")
    listed = [
        f"{_quoted(name)} ({', '.join(map(_quoted, columns))})" for name, columns in schemas.items()
    ]
    return InputError(
        "query",
        f"one that cannot be answered: {said}",
        f"one SELECT over {'; '.join(listed)}" if listed else "nothing, since there is no table",
        "Correct the query" if listed else "Put a table or beats into the store first",
    )


def _relations(query: str, names: Sequence[str]) -> list[str]:
    """Return the tables that a query names or defines; refuse what `names_in` refuses."""
    (word,) = _FIRST_WORD.match(query).groups()  # type: ignore[union-attr]
    if word.lower() not in _READING:
        raise pl.exceptions.SQLInterfaceError(
            f"it begins with {word.upper() or 'no word'}, and only "
            f"{', '.join(known.upper() for known in _READING)} read"
        )
    parse = pl.SQLContext()._ctxt.table_identifiers
    relations: list[str] = parse(query, include_schema=True, unique=True)
    for relation in relations:
        if relation.lower() in _FILE_FUNCTIONS:
            raise pl.exceptions.SQLInterfaceError(
                f"{relation} would read a file of the worker; only tables in the store are read"
            )
    for spelled in _DEFINED.findall(_ASIDE.sub(r"\1 ", query)):
        for name in _alike(_unquoted(spelled), names):
            # Polars would go on to read the table, within the query's own definition and after it.
            raise pl.exceptions.SQLInterfaceError(
                f"it defines {spelled}, and there is a table {name}; choose another name"
            )
    return relations


def _alike(spelled: str, names: Sequence[str]) -> list[str]:
    """Return the name that is spelled like this, else those that differ in case alone."""
    if spelled in names:
        return [spelled]
    return [name for name in names if name.casefold() == spelled.casefold()]


def _unquoted(spelled: str) -> str:
    """Return the name that a query means by what it spells."""
    mark = spelled[0]
    return spelled[1:-1].replace(2 * mark, mark) if mark in '"`' else spelled


def _quoted(name: str) -> str:
    """Return a name as a query has to spell it."""
    if re.fullmatch(r"[A-Za-z_]\w*", name):
        return name
    return '"' + name.replace('"', '""') + '"'


def _is_cudf(frame: Any) -> bool:
    return type(frame).__module__.partition(".")[0] == "cudf"


def _polars_frame(name: str, parts: Sequence[Any]) -> pl.DataFrame:
    """Return the partitions of a table as one of Polars, in the host's memory."""
    frames = []
    for part in parts:
        try:
            if _is_cudf(part):
                arrow = part.to_arrow(preserve_index=False)
            else:
                arrow = pa.Table.from_pandas(part, preserve_index=False)
        except (pa.ArrowException, ValueError) as error:
            raise InputError(
                f"table {name}",
                f"columns that SQL cannot read ({' '.join(map(str, error.args))})",
                "columns of different names, each of one type: numbers, text, flags, times",
                "Convert or drop the column, and put the table again",
            ) from error
        frames.append(pl.DataFrame(arrow))
    whole = pl.concat(frames, how="vertical_relaxed", rechunk=False)
    # Engines treat NaN in their own ways, and the GPU's knows no categories.
    return whole.with_columns(cs.float().fill_nan(None), cs.categorical().cast(pl.String))


def _collected(query: pl.LazyFrame, engine: str, on_gpu: bool) -> tuple[pl.DataFrame, str]:
    """Run a query; return its rows and the engine that found them."""
    if on_gpu and engine != "cpu":
        try:
            return query.collect(engine=_gpu_engine()), "gpu"
        except Exception as error:
            # What only the GPU engine cannot do, and a package that is missing, the CPU's makes
            # up for; what is wrong with the query it tells again.
            if engine == "gpu":
                raise pl.exceptions.ComputeError(f"on the GPU, {error}") from error
    return query.collect(engine="in-memory"), "cpu"


def _gpu_engine() -> pl.GPUEngine:
    """Return the engine that takes its memory from the worker's pool and fails aloud."""
    import rmm.mr

    # By itself it would make a pool of its own, of most of the memory that is left.
    memory = rmm.mr.get_current_device_resource()
    return pl.GPUEngine(memory_resource=memory, raise_on_fail=True, executor="in-memory")


def _pandas_frame(arrow: pa.Table) -> pd.DataFrame:
    frame: pd.DataFrame = arrow.to_pandas()
    for name in arrow.column_names:
        column = arrow[name]
        if column.null_count and column.type in _NULLABLE:
            frame[name] = column.to_pandas(types_mapper=_NULLABLE.get)
    return frame


def _cudf_frame(arrow: pa.Table) -> Any:
    import cudf

    # cuDF knows no lists with long offsets.
    kinds = pa.schema([field.with_type(_with_short_lists(field.type)) for field in arrow.schema])
    return cudf.DataFrame.from_arrow(arrow.cast(kinds))


def _with_short_lists(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_list(kind):
        return pa.list_(_with_short_lists(kind.value_type))
    return kind
