"""A user's own functions travel with the graph, so that Dask can compute again without him."""

from __future__ import annotations

import sys
import sysconfig
from functools import cache
from pathlib import Path

import cloudpickle
from dask.delayed import Delayed, delayed

#: The package, whose functions every worker has.
_OURS = Path(__file__).resolve().parents[1]

#: Names of the modules that were looked at.
_seen: set[str] = set()


def _register_own() -> None:
    """Let cloudpickle take what was imported since, and belongs to this program, by value."""
    new = sys.modules.keys() - _seen
    _seen.update(new)
    for name in new:
        module = sys.modules[name]
        file = getattr(module, "__file__", None)
        # The script itself travels by value anyway.
        if file and name != "__main__" and module.__name__ == name and _is_own(file):
            cloudpickle.register_pickle_by_value(module)


@cache
def _is_own(file: str) -> bool:
    path = Path(file).resolve()
    if path.is_relative_to(_OURS) or any(path.is_relative_to(place) for place in _standard()):
        return False
    return not any(_has_packages(place) for place in path.parents)


@cache
def _has_packages(place: Path) -> bool:
    """Tell whether packages are installed in a folder: pip notes there which."""
    return place.name in ("site-packages", "dist-packages") or any(place.glob("*.dist-info"))


@cache
def _standard() -> list[Path]:
    """Return where Python's own library is."""
    return [Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "platstdlib")]


def taken_along() -> list[Delayed]:
    """Let the functions of this program's modules go by value with what is persisted next.

    A function of the script itself goes by value anyway. One of a module beside it would go by
    name, and a worker that computes again when the module is gone, with the container that it
    was in, would not find it.

    Returns
    -------
    list
        What to persist together with a collection: a function without a name, which pickle refuses,
        so that Dask leaves the whole graph to cloudpickle. Nothing where no module needs it.
    """
    _register_own()
    return [delayed(lambda: None)()] if cloudpickle.list_registry_pickle_by_value() else []
