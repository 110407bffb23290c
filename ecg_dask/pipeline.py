"""The steps in order, from files to the files of a result."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
import pandas as pd

from .cluster import connect
from .errors import InputError
from .progress import Stages
from .readers import read
from .readers.files import samples_per_chunk
from .result import Record, Result, insert_group, parts_on_host
from .segment import Detector
from .writers import REPORT, result_folder

if TYPE_CHECKING:
    from distributed import Client
    from rich.console import Console

#: The stages of a run, in order.
STAGES = ("load", "segment", "train", "score", "report")

#: Fewest samples of a partition: less would make more tasks than Dask can handle.
SMALLEST_CHUNK = 1_000


def run(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    fs: float | None = None,
    lead: str | int = 0,
    chunk: int | str | None = None,
    detector: Detector | None = None,
    epochs: int | None = None,
    seed: int = 0,
    alarms_per_hour: float | None = None,
    until: str = "report",
    overwrite: bool = False,
    device: str = "auto",
    scheduler: str | None = None,
    workers: int | None = None,
    protocol: str | None = None,
    pool: str | None = None,
    workers_per_gpu: int = 1,
    console: Console | None = None,
) -> dict[str, Any]:
    """Find and score the beats of recordings, and write what ``ecg-dask run`` writes.

    It works on the client that is active, or connects one for its own duration.

    Parameters
    ----------
    paths
        One file or several; one model is trained over all.
    out
        Folder of the result, made where it is not there.
    fs
        Sampling rate in Hz of files that do not tell it.
    lead
        The lead to use, by name or index from 0; ``"all"`` cuts every lead and detects on the
        first.
    chunk
        Samples a partition, or bytes of float32 signal such as ``"64 MiB"``.
    detector
        The detector.
    epochs, seed, alarms_per_hour
        As for `train`.
    until
        Last stage: ``"load"``, ``"segment"``, ``"train"``, ``"score"`` or ``"report"``.
    overwrite
        Replace a result that `out` holds already.
    device, scheduler, workers, protocol, pool, workers_per_gpu
        As for `connect`; `scheduler` is its address.
    console
        Where to draw progress; None draws none.

    Returns
    -------
    dict
        What ``summary.json`` holds.

    Raises
    ------
    InputError
        When a file or an option cannot be used, or `out` holds a result already.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not given:
        raise InputError("paths", "no file", "one file or more", "Name at least one recording")
    if until not in STAGES:
        raise InputError("until", repr(until), ", ".join(STAGES), "Choose one of these stages")
    stages = STAGES[: STAGES.index(until) + 1]
    if not os.fspath(out):
        raise InputError("out", "an empty name", "the name of a folder", "Name a folder")
    check_chunk(chunk)
    if "train" in stages:
        from .anomaly import check_options

        check_options(epochs=epochs, seed=seed, alarms_per_hour=alarms_per_hour)
    options = {
        "files": [str(path) for path in given],
        "fs": fs,
        "lead": lead,
        "chunk": chunk,
        "epochs": epochs,
        "seed": seed,
        "alarms_per_hour": alarms_per_hour,
        "until": until,
        "detector": asdict(detector or Detector()),
    }
    cluster = {
        "device": device,
        "workers": workers,
        "protocol": protocol,
        "pool": pool,
        "workers_per_gpu": workers_per_gpu,
        "warm_fs": fs,
    }
    with (
        result_folder(Path(out), overwrite) as folder,
        _client(scheduler, cluster) as client,
        Stages(client, console) as bars,
    ):
        if console is not None:
            console.print(f"Dashboard: {client.dashboard_link}")
        result = _Run(client, bars)
        result.load(given, fs, lead, chunk, detector)
        if "segment" in stages:
            result.segment()
        if "train" in stages:
            result.train(epochs, seed, alarms_per_hour)
        if "score" in stages:
            result.score()
        summary = result.summary(options)
        if "report" in stages:
            result.report(folder / REPORT, summary)
        result.write(folder, summary)
    return summary


