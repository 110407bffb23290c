"""Beats of a recording in chunks. The only place of the segmentation that knows of chunks.

A block works on its core and on the samples next to it, small slices of its neighbours, so that
whole neighbours never travel. It owns the beats whose sample lies in its core. What depends on
beats any distance away (intervals, row numbers) is joined afterwards from a few numbers a block.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import dask
import numpy as np
import pandas as pd
from dask.base import tokenize
from dask.delayed import delayed

from .. import kernels
from ..arrays import data_frame, namespace, on_gpu, on_host, text_column
from ..beats import Beats, TableParts, empty_table, one_layer, span_table, stack_waves, unaliased
from ..gpu.pool import told_when_full
from ..recording import Recording
from . import spans
from .cut import are_complete, cut
from .detector import Detections, Detector, detect, integrated_ricker
from .runs import REASONS, Runs, join_runs, reasons_at

#: Share of a record's beats, from its start, that are for training.
TRAIN_SHARE = 0.75


class Stretch(NamedTuple):
    """What a block tells the others, all of its core: a few numbers and its runs."""

    n_beats: int
    first_beat: int
    last_beat: int
    missing: int
    gaps: int
    starts_missing: bool
    ends_missing: bool
    missing_before_first: bool
    missing_after_last: bool
    pruned: int
    runs: Runs


class Found(NamedTuple):
    """What a block finds.

    Attributes
    ----------
    columns
        The beat table's columns as far as the block knows them, and ``next_sample``.
    stretch
        What the others need.
    """

    columns: dict[str, Any]
    stretch: Stretch


class Place(NamedTuple):
    """Where a block's beats stand in their record, and the spans of the record near them."""

    row: int
    n_rows: int
    previous: int | None
    following: int | None
    spans: Runs


def find_beats(recording: Recording, detector: Detector | None = None) -> Beats:
    """Find the beats of a recording on its first lead, and cut them out of every lead.

    Nothing is computed here. Chunks that are shorter than the halo are merged first;
    the beats do not depend on how the recording is cut into chunks.

    Parameters
    ----------
    recording
        The recording. Infinite samples count as missing.
    detector
        The detector; the default one when not given.

    Returns
    -------
    Beats
        A partition a chunk.

    Raises
    ------
    InputError
        When the sampling rate is too low.
    """
    detector = Detector() if detector is None else detector
    fs, leads = recording.fs, recording.leads or ()
    widths = detector.widths(fs)
    halo = block_halo(detector, fs)
    signal = recording.signal
    signal = signal.rechunk({0: merge_short(signal.chunks[0], halo)})
    token = tokenize(signal.name, detector, fs, recording.name)

    # Unoptimized, the blocks keep the keys that other steps know them by, and are loaded once.
    blocks = [unaliased(block) for block in signal.to_delayed(optimize_graph=False).flat]
    sizes = signal.chunks[0]
    found, waves = [], []
    start = 0
    for i, (block, size) in enumerate(zip(blocks, sizes, strict=True)):
        n_left = min(halo, start)
        left = right = None
        if n_left:
            left = delayed(_edge)(blocks[i - 1], -n_left, None, dask_key_name=("left-" + token, i))
        if i + 1 < len(blocks):
            right = delayed(_edge)(blocks[i + 1], None, halo, dask_key_name=("right-" + token, i))
        seen = (left, block, right)
        options = {"first": start - n_left, "detector": detector, "fs": fs}
        here = delayed(find_block)(*seen, **options, dask_key_name=("find-" + token, i))
        cut_out = delayed(cut_block)(*seen, here, **options, dask_key_name=("cut-" + token, i))
        found.append(here)
        waves.append(cut_out)
        start += size

    record, listed, table = _described(found, sizes, recording.name, fs, token)
    if len(blocks) > 1:
        record, listed, *table = one_layer([record, listed, *table, *waves], "beats-" + token)
        table, waves = table[: len(blocks)], table[len(blocks) :]
    xp = namespace(signal._meta)
    shape = (len(leads), widths.before + widths.after)
    return Beats(
        table=TableParts(table, _table_meta(on_gpu(signal._meta))),
        waves=stack_waves(waves, shape, xp.empty((0, *shape), dtype=xp.float32)),
        fs=fs,
        window=(detector.before_s, detector.after_s),
        leads=leads,
        unit=recording.unit,
        records=record,
        names=(recording.name,),
        spans=listed,
    )


