"""Runs of samples that blocks tell of, and the spans that they are once joined.

Lengths are judged after joining, so that the spans do not depend on how the recording is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

#: Why a span cannot be analysed. Where several hold, the earlier one is told.
REASONS = ("missing", "flat", "clipped", "noise")
MISSING, FLAT, CLIPPED, NOISE = range(4)
#: What blocks tell of besides, from which clipped spans are made: flat runs at a level that their
#: surroundings do not go beyond; plateaus at such a level; those with a steep end. And beside
#: noise what is as restless.
RAIL, LEVEL, CUT, RESTLESS = range(4, 8)

#: A signal that does not change for so long is flat.
FLAT_S = 1.0

#: A plateau with a steep end is clipped by itself when it is so long: longer than the top of any
#: wave. Shorter ones so near each other are one span, cut-off QRS complexes of neighbour beats,
#: which is told when it is so long: the one top that happens to be level is not.
PLATEAU_S, CLIPPED_APART_S, CLIPPED_S = 0.2, 2.0, 1.0

#: Noisy cells so near each other are one span, which is told when it is so long.
NOISE_APART_S, NOISE_S = 1.0, 3.0

Integers = npt.NDArray[np.int64]


class Runs(NamedTuple):
    """Runs of samples or cells, in order of their start for each reason; arrays on the host.

    Attributes
    ----------
    reason
        int8: the number of a reason in `REASONS`, or one that blocks tell of besides.
    start, stop
        int64, half open, counted from the recording's first sample.
    level
        float32: the value of a flat run or plateau, NaN of others.
    """

    reason: npt.NDArray[Any]
    start: npt.NDArray[Any]
    stop: npt.NDArray[Any]
    level: npt.NDArray[Any]


NO_RUNS = Runs(
    np.empty(0, np.int8), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32)
)


def concatenated(parts: Sequence[Runs]) -> Runs:
    """Return runs of several parts as one."""
    return Runs(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def join_runs(parts: Sequence[Runs], fs: float) -> Runs:
    """Join the runs of all blocks to the spans of a record, in order, none over another.

    Runs of a reason that touch are one, and so are clipped or noisy cells near each other. What
    is then too short is dropped, and where spans overlap the first of `REASONS` is told.

    Parameters
    ----------
    parts
        What `find_runs` told of each block, in order.
    fs
        Sampling rate in Hz.
    """
    found = concatenated(parts)
    flat, at_rail = _by_level(_of(found, FLAT, RAIL), RAIL)
    plateaus, steep = _by_level(_of(found, LEVEL, CUT), CUT)
    return _overlaid(
        [
            _near(_spans(_of(found, MISSING)), 0),
            _long(flat[~at_rail], FLAT_S * fs),
            _cut_off(_long(flat[at_rail], FLAT_S * fs), plateaus[steep], fs),
            _noise(_spans(_of(found, NOISE)), _spans(_of(found, RESTLESS)), fs),
        ]
    )


def _cut_off(rails: Integers, plateaus: Integers, fs: float) -> Integers:
    """Return the clipped spans: of rails, of long plateaus, and of plateaus near each other."""
    single = _long(plateaus, PLATEAU_S * fs)
    near = _long(_near(plateaus, CLIPPED_APART_S * fs), CLIPPED_S * fs)
    return _near(np.concatenate([rails, single, near]), 0)


def _noise(noisy: Integers, restless: Integers, fs: float) -> Integers:
    """Return the noisy spans that are long enough, with what is restless next to them."""
    apart = NOISE_APART_S * fs
    long = _long(_near(noisy, apart), NOISE_S * fs)
    widened = _near(np.concatenate([noisy, restless]), apart)
    return widened[np.unique(_covering(widened, long[:, 0]))]


def _of(runs: Runs, *reasons: int) -> Runs:
    return Runs(*(column[np.isin(runs.reason, reasons)] for column in runs))


def _spans(runs: Runs) -> Integers:
    """Return starts and stops as rows."""
    return np.stack([runs.start, runs.stop], axis=1)


def _by_level(runs: Runs, mark: int) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Join runs that touch and have one level; return them and which have a part with `mark`."""
    order = np.lexsort((runs.start, runs.level))
    runs = Runs(*(column[order] for column in runs))
    new = np.ones(order.size, bool)
    new[1:] = (runs.start[1:] != runs.stop[:-1]) | (runs.level[1:] != runs.level[:-1])
    first = np.flatnonzero(new)
    if not first.size:
        return _spans(runs), np.empty(0, bool)
    joined = np.stack([runs.start[first], np.maximum.reduceat(runs.stop, first)], axis=1)
    return joined, np.logical_or.reduceat(runs.reason == mark, first)


def _near(spans: Integers, apart: float) -> Integers:
    """Join spans that overlap or are at most `apart` samples apart, in order."""
    if not len(spans):
        return spans
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reached = np.maximum.accumulate(spans[:, 1])
    first = np.flatnonzero(np.concatenate([[True], spans[1:, 0] - reached[:-1] > apart]))
    last = np.concatenate([first[1:], [len(spans)]]) - 1
    return np.stack([spans[first, 0], reached[last]], axis=1)


def _long(spans: Integers, shortest: float) -> Integers:
    return spans[spans[:, 1] - spans[:, 0] >= shortest]


def _overlaid(spans: Sequence[Integers]) -> Runs:
    """Put the spans of each reason, the first one over the others, into one list."""
    edges = np.unique(np.concatenate([part.ravel() for part in spans]))
    begin = edges[:-1]
    reason = np.full(begin.size, -1, np.int8)
    for number in reversed(range(len(spans))):
        reason[_covering(spans[number], begin) >= 0] = number
    told = np.flatnonzero(reason >= 0)
    if not told.size:
        return NO_RUNS
    # Pieces in a row of one reason are one span.
    new = np.ones(told.size, bool)
    new[1:] = (np.diff(told) > 1) | (reason[told[1:]] != reason[told[:-1]])
    first = np.flatnonzero(new)
    last = np.concatenate([first[1:], [told.size]]) - 1
    level = np.full(first.size, np.nan, np.float32)
    return Runs(reason[told[first]], edges[told[first]], edges[told[last] + 1], level)


def _covering(spans: Integers, sample: Integers) -> Integers:
    """Return the index of the span that holds each sample, -1 where none does."""
    if not len(spans):
        return np.full(sample.size, -1)
    index = np.searchsorted(spans[:, 0], sample, side="right") - 1
    return np.where((index >= 0) & (sample < spans[index, 1]), index, -1)


def reasons_at(spans: Runs, sample: Integers) -> npt.NDArray[np.int8]:
    """Return the number of the reason of the span that holds each sample, one more without any."""
    index = _covering(_spans(spans), sample)
    # Where no span does, the last one.
    told: npt.NDArray[np.int8] = np.append(spans.reason, np.int8(len(REASONS)))[index]
    return told
