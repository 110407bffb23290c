"""From beats to points at the beats that do not belong: a variational autoencoder and its score."""

from .inputs import LENGTH
from .model import Model
from .training import train

__all__ = ["LENGTH", "Model", "train"]
