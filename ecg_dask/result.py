"""Recordings on their way to a result, and the files that a result is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
import pandas as pd
from dask.delayed import Delayed, delayed

from .arrays import on_gpu, on_host
from .beats import Beats
from .progress import Stages
from .recording import Recording
from .segment import Detector, find_beats
from .writers import (
    MODEL,
    SPANS,
    SUMMARY,
    TABLE,
    file_names,
    span_facts,
    versions,
    write_annotations,
    write_summary,
    write_table,
)

if TYPE_CHECKING:
    from .anomaly import Model
    from .report import RecordView


@dataclass
class Record:
    """One recording on its way, and what is known of it so far.

    Attributes
    ----------
    recording
        The recording.
    detector
        What finds its beats; None for the default one.
    beats
        Its beats.
    account, spans
        ``beats.records`` and ``beats.spans``.
    table
        A row a beat, with all columns so far.
    lengths
        Rows of each partition of `beats`.
    """

    recording: Recording
    detector: Detector | None = None
    beats: Beats | None = None
    account: pd.DataFrame | None = None
    spans: pd.DataFrame | None = None
    table: pd.DataFrame | None = None
    lengths: Sequence[int] = ()


class Result:
    """Recordings that share a model, and what is known of them.

    Attributes
    ----------
    records
        The recordings, in the order of the result.
    model
        What scored their beats; None where nothing did.
    """

    def __init__(self, bars: Stages) -> None:
        self._bars = bars
        self.records: list[Record] = []
        self.model: Model | None = None

    def segment(self) -> None:
        """Find the beats. The table stays on the workers; the waves are cut when needed."""
        with self._bars.stage("segment") as stage:
            for record in self.records:
                found = find_beats(record.recording, record.detector)
                record.beats = found.persist(waves=False)
            rows = [[part for part, _ in beats.partitions()] for beats in self.beats]
            records = [beats.records for beats in self.beats]
            spans = [beats.spans for beats in self.beats]
            stage.wait(rows, records, spans)
            # The tables come to the client, and no signal.
            tables, accounts, listed = dask.compute(parts_on_host(rows), records, spans)
            for i, record in enumerate(self.records):
                record.table = pd.concat(tables[i])
                record.lengths = [len(part) for part in tables[i]]
                record.account, record.spans = accounts[i], listed[i]

    @property
    def device(self) -> str:
        """What the workers read into: the memory of GPUs, or the host's."""
        return "gpu" if on_gpu(self.records[0].recording.signal._meta) else "cpu"

    @property
    def beats(self) -> list[Beats]:
        """The beats of the recordings that were segmented."""
        return [record.beats for record in self.records if record.beats is not None]

    @property
    def tables(self) -> list[pd.DataFrame]:
        """The tables of the recordings that were segmented."""
        return [record.table for record in self.records if record.table is not None]

    @property
    def _groups(self) -> list[dict[str, Any]] | None:
        """What is to be told of the groups of anomalies; None of beats without scores."""
        tables = self.tables
        if not tables or "group" not in tables[0]:
            return None
        from .anomaly import group_facts

        return group_facts(pd.concat(tables, ignore_index=True))

    @property
    def _stems(self) -> dict[str, str]:
        return file_names(record.recording.name for record in self.records)

    def report(self, path: Path, summary: dict[str, Any]) -> None:
        """Write the page, and enter into `summary` what it took."""
        from .report import choose_bin_samples, envelope, pick_beats, write_report

        with self._bars.stage("report") as stage:
            recordings = [record.recording for record in self.records]
            bin_samples = choose_bin_samples([recording.n_samples for recording in recordings])
            drawn = [
                envelope(recording.signal, bin_samples=bin_samples) for recording in recordings
            ]
            scored = pd.concat(self.tables, ignore_index=True)
            lengths = [length for record in self.records for length in record.lengths]
            picks = pick_beats(self.beats, scored, lengths, self.model)
            persisted = dask.persist(*drawn, picks)
            stage.wait(persisted)
            *envelopes, picked = dask.compute(*persisted)
            views = [
                _view(record, low, high, bin_samples)
                for record, (low, high) in zip(self.records, envelopes, strict=True)
            ]
            write_report(
                path,
                records=views,
                scored=scored,
                model=self.model,
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
            "device": self.device,
            "parameters": dict(options),
            "stages_s": dict(self._bars.seconds),
            "records": {
                record.recording.name: _facts(record, stems[record.recording.name])
                for record in self.records
            },
            "model": None if self.model is None else _model_facts(self.model),
            "groups": self._groups,
        }

    def write(self, folder: Path, summary: Mapping[str, Any]) -> None:
        """Write the tables, the annotations, the model and the summary."""
        if self.tables:
            write_table(folder / TABLE, pd.concat(self.tables, ignore_index=True))
            spans = [record.spans for record in self.records if record.spans is not None]
            write_table(folder / SPANS, pd.concat(spans, ignore_index=True))
        stems = self._stems
        for record in self.records:
            if record.table is not None:
                recording = record.recording
                write_annotations(folder, stems[recording.name], record.table, recording.fs)
        if self.model is not None:
            self.model.save(folder / MODEL)
        write_summary(folder / SUMMARY, summary)


def parts_on_host(tables: Sequence[Sequence[Delayed]]) -> list[list[Delayed]]:
    """Make tables pandas ones where they are: the client needs no GPU memory for them."""
    return [[delayed(on_host)(part) for part in parts] for parts in tables]


def insert_group(table: Any, group: Any) -> None:
    """Put a column ``group`` behind the reasons of a scored table, pandas or cuDF."""
    table.insert(list(table.columns).index("reason") + 1, "group", group)


def _view(record: Record, low: Any, high: Any, bin_samples: int) -> RecordView:
    from .report import RecordView

    assert record.account is not None
    assert record.spans is not None
    recording, account = record.recording, record.account.iloc[0]
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
        spans=record.spans,
    )


def _facts(record: Record, stem: str) -> dict[str, Any]:
    recording, table = record.recording, record.table
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
    if record.account is not None and record.spans is not None and table is not None:
        account = record.account.iloc[0]
        facts |= {name: int(account[name]) for name in ("missing", "gaps")}
        facts |= {"beats": len(table), "pruned": int(account["pruned"])}
        facts["spans"] = span_facts(record.spans)
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
