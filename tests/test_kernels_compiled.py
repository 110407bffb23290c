from types import SimpleNamespace

import numpy as np
import pytest

from ecg_dask.kernels.compiled import ptx_of


def kernel(constant, helper=None):
    """Return what a decorated kernel looks like: a thing with a function that has a closure."""

    def function(x):
        x[0] = constant
        return helper

    return SimpleNamespace(py_func=function)


class Compiler:
    def __init__(self):
        self.compiled = 0

    def __call__(self):
        self.compiled += 1
        return f"// PTX number {self.compiled}\n.version 9.0\n"


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("ECG_DASK_CACHE_DIR", str(tmp_path / "cache"))
    return Compiler()


def test_a_kernel_is_compiled_once(compiler, tmp_path):
    first = ptx_of(kernel(1), ["f"], "90", compiler)
    assert ptx_of(kernel(1), ["f"], "90", compiler) == first
    assert compiler.compiled == 1
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".ptx"]


@pytest.mark.parametrize(
    "other",
    [
        (kernel(2), ["f"], "90"),
        (kernel(np.int64(1)), ["f"], "90"),
        (kernel(1.0), ["f"], "90"),
        (kernel(True), ["f"], "90"),
        (kernel((1,)), ["f"], "90"),
        (kernel(1), ["f", int], "90"),
        (kernel(1), ["f"], "100"),
        (kernel(np.ones(2)), ["f"], "90"),
        (kernel(1, kernel(1)), ["f"], "90"),
        (kernel(1, kernel(2).py_func), ["f"], "90"),
        (kernel(1, kernel(1, kernel(3))), ["f"], "90"),
    ],
)
def test_what_a_kernel_depends_on_tells_it_apart(compiler, other):
    ptx_of(kernel(1), ["f"], "90", compiler)
    ptx_of(*other, compiler)
    assert compiler.compiled == 2
    ptx_of(*other, compiler)
    assert compiler.compiled == 2


def test_a_kernel_with_something_unknown_in_it_is_compiled_each_time(compiler):
    for _ in range(2):
        ptx_of(kernel([1]), ["f"], "90", compiler)
    assert compiler.compiled == 2


@pytest.mark.parametrize("damaged", ["", "no sum at all", "0" * 64 + "\n.version 9.0\n"])
def test_a_damaged_entry_is_compiled_again(compiler, tmp_path, damaged):
    ptx_of(kernel(1), ["f"], "90", compiler)
    (entry,) = (tmp_path / "cache").iterdir()
    entry.write_text(damaged)
    assert ptx_of(kernel(1), ["f"], "90", compiler).startswith("// PTX number 2")
    assert ptx_of(kernel(1), ["f"], "90", compiler).startswith("// PTX number 2")
    assert compiler.compiled == 2


def test_a_folder_that_cannot_be_made_costs_only_time(compiler, tmp_path):
    (tmp_path / "cache").write_text("a file")
    for n in (1, 2):
        assert ptx_of(kernel(1), ["f"], "90", compiler).startswith(f"// PTX number {n}")


def test_a_user_without_a_home_costs_only_time(compiler, monkeypatch):
    monkeypatch.delenv("ECG_DASK_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def expanduser(path):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("pathlib.Path.expanduser", expanduser)
    for n in (1, 2):
        assert ptx_of(kernel(1), ["f"], "90", compiler).startswith(f"// PTX number {n}")


def test_tuples_are_told_apart_by_their_nesting(compiler):
    ptx_of(kernel(((1, 2), 3)), ["f"], "90", compiler)
    ptx_of(kernel((1, (2, 3))), ["f"], "90", compiler)
    assert compiler.compiled == 2
