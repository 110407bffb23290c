import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of test data; tests that need it are skipped where it is not there."""
    folder = os.environ.get("ECG_DASK_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("ECG_DASK_DATA does not name a folder of test data")
    return Path(folder)
