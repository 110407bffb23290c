"""The kernels for CuPy arrays, compiled by Numba; the twins of `ecg_dask.kernels.cpu`.

Under Numba's simulator the functions take NumPy arrays.
"""

from __future__ import annotations

from typing import Any

from numba import cuda

from ..arrays import namespace
from .cuda_crests import crests, response_at
from .launch import launch

__all__ = ["crests", "response"]

#: Threads a block; each has one sample.
THREADS = 256


def response(x: Any, taps: Any) -> Any:
    """See `ecg_dask.kernels.response`."""
    w = namespace(x).empty_like(x)
    launch(_response, -(-x.size // THREADS), THREADS, x, namespace(x).asarray(taps), w)
    return w


@cuda.jit  # type: ignore[untyped-decorator]
def _response(x: Any, taps: Any, w: Any) -> None:
    i = cuda.grid(1)
    if i >= x.size:
        return
    w[i] = response_at(x, taps, i) if x[i] == x[i] else x[i]
