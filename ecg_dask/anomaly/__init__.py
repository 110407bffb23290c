"""From beats to points at the beats that do not belong: a variational autoencoder and its score."""

from .fit import TOPIC
from .inputs import LENGTH
from .model import Model
from .training import check_options, train

__all__ = ["LENGTH", "TOPIC", "Model", "check_options", "train"]
