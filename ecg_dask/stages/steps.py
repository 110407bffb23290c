"""The steps: what each takes, what it makes, and how it is told to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from . import work
from .job import Job

#: What a step makes that leaves a folder of files and no name in the store.
FOLDER = "folder"

_TYPES: dict[str, type] = {"text": str, "integer": int, "number": float}


@dataclass(frozen=True)
class Input:
    """A kind of names that a step reads.

    Attributes
    ----------
    kind
        ``"recording"``, ``"beats"``, ``"table"`` or ``"model"``.
    many
        Whether there may be several.
    """

    kind: str
    many: bool = False


@dataclass(frozen=True)
class Parameter:
    """An option of a step.

    Attributes
    ----------
    name
        Its name; on the command line it has hyphens.
    kind
        ``"text"``, ``"integer"`` or ``"number"``.
    default
        Its value when it is not given; None: the step chooses, as `help` says.
    help
        What it is, in a sentence.
    metavar
        What stands for its value in a command's help.
    """

    name: str
    kind: str
    default: Any = None
    help: str = ""
    metavar: str | None = None

    @property
    def option(self) -> str:
        """The option of the command line."""
        return "--" + self.name.replace("_", "-")

    def checked(self, value: Any, where: str) -> Any:
        """Return a value that a file gives, as the command line would give it.

        Raises
        ------
        InputError
            When it is of another kind; `where` is what it names.
        """
        if value is None:
            return None
        whole = isinstance(value, int) and not isinstance(value, bool)
        good = {
            # A bare number is how YAML has an index, or a chunk in samples.
            "text": isinstance(value, str) or whole,
            "integer": whole,
            "number": whole or (isinstance(value, float) and math.isfinite(value)),
        }[self.kind]
        if not good:
            raise InputError(
                f"{where}, {self.name}",
                repr(value),
                {"text": "text", "integer": "a whole number", "number": "a number"}[self.kind],
                f"Correct {self.name}, or leave it out",
            )
        return _TYPES[self.kind](value)


@dataclass(frozen=True)
class Step:
    """A step of a pipeline, which a process of its own does.

    Attributes
    ----------
    name
        Its name.
    help
        What it does, in a sentence.
    work
        Does it, and returns the line that the command prints.
    output
        Kind of what it makes, as in `Input`, or `FOLDER`.
    inputs
        What it reads. Names are told apart by their kinds, so their order is free.
    argument
        What the command takes without an option's name; None for nothing.
    parameters
        Its options.
    named_in_argument
        Whether the argument names what it reads, so that no other option does.
    """

    name: str
    help: str
    work: Callable[[Job], str]
    output: str
    inputs: tuple[Input, ...] = ()
    argument: Parameter | None = None
    parameters: tuple[Parameter, ...] = ()
    named_in_argument: bool = False

    @property
    def settings(self) -> tuple[Parameter, ...]:
        """All that can be set: the argument and the options."""
        return self.parameters if self.argument is None else (self.argument, *self.parameters)

    @property
    def wants(self) -> str:
        """What it reads, in words."""
        if self.named_in_argument:
            return "the tables and beats that it names"
        words = []
        for wanted in self.inputs:
            word = wanted.kind if wanted.kind == "beats" else f"a {wanted.kind}"
            words.append(f"{word} (or several)" if wanted.many else word)
        if not words:
            return "no names"
        return words[0] if len(words) == 1 else ", ".join(words[:-1]) + f" and {words[-1]}"

    def reads(self, kind: str) -> bool:
        """Whether it reads names of a kind."""
        return any(wanted.kind == kind for wanted in self.inputs)

    def by_kind(self, kinds: Mapping[str, str | None], what: str) -> dict[str, list[str]]:
        """Tell the names that are given to it apart by their kinds.

        Parameters
        ----------
        kinds
            The kind of each name, None where it is not known yet.
        what
            What an error is to name.

        Returns
        -------
        dict
            The names of each kind that the step reads.

        Raises
        ------
        InputError
            When there is a name too many, or one is missing and no kind is unknown.
        """
        taken: dict[str, list[str]] = {wanted.kind: [] for wanted in self.inputs}
        for name, kind in kinds.items():
            if kind is None:
                continue
            if kind not in taken:
                raise self._refused(what, f"{name}, which is of kind {kind}")
            taken[kind].append(name)
        for wanted in self.inputs:
            own = taken[wanted.kind]
            if len(own) > 1 and not wanted.many:
                raise self._refused(what, f"{' and '.join(own)}, all of kind {wanted.kind}")
            if not own and None not in kinds.values() and not self.named_in_argument:
                raise self._refused(what, f"no name of kind {wanted.kind}")
        return taken

    def _refused(self, what: str, found: str) -> InputError:
        return InputError(
            what,
            found,
            f"{self.wants} for the step {self.name}",
            "See ecg-dask store list for the names and their kinds",
        )

    def facts(self) -> dict[str, Any]:
        """Return what ``ecg-dask stage list --json`` tells of it."""
        return {
            "name": self.name,
            "help": self.help,
            "inputs": [{"kind": wanted.kind, "many": wanted.many} for wanted in self.inputs],
            "inputs_named_in": self.argument.name
            if self.named_in_argument and self.argument
            else None,
            "output": self.output,
            "parameters": [
                {
                    "name": one.name,
                    "kind": one.kind,
                    "required": one is self.argument,
                    "default": one.default,
                    "help": one.help,
                }
                for one in self.settings
            ],
        }


_STEPS = (
    Step(
        "load",
        "Read a recording into the workers' memory.",
        work.load,
        "recording",
        argument=Parameter("file", "text", help="The recording, as the workers see it."),
        parameters=(
            Parameter("fs", "number", None, "Sampling rate, where the file does not tell.", "HZ"),
            Parameter(
                "lead",
                "text",
                "0",
                "Lead to use; all: cut every lead, find the beats on the first.",
                "NAME|INDEX|all",
            ),
            Parameter(
                "chunk",
                "text",
                None,
                'Samples a partition, or bytes of signal such as "64 MiB".',
                "SIZE",
            ),
            Parameter(
                "record", "text", None, "Name of the record in tables; the file's stem.", "NAME"
            ),
        ),
    ),
    Step(
        "segment",
        "Find the beats of a recording, and cut them out.",
        work.segment,
        "beats",
        inputs=(Input("recording"),),
    ),
    Step(
        "train",
        "Train a model on beats.",
        work.train,
        "model",
        inputs=(Input("beats", many=True),),
        parameters=(
            Parameter("epochs", "integer", None, "Epochs of training at most.", "N"),
            Parameter("seed", "integer", 0, "Seed of everything random.", "N"),
            Parameter(
                "alarms_per_hour",
                "number",
                None,
                "Set the threshold so that the held-out beats raise this many.",
                "X",
            ),
            Parameter("latent", "integer", None, "Latent dimensions; 8.", "N"),
        ),
    ),
    Step(
        "score",
        "Score beats with a model: a table with all columns of beats.parquet.",
        work.score,
        "table",
        inputs=(Input("beats", many=True), Input("model")),
    ),
    Step(
        "report",
        "Write what ecg-dask run writes, of the beats in a scored table.",
        work.report,
        FOLDER,
        inputs=(Input("recording", many=True), Input("table"), Input("model")),
    ),
    Step(
        "sql",
        "Ask the tables by name, and keep the answer as a table.",
        work.sql,
        "table",
        inputs=(Input("beats", many=True), Input("table", many=True)),
        argument=Parameter("query", "text", help="SQL; a name of beats means their table."),
        named_in_argument=True,
    ),
)

#: The steps by name, in the order in which they are usually done.
STEPS = {step.name: step for step in _STEPS}
