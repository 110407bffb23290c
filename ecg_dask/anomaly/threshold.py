"""From scores to a threshold, without labels."""

from __future__ import annotations

import math

import numpy as np

#: Beats on time in the held-out part below which those of the training part help to set the
#: threshold.
FEWEST_HELD_OUT = 20

#: What a score may lie above the median of the usual ones. Scores are logarithms of chances, and
#: of normal distributions one beat in 160,000 would be flagged. Real ones have longer tails: on
#: MITDB, where the value was chosen, nine of ten flagged beats are ectopic.
ABOVE_MEDIAN = 12.0


def robust_threshold(scores: np.ndarray) -> float:
    """Return the median of some scores plus `ABOVE_MEDIAN`.

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
    return float(np.float32(np.median(scores.astype(np.float64)) + ABOVE_MEDIAN))


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
