"""The detector: from the samples of one block to the beats in its core, without Dask."""

from __future__ import annotations

import functools
import importlib
import math
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from .. import kernels
from ..arrays import namespace, on_gpu
from ..errors import InputError
from ..kernels.rules import FAR_FLANK, PER_CELL

#: Lowest sampling rate in Hz at which the wavelet still has a shape, and the highest that an ECG
#: is recorded at.
LOWEST_FS, HIGHEST_FS = 50.0, 20_000.0

#: Most cells that a running median may span on either side of its cell.
LARGEST_MEDIAN_RADIUS = 63

#: Energy of a candidate as a share of the level: a tenth of its root. Only 42 of the 109,494 beats
#: of the MIT-BIH Arrhythmia Database are none.
CANDIDATE = 0.01

#: Merit, as a multiple of the threshold, above which a candidate is a neighbour to others.
SURE = 1.25


class Widths(NamedTuple):
    """A detector's widths in samples at one sampling rate; `sub` is an eighth of a cell."""

    wavelet: int
    narrow: int
    wide_wavelet: int
    energy: int
    spacing: int
    sub: int
    peak_cells: int
    median_radius: int
    noise_radius: int
    rhythm: int
    refine: int
    refractory: int
    near: int
    far: int
    wide: int
    plateau: int
    before: int
    after: int

    @property
    def cell(self) -> int:
        """Samples a cell."""
        return PER_CELL * self.sub


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
    crests
        float32 of shape (n_sub_cells,): the greatest energy in each sub-cell of the block, -1 where
        nothing is recorded.
    """

    sample: Any
    next_sample: Any
    amplitude: Any
    quality: Any
    pruned: int
    crests: Any


@dataclass(frozen=True, kw_only=True)
class Detector:
    """Finds beats, and says how they are cut. Every width is in seconds.

    **Energy.** The signal is convolved with a Ricker wavelet [1]_, and the square of the response
    is summed over about the width of a QRS complex, a moving-window integration as in [2]_. The
    greatest energy in an eighth of a cell is a crest; cells lie at fixed sample numbers.

    **Candidates.** A crest is a candidate where no other within `spacing_s` is greater, and where
    the root of its energy exceeds a tenth of that of the local level, a running median over
    `median_s` of running maxima over `peak_s`.

    **Merit.** Every candidate is weighed, and accepted where its merit exceeds `threshold`. The
    merit is a product (`ecg_dask.kernels.merits` has the formula):

    - energy over the level: a QRS complex is about as high as those around it;
    - the noise: the usual crest of a quarter second, over `noise_s`, and the greatest one in the
      flanks, since a QRS complex stands alone for a quarter second;
    - sharpness, the response to a wavelet half as wide over that to the wavelet, and the same over
      that of the strong candidates around: T waves are blunter than QRS complexes [2]_, and so is
      most of an electrode's motion;
    - the place in time, in mean intervals of the strong candidates within `rhythm_s`: how far the
      nearest one is, and how much room there is between the one before and the one behind. A
      candidate in the middle of a pause needs less than one that would split a regular interval, as
      in the search back for missed beats [2]_, but in both directions and without a second pass
      over the signal.

    Strong are at first those whose energy exceeds a quarter of the level; those whose merit then
    exceeds `threshold` by a quarter are the strong ones that the final merits are made with.

    **Position.** The beat's sample is the first one of greatest absolute response to a wavelet half
    again as wide, within `refine_s` of the candidate: the dominant QRS deflection, whichever way it
    points.

    **Pruning.** An accepted candidate whose sample is the first or last of its run of recorded
    samples is dropped, since its QRS complex was not recorded whole; of two that come to lie nearer
    than `refractory_s` the one of less energy is dropped, of equal ones the later.

    Parameters
    ----------
    wavelet_s
        Standard deviation of the Ricker wavelet, which is cut off at four of these.
    narrow_s, wide_s
        Those of the wavelets that tell a candidate's sharpness and its position.
    energy_s
        Length over which the energy is summed.
    spacing_s
        Least distance of two candidates.
    threshold
        Merit that a candidate must exceed.
    cell_s, peak_s, median_s, noise_s
        Length of a cell, of the running maximum, and of the running medians of the level and of the
        noise.
    rhythm_s
        Distance within which a candidate's neighbours are sought.
    refine_s
        Distance from a candidate within which its beat is sought.
    refractory_s
        Least distance of two beats.
    before_s, after_s
        The window that is cut around a beat.
    embed
        ``"window"`` keeps the whole window; ``"interval"`` zeroes it from the next beat on.
    convolution
        ``"direct"``, or ``"fft"``: the energy comes from a Fourier transform of the block (SciPy's,
        or CuPy's on a GPU), which is faster for wide wavelets at high rates. Its rounding depends
        on the block, so that beats may depend on how the recording is cut into partitions.

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

    Deviations from [1]_: one scale for detection, at 15 Hz, instead of several; the square of the
    response instead of pairs of maxima. From [2]_: the wavelet stands for their filters and their
    derivative; levels are medians of the surroundings in both directions instead of running
    estimates from the past, since those would depend on where a partition begins; there is no
    learning phase; T waves are told by a factor instead of by a rule for the 360 ms after a beat.

    The exponents and constants of the merit were chosen on the MIT-BIH Arrhythmia Database, with
    and without added noise, one set for all records and leads.

    References
    ----------
    .. [1] Burke MJ, Nasor M. Wavelet based analysis and characterization of the ECG signal.
       Journal of Medical Engineering & Technology 28(2):47-55 (2004).
       https://doi.org/10.1080/03091900310001214
    .. [2] Pan J, Tompkins WJ. A real-time QRS detection algorithm. IEEE Transactions on Biomedical
       Engineering 32(3):230-236 (1985). https://doi.org/10.1109/TBME.1985.325532
    """

    wavelet_s: float = 0.015
    narrow_s: float = 0.008
    wide_s: float = 0.022
    energy_s: float = 0.05
    spacing_s: float = 0.2
    threshold: float = 0.49
    cell_s: float = 0.25
    peak_s: float = 2.0
    median_s: float = 10.0
    noise_s: float = 4.0
    rhythm_s: float = 8.0
    refine_s: float = 0.06
    refractory_s: float = 0.2
    before_s: float = 0.25
    after_s: float = 0.45
    embed: str = "window"
    convolution: str = "direct"

    def __post_init__(self) -> None:
        choices = {"embed": ("window", "interval"), "convolution": ("direct", "fft")}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in choices:
                allowed = " or ".join(f'"{choice}"' for choice in choices[field.name])
                _require(value in choices[field.name], field.name, value, allowed)
                continue
            number = isinstance(value, int | float) and math.isfinite(value)
            _require(number and value > 0, field.name, value, "a positive number")
        _require(
            2 * self.refine_s < self.spacing_s, "refine_s", self.refine_s, "below spacing_s / 2"
        )
        _require(self.peak_s >= self.cell_s, "peak_s", self.peak_s, "cell_s or more")
        for name in ("median_s", "noise_s"):
            _require(
                self.cell_s <= getattr(self, name) <= 2 * LARGEST_MEDIAN_RADIUS * self.cell_s,
                name,
                getattr(self, name),
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
            narrow=samples(4 * self.narrow_s),
            wide_wavelet=samples(4 * self.wide_s),
            energy=samples(self.energy_s / 2),
            spacing=samples(self.spacing_s),
            sub=samples(self.cell_s / PER_CELL),
            peak_cells=max(round(self.peak_s / self.cell_s), 1),
            median_radius=max(round(self.median_s / self.cell_s / 2), 1),
            noise_radius=max(round(self.noise_s / self.cell_s / 2), 1),
            rhythm=samples(self.rhythm_s),
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
        # The whole cells that a candidate's level and noise look at on either side, and its own.
        level = (w.median_radius + (w.peak_cells + 1) // 2 + 1) * w.cell
        noise = (w.noise_radius + 1) * w.cell
        # A candidate's own distance from the core: its beat may lie within the window after the
        # last beat, be pruned by another one, and both were refined. Its neighbours of the second
        # round have neighbours of the first round.
        candidate = w.after + w.refractory + 2 * w.refine + 2 * w.rhythm
        flank = (FAR_FLANK + 1) * w.sub
        crest = w.energy + max(w.wavelet, w.narrow, w.wide_wavelet) + 1
        return candidate + max(level, noise, flank, w.spacing + w.sub, w.wide, w.before) + crest


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
    w = detector.widths(fs)
    narrow, taps, wide = _wavelets(detector, fs)
    if detector.convolution == "fft":
        value, index = kernels.energy_crests(fft_response(x, taps), w.energy, first, w.sub)
    else:
        value, index = kernels.crests(x, taps, w.energy, first, w.sub)
    head = first // w.sub % PER_CELL
    level, noise = kernels.levels(value, head, w.peak_cells, w.median_radius, w.noise_radius)
    summit, at, energy = kernels.candidates(value, index, level, CANDIDATE, head, w.sub, w.spacing)
    sharpness, position, at_edge = kernels.look(x, narrow, taps, wide, at, w.refine)
    sure = SURE * detector.threshold
    merit = kernels.merits(value, level, noise, summit, at, sharpness, head, w.rhythm, sure)
    sample, following, amplitude, quality, pruned = kernels.choose(
        x,
        merit,
        detector.threshold,
        position,
        at_edge,
        energy,
        w.refractory,
        first,
        core,
        w.after,
        w.near,
        w.far,
        w.wide,
        w.plateau,
    )
    return Detections(sample, following, amplitude, quality, pruned, value)


@functools.lru_cache(maxsize=64)
def _wavelets(detector: Detector, fs: float) -> tuple[Any, Any, Any]:
    """Return the halves of the narrow, the usual and the wide wavelet. Nobody writes to them."""
    w = detector.widths(fs)
    return (
        integrated_ricker(detector.narrow_s, fs, w.narrow),
        integrated_ricker(detector.wavelet_s, fs, w.wavelet),
        integrated_ricker(detector.wide_s, fs, w.wide_wavelet),
    )


def fft_response(x: Any, taps: Any) -> Any:
    """Return what `ecg_dask.kernels.response` does, but for rounding, by Fourier transforms.

    Responses reach across missing samples.
    """
    if not x.size:
        return x
    xp = namespace(x)
    oaconvolve = importlib.import_module(
        "cupyx.scipy.signal" if on_gpu(x) else "scipy.signal"
    ).oaconvolve
    difference = xp.zeros(x.size + 1, dtype=xp.float32)
    difference[1:-1] = xp.nan_to_num(xp.diff(x), copy=False)
    kernel = xp.asarray(np.concatenate([-taps[::-1], taps]))
    # Sample i takes the differences i - k + 1 to i + k; that of sample j is at j.
    whole = oaconvolve(difference, kernel)
    w = whole[taps.size : taps.size + x.size]
    return xp.where(xp.isnan(x), x, w.astype(xp.float32))
