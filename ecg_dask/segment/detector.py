"""The detector: from the samples of one block to the beats in its core, without Dask."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from .. import kernels
from ..arrays import namespace
from ..errors import InputError

#: Lowest sampling rate in Hz at which the wavelet still has a shape, and the highest that an ECG
#: is recorded at.
LOWEST_FS, HIGHEST_FS = 50.0, 20_000.0

#: Most cells that the running median may span on either side of its cell.
LARGEST_MEDIAN_RADIUS = 63


class Widths(NamedTuple):
    """A detector's widths in samples at one sampling rate."""

    wavelet: int
    energy: int
    spacing: int
    cell: int
    peak_cells: int
    median_radius: int
    refine: int
    refractory: int
    near: int
    far: int
    wide: int
    plateau: int
    before: int
    after: int


class Detections(NamedTuple):
    """The beats of one block, ascending.

    Attributes
    ----------
    sample
        int64 of shape (n_beats,), counted from the recording's first sample.
    next_sample
        int64 of shape (n_beats,): the next beat's sample where that is within the window after
        the beat, else the greatest int64.
    amplitude, quality
        float32 of shape (n_beats,).
    pruned
        Number of candidates that were pruned.
    """

    sample: Any
    next_sample: Any
    amplitude: Any
    quality: Any
    pruned: int


