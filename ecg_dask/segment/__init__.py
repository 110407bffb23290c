"""From the signal to beats: detection, halos, cutting."""

from .detector import Detector
from .halos import find_beats

__all__ = ["Detector", "find_beats"]
