"""What the commands have in common: errors in words, and where the scheduler is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from .errors import InputError

#: Exit status of a command that was interrupted, as shells have it.
INTERRUPTED = 130

#: The environment variable that tells where the scheduler is.
SCHEDULER = "ECG_DASK_SCHEDULER"


@contextmanager
def in_words() -> Iterator[None]:
    """Turn what a user can cause into a message and an exit status."""
    try:
        yield
    except InputError as error:
        raise click.ClickException(str(error)) from error
    except Exception as error:
        from distributed import KilledWorker

        if not isinstance(error, KilledWorker | MemoryError):
            raise
        told = InputError(
            "chunk",
            f"partitions on which workers died, probably for want of memory ({error})",
            "partitions that fit into a worker's memory several times",
            "Choose a smaller --chunk or fewer --workers",
        )
        raise click.ClickException(str(told)) from error
    except KeyboardInterrupt:
        click.echo("Interrupted; nothing was written.", err=True)
        sys.exit(INTERRUPTED)


def scheduler_options() -> list[click.Option]:
    """Return the options that say where the scheduler is."""
    return [
        click.Option(
            ["--scheduler"],
            metavar="ADDRESS",
            envvar=SCHEDULER,
            show_envvar=True,
            help="The running Dask scheduler.",
        ),
        click.Option(
            ["--scheduler-file"], metavar="FILE", help="File in which it wrote its address."
        ),
    ]


def on_scheduler(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say where the scheduler is."""
    function.__click_params__ = [  # type: ignore[attr-defined]
        *getattr(function, "__click_params__", []),
        *reversed(scheduler_options()),
    ]
    return function