def check_chunk(chunk: int | str | None) -> None:
    """Refuse a size of partitions that Dask cannot handle.

    Raises
    ------
    InputError
        When it is no size, or too small a one.
    """
    if samples_per_chunk(chunk, 1) < SMALLEST_CHUNK:
        raise InputError(
            "chunk",
            repr(chunk),
            f'{SMALLEST_CHUNK:,} samples or more, or memory such as "64 MiB", 4 kB or more',
            "Choose a larger one",
        )


@contextmanager
def _client(scheduler: str | None, options: Mapping[str, Any]) -> Iterator[Client]:
    """Give the active client, or one that lives as long as the inside."""
    from distributed import default_client

    try:
        active = default_client()
    except ValueError:
        active = None
    if active is None:
        with connect(scheduler, **options) as client:
            yield client
        return
    unasked = {"device": "auto", "workers_per_gpu": 1, "warm_fs": options["warm_fs"]}
    asked = [name for name, value in options.items() if value != unasked.get(name)]
    if scheduler is not None or asked:
        raise InputError(
            "scheduler" if scheduler is not None else asked[0],
            "an option of a cluster while a client is active",
            "these options without an active client",
            "Leave them out, or close the client first",
        )
    yield active


class _Run(Result):
    """The recordings of a run and what is known of them after each stage."""

    def __init__(self, client: Client, bars: Stages) -> None:
        super().__init__(bars)
        self._client = client

    def load(
        self,
        paths: Sequence[str | os.PathLike[str]],
        fs: float | None,
        lead: str | int,
        chunk: int | str | None,
        detector: Detector | None,
    ) -> None:
        with self._bars.stage("load") as stage:
            for i, path in enumerate(paths):
                stage.draw(i, len(paths))
                recording = read(path, fs=fs, leads=lead, chunk=chunk)
                self.records.append(Record(recording, detector))
            names = _told_apart([record.recording.name for record in self.records])
            for record, name in zip(self.records, names, strict=True):
                record.recording = replace(record.recording, name=name)
            n_workers = len(self._client.nthreads())
            stage.say(f"Device: {self.device}, {n_workers} worker{'s' * (n_workers != 1)}.")

    def train(self, epochs: int | None, seed: int, alarms_per_hour: float | None) -> None:
        from .anomaly import LENGTH, TOPIC, train

        n_beats = sum(((t["split"] == "train") & t["complete"]).sum() for t in self.tables)
        n_bytes = 4 * LENGTH * n_beats * len(self.records[0].recording.leads or ())
        with self._bars.stage("train") as stage, stage.following(TOPIC):
            stage.say(
                f"Training takes {n_beats:,} beats, {n_bytes / 2**20:,.1f} MiB, to one worker."
            )
            self.model = train(
                self.beats, epochs=epochs, seed=seed, alarms_per_hour=alarms_per_hour
            )

    def score(self) -> None:
        assert self.model is not None
        with self._bars.stage("score") as stage:
            scores = [
                self.model.score(beats).to_delayed(optimize_graph=False) for beats in self.beats
            ]
            (persisted,) = dask.persist(scores)
            stage.wait(persisted)
            (parts,) = dask.compute(parts_on_host(persisted))
            for record, part in zip(self.records, parts, strict=True):
                record.table = pd.concat([record.table, pd.concat(part)], axis=1)
            self._group()

    def _group(self) -> None:
        """Put the column ``group``, told over the tables of all records, into each of them."""
        from .anomaly import group_anomalies

        group = group_anomalies(pd.concat(self.tables, ignore_index=True))
        start = 0
        for table in self.tables:
            own = group.iloc[start : start + len(table)]
            insert_group(table, own.array)
            start += len(table)


def _told_apart(names: Sequence[str]) -> list[str]:
    """Add ``-2``, ``-3``, ... to names that stand there already."""
    told: list[str] = []
    for name in names:
        number, unique = 1, name
        while unique in told:
            number += 1
            unique = f"{name}-{number}"
        told.append(unique)
    return told
