"""Synthetic long-term ECGs whose beats are known."""

from __future__ import annotations

import functools
import math
import os
import re
import tempfile
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import NamedTuple

import dask.array as da
import numpy as np
import numpy.typing as npt
import pandas as pd
from dask.delayed import delayed

from .errors import InputError
from .recording import Recording

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

#: Direction of each lead: x to the left arm, y to the feet, z to the chest.
LEADS = {
    "II": (0.50, 0.87, 0.0),
    "V5": (0.90, 0.10, 0.40),
    "V1": (-0.40, 0.0, 0.90),
    "I": (1.0, 0.0, 0.0),
    "III": (-0.50, 0.87, 0.0),
    "aVF": (0.0, 1.0, 0.0),
    "aVL": (0.87, -0.50, 0.0),
    "aVR": (-0.87, -0.50, 0.0),
    "V2": (0.0, 0.10, 1.0),
    "V3": (0.40, 0.10, 0.90),
    "V4": (0.70, 0.10, 0.70),
    "V6": (1.0, 0.0, 0.10),
}

# A wave is a Gaussian: seconds from the QRS peak, standard deviation in seconds, whether both
# stretch with the interval, and the heart's dipole in mV along x, y, z.
_QRS = [
    (-0.026, 0.008, False, -0.10, -0.06, 0.15),
    (0.0, 0.011, False, 0.65, 0.85, -0.45),
    (0.028, 0.009, False, -0.15, -0.15, -0.25),
]
_T = [(0.240, 0.045, True, 0.10, 0.15, 0.08), (0.295, 0.028, True, 0.08, 0.12, 0.06)]
# The conducted beats, sinus and supraventricular, then the ventricular shapes.
_SHAPES = [
    [(-0.160, 0.022, True, 0.06, 0.11, 0.02), *_QRS, *_T],
    [(-0.130, 0.016, True, -0.03, -0.09, 0.03), *_QRS, *_T],
    [
        (0.0, 0.030, False, 0.40, 1.20, -0.50),
        (0.038, 0.022, False, 0.20, 0.40, -0.20),
        (0.300, 0.060, True, -0.25, -0.45, 0.30),
    ],
    [(0.0, 0.032, False, -0.60, -1.10, 0.80), (0.310, 0.055, True, 0.25, 0.40, -0.30)],
    [
        (0.0, 0.026, False, 0.60, 1.10, 0.60),
        (0.072, 0.026, False, -0.45, -0.80, 0.20),
        (0.320, 0.055, True, 0.20, 0.35, -0.20),
    ],
]
_SYMBOLS = np.array(["N", "A", "V", "V", "V"])
_SUPRAVENTRICULAR, _VENTRICULAR = 1, 2
_VENTRICULAR_ODDS = (0.6, 0.3, 0.1)

_CELL = 1 << 14  # samples that are made at once, at fixed places
_CHUNK = 64 * _CELL
_WIDTHS = 5.0  # a Gaussian is cut where it is below 4e-6 of its height
_REACH_S = 1.0  # more than any wave reaches from its beat
_BREATHS_HZ = 0.24
_WANDER_HZ = np.array([0.037, 0.11, _BREATHS_HZ, 0.41])
_NOISE_SPAN_S = 0.08
_GAP_S = (2.0, 8.0)
_SECONDS_A_GAP = 20.0


class Synthetic(NamedTuple):
    """A synthetic recording and its truth.

    Attributes
    ----------
    recording
        The signal in mV.
    beats
        A row a beat whose peak was recorded: ``sample`` (int64, the sample nearest to the R peak,
        or to the dominant peak of the QRS, in the first lead), ``time_s`` (that sample's seconds
        from the first) and ``symbol`` (``"N"``, ``"V"`` or ``"A"``, as WFDB has them).
    """

    recording: Recording
    beats: pd.DataFrame


class Written(NamedTuple):
    """What `write_csv` wrote.

    Attributes
    ----------
    path
        The CSV file.
    annotations
        The WFDB annotation file; None when the recording has no beats, for which there is none.
    rows
        Number of samples a lead.
    beats
        Number of beats of each symbol.
    """

    path: Path
    annotations: Path | None
    rows: int
    beats: dict[str, int]


