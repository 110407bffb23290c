"""A pipeline in a YAML file: read, and checked as a whole before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError
from .steps import FOLDER, STEPS, Parameter, Step

#: The key of a step that is a user's own module.
COMMAND = "command"


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A step of a pipeline.

    Attributes
    ----------
    where
        The file and the step's number from 1, for messages.
    number
        The number.
    step
        The step; None for a user's own module.
    command
        The words of a user's own module.
    names
        The names that it reads.
    parameters
        All its parameters.
    out
        The name, or the folder, that it makes; None for a module that makes none.
    """

    where: str
    number: int
    step: Step | None
    command: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    parameters: Mapping[str, Any]
    out: str | None

    @property
    def title(self) -> str:
        """What it is called."""
        return COMMAND if self.step is None else self.step.name

    @property
    def makes_folder(self) -> bool:
        """Whether `out` is a folder."""
        return self.step is not None and self.step.output == FOLDER


@dataclass(frozen=True)
class Plan:
    """A pipeline.

    Attributes
    ----------
    path
        Its file.
    scheduler
        The address that it names, if it does.
    steps
        Its steps, in order.
    """

    path: str
    scheduler: str | None
    steps: tuple[Planned, ...]


def read_plan(path: str) -> Plan:
    """Read a pipeline, and check all that can be checked without the store.

    Raises
    ------
    InputError
        When the file cannot be read or is no pipeline; it names the file and the step.
    """
    import yaml

    def refused(found: str) -> InputError:
        return InputError(
            path,
            found,
            "a pipeline in YAML: steps, a list, and scheduler if need be",
            "Write it as the documentation shows",
        )

    try:
        told = yaml.safe_load(Path(path).read_text("utf-8"))
    except OSError as error:
        raise refused(f"no file to read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise refused(f"no text ({error})") from error
    except yaml.YAMLError as error:
        raise refused(f"no YAML ({' '.join(str(error).split())})") from error
    if not isinstance(told, dict) or not isinstance(told.get("steps"), list) or not told["steps"]:
        raise refused("no list of steps")
    unknown = [str(key) for key in told if key not in ("scheduler", "steps")]
    if unknown:
        raise refused(f"{', '.join(unknown)} beside the steps")
    scheduler = told.get("scheduler")
    if scheduler is not None and not isinstance(scheduler, str):
        raise refused(f"the scheduler {scheduler!r}, which is no address")
    steps = tuple(_planned(path, i, one) for i, one in enumerate(told["steps"], start=1))
    for i, step in enumerate(steps):
        for other in steps[:i]:
            if step.out is not None and (step.out, step.makes_folder) == (
                other.out,
                other.makes_folder,
            ):
                raise InputError(
                    f"{step.where}, out",
                    f"{step.out}, which step {other.number} makes",
                    "a name that no other step makes",
                    "Choose another name",
                )
    return Plan(path, scheduler, steps)


def _planned(path: str, number: int, told: Any) -> Planned:
    where = f"{path}, step {number}"
    known = [*STEPS, COMMAND]
    named = [key for key in told if key in known] if isinstance(told, dict) else []
    if len(named) != 1:
        raise InputError(
            where,
            f"{told!r}, which names {' and '.join(named) if named else 'no step'}",
            f"a mapping with one of {', '.join(known)}",
            "Name the step, such as {segment: , in: day, out: beats}",
        )
    where = f"{where} ({named[0]})"
    value = told[named[0]]
    step = STEPS.get(named[0])
    keys = ["in", "out"]
    if step is not None:
        keys = [] if not step.inputs or step.named_in_argument else ["in"]
        keys += ["out", *(parameter.name for parameter in step.parameters)]
    unknown = [str(key) for key in told if key not in keys and key != named[0]]
    if unknown:
        raise InputError(
            where, ", ".join(unknown), f"{', '.join(keys)} in this step", "Correct or remove it"
        )
    common: dict[str, Any] = {
        "where": where,
        "number": number,
        "names": _names(told.get("in"), where) if "in" in keys else (),
        "out": None if told.get("out") is None else _name(told["out"], f"{where}, out"),
    }
    if step is None:
        return Planned(step=None, parameters={}, command=_words(value, where), **common)
    if common["out"] is None:
        raise InputError(where, "no out", "out, what the step makes", "Add out: NAME")
    return Planned(step=step, parameters=_parameters(step, value, told, where), **common)


def _parameters(step: Step, value: Any, told: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return all parameters of a step, as the command line would give them."""
    if step.argument is None and value is not None:
        raise InputError(
            where,
            f"{value!r} behind {step.name}",
            f"nothing there, and what the step reads ({step.wants}) in in",
            f"Write {step.name}: , in: NAME",
        )
    given = {parameter.name: told.get(parameter.name) for parameter in step.parameters}
    if step.argument is not None:
        if value is None or value == "":
            raise InputError(
                where,
                f"no {step.argument.name}",
                f"{step.name}: {step.argument.name.upper()}",
                f"Name the {step.argument.name}",
            )
        given[step.argument.name] = value
    checked = {one.name: one.checked(given[one.name], where) for one in step.settings}
    return {
        one.name: one.default if checked[one.name] is None else checked[one.name]
        for one in step.settings
    }


def _names(value: Any, where: str) -> tuple[str, ...]:
    given = [] if value is None else value if isinstance(value, list) else [value]
    names = tuple(_name(one, f"{where}, in") for one in given)
    if len(set(names)) < len(names):
        raise InputError(
            f"{where}, in", f"{', '.join(names)}", "each name once", "Leave out what is there twice"
        )
    return names


def _name(value: Any, where: str) -> str:
    name: str = Parameter("name", "text").checked(value, where)
    if not name:
        raise InputError(where, "an empty name", "a name", "Name it")
    return name


def _words(value: Any, where: str) -> tuple[str, ...]:
    words = value if isinstance(value, list) else []
    if not words or not all(isinstance(word, str | int | float) for word in words):
        raise InputError(
            where,
            repr(value),
            "the words of a command as a list, such as [python, keep_good.py]",
            "Write it as a list",
        )
    return tuple(map(str, words))


def check_names(plan: Plan, kinds: Mapping[str, str]) -> None:
    """Refuse steps that read a name before it is there, or names of a wrong kind.

    Parameters
    ----------
    plan
        The pipeline.
    kinds
        The kinds of the names that are in the store before it runs.

    Raises
    ------
    InputError
        It names the file and the step.
    """
    later = {planned.out: planned.number for planned in plan.steps if not planned.makes_folder}
    outputs = {
        planned.out: None if planned.step is None else planned.step.output
        for planned in plan.steps
        if planned.out is not None and not planned.makes_folder
    }
    made: dict[str, str | None] = {}
    for planned in plan.steps:
        step = planned.step
        names: Sequence[str] = planned.names
        if step is not None and step.named_in_argument:
            names = _named_in_argument(planned, step, {**kinds, **outputs})
        known: dict[str, str | None] = {}
        for name in names:
            if name in made:
                known[name] = made[name]
            elif name in later:
                raise _not_yet(planned, name, f"which only step {later[name]} makes")
            elif name in kinds:
                known[name] = kinds[name]
            else:
                raise _not_yet(planned, name, "which is not in the store, and no step makes it")
        if step is not None:
            step.by_kind(known, f"{planned.where}, in")
        if planned.out in outputs and not planned.makes_folder:
            made[planned.out] = outputs[planned.out]


def _named_in_argument(planned: Planned, step: Step, kinds: Mapping[str, str | None]) -> list[str]:
    """Return which names a step's argument names, of those whose kind it reads."""
    from ..store.querying import names_of

    assert step.argument is not None
    names = [name for name, kind in kinds.items() if kind is None or step.reads(kind)]
    try:
        return names_of(planned.parameters[step.argument.name], dict.fromkeys(names, ()))
    except InputError as error:
        raise InputError(
            f"{planned.where}, {step.argument.name}",
            str(error.args[1]),
            f"one SELECT over {', '.join(names) or 'nothing, since there is no table'}",
            "Correct it",
        ) from error


def _not_yet(planned: Planned, name: str, why: str) -> InputError:
    return InputError(
        f"{planned.where}, in",
        f"{name}, {why}",
        "names that an earlier step makes, or that are in the store",
        "Correct the name, or the order of the steps",
    )


def arguments_of(planned: Planned, overwrite: bool) -> Sequence[str]:
    """Return the arguments of ``ecg-dask stage`` for a step that is no command."""
    assert planned.step is not None
    assert planned.out is not None
    words = [planned.step.name, "--out", planned.out]
    for name in planned.names:
        words += ["--in", name]
    for parameter in planned.step.parameters:
        value = planned.parameters[parameter.name]
        if value is not None:
            words += [parameter.option, str(value)]
    if overwrite:
        words.append("--overwrite")
    if planned.step.argument is not None:
        # Behind two hyphens, since it may begin with one.
        words += ["--", planned.parameters[planned.step.argument.name]]
    return words
