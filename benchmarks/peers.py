"""The open detectors that ours is measured against, each behind one signature.

    pip install -c constraints.txt -e .[benchmark]

Every detector runs as its own documentation has it, with its own filters and defaults. It takes
one lead as float64 of shape (n,) in mV without missing samples, and the rate in Hz. What is not
installed is left out, and the benchmarks say so.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Peer(NamedTuple):
    """A detector of another project.

    Attributes
    ----------
    package
        Name of the distribution that holds it.
    title
        What it is, in a few words.
    find
        Takes the lead and the rate; returns samples in any order and of any integer type.
    """

    package: str
    title: str
    find: Callable[[Floats, float], Any]

    @property
    def version(self) -> str | None:
        """Package and version, None where it is not installed."""
        try:
            return f"{self.package} {version(self.package)}"
        except PackageNotFoundError:
            return None

    def detect(self, lead: Floats, fs: float) -> Integers:
        """Return the detected samples, int64 in ascending order.

        A sample that was given twice is kept once, so that it counts as one detection.
        """
        # Some work in place; none may change what the next one sees.
        found = np.asarray(self.find(lead.copy(), fs))
        return np.unique(found.astype(np.int64))


def _sleepecg(lead: Floats, fs: float) -> Any:
    from sleepecg import detect_heartbeats

    return detect_heartbeats(lead, fs, backend="c")


def _xqrs(lead: Floats, fs: float) -> Any:
    from wfdb.processing import xqrs_detect

    return xqrs_detect(lead, fs, verbose=False)


def _neurokit(method: str) -> Callable[[Floats, float], Any]:
    def find(lead: Floats, fs: float) -> Any:
        import neurokit2

        cleaned = neurokit2.ecg_clean(lead, sampling_rate=fs, method=method)
        _, info = neurokit2.ecg_peaks(cleaned, sampling_rate=fs, method=method)
        return info["ECG_R_Peaks"]

    return find


def _hamilton(lead: Floats, fs: float) -> Any:
    from biosppy.signals.ecg import correct_rpeaks, hamilton_segmenter
    from biosppy.signals.tools import filter_signal

    # The steps of biosppy's own `ecg` up to the peaks; it goes on to templates and heart rates.
    band = [0.67, 45]
    order = int(1.5 * fs)
    filtered = filter_signal(lead, "FIR", "bandpass", order, band, sampling_rate=fs)["signal"]
    filtered = filtered - np.mean(filtered)
    found = hamilton_segmenter(filtered, sampling_rate=fs)["rpeaks"]
    return correct_rpeaks(filtered, found, sampling_rate=fs, tol=0.05)["rpeaks"]


def _two_average(lead: Floats, fs: float) -> Any:
    from ecgdetectors import Detectors

    return Detectors(fs).two_average_detector(lead)


#: The detectors by the names that the benchmarks' options and tables have.
PEERS = {
    "sleepecg": Peer("sleepecg", "modified Pan-Tompkins, in C", _sleepecg),
    "xqrs": Peer("wfdb", "XQRS", _xqrs),
    "neurokit": Peer("neurokit2", "neurokit", _neurokit("neurokit")),
    "pantompkins": Peer("neurokit2", "pantompkins1985", _neurokit("pantompkins1985")),
    "hamilton": Peer("biosppy", "Hamilton, peaks corrected", _hamilton),
    "two-average": Peer("py-ecg-detectors", "Elgendi's two averages", _two_average),
}