@dataclass(frozen=True, eq=False)
class _Plan:
    """All that samples are made from; the arrays on beats hold a row a beat in time order."""

    fs: float
    seed: int
    directions: Floats  # (n_leads, 3)
    noise_mv: float
    wander_mv: float
    phases: Floats  # (n_leads, n_wander) of the wander's sines
    gaps: Integers  # (n_gaps, 2), half-open
    times: Floats  # seconds of the peak
    shapes: npt.NDArray[np.int8]
    stretches: Floats
    gains: Floats

    def within(self, start_s: float, stop_s: float) -> _Plan:
        """Keep the beats whose waves may reach into [start_s, stop_s)."""
        first, last = np.searchsorted(self.times, [start_s - _REACH_S, stop_s + _REACH_S])
        return replace(
            self,
            times=self.times[first:last],
            shapes=self.shapes[first:last],
            stretches=self.stretches[first:last],
            gains=self.gains[first:last],
        )


def synthetic(
    duration_s: float,
    fs: float = 250.0,
    *,
    n_leads: int = 1,
    seed: int = 0,
    ventricular: float = 0.01,
    supraventricular: float = 0.01,
    noise_mv: float = 0.02,
    wander_mv: float = 0.1,
    gaps: int = 0,
    chunk: int | None = None,
) -> Synthetic:
    """Make an ECG of known beats.

    The same arguments give the same samples, bit for bit, whatever `chunk` is; a lead does not
    depend on how many follow it, nor a beat on noise, wander and gaps.

    Parameters
    ----------
    duration_s
        Length in seconds.
    fs
        Sampling rate in Hz, at least 50.
    n_leads
        Number of leads, the first ones of `LEADS`.
    seed
        Seed of all that is random, from 0 to 2**64 - 1.
    ventricular, supraventricular
        Fraction of the beats that are ventricular or supraventricular ectopics, both together at
        most 0.4. They are spread over the recording so that their number is within two of this
        fraction of the beats, gaps aside. No two are neighbours.
    noise_mv
        RMS in mV of the muscle noise, a Gaussian noise between about 20 and 100 Hz.
    wander_mv
        RMS in mV of the baseline wander, four sines below 0.5 Hz.
    gaps
        Number of gaps, 2 to 8 s of missing samples (NaN) each, at most one in 20 s. The truth
        has no beats there.
    chunk
        Samples a partition; about a million when None.

    Returns
    -------
    Synthetic
        The recording, its signal float32 of shape (n_samples, n_leads), made by the tasks that
        need it; and its beats.

    Raises
    ------
    InputError
        When an argument is not as described.

    Notes
    -----
    As in ECGSYN [1]_, a beat is a sum of Gaussians, here added directly instead of integrated.
    Each is a dipole that the leads see from their directions. P and T stretch with the cube root
    of the interval before the beat. The rate drifts over a day, over 45 and over 7 minutes, and
    follows the breath (0.24 Hz), with 1 % of jitter a beat. A ventricular ectopic comes after 55
    to 70 % of an interval, has no P wave, one of three wide shapes and an opposed T wave, and does
    not disturb the sinus beat after the next; a supraventricular one comes after 65 to 80 %, has
    another P wave, and the sinus starts anew from it.

    References
    ----------
    .. [1] McSharry PE, Clifford GD, Tarassenko L, Smith LA. A dynamical model for generating
       synthetic electrocardiogram signals. IEEE Trans Biomed Eng 50(3):289-294 (2003).
       https://doi.org/10.1109/TBME.2003.808805
    """
    _check("fs", fs, math.isfinite(fs) and fs >= 50, "a number of Hz of at least 50")
    ok = math.isfinite(duration_s) and round(duration_s * fs) >= 1
    _check("duration_s", duration_s, ok, "a number of seconds of one sample or more")
    _check("n_leads", n_leads, _whole(n_leads, 1, len(LEADS)), f"1 to {len(LEADS)}")
    _check("seed", seed, _whole(seed, 0, (1 << 64) - 1), "an integer from 0 to 2**64 - 1")
    ok = min(ventricular, supraventricular) >= 0 and ventricular + supraventricular <= 0.4
    found = f"{ventricular!r} and {supraventricular!r}"
    what = "ventricular and supraventricular"
    _check(what, found, ok, "fractions of at least 0 that together are at most 0.4")
    for what, value in (("noise_mv", noise_mv), ("wander_mv", wander_mv)):
        _check(what, value, math.isfinite(value) and value >= 0, "a number of mV of at least 0")
    most = int(duration_s // _SECONDS_A_GAP)
    _check("gaps", gaps, _whole(gaps, 0, most), f"0 to {most}, one in {_SECONDS_A_GAP:g} s")
    chunk = _CHUNK if chunk is None else chunk
    _check("chunk", chunk, _whole(chunk, 1), "a number of samples, 1 or more")

    n_samples = round(duration_s * fs)
    beats_random, wander_random, gaps_random = np.random.default_rng(seed).spawn(3)
    names = tuple(LEADS)[:n_leads]
    plan = _Plan(
        fs,
        seed,
        np.array([LEADS[name] for name in names]),
        noise_mv,
        wander_mv,
        wander_random.uniform(0, 2 * np.pi, (len(LEADS), len(_WANDER_HZ)))[:n_leads],
        _gaps(gaps, n_samples, fs, gaps_random),
        *_schedule(n_samples / fs, ventricular, supraventricular, beats_random),
    )
    blocks = []
    for start in range(0, n_samples, chunk):
        stop = min(start + chunk, n_samples)
        # A task carries the beats of the cells that it touches, not those of the whole day.
        cells = start // _CELL * _CELL, -(-stop // _CELL) * _CELL
        made = delayed(_block, pure=True)(plan.within(cells[0] / fs, cells[1] / fs), start, stop)
        blocks.append(da.from_delayed(made, (stop - start, n_leads), dtype="float32"))
    recording = Recording(da.concatenate(blocks), fs, leads=names, unit="mV", name="synthetic")
    return Synthetic(recording, _truth(plan, n_samples))


def write_csv(ecg: Synthetic, path: str | Path, *, overwrite: bool = False) -> Written:
    """Write a synthetic ECG as CSV, and its beats beside it as a WFDB annotation file.

    The CSV has a header of lead names with their unit and a row a sample with three decimals,
    ``nan`` where the sample is missing; it has no time column. For ``holter.csv`` the beats go into
    ``holter.atr``. Both are written elsewhere in the same folder, partition by partition, and
    moved to their place when they are whole. The tasks write, so with a cluster its workers must
    see the folder.

    Parameters
    ----------
    ecg
        What to write.
    path
        The CSV file.
    overwrite
        Replace the files when they exist.

    Raises
    ------
    InputError
        When the file cannot be written there or under this name.
    """
    path = Path(path)
    truth = path.with_suffix(".atr")
    if path.suffix != ".csv" or re.search(r"[^-\w]", path.stem):
        raise InputError(
            "path",
            f"the file name {path.name!r}",
            "letters, digits, hyphens and underscores, then .csv; WFDB takes no others in the name "
            "of the annotation file beside it",
            "Choose such a name",
        )
    if not path.parent.is_dir():
        raise InputError(str(path), "no such folder", "a folder that exists", "Make the folder")
    there = [str(file) for file in (path, truth) if file.exists()]
    if there and not overwrite:
        remedy = "Choose another name, or overwrite (--overwrite)"
        raise InputError(str(path), f"{' and '.join(there)} from before", "new files", remedy)

    try:
        _write(ecg, path, truth)
    except OSError as error:
        remedy = "Make room there or choose another place"
        raise InputError(str(path), str(error), "a place to write to", remedy) from error
    beats = ecg.beats["symbol"].value_counts()
    counts = {str(symbol): int(n) for symbol, n in beats.items()}
    return Written(path, truth if counts else None, ecg.recording.n_samples, counts)


def _write(ecg: Synthetic, path: Path, truth: Path) -> None:
    from wfdb import wrann  # slow to load

    recording, beats = ecg
    with tempfile.TemporaryDirectory(prefix=f".{path.stem}-", dir=path.parent) as folder:
        rows = Path(folder, path.name)
        header = ",".join(f"{lead} ({recording.unit})" for lead in recording.leads or ())
        rows.write_text(header + "\n")
        end = rows.stat().st_size
        for block in recording.signal.to_delayed().ravel():
            end = delayed(_write_rows)(block, str(rows), end).compute()
        if len(beats):
            samples, symbols = beats["sample"].to_numpy(), beats["symbol"].tolist()
            wrann(path.stem, "atr", samples, symbols, fs=recording.fs, write_dir=folder)
        # The signal never lies beside the beats of another.
        truth.unlink(missing_ok=True)
        os.replace(rows, path)
        if len(beats):
            os.replace(Path(folder, truth.name), truth)


def _check(what: str, found: object, ok: bool, allowed: str) -> None:
    if not ok:
        raise InputError(what, str(found), allowed, f"Change {what}")


def _whole(value: object, low: int, high: float = math.inf) -> bool:
    return isinstance(value, Integral) and low <= int(value) <= high


def _schedule(
    duration_s: float, ventricular: float, supraventricular: float, random: np.random.Generator
) -> tuple[Floats, npt.NDArray[np.int8], Floats, Floats]:
    """Place the beats, one beyond the end included, whose P wave may be seen."""
    most = math.ceil(duration_s * 2.5) + 8
    shapes = _order(most, ventricular, supraventricular, random)
    jitter = random.normal(1, 0.01, most).tolist()
    coupling = np.where(
        shapes == _SUPRAVENTRICULAR,
        random.uniform(0.65, 0.80, most),
        random.uniform(0.55, 0.7, most),
    ).tolist()
    day, hour, minutes, breath = random.uniform(0, 2 * np.pi, 4).tolist()
    turn = 2 * math.pi
    time = random.uniform(0.3, 0.8)
    times, intervals = [], []
    interval = sinus = 0.8
    for k, shape in enumerate(shapes.tolist()[:-1]):
        times.append(time)
        intervals.append(interval)
        if time > duration_s:
            break
        if shape >= _VENTRICULAR:
            # The sinus beat that it hid was due one interval after the last one.
            interval = 2 * sinus - interval
        else:
            rate = (
                72
                + 12 * math.cos(turn * time / 86400 + day)
                + 5 * math.sin(turn * time / 2700 + hour)
                + 3 * math.sin(turn * time / 420 + minutes)
            )
            sinus = (
                60 / rate * jitter[k] * (1 + 0.03 * math.sin(turn * _BREATHS_HZ * time + breath))
            )
            interval = sinus * coupling[k + 1] if shapes[k + 1] else sinus
            if shape == _SUPRAVENTRICULAR:
                interval = 1.05 * sinus
        time += interval
    n = len(times)
    stretches = np.cbrt(np.clip(intervals, 0.3, 1.5))
    breathing = 0.05 * np.sin(2 * np.pi * _BREATHS_HZ * np.array(times) + breath)
    gains = 1 + breathing + random.normal(0, 0.02, n)
    return np.array(times), shapes[:n], stretches, gains


def _order(
    n: int, ventricular: float, supraventricular: float, random: np.random.Generator
) -> npt.NDArray[np.int8]:
    """Give each of n beats its row of `_SHAPES`."""
    places, kinds = [], []
    for kind, fraction in ((_VENTRICULAR, ventricular), (_SUPRAVENTRICULAR, supraventricular)):
        # One somewhere in each 1 / fraction beats.
        strata = np.arange(int(n * fraction))
        places.append((strata + random.random(len(strata))) / fraction if fraction else strata)
        kinds.append(np.full(len(strata), kind, np.int8))
    place = np.concatenate(places).astype(np.int64)
    ectopics = np.concatenate(kinds)[np.argsort(place, kind="stable")]
    # The first two are sinus beats, and those beside another ectopic move on.
    spaced = 2 * np.arange(len(place))
    place = np.maximum.accumulate(np.maximum(np.sort(place) - spaced, 2)) + spaced
    variants = random.choice(len(_VENTRICULAR_ODDS), len(place), p=_VENTRICULAR_ODDS)
    ectopics = np.where(ectopics == _VENTRICULAR, ectopics + variants, ectopics)
    shapes = np.zeros(n, np.int8)
    shapes[place[place < n]] = ectopics[place < n]
    return shapes


def _gaps(n: int, n_samples: int, fs: float, random: np.random.Generator) -> Integers:
    """Place one gap somewhere in each nth part of the recording."""
    bounds = np.linspace(0, n_samples, n + 1)
    lengths = random.uniform(*_GAP_S, n) * fs
    starts = bounds[:-1] + random.random(n) * (np.diff(bounds) - lengths)
    return np.stack([starts, starts + lengths], axis=1).astype(np.int64)


def _truth(plan: _Plan, n_samples: int) -> pd.DataFrame:
    sample = np.rint(plan.times * plan.fs).astype(np.int64)
    started = np.searchsorted(plan.gaps[:, 0], sample, side="right")
    stopped = np.searchsorted(plan.gaps[:, 1], sample, side="right")
    kept = (started == stopped) & (sample < n_samples)
    sample, symbol = sample[kept], _SYMBOLS[plan.shapes[kept]]
    return pd.DataFrame({"sample": sample, "time_s": sample / plan.fs, "symbol": symbol})


def _block(plan: _Plan, start: int, stop: int) -> npt.NDArray[np.float32]:
    """Make the samples from start to stop.

    They are cut out of whole cells at fixed places, so that no rounding depends on the block.
    """
    block = np.empty((stop - start, len(plan.directions)), np.float32)
    for first in range(start // _CELL * _CELL, stop, _CELL):
        low, high = max(first, start), min(first + _CELL, stop)
        block[low - start : high - start] = _cell(plan, first)[low - first : high - first]
    return block


def _cell(plan: _Plan, first: int) -> npt.NDArray[np.float32]:
    signal = _waves(plan.within(first / plan.fs, (first + _CELL) / plan.fs), first)
    if plan.wander_mv:
        seconds = (first + np.arange(_CELL)) / plan.fs
        height = plan.wander_mv * math.sqrt(2 / len(_WANDER_HZ))
        for lead, phases in enumerate(plan.phases):
            for hertz, phase in zip(_WANDER_HZ, phases, strict=True):
                signal[:, lead] += height * np.sin(2 * np.pi * hertz * seconds + phase)
    cell = signal.astype(np.float32)
    if plan.noise_mv:
        for lead in range(cell.shape[1]):
            cell[:, lead] += _noise(plan, first // _CELL, lead)
    for start, stop in np.clip(plan.gaps - first, 0, _CELL):
        cell[start:stop] = np.nan
    return cell


def _waves(plan: _Plan, first: int) -> Floats:
    """Sum the waves of all beats that reach into the cell at `first`."""
    margin = math.ceil(2 * _REACH_S * plan.fs)
    signal = np.zeros((_CELL, len(plan.directions)))
    for row, shape in enumerate(_aligned_shapes()):
        ours = plan.shapes == row
        beats = plan.times[ours] * plan.fs - first
        if not len(beats):
            continue
        gains = plan.gains[ours, None]
        for offset_s, width_s, stretches, *dipole in shape:
            stretch = plan.stretches[ours] if stretches else np.ones(len(beats))
            centre = beats + offset_s * stretch * plan.fs
            width = width_s * stretch * plan.fs
            reach = math.ceil(_WIDTHS * width.max())
            near = np.floor(centre).astype(np.int64)[:, None] + np.arange(-reach, reach + 2)
            wave = gains * np.exp(-0.5 * ((near - centre[:, None]) / width[:, None]) ** 2)
            line = np.bincount((near + margin).ravel(), wave.ravel(), minlength=_CELL + 2 * margin)
            seen = plan.directions @ dipole
            signal += line[margin : margin + _CELL, None] * seen
    return signal


@functools.cache
def _aligned_shapes() -> list[list[tuple[float, ...]]]:
    """Shift each of `_SHAPES` so that its dominant peak in the first lead is at 0 s."""
    near_s = np.arange(-0.05, 0.05, 0.0001)
    aligned: list[list[tuple[float, ...]]] = []
    for shape in _SHAPES:
        seen = sum(
            np.dot(dipole, LEADS["II"]) * np.exp(-0.5 * ((near_s - offset_s) / width_s) ** 2)
            for offset_s, width_s, _, *dipole in shape
        )
        peak_s = near_s[np.argmax(np.abs(seen))]
        aligned.append([(wave[0] - peak_s, *wave[1:]) for wave in shape])
    return aligned


def _noise(plan: _Plan, cell: int, lead: int) -> npt.NDArray[np.float32]:
    """Filter the cell's white noise and the beginning of the next cell's, which it runs into."""
    taps = _band(plan.fs)
    white = []
    for ahead, n in ((0, _CELL), (1, len(taps) - 1)):
        key = np.array([plan.seed, cell + ahead], np.uint64)
        random = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, lead]))
        white.append(random.standard_normal(n, dtype=np.float32))
    ran_on = np.concatenate(white)
    noise = np.zeros(_CELL, np.float32)
    for k, tap in enumerate(taps * np.float32(plan.noise_mv)):
        noise += tap * ran_on[k : k + _CELL]
    return noise


@functools.cache
def _band(fs: float) -> npt.NDArray[np.float32]:
    """Return the taps of a band-pass filter that keeps the variance of white noise."""
    low, high = min(20.0, 0.1 * fs), min(100.0, 0.45 * fs)
    half = round(_NOISE_SPAN_S / 2 * fs)
    k = np.arange(-half, half + 1)
    ideal = 2 * high / fs * np.sinc(2 * high / fs * k) - 2 * low / fs * np.sinc(2 * low / fs * k)
    taps = ideal * np.hamming(len(k))
    taps /= np.sqrt(np.sum(taps**2))
    return np.asarray(taps, dtype=np.float32)


def _write_rows(block: npt.NDArray[np.float32], path: str, offset: int) -> int:
    """Write rows at `offset`, so that a task that runs twice writes once; return where they end."""
    import pyarrow
    from pyarrow import csv

    # Adding zero turns -0 into 0.
    milli = np.round(block, 3) + np.float32(0)
    table = pyarrow.table({str(lead): column for lead, column in enumerate(milli.T.copy())})
    with open(path, "r+b") as file:
        file.truncate(offset)
        file.seek(offset)
        csv.write_csv(table, file, csv.WriteOptions(include_header=False))
        return file.tell()
