"""A pipeline's steps, one after another, each as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..command_line import SCHEDULER
from ..errors import InputError
from .plan import COMMAND, Plan, Planned, arguments_of, check_names
from .recipe import RECIPE, recipe_of, stamps
from .session import entries_of, recipe_now

if TYPE_CHECKING:
    from distributed import Client
    from rich.console import Console

    from ..store import Store

#: What became of a step.
DONE, UP_TO_DATE, FAILED, NOT_RUN = "done", "up to date", "failed", "not run"


@dataclass
class Outcome:
    """What became of a step, and the seconds that it took."""

    planned: Planned
    state: str = NOT_RUN
    seconds: float = 0.0


class Chain:
    """A pipeline that runs.

    Parameters
    ----------
    plan
        The pipeline.
    client, store
        Where the data are.
    console
        Where to tell what is being done.
    force
        Do every step, and replace what is there whoever made it.

    Attributes
    ----------
    outcomes
        What became of each step, in order.
    """

    def __init__(
        self, plan: Plan, client: Client, store: Store, console: Console, *, force: bool
    ) -> None:
        self._plan = plan
        self._client = client
        self._store = store
        self._console = console
        self._force = force
        self.outcomes = [Outcome(planned) for planned in plan.steps]

    def run(self) -> None:
        """Do the steps that are not up to date.

        Raises
        ------
        InputError
            When the pipeline does not fit what is in the store, before anything runs; and when a
            step fails, which has then said why.
        """
        check_names(self._plan, {entry.name: entry.kind for entry in self._store.list()})
        for planned in self._plan.steps:
            self._may_replace(planned)
        for outcome in self.outcomes:
            begun = time.perf_counter()
            outcome.state = FAILED
            try:
                outcome.state = self._step(outcome.planned)
            finally:
                outcome.seconds = time.perf_counter() - begun

    def _step(self, planned: Planned) -> str:
        recipe = self._recipe(planned)
        told = f"{planned.number}/{len(self.outcomes)} {planned.title}"
        if planned.out is not None:
            told += f" -> {planned.out}"
        if not self._force and planned.out is not None and self._made_by(planned) == recipe:
            self._console.print(f"{told}: {UP_TO_DATE}", markup=False, highlight=False)
            return UP_TO_DATE
        self._console.print(told, markup=False, highlight=False)
        self._process(planned, recipe)
        if planned.out is not None and self._made_by(planned) != recipe:
            raise InputError(
                planned.where,
                f"no new {planned.out} from a step that ended without an error",
                f"a step that makes {planned.out}",
                f'Let it end with Store(client).put("{planned.out}", ..., overwrite=True)'
                if planned.step is None
                else "See whether another process replaced it or its inputs meanwhile",
            )
        return DONE

    def _recipe(self, planned: Planned) -> dict[str, Any]:
        """Return the recipe of what a step would make now."""
        if planned.step is not None:
            entries = entries_of(planned.step, self._store, planned.names, planned.parameters)
            return recipe_now(planned.step, self._client, entries, planned.parameters)
        inputs = {name: self._store.entry(name).id for name in planned.names}
        words = {COMMAND: list(planned.command)}
        return recipe_of(COMMAND, words, inputs, stamps(planned.command))

    def _made_by(self, planned: Planned) -> Mapping[str, Any] | None:
        """Return the recipe of what a step's output is now; None where there is none to use."""
        assert planned.out is not None
        if planned.makes_folder:
            folder = Path(planned.out)
            return _recipe_of_folder(folder) if _has_page(folder) else None
        for entry in self._store.list():
            if entry.name == planned.out and entry.state != "gone":
                recipe: Mapping[str, Any] | None = entry.recipe
                return recipe
        return None

    def _may_replace(self, planned: Planned) -> None:
        """Refuse an output that is no name, or that is there and that no step made."""
        if planned.out is not None and not planned.makes_folder:
            try:
                self._store.check_free(planned.out, overwrite=True)
            except InputError as error:
                raise InputError(f"{planned.where}, out", *error.args[1:]) from error
        if self._force or planned.out is None or self._made_by(planned) is not None:
            return
        if planned.makes_folder:
            folder = Path(planned.out)
            taken = _holds_result(folder) and _recipe_of_folder(folder) is None
        else:
            taken = any(
                entry.name == planned.out and entry.recipe is None for entry in self._store.list()
            )
        if taken:
            raise InputError(
                f"{planned.where}, out",
                f"{planned.out}, which is there and which no pipeline made",
                "a name or a folder that is free, or that a pipeline made",
                "Choose another one, drop it, or replace it (--force)",
            )

    def _process(self, planned: Planned, recipe: Mapping[str, Any]) -> None:
        """Do a step in a process of its own, which says on its own what it has to."""
        if planned.step is None:
            words = list(planned.command)
        else:
            words = [sys.executable, "-m", "ecg_dask", "stage", *arguments_of(planned, True)]
        environment = {
            **os.environ,
            # A module's "python" is the one that runs here.
            "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")]),
            SCHEDULER: self._client.scheduler.address,
            RECIPE: json.dumps(recipe),
        }
        try:
            status = subprocess.run(words, env=environment, check=False).returncode
        except OSError as error:
            raise InputError(
                planned.where,
                f"{words[0]}, which cannot be started ({error.strerror})",
                "a program on this machine",
                "Check the command",
            ) from error
        if status:
            raise InputError(
                planned.where,
                f"exit status {status}, and what stands above",
                "a step that ends without an error",
                "Correct it and run the same pipeline again; what is up to date stays",
            )


def _recipe_of_folder(folder: Path) -> Mapping[str, Any] | None:
    """Return the recipe of a result's folder; None where there is none."""
    from ..writers import SUMMARY

    try:
        recipe = json.loads((folder / SUMMARY).read_text("utf-8"))["recipe"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return recipe if isinstance(recipe, dict) else None


def _holds_result(folder: Path) -> bool:
    from ..writers import SUMMARY

    return (folder / SUMMARY).exists()


def _has_page(folder: Path) -> bool:
    from ..writers import REPORT

    return (folder / REPORT).is_file()
