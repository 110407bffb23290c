"""Descriptors: what an owner tells and a reader is told, as JSON, and how it is checked."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import InputError

#: The field by which a descriptor is known, and its version.
FORMAT, VERSION = "ecg_dask.share", 1

#: What a partition may hold, and the form of each.
FORMS = {"signal": "array", "table": "table", "waves": "array"}

#: Which of these go together.
_PARTITIONS = ({"signal"}, {"table"}, {"table", "waves"})

#: Sampling rate in Hz above which a number is taken for a mistake.
_FASTEST_HZ = 1e9

Piece = dict[str, Any]


class Description(NamedTuple):
    """What a descriptor says.

    Attributes
    ----------
    name, kind
        Name of the data in its store, and what it is, such as ``"beats"``.
    fs
        Sampling rate in Hz; None when it has none.
    info
        What else is told of it.
    pieces
        What each partition holds, by the names of `FORMS`.
    """

    name: str
    kind: str
    fs: float | None
    info: dict[str, Any]
    pieces: tuple[dict[str, Piece], ...]


def describe(
    name: str,
    kind: str,
    pieces: Sequence[Mapping[str, Piece]],
    *,
    fs: float | None = None,
    info: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the descriptor of data whose partitions were offered.

    Parameters
    ----------
    name, kind
        Name of the data, and what it is, such as ``"recording"``, ``"beats"`` or ``"table"``.
    pieces
        What `offer` returned, a mapping a partition: of ``"signal"``, of ``"table"``, or of
        ``"table"`` and ``"waves"``.
    fs
        Sampling rate in Hz.
    info
        What else a reader wants to know; values that JSON has.

    Raises
    ------
    InputError
        When an argument is not as described.
    """
    told = {
        FORMAT: VERSION,
        "name": name,
        "kind": kind,
        "fs": fs,
        "info": dict(info or {}),
        "pieces": [dict(parts) for parts in pieces],
    }
    parse(told)
    return told


def parse(descriptor: str | Mapping[str, Any]) -> Description:
    """Check a descriptor and return what it says.

    Raises
    ------
    InputError
        When it is none, naming the field.
    """
    told = _as_json(descriptor)
    if told.get(FORMAT) != VERSION:
        raise _refused(FORMAT, told.get(FORMAT), f"{VERSION}")
    for field in ("name", "kind"):
        if not isinstance(told.get(field), str) or not told[field]:
            raise _refused(field, told.get(field), "a text")
    fs = told.get("fs")
    is_number = isinstance(fs, int | float) and not isinstance(fs, bool)
    if fs is not None and not (is_number and 0 < fs <= _FASTEST_HZ):
        raise _refused("fs", fs, "a positive number of Hz, or null")
    info, pieces = told.get("info", {}), told.get("pieces")
    if not isinstance(info, dict):
        raise _refused("info", info, "an object")
    if not isinstance(pieces, list):
        raise _refused("pieces", pieces, "a list of partitions")
    for i, parts in enumerate(pieces):
        if not isinstance(parts, dict) or set(parts) not in _PARTITIONS:
            raise _refused(f"pieces[{i}]", parts, "signal, table, or table and waves")
        if set(parts) != set(pieces[0]):
            raise _refused(f"pieces[{i}]", sorted(parts), f"{sorted(pieces[0])} as in the first")
        for part, piece in parts.items():
            if not isinstance(piece, dict) or piece.get("form") != FORMS[part]:
                raise _refused(f"pieces[{i}].{part}", piece, f"a piece of the form {FORMS[part]}")
    rate = None if fs is None else float(fs)
    return Description(told["name"], told["kind"], rate, info, tuple(pieces))


def agreed(where: str, piece: Piece, told: Piece) -> None:
    """Check a piece of a descriptor against what its owner wrote down.

    Raises
    ------
    InputError
        When they differ, naming the field.
    """
    for field in [*told, *(field for field in piece if field not in told)]:
        if field not in piece or field not in told or piece[field] != told[field]:
            allowed = reprlib.repr(told[field]) if field in told else "no such field"
            raise _refused(f"{where}.{field}", piece.get(field), f"{allowed}, as the owner wrote")


def _as_json(descriptor: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return a descriptor as what JSON makes of it: plain dicts, lists, texts and numbers."""
    if not isinstance(descriptor, str | Mapping):
        raise _refused("", descriptor, "JSON text or a dict")
    try:
        text = descriptor if isinstance(descriptor, str) else json.dumps(dict(descriptor))
        told = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        found = f"{reprlib.repr(descriptor)} ({reprlib.repr(str(error))})"
        raise InputError("descriptor", found, "JSON", _REMEDY) from error
    if not isinstance(told, dict):
        raise _refused("", told, "a JSON object")
    return told


_REMEDY = "Hand the descriptor on as Store.share or ecg_dask.share.describe gave it"


def _refused(field: str, found: object, allowed: str) -> InputError:
    where = f"descriptor, {field}" if field else "descriptor"
    return InputError(where, "nothing" if found is None else reprlib.repr(found), allowed, _REMEDY)
