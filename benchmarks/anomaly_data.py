"""The beats that the anomaly benchmark scores: ours, with the annotations' labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import dask
import numpy as np
import numpy.typing as npt
import pandas as pd
from accuracy_rows import pair

import ecg_dask
from ecg_dask.anomaly.context import contexts, inputs_of, told
from ecg_dask.arrays import on_host
from ecg_dask.evaluation import flutter_spans
from ecg_dask.readers.wfdb_records import BEAT_SYMBOLS, read_annotations

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.floating[Any]]
Bools = npt.NDArray[np.bool_]
Labels = npt.NDArray[np.str_]

#: Largest distance of a beat to its annotation, in seconds.
TOLERANCE_S = 0.15

#: Positives below which a record's own figures would be chance.
FEWEST_POSITIVES = 5

VENTRICULAR = ("V", "E", "F")
SUPRAVENTRICULAR = ("A", "a", "J", "S", "e", "j")

#: The records that one model is trained on and those that it is tested on; the paced 102, 104, 107
#: and 217 are in neither. De Chazal P, O'Dwyer M, Reilly RB. Automatic Classification of Heartbeats
#: Using ECG Morphology and Heartbeat Interval Features. IEEE Trans Biomed Eng 51(7), 2004.
#: https://doi.org/10.1109/TBME.2004.827359
DS1 = (
    *("101", "106", "108", "109", "112", "114", "115", "116", "118", "119", "122"),
    *("124", "201", "203", "205", "207", "208", "209", "215", "220", "223", "230"),
)
DS2 = (
    *("100", "103", "105", "111", "113", "117", "121", "123", "200", "202", "210"),
    *("212", "213", "214", "219", "221", "222", "228", "231", "232", "233", "234"),
)


class Protocol(NamedTuple):
    """What is tested.

    Attributes
    ----------
    name
        Its letter in the tables.
    positive
        Annotation codes of the beats that are to be found.
    left_out
        Codes of the beats that do not count; all others are negatives.
    across
        Whether the model was trained on other records. If not, it was on the first three quarters
        of the record's beats, and only the last quarter is tested.
    """

    name: str
    positive: tuple[str, ...]
    left_out: tuple[str, ...]
    across: bool


WITHIN = (
    Protocol("a", VENTRICULAR, SUPRAVENTRICULAR, False),
    Protocol("b", SUPRAVENTRICULAR, VENTRICULAR, False),
)
ACROSS = (Protocol("c", VENTRICULAR, SUPRAVENTRICULAR, True),)


class Record(NamedTuple):
    """The beats that our detector finds in a record, and what the annotations say of them.

    Attributes
    ----------
    name
        Of the record.
    beats
        The beats, persisted.
    table
        Their table, on the host.
    points
        float32 of shape (n_beats, LENGTH): the model's inputs, on the host.
    label
        Annotation code of each beat, ``""`` where it has none.
    missed, missed_label
        Samples and codes of the annotated beats that were not detected.
    """

    name: str
    beats: Any
    table: pd.DataFrame
    points: Floats
    label: Labels
    missed: Integers
    missed_label: Labels

    @property
    def complete(self) -> Bools:
        """Which beats have a score, of shape (n_beats,)."""
        return self.table["complete"].to_numpy(dtype=bool)

    @property
    def train(self) -> Bools:
        """Which beats are of the training part, of shape (n_beats,)."""
        return (self.table["split"] == "train").to_numpy(dtype=bool)


class Selection(NamedTuple):
    """Which beats of a record are tested.

    Attributes
    ----------
    part
        bool of shape (n_beats,): the beats of the part that is tested, whatever their labels.
    counted, positive
        bool of shape (n_beats,): those that count, and the positives among them.
    lost
        Annotated positives of that part that were not detected or are not complete, so that no
        method can find them.
    """

    part: Bools
    counted: Bools
    positive: Bools
    lost: int

    @property
    def enough(self) -> bool:
        """Whether figures of this record by itself mean something."""
        n = int(self.positive.sum())
        return n >= FEWEST_POSITIVES and n < self.counted.sum()


def read_record(path: Path, device: str) -> Record:
    """Find the beats of a record's first lead, and label them."""
    recording = ecg_dask.read(str(path), leads=0)
    if device == "gpu":
        import cupy

        meta = cupy.empty((0, 0), np.float32)
        signal = recording.signal.map_blocks(cupy.asarray, dtype=np.float32, meta=meta)
        recording = replace(recording, signal=signal)
    beats = ecg_dask.find_beats(recording).persist()
    parts = dask.compute(*beats.partitions())
    table = pd.concat([on_host(rows) for rows, _ in parts], ignore_index=True)
    (context,) = contexts([told(table)])
    waves = np.concatenate([on_host(block) for _, block in parts])
    annotations = read_annotations(path)
    label, missed, missed_label = labels(
        table["sample"].to_numpy(dtype=np.int64),
        annotations.sample,
        annotations.symbol,
        beats.fs,
    )
    return Record(
        name=path.name,
        beats=beats,
        table=table,
        points=inputs_of(waves, context, slice(None), beats.fs, beats.window)[:, 0],
        label=label,
        missed=missed,
        missed_label=missed_label,
    )


def labels(
    found: Integers, sample: Integers, symbol: Sequence[str], fs: float
) -> tuple[Labels, Integers, Labels]:
    """Give detected beats the codes of annotated ones, one to one within 150 ms.

    Parameters
    ----------
    found
        Samples of the detected beats, ascending.
    sample, symbol
        Samples, ascending, and codes of all annotations.
    fs
        Sampling rate in Hz.

    Returns
    -------
    label
        Code of each detected beat, ``""`` of one that belongs to no annotated beat or to one in
        ventricular flutter.
    missed, missed_label
        Samples and codes of the annotated beats outside flutter that were not detected.
    """
    is_beat = np.isin(np.asarray(symbol), sorted(BEAT_SYMBOLS))
    true, code = np.asarray(sample)[is_beat], np.asarray(symbol, "<U1")[is_beat]
    for start, stop in flutter_spans(sample, symbol):
        code[(true >= start) & (true < stop)] = ""
    pairs = pair(found, true, TOLERANCE_S * fs)
    label = np.zeros(len(found), "<U1")
    label[pairs[:, 0]] = code[pairs[:, 1]]
    missed = code != ""
    missed[pairs[:, 1]] = False
    return label, true[missed], code[missed]


def selection(record: Record, protocol: Protocol) -> Selection:
    """Return which beats of a record a protocol tests."""
    part = np.ones(len(record.label), bool) if protocol.across else ~record.train
    is_positive = part & np.isin(record.label, protocol.positive)
    counted = part & record.complete & (record.label != "")
    counted &= ~np.isin(record.label, protocol.left_out)
    # What was not detected is of no part: it follows the last beat that was trained on, or not.
    sample = record.table["sample"].to_numpy(dtype=np.int64)
    start = sample[~part].max(initial=-1)
    lost = np.isin(record.missed_label, protocol.positive) & (record.missed > start)
    return Selection(
        part=part,
        counted=counted,
        positive=is_positive & counted,
        lost=int(lost.sum() + (is_positive & ~record.complete).sum()),
    )
