"""Answering SQL over the tables of the store, on the worker that holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dask.dataframe as dd
from dask.delayed import Delayed, delayed

from ..errors import InputError
from .entry import Entry
from .kinds import BEATS, TABLE, parts_of


def schemas_of(entries: Sequence[Entry]) -> dict[str, list[str]]:
    """Return the columns of all that a query may name: tables, and the tables of beats."""
    return {
        entry.name: [column for column in entry.schema if (entry.kind, column) != (BEATS, "waves")]
        for entry in entries
        if entry.kind in (BEATS, TABLE)
    }


def names_of(query: str, schemas: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names that a query reads.

    Raises
    ------
    InputError
        When it is no query, or Polars is not installed.
    """
    try:
        from ..sql import ERRORS, names_in, refused
    except ModuleNotFoundError as error:
        raise InputError(
            "query",
            f"SQL without the package {error.name}",
            "SQL where Polars is installed, here and on the workers",
            "Install polars as constraints.txt has it",
        ) from error
    try:
        return names_in(query, schemas)
    except ERRORS as error:
        raise refused(error, schemas) from error


def task_of(query: str, values: Mapping[str, Any], engine: str) -> Delayed:
    """Return the task that answers a query over things of the store."""
    tables = {name: parts_of(value)["table"] for name, value in values.items()}
    return delayed(_answered, pure=False)(query, tables, engine)


def table_of(answer: Delayed, meta: Any) -> dd.DataFrame:
    """Return the table of an answer, which stays on its worker."""
    return dd.from_delayed([delayed(_rows)(answer)], meta=meta, verify_meta=False)


def told_of(answer: Delayed) -> Delayed:
    """Return the engine that found an answer and its table without rows, delayed."""
    return delayed(_told)(answer)


def _answered(query: str, tables: Mapping[str, Sequence[Any]], engine: str) -> Any:
    from ..sql import answer

    return answer(query, tables, engine=engine)


def _rows(answer: Any) -> Any:
    return answer.frame


def _told(answer: Any) -> tuple[str, Any]:
    return answer.engine, answer.frame.iloc[:0]
