"""The command ``ecg-dask``."""

from __future__ import annotations

import logging
import os
import sys
from itertools import tee
from pathlib import Path
from typing import Any

# Workers tell of a failed task on their own; the command tells of it once, in words. Dask reads
# this when it is imported, here and in the worker processes.
os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "critical")

import click

from . import __version__
from .command_line import in_words
from .errors import InputError
from .sql_command import sql
from .stages.commands import stage, store

#: Longest synthetic recording: a year.
MOST_HOURS = 366 * 24


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="ecg-dask")
def main() -> None:
    """Find heartbeats in long-term ECGs, and the beats that do not belong.

    Not a medical device: nothing it says replaces a physician's reading.
    """
    # When a client is closed early, asyncio would tell of everything that it was waiting for.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)


@main.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--out", required=True, metavar="DIR", help="Folder of the result.")
@click.option("--fs", type=float, metavar="HZ", help="Sampling rate, where a file does not tell.")
@click.option(
    "--lead",
    default="0",
    metavar="NAME|INDEX|all",
    show_default=True,
    help="Lead to use; all: cut every lead, find the beats on the first.",
)
@click.option(
    "--chunk", metavar="SIZE", help='Samples a partition, or bytes of signal such as "64 MiB".'
)
@click.option("--device", type=click.Choice(["auto", "cpu", "gpu"]), default="auto")
@click.option("--scheduler", metavar="ADDRESS", help="A running Dask scheduler to use.")
@click.option("--workers", type=int, metavar="N", help="Worker processes on this machine.")
@click.option("--protocol", metavar="tcp|ucx|tls", help="Transport between workers.")
@click.option("--pool", metavar="SIZE|async", help='Memory pool a GPU, such as "40 GiB".')
@click.option("--workers-per-gpu", type=int, default=1, metavar="N", help="Workers that share one.")
@click.option("--epochs", type=int, metavar="N", help="Epochs of training at most.")
@click.option("--seed", type=int, default=0, metavar="N", show_default=True)
@click.option(
    "--alarms-per-hour",
    type=float,
    metavar="X",
    help="Set the threshold so that the held-out beats raise this many.",
)
@click.option(
    "--until", default="report", metavar="load|segment|train|score|report", help="Last stage."
)
@click.option("--overwrite", is_flag=True, help="Replace a result in DIR.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def run(files: tuple[str, ...], chunk: str | None, quiet: bool, **options: Any) -> None:
    """Find and score the beats of recordings; several FILEs share one model.

    DIR then holds beats.parquet, RECORD.beats (WFDB annotations), model.pt, summary.json and
    report.html.
    """
    from rich.console import Console

    from . import pipeline

    out = options.pop("out")
    size = int(chunk) if chunk is not None and chunk.isdecimal() else chunk
    console = None if quiet else Console(stderr=True)
    with in_words():
        summary = pipeline.run(list(files), out, chunk=size, console=console, **options)
    if quiet:
        return
    for name, facts in summary["records"].items():
        click.echo(f"{name}: {_sentence(facts)}")
        for note in facts["notes"]:
            click.echo(f"  {note}")
    if summary["groups"]:
        counts = ", ".join(f"{group['beats']:,}" for group in summary["groups"])
        click.echo(f"groups of anomalies: {len(summary['groups'])}, of {counts} beats")
    for note in (summary["model"] or {}).get("notes", ()):
        click.echo(note)
    last = "report.html" if options["until"] == "report" else "summary.json"
    click.echo(f"{Path(out) / last}")


def _sentence(facts: dict[str, Any]) -> str:
    parts = [f"{facts['samples']:,} samples, {facts['seconds'] / 3600:.2f} h at {facts['fs']:g} Hz"]
    if "beats" in facts:
        parts.append(f"{facts['missing']:,} missing in {facts['gaps']:,} gaps")
        parts.append(f"{facts['beats']:,} beats ({facts['incomplete']:,} incomplete)")
        parts.append(f"{facts['pruned']:,} pruned")
        seconds = {reason: s for reason, s in facts["spans"]["seconds"].items() if s}
        if seconds:
            told = ", ".join(f"{reason} {s:,.1f} s" for reason, s in seconds.items())
            parts.append(f"{sum(seconds.values()):,.1f} s cannot be analysed ({told})")
    if "anomalies" in facts:
        parts.append(f"{facts['anomalies']:,} anomalies")
    return ", ".join(parts)


@main.command()
@click.argument("directory", metavar="DIR")
@click.option("--reference", required=True, metavar="RECORD", help="WFDB record with annotations.")
@click.option("--extension", default="atr", show_default=True, help="Suffix of the annotations.")
@click.option("--record", metavar="NAME", help="Record in DIR, where it is not RECORD's stem.")
def evaluate(directory: str, reference: str, extension: str, record: str | None) -> None:
    """Compare the beats in DIR with annotated ones, one to one, at 150 and 50 ms."""
    from .evaluation import evaluate_directory

    with in_words():
        table = evaluate_directory(directory, reference, extension=extension, record=record)
    for row in table.to_dict("records"):
        click.echo(
            f"{row['tolerance_s'] * 1000:.0f} ms: {row['hits']:,} hits, {row['false']:,} false, "
            f"{row['missed']:,} missed; sensitivity {row['sensitivity']:.3%}, "
            f"positive predictivity {row['positive_predictivity']:.3%}, F1 {row['f1']:.3%}; "
            f"jitter {row['jitter_median_s'] * 1000:.1f} ms median, "
            f"{row['jitter_p95_s'] * 1000:.1f} ms 95th percentile"
        )


@main.command()
@click.argument("path", metavar="FILE.csv")
@click.option("--hours", type=float, default=20_140_000 / 250 / 3600, help="Duration.")
@click.option("--fs", type=float, default=250.0, metavar="HZ", show_default=True)
@click.option("--leads", type=int, default=1, metavar="N", show_default=True)
@click.option("--seed", type=int, default=0, metavar="N", show_default=True)
@click.option("--gaps", type=int, default=0, metavar="N", show_default=True)
@click.option("--ventricular", type=float, default=0.01, show_default=True, metavar="SHARE")
@click.option("--supraventricular", type=float, default=0.01, show_default=True, metavar="SHARE")
@click.option("--noise", type=float, default=0.02, metavar="MV", show_default=True)
@click.option("--overwrite", is_flag=True, help="Replace FILE.csv.")
def synth(path: str, hours: float, leads: int, noise: float, overwrite: bool, **kind: Any) -> None:
    """Write a synthetic ECG as CSV (a day by default), and its beats as FILE.atr beside it."""
    from .synthetic import synthetic, write_csv

    with in_words():
        if not 0 < hours <= MOST_HOURS:
            raise InputError(
                "--hours",
                f"{hours:g}",
                f"above 0, at most {MOST_HOURS:,}",
                "Choose another duration",
            )
        ecg = synthetic(hours * 3600, n_leads=leads, noise_mv=noise, **kind)
        written = write_csv(ecg, path, overwrite=overwrite)
    beats = ", ".join(f"{count:,} {symbol}" for symbol, count in written.beats.items())
    click.echo(f"{written.path}: {written.rows:,} samples at {kind['fs']:g} Hz; beats: {beats}")


@main.command()
@click.option("--device", type=click.Choice(["auto", "cpu", "gpu"]), default="auto")
@click.option("--protocol", type=click.Choice(["tcp", "ucx", "tls"]), help="Transport to look at.")
@click.option("--pool", metavar="SIZE", help="Memory pool a GPU that a run is to have.")
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Workers it is to have.")
@click.option("--workers-per-gpu", type=click.IntRange(min=1), default=1, metavar="N")
@click.option("--scheduler", metavar="ADDRESS", help="A running Dask scheduler to ask.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def doctor(as_json: bool, **options: Any) -> None:
    """Tell what is here and what is missing: GPUs, packages, UCX, network, storage, cluster.

    The options are those of a run that does not work. Exit status 1: something that they ask for
    is not there. With --protocol ucx on GPUs, that includes the direct way between them (cuda_ipc).
    """
    from .doctor import Case, examine, written
    from .gpu.devices import gpus

    shown, kept = tee(examine(Case(gpus=gpus(), **options)))
    for line in written(shown, as_json=as_json):
        click.echo(line)
    if any(one.finding.fails for one in kept):
        sys.exit(1)


main.add_command(sql)
main.add_command(stage)
main.add_command(store)
