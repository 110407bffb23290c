"""All checks in their order, and how what they find is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import NamedTuple

from .findings import Case, Finding, wrong
from .gpus import check_gpus, check_use
from .machine import check_machine
from .network import check_network
from .packages import check_packages
from .scheduler import check_scheduler
from .settings import check_settings
from .storage import check_storage
from .transfer import check_transfer
from .ucx import check_ucx


class Examined(NamedTuple):
    """A finding, and the group that it stands in."""

    group: str
    finding: Finding


def examine(case: Case) -> Iterator[Examined]:
    """Look at everything, and yield what is found when it is found.

    A check that fails is a finding as well.
    """
    yield from _guarded("Machine", partial(check_machine, case))
    yield from _guarded("GPU", partial(check_gpus, case))
    used = list(_guarded("GPU", partial(check_use, case)))
    yield from used
    yield from _guarded("Packages", partial(check_packages, case))
    yield from _guarded("Network", partial(check_network, case))
    yield from _guarded("UCX", partial(check_ucx, case))
    works = bool(used) and all(one.finding.state == "ok" for one in used)
    yield from _guarded("UCX", partial(check_transfer, case, works=works))
    yield from _guarded("Storage", partial(check_storage, case))
    yield from _guarded("Cluster", partial(check_settings, case))
    yield from _guarded("Cluster", partial(check_scheduler, case))


def _guarded(group: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Examined]:
    try:
        for finding in check():
            yield Examined(group, finding)
    except Exception as error:
        # Libraries that are broken, drivers of other versions: the other groups still help.
        found = f"{type(error).__name__}: {error}"
        do = "Look at what this names; the other findings hold"
        yield Examined(group, wrong(f"{group.lower()} check", found, do))


def written(examined: Iterable[Examined], *, as_json: bool) -> Iterator[str]:
    """Yield the lines of a report, as text or as JSON."""
    if as_json:
        rows = [{"group": group, **finding._asdict()} for group, finding in examined]
        yield json.dumps(rows, indent=2)
        return
    for group, several in groupby(examined, key=lambda one: one.group):
        yield group
        for _, finding in several:
            end = f". {finding.do}." if finding.do else ""
            yield f"  {finding.state:<8} {finding.name}: {finding.found}{end}"
