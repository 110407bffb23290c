"""The steps in order, from files to the files of a result."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
import pandas as pd
from dask.delayed import Delayed, delayed

from .arrays import on_gpu, on_host
from .beats import Beats
from .cluster import connect
from .errors import InputError
from .progress import Stages
from .readers import read
from .readers.files import samples_per_chunk
from .recording import Recording
from .segment import Detector, find_beats
from .writers import (
    MODEL,
    REPORT,
    SPANS,
    SUMMARY,
    TABLE,
    file_names,
    result_folder,
    span_facts,
    versions,
    write_annotations,
    write_summary,
    write_table,
)

if TYPE_CHECKING:
    from distributed import Client
    from rich.console import Console

    from .anomaly import Model
    from .report import RecordView

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
    _check_chunk(chunk)
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
        result = _Result(client, bars)
        result.load(given, fs, lead, chunk)
        if "segment" in stages:
            result.segment(detector)
        if "train" in stages:
            result.train(epochs, seed, alarms_per_hour)
        if "score" in stages:
            result.score()
        summary = result.summary(options)
        if "report" in stages:
            result.report(folder / REPORT, summary)
        result.write(folder, summary)
    return summary


def _check_chunk(chunk: int | str | None) -> None:
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


@dataclass
class _Step:
    """One recording on its way."""

    recording: Recording
    beats: Beats | None = None
    account: pd.DataFrame | None = None
    spans: pd.DataFrame | None = None
    table: pd.DataFrame | None = None
    lengths: Sequence[int] = ()


class _Result:
    """The recordings of a run and what is known of them after each stage."""

    def __init__(self, client: Client, bars: Stages) -> None:
        self._client = client
        self._bars = bars
        self._steps: list[_Step] = []
        self._model: Model | None = None

    def load(
        self,
        paths: Sequence[str | os.PathLike[str]],
        fs: float | None,
        lead: str | int,
        chunk: int | str | None,
    ) -> None:
        with self._bars.stage("load") as stage:
            for i, path in enumerate(paths):
                stage.draw(i, len(paths))
                recording = read(path, fs=fs, leads=lead, chunk=chunk)
                self._steps.append(_Step(recording))
            names = _told_apart([step.recording.name for step in self._steps])
            for step, name in zip(self._steps, names, strict=True):
                step.recording = replace(step.recording, name=name)
            n_workers = len(self._client.nthreads())
            stage.say(f"Device: {self._device}, {n_workers} worker{'s' * (n_workers != 1)}.")

    def segment(self, detector: Detector | None) -> None:
        """Find the beats. The table stays on the workers; the waves are cut when needed."""
        with self._bars.stage("segment") as stage:
            for step in self._steps:
                step.beats = find_beats(step.recording, detector).persist(waves=False)
            rows = [[part for part, _ in beats.partitions()] for beats in self._beats]
            records = [beats.records for beats in self._beats]
            spans = [beats.spans for beats in self._beats]
            stage.wait(rows, records, spans)
            # The tables come to the client, and no signal.
            tables, accounts, listed = dask.compute(_on_host(rows), records, spans)
            for i, step in enumerate(self._steps):
                step.table = pd.concat(tables[i])
                step.lengths = [len(part) for part in tables[i]]
                step.account, step.spans = accounts[i], listed[i]

    def train(self, epochs: int | None, seed: int, alarms_per_hour: float | None) -> None:
        from .anomaly import LENGTH, TOPIC, train

        n_beats = sum(((t["split"] == "train") & t["complete"]).sum() for t in self._tables)
        n_bytes = 4 * LENGTH * n_beats * len(self._steps[0].recording.leads or ())
        with self._bars.stage("train") as stage, stage.following(TOPIC):
            stage.say(
                f"Training takes {n_beats:,} beats, {n_bytes / 2**20:,.1f} MiB, to one worker."
            )
            self._model = train(
                self._beats, epochs=epochs, seed=seed, alarms_per_hour=alarms_per_hour
            )

    def score(self) -> None:
        assert self._model is not None
        with self._bars.stage("score") as stage:
            scores = [
                self._model.score(beats).to_delayed(optimize_graph=False) for beats in self._beats
            ]
            (persisted,) = dask.persist(scores)
            stage.wait(persisted)
            (parts,) = dask.compute(_on_host(persisted))
            for step, part in zip(self._steps, parts, strict=True):
                step.table = pd.concat([step.table, pd.concat(part)], axis=1)
            self._group()

    def _group(self) -> None:
        """Put the column ``group``, told over the tables of all records, into each of them."""
        from .anomaly import group_anomalies

        group = group_anomalies(pd.concat(self._tables, ignore_index=True))
        start = 0
        for table in self._tables:
            own = group.iloc[start : start + len(table)]
            table.insert(list(table.columns).index("reason") + 1, "group", own.array)
            start += len(table)

    @property
    def _device(self) -> str:
        """What the workers read into: the memory of GPUs, or the host's."""
        return "gpu" if on_gpu(self._steps[0].recording.signal._meta) else "cpu"

    @property
    def _beats(self) -> list[Beats]:
        return [step.beats for step in self._steps if step.beats is not None]

    @property
    def _tables(self) -> list[pd.DataFrame]:
        return [step.table for step in self._steps if step.table is not None]

    @property
    def _groups(self) -> list[dict[str, Any]] | None:
        """What is to be told of the groups of anomalies; None of beats without scores."""
        tables = self._tables
        if not tables or "group" not in tables[0]:
            return None
        from .anomaly import group_facts

        return group_facts(pd.concat(tables, ignore_index=True))

    @property
    def _stems(self) -> dict[str, str]:
        return file_names(step.recording.name for step in self._steps)

    def report(self, path: Path, summary: dict[str, Any]) -> None:
        from .report import choose_bin_samples, envelope, pick_beats, write_report

        with self._bars.stage("report") as stage:
            recordings = [step.recording for step in self._steps]
            bin_samples = choose_bin_samples([recording.n_samples for recording in recordings])
            drawn = [
                envelope(recording.signal, bin_samples=bin_samples) for recording in recordings
            ]
            scored = pd.concat(self._tables, ignore_index=True)
            lengths = [length for step in self._steps for length in step.lengths]
            picks = pick_beats(self._beats, scored, lengths, self._model)
            persisted = dask.persist(*drawn, picks)
            stage.wait(persisted)
            *envelopes, picked = dask.compute(*persisted)
            views = [
                _view(step, low, high, bin_samples)
                for step, (low, high) in zip(self._steps, envelopes, strict=True)
            ]
            write_report(
                path,
                records=views,
                scored=scored,
                model=self._model,
                picked=picked,
                summary=summary,
            )
        summary["stages_s"] = dict(self._bars.seconds)

    def summary(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is known so far, as ``summary.json`` holds it."""
        stems = self._stems
        return {
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": versions(),
            "device": self._device,
            "parameters": dict(options),
            "stages_s": dict(self._bars.seconds),
            "records": {
                step.recording.name: _facts(step, stems[step.recording.name])
                for step in self._steps
            },
            "model": None if self._model is None else _model_facts(self._model),
            "groups": self._groups,
        }

    def write(self, folder: Path, summary: Mapping[str, Any]) -> None:
        """Write the tables, the annotations, the model and the summary."""
        if self._tables:
            write_table(folder / TABLE, pd.concat(self._tables, ignore_index=True))
            spans = [step.spans for step in self._steps if step.spans is not None]
            write_table(folder / SPANS, pd.concat(spans, ignore_index=True))
        stems = self._stems
        for step in self._steps:
            if step.table is not None:
                recording = step.recording
                write_annotations(folder, stems[recording.name], step.table, recording.fs)
        if self._model is not None:
            self._model.save(folder / MODEL)
        write_summary(folder / SUMMARY, summary)


def _on_host(tables: Sequence[Sequence[Delayed]]) -> list[list[Delayed]]:
    """Make tables pandas ones where they are: the client needs no GPU memory for them."""
    return [[delayed(on_host)(part) for part in parts] for parts in tables]


def _view(step: _Step, low: Any, high: Any, bin_samples: int) -> RecordView:
    from .report import RecordView

    assert step.account is not None
    assert step.spans is not None
    recording, account = step.recording, step.account.iloc[0]
    return RecordView(
        name=recording.name,
        fs=recording.fs,
        n_samples=recording.n_samples,
        leads=recording.leads or (),
        low=low,
        high=high,
        bin_samples=bin_samples,
        unit=recording.unit,
        start=recording.start,
        source=recording.source,
        notes=recording.notes,
        missing=int(account["missing"]),
        gaps=int(account["gaps"]),
        pruned=int(account["pruned"]),
        spans=step.spans,
    )


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


def _facts(step: _Step, stem: str) -> dict[str, Any]:
    recording, table = step.recording, step.table
    facts: dict[str, Any] = {
        "source": recording.source,
        "fs": recording.fs,
        "leads": list(recording.leads or ()),
        "unit": recording.unit,
        "start": _moment(recording.start),
        "samples": recording.n_samples,
        "seconds": recording.duration_s,
        "notes": list(recording.notes),
    }
    if step.account is not None and step.spans is not None and table is not None:
        account = step.account.iloc[0]
        for name in ("missing", "gaps", "beats", "pruned"):
            facts[name] = int(account[name])
        facts["spans"] = span_facts(step.spans)
        facts["incomplete"] = int((~table["complete"]).sum())
        facts["annotations"] = f"{stem}.beats" if len(table) else None
        if not len(table):
            facts["notes"].append("no beats were found, so there is no annotation file")
        if "anomaly" in table:
            from .anomaly import reason_counts

            facts["anomalies"] = int(table["anomaly"].sum())
            facts["anomalies_by_reason"] = reason_counts(table)
    return facts


def _moment(start: datetime | None) -> str | None:
    """Write a start as ISO has it; the year 1900 stands for a time of an unknown day."""
    if start is None:
        return None
    return start.isoformat() if start.year > 1900 else start.time().isoformat()


def _model_facts(model: Model) -> dict[str, Any]:
    return {
        "train_beats": model.n_train,
        "validation_beats": model.n_validation,
        "held_out_beats": model.n_held_out,
        "latent": model.latent,
        "epochs": len(model.history),
        "seed": model.seed,
        "threshold": model.threshold,
        "threshold_rule": model.threshold_rule,
        "notes": list(model.notes),
        "history": [dict(epoch) for epoch in model.history],
    }
