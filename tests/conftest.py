import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of test data; tests that need it are skipped where it is not there."""
    folder = os.environ.get("ECG_DASK_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("ECG_DASK_DATA does not name a folder of test data")
    return Path(folder)


@pytest.fixture(scope="module")
def shares_apart():
    """Keep what a module shares apart from what else this user shares."""
    from ecg_dask.share import leases

    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=memory) as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv(leases.FOLDER, folder)
        yield


@pytest.fixture
def start_python():
    """Start Python processes that wait for the end of their input; none outlives the test."""
    started = []

    def started_one(code, *arguments, **environment):
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        started.append(process)
        return process, process.stdout.readline()

    yield started_one
    for process in started:
        process.kill()
        process.communicate()
