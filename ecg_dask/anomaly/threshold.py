"""From scores to a threshold, without labels."""

from __future__ import annotations

import math

import numpy as np

#: Beats on time in the held-out part below which those of the training part help to set the
#: threshold.
FEWEST_HELD_OUT = 20

#: Robust standard deviations that a beat's score may lie above the median. A score is a sum of
#: surprises, whose tail is long: the usual 3.5 of a modified z-score (Iglewicz B, Hoaglin DC. How
#: to Detect and Handle Outliers. ASQC Basic References in Quality Control 16, 1993) would flag one
#: usual beat in twenty.
DEVIATIONS = 9.0


def robust_threshold(scores: np.ndarray) -> float:
    """Return ``m + DEVIATIONS * 1.4826 * MAD`` of some scores, m being their median.

    Parameters
    ----------
    scores
        float32 of shape (n_beats,), one or more.

    Returns
    -------
    float
        The threshold, a number that float32 represents. Up to half of the beats may be anomalies
        before it follows them.
    """
    exact = scores.astype(np.float64)
    median = np.median(exact)
    deviation = 1.4826 * np.median(np.abs(exact - median))
    return float(np.float32(median + DEVIATIONS * deviation))


def alarm_threshold(scores: np.ndarray, seconds: float, alarms_per_hour: float) -> float:
    """Return the lowest score that at most `alarms_per_hour` beats an hour exceed.

    Parameters
    ----------
    scores
        Scores, float32 of shape (n_beats,), one or more.
    seconds
        Time in which these beats happened.
    alarms_per_hour
        Anomalies an hour that are allowed.

    Returns
    -------
    float
        One of the scores, or 0 when all beats may be anomalies.
    """
    allowed = math.floor(alarms_per_hour * seconds / 3600)
    if allowed >= len(scores):
        return 0.0
    return float(np.sort(scores)[len(scores) - 1 - allowed])
