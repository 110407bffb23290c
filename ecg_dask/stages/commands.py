"""The commands ``ecg-dask stage`` and ``ecg-dask store``; the former are made from the steps."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ..command_line import INTERRUPTED, in_words, on_scheduler, scheduler_options
from .session import opened, perform
from .steps import FOLDER, STEPS, Parameter, Step

if TYPE_CHECKING:
    from distributed import Client
    from rich.table import Table

    from ..store import Store
    from .chain import Outcome

_CLICK_TYPES = {"text": click.STRING, "integer": click.INT, "number": click.FLOAT}


@contextmanager
def _store(scheduler: str | None, scheduler_file: str | None) -> Iterator[tuple[Client, Store]]:
    """Give client and store, and turn what a user can cause into a message and an exit status."""
    with in_words(), opened(scheduler, scheduler_file) as session:
        yield session


@click.group()
def stage() -> None:
    """Do a step as a process of its own; the data stay with the workers, by name.

    Names are kept by the workers of a running scheduler until they are dropped or replaced.
    """


def _command(step: Step) -> click.Command:
    """Make the command of a step."""

    def done(
        scheduler: str | None,
        scheduler_file: str | None,
        out: str,
        overwrite: bool,
        names: tuple[str, ...] = (),
        **parameters: Any,
    ) -> None:
        with _store(scheduler, scheduler_file) as (client, store):
            told = perform(
                step,
                client,
                store,
                names=names,
                parameters=parameters,
                out=out,
                overwrite=overwrite,
            )
        click.echo(f"{out}: {told}")

    params: list[click.Parameter] = []
    if step.argument is not None:
        params.append(click.Argument([step.argument.name], metavar=step.argument.name.upper()))
    if step.inputs and not step.named_in_argument:
        read = f"Name to read: {step.wants}."
        metavar = "|".join(wanted.kind.upper() for wanted in step.inputs)
        option = ["--in", "names"]
        params.append(
            click.Option(option, multiple=True, required=True, metavar=metavar, help=read)
        )
    makes = "Folder of the result." if step.output == FOLDER else f"Name of the {step.output}."
    metavar = "DIR" if step.output == FOLDER else "NAME"
    params.append(click.Option(["--out"], required=True, metavar=metavar, help=makes))
    params += map(_option, step.parameters)
    params.append(click.Option(["--overwrite"], is_flag=True, help="Replace what is there."))
    params += scheduler_options()
    about = step.help
    if step.argument is not None and step.argument.help:
        about += f"\n\n{step.argument.name.upper()}: {step.argument.help}"
    return click.Command(step.name, params=params, callback=done, help=about)


def _option(parameter: Parameter) -> click.Option:
    return click.Option(
        [parameter.option, parameter.name],
        type=_CLICK_TYPES[parameter.kind],
        default=parameter.default,
        show_default=parameter.default is not None,
        metavar=parameter.metavar,
        help=parameter.help,
    )


for _step in STEPS.values():
    stage.add_command(_command(_step))


@stage.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_steps(as_json: bool) -> None:
    """List the steps: what each reads, makes and can be told."""
    facts = [step.facts() for step in STEPS.values()]
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    for step in STEPS.values():
        click.echo(f"{step.name}: {step.help}")
        click.echo(f"  reads {step.wants}; makes a {step.output}".replace("a beats", "beats"))
        for one in step.settings:
            default = "" if one.default is None else f" [{one.default}]"
            name = one.name.upper() if one is step.argument else one.option
            click.echo(f"  {name} ({one.kind}){default}: {one.help}")


@stage.command("run")
@click.argument("pipeline", metavar="PIPELINE.yaml")
@click.option("--force", is_flag=True, help="Do every step, and replace whatever is there.")
@on_scheduler
def run_pipeline(
    pipeline: str, force: bool, scheduler: str | None, scheduler_file: str | None
) -> None:
    """Do the steps of a file, each as a process of its own.

    A step whose output is there, made with the same parameters from the same inputs, is left out;
    so what failed goes on from there. The file may name the scheduler; the option has the say.
    """
    from rich.console import Console

    from .chain import Chain
    from .plan import read_plan

    with in_words():
        plan = read_plan(pipeline)
    console = Console(soft_wrap=True)
    with _store(scheduler or plan.scheduler, scheduler_file) as (client, store):
        chain = Chain(plan, client, store, console, force=force)
        try:
            chain.run()
        except KeyboardInterrupt:
            click.echo("Interrupted; what the steps before made stays.", err=True)
            sys.exit(INTERRUPTED)
        finally:
            if any(outcome.seconds for outcome in chain.outcomes):
                console.print(_outcomes(chain.outcomes))


def _outcomes(outcomes: Sequence[Outcome]) -> Table:
    """Return a table of what each step took."""
    from rich.table import Table

    table = Table("step", "", "makes", "state", box=None)
    table.add_column("s", justify="right")
    for one in outcomes:
        made = one.planned.out or ""
        seconds = f"{one.seconds:.1f}" if one.seconds else ""
        table.add_row(str(one.planned.number), one.planned.title, made, one.state, seconds)
    return table


@click.group()
def store() -> None:
    """See, drop, save and bring back the names that a cluster keeps."""


@store.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with all that is known.")
@on_scheduler
def list_names(as_json: bool, scheduler: str | None, scheduler_file: str | None) -> None:
    """List the names: kind, size, where it is, when and by whom it was made of what."""
    from dask.utils import format_bytes

    with _store(scheduler, scheduler_file) as (_, names):
        entries = names.list()
    if as_json:
        click.echo(json.dumps([asdict(entry) for entry in entries], indent=2))
        return
    for entry in entries:
        made = f" of {', '.join(entry.made_from)}" if entry.made_from else ""
        by = f" by {entry.made_by}" if entry.made_by else ""
        click.echo(
            f"{entry.name}: {entry.kind}, {format_bytes(entry.n_bytes)}, {entry.state} "
            f"({entry.device}), made {entry.created}{by}{made}"
        )


@store.command()
@click.argument("name")
@on_scheduler
def drop(name: str, scheduler: str | None, scheduler_file: str | None) -> None:
    """Forget NAME and free its memory."""
    with _store(scheduler, scheduler_file) as (_, names):
        names.drop(name)
    click.echo(f"{name}: dropped")


@store.command()
@click.argument("folder", metavar="DIR")
@on_scheduler
def snapshot(folder: str, scheduler: str | None, scheduler_file: str | None) -> None:
    """Write all names into DIR, as the workers see it."""
    with _store(scheduler, scheduler_file) as (_, names):
        names.snapshot(folder)
    click.echo(f"{folder}: written")


@store.command()
@click.argument("folder", metavar="DIR")
@click.option("--overwrite", is_flag=True, help="Replace names that are there.")
@on_scheduler
def restore(
    folder: str, overwrite: bool, scheduler: str | None, scheduler_file: str | None
) -> None:
    """Bring back the names that a snapshot in DIR holds."""
    with _store(scheduler, scheduler_file) as (_, names):
        entries = names.restore(folder, overwrite=overwrite)
    for entry in entries:
        click.echo(f"{entry.name}: {entry.kind}")


@store.command()
@click.option("--limit", metavar="SIZE", help='Most memory of all names, such as "40 GiB".')
@click.option("--folder", metavar="DIR", help="Where the workers write what is beyond the limit.")
@click.option("--ttl", "ttl_s", type=float, metavar="SECONDS", help="Time after which names go.")
@on_scheduler
def limits(
    limit: str | None,
    folder: str | None,
    ttl_s: float | None,
    scheduler: str | None,
    scheduler_file: str | None,
) -> None:
    """Set what the store does by itself, for all processes, or tell what is set."""
    from ..store import Store

    with _store(scheduler, scheduler_file) as (client, _):
        settings = Store(client, limit=limit, ttl_s=ttl_s, folder=folder).settings
    for name, value in vars(settings).items():
        click.echo(f"{name}: {'none' if value is None else value}")


@store.command()
@click.argument("name")
@click.option("--hold", "hold_s", type=float, default=60.0, metavar="SECONDS", show_default=True)
@on_scheduler
def share(name: str, hold_s: float, scheduler: str | None, scheduler_file: str | None) -> None:
    """Offer NAME to other processes on the workers' machine, and print its descriptor.

    It is JSON for ecg_dask.share.attach(), and holds for SECONDS without a reader.
    """
    with _store(scheduler, scheduler_file) as (_, names):
        descriptor = names.share(name, hold_s=hold_s)
    click.echo(json.dumps(descriptor))
