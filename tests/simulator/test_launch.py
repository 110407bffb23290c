"""How kernels are launched through the driver, with stand-ins for CuPy and the driver."""

import ctypes
import os
import struct
import threading
from types import SimpleNamespace

import numpy as np
import pytest

if os.environ.get("NUMBA_ENABLE_CUDASIM") != "1":
    pytest.skip("run by tests/test_kernels_cuda.py", allow_module_level=True)

from ecg_dask.kernels import launch as module
from ecg_dask.kernels.launch import entry, launch, parameter_sizes

PTX = """
.visible .func helper(.param .b64 x) { }
.visible .entry _ZN4kernel$1(
    .param .u64 _ZN4kernel$1_param_0,
    .param .f32 _ZN4kernel$1_param_1
)
{
"""


class Array:
    """Looks like a CuPy array of one dimension."""

    def __init__(self, values, address, stride=1):
        self.dtype, self.size, self.itemsize = values.dtype, values.size, values.itemsize
        self.strides = (stride * values.itemsize,)
        self.data = SimpleNamespace(ptr=address)


Array.__module__ = "cupy"


class Kernel:
    """Notes what Numba would launch."""

    def __init__(self):
        self.launched = []

    def __getitem__(self, where):
        return lambda *arguments: self.launched.append((*where, *arguments))


@pytest.fixture
def driver(monkeypatch):
    """Return what the driver got: function, blocks, threads, stream, and the parameters' bytes."""
    calls = []

    def launch_kernel(function, *shape):
        *grid, shared, stream, parameters, extra = shape
        assert (shared, parameters) == (0, 0)
        names = (ctypes.c_void_p * 5).from_address(extra)
        assert (names[0], names[2], names[4]) == (1, 2, None)
        size = ctypes.c_size_t.from_address(names[3]).value
        calls.append((function, grid, stream, ctypes.string_at(names[1], size)))

    cuda = SimpleNamespace(
        driver=SimpleNamespace(launchKernel=launch_kernel),
        runtime=SimpleNamespace(getDevice=lambda: 0, free=lambda address: None),
        get_current_stream=lambda: SimpleNamespace(ptr=77),
        Device=lambda device: SimpleNamespace(use=lambda: None),
    )
    monkeypatch.setattr(module, "_cupy", lambda: SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(module, "_functions", {})
    monkeypatch.setattr(module, "_frames", module._Frames())
    monkeypatch.setattr(module, "_load", lambda *key: SimpleNamespace(ptr=5))
    return calls


def test_parameters_lie_as_the_kernel_expects_them(driver):
    kernel = Kernel()
    x, y = Array(np.zeros(9, np.float32), 1 << 40), Array(np.zeros(3, np.int64), 4096)
    launch(kernel, 4, 64, x, np.float32(0.5), 7, np.float32(2), y)
    launch(kernel, 0, 64, x, np.float32(0.5), 7, np.float32(2), y)
    function, grid, stream, parameters = driver.pop()
    assert (function, grid, stream) == (5, [4, 1, 1, 64, 1, 1], 77)
    # Each on a multiple of its size.
    expected = struct.pack(
        "=7q f4x q f4x 7q", 0, 0, 9, 4, 1 << 40, 9, 4, 0.5, 7, 2, 0, 0, 3, 8, 4096, 3, 8
    )
    assert parameters == expected
    assert driver == kernel.launched == []


def test_a_kernel_is_loaded_once_and_each_thread_has_its_buffer(driver, monkeypatch):
    loads = []
    monkeypatch.setattr(module, "_load", lambda *key: loads.append(key) or SimpleNamespace(ptr=5))
    kernel, x = Kernel(), Array(np.zeros(9, np.float32), 4096)
    buffers = []

    def run():
        launch(kernel, 1, 32, x)
        launch(kernel, 1, 32, x)
        buffers.extend(module._frames.by_key.values())

    for _ in range(3):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert len(loads) == 1
    assert len(driver) == 6
    assert len({id(frame.buffer) for frame in buffers}) == 3
    # Another type is another kernel.
    launch(kernel, 1, 32, Array(np.zeros(9, np.int64), 4096))
    assert len(loads) == 2


def test_numba_launches_what_the_driver_cannot(driver, monkeypatch):
    kernel = Kernel()
    strided = Array(np.zeros(9, np.float32), 4096, stride=2)
    launch(kernel, 2, 32, strided, 3)
    assert kernel.launched.pop() == (2, 32, strided, 3)
    monkeypatch.setattr(module, "_load", lambda *key: None)
    x = Array(np.zeros(9, np.float32), 4096)
    launch(kernel, 2, 32, x, 3)
    launch(kernel, 2, 32, x, 3)
    assert kernel.launched == [(2, 32, x, 3)] * 2
    assert driver == []


def test_the_entry_is_read_from_the_ptx():
    assert entry(PTX) == ("_ZN4kernel$1", [64, 32])
    assert entry("") == ("", [])
    assert [parameter_sizes(kind) for kind in (int, np.float32)] == [[64], [32]]
    assert parameter_sizes("f") == [64] * 7
