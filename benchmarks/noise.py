"""Noise that is added to recordings, made from seeds: wander, muscle and electrode motion.

The three kinds are those of the MIT-BIH Noise Stress Test Database (Moody GB, Muldrow WK, Mark
RG, Computers in Cardiology 11:381-384, 1984); what is added here is synthetic, so that it can be
made anywhere, at any rate and length, with every property stated. Each kind comes with a mean
square of 1, and `at_snr` scales it: the same noise at every level.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.fft import irfft, next_fast_len, rfftfreq

Floats = npt.NDArray[np.float64]

#: Seconds to each side of an annotation in which a QRS complex's peaks are looked for.
QRS_HALF_S = 0.05


def baseline_wander(n_samples: int, fs: float, seed: int) -> Floats:
    """Slow drift of the baseline: respiration and the electrodes' half-cell potentials.

    Gaussian noise of 0.03 to 0.5 Hz. Its power falls as 1/f, the drift of an electrode, and has a
    hump at 0.25 Hz, 15 breaths a minute, that carries about half of it. A cosine takes it to
    nothing between 0.5 and 0.7 Hz, where the ECG's own spectrum begins at 42 beats a minute.

    Parameters
    ----------
    n_samples
        Length.
    fs
        Sampling rate in Hz.
    seed
        The same seed, the same noise.

    Returns
    -------
    ndarray
        float64 of shape (n_samples,), mean 0 and mean square 1.
    """

    def density(f: Floats) -> Floats:
        breathing = np.exp(-0.5 * ((f - 0.25) / 0.04) ** 2)
        drift = 0.1 / np.maximum(f, 0.03)
        fall = np.clip((f - 0.5) / 0.2, 0, 1)
        return (drift + 3 * breathing) * (f >= 0.03) * np.cos(fall * np.pi / 2) ** 2

    return _standard(_gaussian(density, n_samples, fs, _generator(seed)))


def muscle(n_samples: int, fs: float, seed: int) -> Floats:
    """Surface electromyogram of the chest's muscles, in contractions that come and go.

    Gaussian noise with the power spectrum f^2 / ((f^2 + a^2) (f^2 + b^2)^2) that simulated surface
    electromyograms usually have (Farina D, Merletti R, J Electromyogr Kinesiol 10(5):337-349,
    2000), with corners a = 20 Hz and b = 80 Hz: a sixth of its power lies in the QRS complex's 5
    to 25 Hz, where no filter can part them. Contraction modulates its amplitude (Shwedyk E,
    Balasubramanian R, Scott RN, IEEE Trans Biomed Eng 24(5):417-424, 1977): by exp(0.5 g), g slow
    Gaussian noise of unit variance below 0.2 Hz, so that for a sixth of the record, seconds at a
    time, it is 1.6 times as high as usual or more.

    Parameters, returns: see `baseline_wander`.
    """
    generator = _generator(seed)

    def density(f: Floats) -> Floats:
        return f**2 / ((f**2 + 20.0**2) * (f**2 + 80.0**2) ** 2)

    def slow(f: Floats) -> Floats:
        return (f <= 0.2).astype(float)

    carrier = _gaussian(density, n_samples, fs, generator)
    contraction = np.exp(0.5 * _gaussian(slow, n_samples, fs, generator))
    return _standard(carrier * contraction)


def electrode_motion(n_samples: int, fs: float, seed: int) -> Floats:
    """Skin stretch below an electrode: transients that resemble a QRS complex, steps and ramps.

    Events at random times, 2 a second on average (a Poisson process), of random sign and of
    amplitudes that are log-normal with a standard deviation of 0.5 in the logarithm. Half are
    smooth transients, 40 to 120 ms wide at half their height as normal and ventricular QRS
    complexes are, with an exponential return of the opposite sign; a quarter are steps that rise
    within 10 to 40 ms, a quarter ramps of 80 to 250 ms, and both return to the baseline
    exponentially, as the amplifier's high-pass and the skin's charge do. The time constants are
    40 to 200 ms. Most of the power lies between 1 and 10 Hz, and neither a filter nor a single
    beat's shape tells a transient from a QRS complex: the hard kind, for it hurts at every level.

    Parameters, returns: see `baseline_wander`.
    """
    generator = _generator(seed)
    duration_s = n_samples / fs
    n_events = int(generator.poisson(2 * (duration_s + 1)))
    noise = np.zeros(n_samples)
    starts_s = generator.uniform(-1, duration_s, n_events)
    heights = generator.choice([-1.0, 1.0], n_events) * generator.lognormal(0, 0.5, n_events)
    kinds = generator.integers(4, size=n_events)
    # Each event draws alike, whatever its kind and wherever it falls.
    unit = generator.uniform(size=(n_events, 2))
    for start_s, height, kind, (a, b) in zip(starts_s, heights, kinds, unit, strict=True):
        tau_s = 0.04 * 5**b
        first = max(0, math.ceil(start_s * fs))
        last = max(first, min(n_samples, math.ceil((start_s + 0.6 + 8 * tau_s) * fs)))
        t = np.arange(first, last) / fs - start_s
        if kind >= 2:
            noise[first:last] += height * _transient(t, 0.04 + 0.08 * a, tau_s)
        else:
            rise_s = 0.01 + 0.03 * a if kind == 0 else 0.08 + 0.17 * a
            noise[first:last] += height * _step(t, rise_s, tau_s)
    return _standard(noise)


#: The levels that the benchmark adds noise at: its signal-to-noise ratios in decibels.
LEVELS_DB = (24, 12, 6, 0)

#: The kinds of noise by the names that the tables have.
KINDS = {"baseline": baseline_wander, "muscle": muscle, "electrode": electrode_motion}


def seed_of(record: str, kind: str) -> int:
    """Return the seed of a record's noise, the same on every machine."""
    return zlib.crc32(f"{record} {kind}".encode())