def _described(
    found: Sequence[Any], sizes: Sequence[int], record: str, fs: float, token: str
) -> tuple[Any, Any, list[Any]]:
    """Return, delayed, the record's row and spans, and the partitions of its table."""
    of_record = {"dask_key_name": "record-" + token}
    of_spans = {"dask_key_name": "spans-" + token}
    of_block = [{"dask_key_name": ("beat-table-" + token, i)} for i in range(len(found))]
    if len(found) == 1:
        # It need not wait for what blocks tell each other, and table and waves come first.
        whole = found[0], sizes, record, fs
        with dask.annotate(priority=-1):
            row = delayed(_whole_record)(*whole, **of_record)
            listed = delayed(_whole_spans)(*whole, **of_spans)
        return row, listed, [delayed(_whole_table)(*whole, **of_block[0])]
    stretches = [
        delayed(_stretch_of)(here, dask_key_name=("stretch-" + token, i))
        for i, here in enumerate(found)
    ]
    placed = delayed(place_stretches)(stretches, sizes, fs, dask_key_name="place-" + token)
    (placed,) = one_layer([placed], "placed-" + token)
    return (
        delayed(_record_row)(stretches, sizes, record, fs, **of_record),
        delayed(_span_rows)(placed, record, fs, **of_spans),
        [
            delayed(table_block)(here, placed, i, record, fs, **of_block[i])
            for i, here in enumerate(found)
        ],
    )


@functools.cache
def _table_meta(gpu: bool) -> Any:
    """Return a beat table without rows, cuDF's or pandas'. Nobody writes to it."""
    table = empty_table()
    return importlib.import_module("cudf").from_pandas(table) if gpu else table


def block_halo(detector: Detector, fs: float) -> int:
    """Return how many samples before and behind its core a block needs at `fs` Hz."""
    return max(detector.halo(fs), spans.halo(fs, _crest(detector, fs)))


def _crest(detector: Detector, fs: float) -> int:
    """Return how many samples on either side a sample's energy is made of."""
    widths = detector.widths(fs)
    return widths.wavelet + widths.energy + 1


def _crests(x: Any, found: Detections, first: int, detector: Detector, fs: float) -> Any:
    """Return the crests that spans are judged by: the detector's own, unless its cells differ."""
    widths, sub = detector.widths(fs), spans.widths(fs).sub
    if widths.sub == sub:
        return found.crests
    taps = integrated_ricker(detector.wavelet_s, fs, widths.wavelet)
    return kernels.crests(x, taps, widths.energy, first, sub)[0]


def merge_short(chunks: Sequence[int], shortest: int) -> tuple[int, ...]:
    """Merge neighbour chunks until each has `shortest` samples or more, or only one is left."""
    merged: list[int] = []
    size = 0
    for chunk in chunks:
        size += chunk
        if size >= shortest:
            merged.append(size)
            size = 0
    if size or not merged:
        if merged:
            merged[-1] += size
        else:
            merged.append(size)
    return tuple(merged)


@told_when_full
def _edge(block: Any, start: int | None, stop: int | None) -> Any:
    """Return some samples of a block by themselves: a view would keep all of it in memory."""
    return block[start:stop].copy()


