import subprocess
import sys

import ecg_dask

SLOW = ("dask.array", "distributed", "pandas", "numba", "torch", "cupy", "wfdb", "bokeh", "pyarrow")


def loaded_after(statement):
    code = f"{statement}\nimport sys\nprint([m for m in {SLOW!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_the_package_is_cheap():
    assert loaded_after("import ecg_dask") == "[]"


def test_segmenting_needs_no_torch():
    loaded = loaded_after("import ecg_dask; ecg_dask.find_beats")
    assert "dask.array" in loaded
    assert "torch" not in loaded
    assert "bokeh" not in loaded


def test_every_public_name_is_there():
    for name in ecg_dask.__all__:
        assert getattr(ecg_dask, name) is not None
    assert set(ecg_dask.__all__) <= set(dir(ecg_dask))