def signal_power(lead: Floats, beats: npt.ArrayLike, fs: float) -> float:
    """Return the power of an ECG as the Noise Stress Test counts it, from its QRS complexes.

    A sine of the QRS complexes' peak-to-peak amplitude P has the power P^2 / 8: the signal's mean
    square would depend on heart rate and T waves. P is the median over the beats of the
    peak-to-peak amplitude within 50 ms of the annotation.

    Parameters
    ----------
    lead
        The signal, of shape (n,).
    beats
        Samples of the annotated beats.
    fs
        Sampling rate in Hz.

    Notes
    -----
    Moody's ``nst`` takes the trimmed mean over the first 300 normal beats, and the trimmed mean
    of the noise's power over seconds; here they are the median over all beats, and the mean
    square of the noise over the whole record. There, noise begins after five minutes and comes and
    goes every two; here it is everywhere.
    """
    half = round(QRS_HALF_S * fs)
    heights = [np.ptp(lead[max(0, at - half) : at + half + 1]) for at in np.asarray(beats).tolist()]
    return float(np.median(heights) ** 2 / 8)


def at_snr(noise: Floats, power: float, snr_db: float) -> Floats:
    """Scale noise of mean square 1 to `snr_db` decibels below a signal of the given power."""
    return noise * math.sqrt(power / 10 ** (snr_db / 10))


def _generator(seed: int) -> np.random.Generator:
    # Named, since NumPy may change what its default is.
    return np.random.Generator(np.random.PCG64(seed))


def _gaussian(
    density: Callable[[Floats], Floats], n_samples: int, fs: float, generator: np.random.Generator
) -> Floats:
    """Return Gaussian noise of unit variance with the power spectral density `density` (of Hz)."""
    n = next_fast_len(n_samples, real=True)
    frequency = rfftfreq(n, 1 / fs)
    phases = generator.standard_normal((2, len(frequency)))
    spectrum = np.sqrt(density(frequency)) * (phases[0] + 1j * phases[1])
    spectrum[0] = 0
    noise = irfft(spectrum, n)[:n_samples]
    return noise / noise.std()


def _step(t: Floats, rise_s: float, tau_s: float) -> Floats:
    """Return a rise of `rise_s` seconds, a half cosine, and an exponential return; t from 0."""
    rise = 0.5 - 0.5 * np.cos(np.pi * np.clip(t / rise_s, 0, 1))
    return rise * np.exp(-np.maximum(t - rise_s, 0) / tau_s)


def _transient(t: Floats, width_s: float, tau_s: float) -> Floats:
    """Return a Gaussian `width_s` wide at half its height, then a return of the opposite sign."""
    centre_s = 1.5 * width_s
    wave = np.exp(-4 * math.log(2) * ((t - centre_s) / width_s) ** 2)
    return wave - 0.3 * _step(np.maximum(t - centre_s, 0), width_s, tau_s)


def _standard(noise: Floats) -> Floats:
    noise = noise - noise.mean()
    return noise / np.sqrt(np.mean(noise**2))
