"""The report step: the files of a run, made of what is in the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
from dask.delayed import delayed

from ..anomaly import Model
from ..anomaly.inputs import check_alike
from ..anomaly.scoring import PARTS, latent_columns
from ..arrays import on_host
from ..beats import BEAT_COLUMNS
from ..errors import InputError
from ..progress import Stages
from ..result import Record, Result, parts_on_host
from ..segment import Detector
from ..writers import REPORT, result_folder
from .job import Job


def write(job: Job, detectors: Mapping[str, Detector]) -> Path:
    """Write report.html, summary.json and the tables of the beats that were scored.

    The beats are found anew in the recordings, which the workers hold, and those that the scored
    table lacks are left out.

    Parameters
    ----------
    job
        Recordings, a scored table, and the model that scored it.
    detectors
        What found the beats of each record; the default detector found the others'.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    InputError
        When the table is none of the model's, or has rows that are no beats of the recordings.
    """
    recordings, model = job.values("recording"), job.value("model")
    parts = job.value("table").to_delayed(optimize_graph=False)
    with (
        result_folder(Path(job.out), job.overwrite) as folder,
        Stages(job.client, None) as bars,
    ):
        result = Result(bars)
        result.model = model
        result.records = [Record(one, detectors.get(one.name)) for one in recordings]
        scored = _scored_table(job, parts, model)
        _check_records(job, scored, [one.name for one in recordings])
        result.segment()
        for record, beats in zip(result.records, result.beats, strict=True):
            check_alike(f"beats of {record.recording.name}", beats, model.window, model.n_leads)
            _take_scored(record, scored, parts)
        summary = result.summary({"inputs": _inputs(job)})
        result.report(folder / REPORT, summary)
        result.write(folder, {**summary, "recipe": job.recipe})
    return Path(job.out) / REPORT


def _inputs(job: Job) -> dict[str, dict[str, Any]]:
    """Tell what each name is and how it was made."""
    return {
        entry.name: {"kind": entry.kind, "made_by": entry.made_by, **entry.parameters}
        for own in job.entries.values()
        for entry in own
    }


def _scored_table(job: Job, parts: Sequence[Any], model: Model) -> pd.DataFrame:
    """Bring the scored table to the client; no signal comes."""
    (entry,) = job.entries["table"]
    scores = ("score", "anomaly", *(f"score_{part}" for part in PARTS), "reason", "group")
    wanted = [*BEAT_COLUMNS, *scores, *latent_columns(model.latent)]
    missing = [name for name in wanted if name not in entry.schema]
    if missing:
        raise InputError(
            entry.name,
            f"a table without {', '.join(missing)}",
            "a table that the step score made with this model, or rows of it with all columns",
            "Name such a table",
        )
    (own,) = dask.compute(parts_on_host([parts]))
    table: pd.DataFrame = pd.concat(own[0], ignore_index=True)
    # Where other libraries held it, what is null may have become NaN.
    table["group"] = table["group"].astype("Int16")
    return table


def _check_records(job: Job, scored: pd.DataFrame, names: Sequence[str]) -> None:
    """Refuse rows of recordings that are not there, and recordings that cannot be told apart."""
    if len(set(names)) < len(names):
        raise InputError(
            "in",
            f"recordings with the names {', '.join(names)}",
            "recordings whose names differ",
            "Load them under names that differ (--record)",
        )
    strange = sorted(set(scored["record"]) - set(names))
    if strange:
        raise InputError(
            "in",
            f"scored beats of {', '.join(strange)}, and recordings of {', '.join(names)}",
            "the recording of each scored beat",
            f"Name it as well (--in); {job.out} is not written",
        )


def _take_scored(record: Record, scored: pd.DataFrame, parts: Sequence[Any]) -> None:
    """Give a record its scored rows in place of those that were found, and leave out the others."""
    assert record.beats is not None
    assert record.table is not None
    name, found = record.recording.name, record.table["sample"]
    own = scored[scored["record"] == name].sort_values("sample", kind="stable")
    kept = found.isin(own["sample"]).to_numpy()
    if not np.array_equal(found[kept], own["sample"]):
        raise InputError(
            f"beats of {name}",
            f"{len(own):,} scored rows, of which {(~own['sample'].isin(found)).sum():,} are no "
            f"beats of the recording and {own['sample'].duplicated().sum():,} are there again",
            "rows that were scored from beats of this recording, each once",
            "Name the recording that they were found in",
        )
    if not kept.all():
        samples = [delayed(_samples)(part, name) for part in parts]
        record.beats = record.beats.where(delayed(_keeper)(samples))
        ends = np.cumsum(record.lengths)[:-1]
        record.lengths = [int(part.sum()) for part in np.split(kept, ends)]
        note = f"{(~kept).sum():,} of {len(kept):,} beats that were found are not in the table"
        record.recording = replace(record.recording, notes=(*record.recording.notes, note))
    record.table = own


def _samples(part: Any, record: str) -> Any:
    """Return the samples of a record's beats in a partition, on the host."""
    rows = on_host(part[["record", "sample"]])
    return rows["sample"][rows["record"] == record].to_numpy()


def _keeper(samples: Sequence[Any]) -> Callable[[Any], Any]:
    """Return what tells which rows of a table have one of these samples."""
    return partial(_is_among, samples=np.concatenate(samples))


def _is_among(table: Any, samples: Any) -> Any:
    return table["sample"].isin(samples)
