"""Tests that need a GPU. They are run by path: ``pytest tests/gpu``."""

from pathlib import Path

import numpy as np
import pytest

from ecg_dask.gpu.devices import gpus
from ecg_dask.synthetic import synthetic

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("gpu")
            if not gpus():
                item.add_marker(pytest.mark.skip(reason="there is no GPU"))


@pytest.fixture(scope="session")
def holter(tmp_path_factory):
    """Return the path of a CSV of an hour at 250 Hz."""
    path = tmp_path_factory.mktemp("holter") / "holter.csv"
    signal = synthetic(3600.0, 250.0, seed=3).recording.signal.compute(scheduler="threads")
    np.savetxt(path, signal, fmt="%.5f", header="ecg (mV)", comments="")
    return path
