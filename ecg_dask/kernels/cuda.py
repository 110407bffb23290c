"""The kernels for CuPy arrays, compiled by Numba; the twins of `ecg_dask.kernels.cpu`.

Under Numba's simulator the functions take NumPy arrays.
"""

from __future__ import annotations

from typing import Any

from numba import cuda, float32

from ..arrays import namespace
from .cuda_crests import crests
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
    if x[i] != x[i]:
        w[i] = x[i]
        return
    left, right = True, True
    total = float32(0)
    for m in range(taps.size):
        before, after = float32(0), float32(0)
        j = i - m
        left = left and j > 0 and x[j - 1] == x[j - 1]
        if left:
            before = x[j] - x[j - 1]
        j = i + m + 1
        right = right and j < x.size and x[j] == x[j]
        if right:
            after = x[j] - x[j - 1]
        total = cuda.fma(taps[m], before - after, total)
    w[i] = total
