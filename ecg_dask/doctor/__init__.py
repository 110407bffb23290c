"""What ``ecg-dask doctor`` looks at: whether all that a run needs is here, and works.

Each module looks at one thing and returns findings. What can hang, crash, or load what this
process should not load is tried in a process of its own, for a limited time.
"""

from __future__ import annotations

from .examination import examine, written
from .findings import Case

__all__ = ["Case", "examine", "written"]
