"""What the steps do to the names that they read; what it needs is imported when it is done."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from .job import Job

if TYPE_CHECKING:
    from ..store import Entry, Store

#: The parameter of an entry that tells what found the beats of each record.
DETECTORS = "detectors"


def load(job: Job) -> str:
    """Read a recording."""
    from ..pipeline import check_chunk
    from ..readers import read

    given = job.parameters
    chunk: str | None = given["chunk"]
    size = int(chunk) if chunk is not None and chunk.isdecimal() else chunk
    check_chunk(size)
    recording = read(given["file"], fs=given["fs"], leads=given["lead"], chunk=size)
    if given["record"] is not None:
        recording = replace(recording, name=given["record"])
    job.put(recording, given)
    duration = f"{recording.duration_s / 3600:.2f} h at {recording.fs:g} Hz"
    return _lines(f"{recording.n_samples:,} samples, {duration}", recording.notes)


def segment(job: Job) -> str:
    """Find beats."""
    from ..segment import Detector, find_beats

    recording, detector = job.value("recording"), Detector()
    job.put(find_beats(recording, detector), {DETECTORS: {recording.name: asdict(detector)}})
    account = job.store.get(job.out).records.compute()
    return f"{account['beats'].sum():,} beats, {account['pruned'].sum():,} pruned"


def train(job: Job) -> str:
    """Train a model."""
    from ..anomaly import check_options
    from ..anomaly import train as trained

    given = dict(job.parameters)
    check_options(**given)
    model = trained(job.values("beats"), **given)
    job.put(model, given)
    done = f"trained on {model.n_train:,} beats in {len(model.history)} epochs"
    return _lines(done, model.notes)


def score(job: Job) -> str:
    """Score beats."""
    import dask

    from .scoring import counts, scored

    job.put(
        scored(job.values("beats"), job.value("model")),
        {DETECTORS: detectors_of(job.store, job.entries["beats"])},
    )
    parts = job.store.get(job.out).to_delayed(optimize_graph=False)
    told = dask.compute([counts(part) for part in parts])[0]
    n_beats, n_anomalies = (sum(column) for column in zip(*told, strict=True))
    return f"{n_beats:,} beats, {n_anomalies:,} anomalies"


def report(job: Job) -> str:
    """Write the files of a run."""
    from ..segment import Detector
    from .reporting import write

    told = detectors_of(job.store, job.entries["table"])
    return str(write(job, {name: Detector(**fields) for name, fields in told.items()}))


def sql(job: Job) -> str:
    """Ask the tables."""
    answer = job.store.sql(
        job.parameters["query"], out=job.out, overwrite=job.overwrite, recipe=job.recipe
    )
    return f"{len(answer):,} rows, {len(answer.columns)} columns"


def detectors_of(store: Store, entries: tuple[Entry, ...]) -> dict[str, dict[str, Any]]:
    """Return, by record, the fields of the detector that found the beats that entries come from.

    They are told by the entries or by those that they were made from, as long as these are there.
    """
    known = {entry.name: entry for entry in store.list()}
    found: dict[str, dict[str, Any]] = {}
    open_, seen = list(entries), set()
    while open_:
        entry = open_.pop(0)
        if entry.id in seen:
            continue
        seen.add(entry.id)
        # What is nearer to the entries has the say.
        found = {**entry.parameters.get(DETECTORS, {}), **found}
        open_ += [
            known[name]
            for name, made in entry.made_from.items()
            if name in known and known[name].id == made
        ]
    return found


def _lines(first: str, notes: tuple[str, ...]) -> str:
    return "\n  ".join([first, *notes])
