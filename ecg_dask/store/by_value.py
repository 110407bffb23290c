"""A user's own functions travel with the graph, so that Dask can compute again without him."""

from __future__ import annotations

import site
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import cloudpickle
from dask.delayed import Delayed, delayed

#: The package, whose functions every worker has.
_OURS = Path(__file__).resolve().parents[1]


def own_modules() -> Iterator[ModuleType]:
    """Give the imported modules that belong to this program and not to the installation."""
    paths = sysconfig.get_paths()
    places = [paths[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib")]
    places += [*site.getsitepackages(), site.getusersitepackages()]
    installed = {Path(place).resolve() for place in places}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not file or getattr(module, "__name__", "__main__") == "__main__":
            continue
        path = Path(file).resolve()
        if _OURS not in path.parents and installed.isdisjoint(path.parents):
            yield module


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
    found = list(own_modules())
    for module in found:
        cloudpickle.register_pickle_by_value(module)
    return [delayed(lambda: None)()] if found else []