@told_when_full
def find_block(
    left: Any, core: Any, right: Any, *, first: int, detector: Detector, fs: float
) -> Found:
    """Find the beats of one block.

    Parameters
    ----------
    left, core, right
        Samples of the block and of the halo on either side, shape (n, n_leads); None at an end of
        the recording.
    first
        Sample number of the first sample of `left`, or of `core` without it.
    detector
        The detector.
    fs
        Sampling rate in Hz.

    Returns
    -------
    Found
    """
    block = _block(left, core, right)
    xp = namespace(block)
    x = xp.ascontiguousarray(block[:, 0])
    start = first + (0 if left is None else left.shape[0])
    stop = start + core.shape[0]
    found = detect(x, first, (start, stop), detector, fs)
    widths = detector.widths(fs)
    runs = spans.find_runs(x, _crests(x, found, first, detector, fs), first, (start, stop), fs)

    missing = xp.isnan(x[start - first : stop - first])
    # Missing samples of the core up to each beat: unequal at two beats with a gap in between.
    lost = (xp.cumsum(missing) if missing.any() else missing)[found.sample - start]
    rr = xp.diff(found.sample) / fs
    rr = xp.where(xp.diff(lost) == 0, rr, np.nan)
    unknown = xp.full(min(found.sample.size, 1), np.nan)
    columns = {
        "sample": found.sample,
        "next_sample": found.next_sample,
        "rr_prev_s": xp.concatenate([unknown, rr]),
        "rr_next_s": xp.concatenate([rr, unknown]),
        "amplitude": found.amplitude,
        "quality": found.quality,
        "complete": are_complete(block, found.sample - first, widths.before, widths.after),
    }
    return Found(columns, _stretch(found.sample, missing, lost, found.pruned, runs))


@told_when_full
def cut_block(
    left: Any,
    core: Any,
    right: Any,
    found: Found,
    *,
    first: int,
    detector: Detector,
    fs: float,
) -> Any:
    """Cut the beats of one block out.

    Parameters
    ----------
    left, core, right, first, detector, fs
        As for `find_block`.
    found
        What it gave.

    Returns
    -------
    float32 of shape (n_beats, n_leads, n_window)
    """
    sample, widths = found.columns["sample"], detector.widths(fs)
    keep = found.columns["next_sample"] - sample if detector.embed == "interval" else None
    return cut(_block(left, core, right), sample - first, widths.before, widths.after, keep)


def _block(left: Any, core: Any, right: Any) -> Any:
    """Join the samples that a block sees: float32, NaN where they are no numbers."""
    xp = namespace(core)
    parts = [part for part in (left, core, right) if part is not None]
    block = xp.concatenate(parts) if len(parts) > 1 else core
    block = xp.asarray(block, dtype=xp.float32)
    infinite = xp.isinf(block)
    return xp.where(infinite, xp.float32(np.nan), block) if infinite.any() else block


def _stretch(sample: Any, missing: Any, lost: Any, pruned: int, runs: Runs) -> Stretch:
    n_missing = int(missing.sum())
    any_beat = sample.size > 0
    return Stretch(
        n_beats=int(sample.size),
        first_beat=int(sample[0]) if any_beat else -1,
        last_beat=int(sample[-1]) if any_beat else -1,
        missing=n_missing,
        gaps=int(missing[:1].sum() + (missing[1:] & ~missing[:-1]).sum()),
        starts_missing=bool(missing[:1].any()),
        ends_missing=bool(missing[-1:].any()),
        missing_before_first=(int(lost[0]) if any_beat else n_missing) > 0,
        missing_after_last=(n_missing - int(lost[-1]) if any_beat else n_missing) > 0,
        pruned=pruned,
        runs=runs,
    )


def place_stretches(
    stretches: Sequence[Stretch], sizes: Sequence[int], fs: float
) -> tuple[Runs, list[Place]]:
    """Join the spans of a record, and tell each block where its beats stand.

    Returns
    -------
    joined
        The spans of the record.
    places
        For each block its row numbers, the beats next to it without a gap between, and its spans.
    """
    joined = join_runs([stretch.runs for stretch in stretches], fs)
    n_rows = sum(stretch.n_beats for stretch in stretches)
    before = _neighbours(
        (s.n_beats, s.last_beat, s.missing_before_first, s.missing_after_last) for s in stretches
    )
    behind = _neighbours(
        (s.n_beats, s.first_beat, s.missing_after_last, s.missing_before_first)
        for s in reversed(stretches)
    )[::-1]
    stops = np.cumsum(sizes)
    # The first span that ends behind the block's start, and the first that begins behind its stop.
    begin = np.searchsorted(joined.stop, stops - sizes, side="right")
    end = np.searchsorted(joined.start, stops, side="left")
    places = []
    row = 0
    for i, stretch in enumerate(stretches):
        within = Runs(*(column[begin[i] : end[i]] for column in joined))
        places.append(Place(row, n_rows, before[i], behind[i], within))
        row += stretch.n_beats
    return joined, places


