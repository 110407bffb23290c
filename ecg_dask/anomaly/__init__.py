"""From beats to points at the beats that do not belong: a variational autoencoder and its score."""

from .fit import TOPIC
from .groups import group_anomalies, group_facts, reason_counts
from .inputs import LENGTH
from .model import Model
from .training import check_options, train

__all__ = [
    "LENGTH",
    "TOPIC",
    "Model",
    "check_options",
    "group_anomalies",
    "group_facts",
    "reason_counts",
    "train",
]