@dataclass(frozen=True, kw_only=True)
class Detector:
    """Finds beats, and says how they are cut. Every width is in seconds.

    The signal is convolved with a Ricker wavelet [1]_, its energy is summed over about the width
    of a QRS complex, and a sample is a candidate where that energy is the greatest within
    `spacing_s` on either side and its root exceeds `threshold` times the local level. The level is
    a running median over `median_s` of running maxima over `peak_s`, on cells of `cell_s` that lie
    at fixed sample numbers. The beat's sample is the first one of greatest absolute response
    within `refine_s` of the candidate: the dominant QRS deflection, whichever way it points.

    Pruning: a candidate whose sample is the first or last of its run of recorded samples is
    dropped, since its QRS complex was not recorded whole; of two candidates that come to lie
    nearer than `refractory_s` the one of less energy is dropped, of equal ones the later.

    Parameters
    ----------
    wavelet_s
        Standard deviation of the Ricker wavelet, which is cut off at four of these.
    energy_s
        Length over which the energy is summed.
    spacing_s
        Least distance of two candidates.
    threshold
        Fraction of the local level that a candidate must exceed.
    cell_s, peak_s, median_s
        Length of a cell, of the running maximum and of the running median.
    refine_s
        Distance from a candidate within which its beat is sought.
    refractory_s
        Least distance of two beats.
    before_s, after_s
        The window that is cut around a beat.
    embed
        ``"window"`` keeps the whole window; ``"interval"`` zeroes it from the next beat on.

    Raises
    ------
    InputError
        When a value is not as described.

    Notes
    -----
    The convolution is made of the signal's first difference and the wavelet's integral, which is
    the same sum and cancels any offset exactly. Every step is a direct sum, a comparison or a
    median within a fixed distance of the sample, so that a block with `halo` samples on either
    side gives what the whole recording gives, bit for bit, and negation or scaling by a power of
    two changes no beat.

    References
    ----------
    .. [1] Burke MJ, Nasor M. Wavelet based analysis and characterization of the ECG signal.
       Journal of Medical Engineering & Technology 28(2):47-55 (2004).
       https://doi.org/10.1080/03091900310001214
    """

    wavelet_s: float = 0.015
    energy_s: float = 0.06
    spacing_s: float = 0.28
    threshold: float = 0.25
    cell_s: float = 0.25
    peak_s: float = 2.0
    median_s: float = 10.0
    refine_s: float = 0.06
    refractory_s: float = 0.2
    before_s: float = 0.25
    after_s: float = 0.45
    embed: str = "window"

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "embed":
                _require(value in ("window", "interval"), "embed", value, '"window" or "interval"')
                continue
            number = isinstance(value, int | float) and math.isfinite(value)
            _require(number and value > 0, field.name, value, "a positive number")
        _require(self.threshold < 1, "threshold", self.threshold, "a number below 1")
        _require(
            2 * self.refine_s < self.spacing_s, "refine_s", self.refine_s, "below spacing_s / 2"
        )
        _require(self.peak_s >= self.cell_s, "peak_s", self.peak_s, "cell_s or more")
        _require(
            self.cell_s <= self.median_s <= 2 * LARGEST_MEDIAN_RADIUS * self.cell_s,
            "median_s",
            self.median_s,
            f"from cell_s to {2 * LARGEST_MEDIAN_RADIUS} cell_s",
        )

    def widths(self, fs: float) -> Widths:
        """Return the widths in samples at `fs` Hz.

        Raises
        ------
        InputError
            When `fs` is too low for a QRS complex to be seen, or no rate of an ECG.
        """
        if not LOWEST_FS <= fs <= HIGHEST_FS:
            raise InputError(
                "fs",
                f"{fs:g} Hz",
                f"{LOWEST_FS:g} to {HIGHEST_FS:g} Hz",
                "Check the rate; a recording sampled more slowly does not show QRS complexes",
            )

        def samples(seconds: float) -> int:
            return max(round(seconds * fs), 1)

        return Widths(
            wavelet=samples(4 * self.wavelet_s),
            energy=samples(self.energy_s / 2),
            spacing=samples(self.spacing_s),
            cell=samples(self.cell_s),
            peak_cells=max(round(self.peak_s / self.cell_s), 1),
            median_radius=max(round(self.median_s / self.cell_s / 2), 1),
            refine=samples(self.refine_s),
            refractory=samples(self.refractory_s),
            # Flanks of a beat: from outside its QRS complex to where the next T wave may begin.
            near=samples(0.08),
            far=samples(0.14),
            wide=samples(0.28),
            # A digitized peak is seldom level for longer unless the amplifier was at its limit.
            plateau=max(samples(0.02), 3),
            before=samples(self.before_s),
            after=samples(self.after_s),
        )

    def halo(self, fs: float) -> int:
        """Return how many samples before and behind its core a block needs at `fs` Hz."""
        w = self.widths(fs)
        # The whole cells that a candidate's threshold looks at on either side, and its own.
        level = (w.median_radius + (w.peak_cells + 1) // 2 + 1) * w.cell
        # A candidate's own distance from the core: its beat may lie within the window after the
        # last beat, be pruned by another one, and both were refined.
        candidate = w.after + w.refractory + 2 * w.refine
        return candidate + max(level, w.spacing, w.wide, w.before) + w.energy + w.wavelet + 1


def _require(holds: bool, name: str, found: object, allowed: str) -> None:
    if not holds:
        raise InputError(f"Detector.{name}", repr(found), allowed, "Choose another value")


def integrated_ricker(wavelet_s: float, fs: float, radius: int) -> Any:
    """Return the later half of the integral of a Ricker wavelet, float32 of shape (radius,).

    The wavelet has the standard deviation `wavelet_s` in seconds, is sampled at `fs` Hz up to
    `radius` samples from its centre and sums to zero; the integral is antisymmetric, and scaled
    so that its absolute values sum to 1.
    """
    t = np.arange(-radius, radius + 1) / (wavelet_s * fs)
    wavelet = (1 - t**2) * np.exp(-(t**2) / 2)
    taps = np.cumsum(wavelet - wavelet.mean())[radius : 2 * radius]
    return (taps / np.abs(taps).sum()).astype(np.float32)


def detect(x: Any, first: int, core: tuple[int, int], detector: Detector, fs: float) -> Detections:
    """Find the beats whose samples lie in the core of a block.

    Parameters
    ----------
    x
        The block's samples of one lead, float32 of shape (n,), NaN where missing; the core, and up
        to ``detector.halo(fs)`` samples on either side as far as the recording goes.
    first
        Sample number of ``x[0]``.
    core
        Sample numbers ``[start, stop)``.
    detector
        The detector.
    fs
        Sampling rate in Hz.
    """
    xp = namespace(x)
    widths = detector.widths(fs)
    w = kernels.response(x, integrated_ricker(detector.wavelet_s, fs, widths.wavelet))
    e = kernels.energy(w, widths.energy)
    maxima = kernels.cell_maxima(e, first, widths.cell)
    # The energy is a square, so the threshold on it is one too.
    floor = kernels.thresholds(
        maxima, widths.peak_cells, widths.median_radius, detector.threshold**2
    )
    peak = kernels.peaks(e, floor, first, widths.cell, widths.spacing)
    position, at_edge = kernels.strongest(w, peak, widths.refine)
    n_edges = _count_within(position[at_edge] + first, core)
    peak, position = peak[~at_edge], position[~at_edge]

    near = position[1:] - position[:-1] < widths.refractory
    earlier_wins = e[peak[:-1]] >= e[peak[1:]]
    doubled = xp.zeros(position.size, dtype=bool)
    doubled[1:] |= near & earlier_wins
    doubled[:-1] |= near & ~earlier_wins
    n_doubles = _count_within(position[doubled] + first, core)
    peak, position = peak[~doubled], position[~doubled]

    sample = position + first
    never = xp.full(1, xp.iinfo(xp.int64).max, dtype=xp.int64)
    following = xp.concatenate([sample[1:], never])
    following = xp.where(following - sample < widths.after, following, never)
    owned = (sample >= core[0]) & (sample < core[1])
    peak, position = peak[owned], position[owned]
    amplitude, quality = kernels.measure(
        x, e, peak, position, widths.near, widths.far, widths.wide, widths.plateau
    )
    return Detections(
        sample=sample[owned],
        next_sample=following[owned],
        amplitude=amplitude,
        quality=quality,
        pruned=n_edges + n_doubles,
    )


def _count_within(sample: Any, core: tuple[int, int]) -> int:
    return int(((sample >= core[0]) & (sample < core[1])).sum())
