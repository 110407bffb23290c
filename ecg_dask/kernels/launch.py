"""Launches Numba's CUDA kernels through the driver, in a twentieth of the time that Numba takes.

Numba compiles a kernel to PTX, in which an array of one dimension is seven parameters: two that
are zero (who owns the memory), the number of items, the size of one, the address, the length and
the stride. CuPy loads it once a device. To launch it, the parameters are written one behind the
other into a buffer, and CuPy's binding of the driver is called with that, on CuPy's current stream.
Where the PTX has other parameters than these, where the driver cannot load it or an array is not
contiguous, Numba launches.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import re
import struct
import threading
from typing import Any

import numpy as np
from numba import cuda, from_dtype, types

from ..arrays import on_gpu
from .compiled import ptx_of

#: Loaded functions by kernel, device and kinds of arguments; None where Numba is to launch.
_functions: dict[tuple[Any, ...], Any] = {}
_loading = threading.RLock()

#: What the two parameters of `cuLaunchKernel`'s `extra` are called, and its end.
_BUFFER, _SIZE, _END = 1, 2, 0


class _Frames(threading.local):
    """A thread's prepared launches, by the same keys, for no two threads may share a buffer."""

    def __init__(self) -> None:
        self.by_key: dict[tuple[Any, ...], _Frame | None] = {}


_frames = _Frames()


class _Frame:
    """A loaded function and the buffer that its parameters are written to."""

    def __init__(self, function: Any, kinds: tuple[Any, ...]) -> None:
        cupy = _cupy()
        self.function = function
        self.launch_kernel = cupy.cuda.driver.launchKernel
        self.stream = cupy.cuda.get_current_stream
        layout = struct.Struct("".join(_LAYOUT.get(kind, "7q") for kind in kinds))
        self.pack_into = layout.pack_into
        self.buffer = (ctypes.c_char * layout.size)()
        self.size = ctypes.c_size_t(layout.size)
        self.extra = (ctypes.c_void_p * 5)(
            _BUFFER, ctypes.addressof(self.buffer), _SIZE, ctypes.addressof(self.size), _END
        )
        self.where = ctypes.addressof(self.extra)

    def launch(self, blocks: int, threads: int, values: list[Any]) -> None:
        """Write the parameters and launch; the driver has read them when it returns."""
        self.pack_into(self.buffer, 0, *values)
        stream = self.stream().ptr
        self.launch_kernel(self.function.ptr, blocks, 1, 1, threads, 1, 1, 0, stream, 0, self.where)


#: How a number is written; all other kinds are the characters of arrays' dtypes.
_LAYOUT = {int: "q", np.float32: "f"}


def launch(kernel: Any, blocks: int, threads: int, *arguments: Any) -> None:
    """Run a kernel on the device of its arrays, or under Numba's simulator for NumPy arrays.

    Parameters
    ----------
    kernel
        What ``numba.cuda.jit`` made, without options.
    blocks, threads
        Blocks, of which there may be none, and threads a block.
    arguments
        The first one is an array; all arrays are of one dimension and lie on CuPy's current
        device. Numbers are ``int`` (int64 in the kernel) or ``numpy.float32``.
    """
    if not blocks:
        return
    if not on_gpu(arguments[0]):
        kernel[blocks, threads](*arguments)
        return
    names: list[Any] = [kernel, _cupy().cuda.runtime.getDevice()]
    values: list[Any] = []
    for argument in arguments:
        kind = type(argument)
        if kind is int or kind is np.float32:
            names.append(kind)
            values.append(argument)
            continue
        size, itemsize = argument.size, argument.itemsize
        if size and argument.strides != (itemsize,):
            kernel[blocks, threads](*arguments)
            return
        names.append(argument.dtype.char)
        values += (0, 0, size, itemsize, argument.data.ptr, size, itemsize)
    key = tuple(names)
    frames = _frames.by_key
    frame = frames[key] if key in frames else _prepare(key)
    if frame is None:
        kernel[blocks, threads](*arguments)
    else:
        frame.launch(blocks, threads, values)


@functools.cache
def _cupy() -> Any:
    return importlib.import_module("cupy")


def _prepare(key: tuple[Any, ...]) -> _Frame | None:
    """Prepare this thread for launches of a kernel, which is loaded once for all threads."""
    cupy = _cupy()
    kernel, device, *kinds = key
    # The driver, unlike CUDA's runtime, needs to be told which context is the thread's.
    cupy.cuda.Device(device).use()
    cupy.cuda.runtime.free(0)
    with _loading:
        if key not in _functions:
            _functions[key] = _load(kernel, device, kinds)
        function = _functions[key]
    frame = None if function is None else _Frame(function, tuple(kinds))
    _frames.by_key[key] = frame
    return frame


def _load(kernel: Any, device: int, kinds: list[Any]) -> Any:
    cupy = _cupy()
    capability = cupy.cuda.Device(device).compute_capability

    def compiled() -> str:
        types_ = tuple(numba_type(kind) for kind in kinds)
        cc = (int(capability[:-1]), int(capability[-1]))
        ptx: str = cuda.compile_ptx(kernel.py_func, types_, cc=cc)[0]
        return ptx

    ptx = ptx_of(kernel, kinds, capability, compiled)
    name, sizes = entry(ptx)
    if sizes != [size for kind in kinds for size in parameter_sizes(kind)]:
        return None
    module = cupy.cuda.Module()
    try:
        module.load(ptx.encode())
    except cupy.cuda.driver.CUDADriverError:
        # The driver is older than the compiler, for which Numba has a way of its own.
        return None
    return module.get_function(name)


def numba_type(kind: Any) -> Any:
    """Return Numba's type of an argument."""
    if kind is int:
        return types.int64
    if kind is np.float32:
        return types.float32
    return types.Array(from_dtype(np.dtype(kind)), 1, "C")


def parameter_sizes(kind: Any) -> list[int]:
    """Return the sizes in bits of the parameters that an argument is."""
    if kind is int:
        return [64]
    if kind is np.float32:
        return [32]
    return [64] * 7


def entry(ptx: str) -> tuple[str, list[int]]:
    """Return the name of a PTX text's kernel and the sizes of its parameters in bits."""
    found = re.search(r"\.visible\s+\.entry\s+([\w$]+)\s*\((.*?)\)", ptx, re.DOTALL)
    if found is None:
        return "", []
    sizes = re.findall(r"\.param\s+\.[a-z](\d+)", found[2])
    return found[1], [int(size) for size in sizes]
