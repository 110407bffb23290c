"""Recordings, beats, tables and models by name on a cluster that lives longer than their makers."""

from .entry import Entry
from .store import Store

__all__ = ["Entry", "Store"]