def _neighbours(stretches: Iterable[tuple[int, int, bool, bool]]) -> list[int | None]:
    """Walk over (beats, nearest beat to the next, gap on entering, gap on leaving)."""
    neighbours: list[int | None] = []
    seen: int | None = None
    for n_beats, nearest, gap_on_entering, gap_on_leaving in stretches:
        neighbours.append(None if gap_on_entering else seen)
        if n_beats:
            seen = nearest
        if gap_on_leaving:
            seen = None
    return neighbours


def _stretch_of(found: Found) -> Stretch:
    """Take out what may go to another worker."""
    return found.stretch


def _whole_table(found: Found, sizes: Sequence[int], record: str, fs: float) -> Any:
    """Make the table of a recording of one block."""
    return table_block(found, place_stretches([found.stretch], sizes, fs), 0, record, fs)


def _whole_record(found: Found, sizes: Sequence[int], record: str, fs: float) -> pd.DataFrame:
    """Make the row of a recording of one block."""
    return _record_row([found.stretch], sizes, record, fs)


def _whole_spans(found: Found, sizes: Sequence[int], record: str, fs: float) -> pd.DataFrame:
    """List the spans of a recording of one block."""
    return _span_rows(place_stretches([found.stretch], sizes, fs), record, fs)


@told_when_full
def table_block(
    found: Found, placed: tuple[Runs, Sequence[Place]], number: int, record: str, fs: float
) -> Any:
    """Make one partition of the beat table.

    Parameters
    ----------
    found
        What the block found.
    placed
        What `place_stretches` gave of all blocks.
    number
        Number of the block.
    record
        Name of the record.
    fs
        Sampling rate in Hz.

    Returns
    -------
    pandas or cuDF table with the columns of `BEAT_COLUMNS`
    """
    columns = found.columns
    place = placed[1][number]
    sample = columns["sample"]
    xp = namespace(sample)
    n = int(sample.size)
    rr_prev, rr_next = columns["rr_prev_s"].copy(), columns["rr_next_s"].copy()
    if n and place.previous is not None:
        rr_prev[0] = (sample[0] - place.previous) / fs
    if n and place.following is not None:
        rr_next[-1] = (place.following - sample[-1]) / fs
    row = place.row + xp.arange(n)
    for_test = row >= int(TRAIN_SHARE * place.n_rows)
    within = xp.asarray(reasons_at(place.spans, on_host(sample)))
    return data_frame(
        {
            "record": text_column([record], xp.zeros(n, xp.int32)),
            "sample": sample,
            "time_s": sample.astype(xp.float64) / fs,
            "rr_prev_s": rr_prev,
            "rr_next_s": rr_next,
            "amplitude": columns["amplitude"],
            "quality": columns["quality"],
            "complete": columns["complete"],
            "span": text_column([*REASONS, None], within),
            "split": text_column(["train", "test"], for_test.astype(xp.int32)),
        },
        sample,
        row,
    )


def _record_row(
    stretches: Sequence[Stretch], sizes: Sequence[int], record: str, fs: float
) -> pd.DataFrame:
    n_samples = sum(sizes)
    joined = sum(
        before.ends_missing and after.starts_missing for before, after in pairwise(stretches)
    )
    return pd.DataFrame(
        {
            "record": [record],
            "samples": [n_samples],
            "seconds": [n_samples / fs],
            "missing": [sum(stretch.missing for stretch in stretches)],
            "gaps": [sum(stretch.gaps for stretch in stretches) - joined],
            "beats": [sum(stretch.n_beats for stretch in stretches)],
            "pruned": [sum(stretch.pruned for stretch in stretches)],
        }
    )


def _span_rows(placed: tuple[Runs, Sequence[Place]], record: str, fs: float) -> pd.DataFrame:
    joined = placed[0]
    reasons = np.array(REASONS, dtype=object)[joined.reason]
    return span_table(record, reasons.tolist(), joined.start, joined.stop, fs)
