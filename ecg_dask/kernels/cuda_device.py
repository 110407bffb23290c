"""How device functions are made, so that kernels of many widths compile soon and lose no speed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import config, cuda

#: What puts a function into its callers' code; Numba's simulator, which compiles nothing, has no
#: such option.
_OPTIONS = {} if config.ENABLE_CUDASIM else {"forceinline": True}


def device(function: Any) -> Any:
    """Make a device function that becomes part of its callers.

    There, arguments that the caller knows beforehand are constants: loops of constant length are
    unrolled, and local arrays that only such loops index are kept in registers. So one function can
    serve several widths.
    """
    return cuda.jit(device=True, **_OPTIONS)(function)


def constant(number: int) -> Any:
    """Return an integer for a kernel to give to device functions.

    To Numba a Python integer has a type of its own, and a function is compiled again for each. One
    of NumPy's has the type of all others.
    """
    return np.int64(number)
