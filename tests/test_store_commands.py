import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from distributed import Client, LocalCluster

from ecg_dask.cli import main
from ecg_dask.share import attach
from ecg_dask.store import Store

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster():
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster, set_as_default=False):
        yield cluster


@pytest.fixture
def call(cluster):
    def called(*arguments, status=0):
        command = ["store", *map(str, arguments), "--scheduler", cluster.scheduler_address]
        done = CliRunner().invoke(main, command)
        assert done.exit_code == status, done.output
        return done.output

    return called


def test_limits_are_set_for_all_and_told(cluster, call, tmp_path):
    assert call("limits").split() == ["limit:", "none", "ttl_s:", "none", "folder:", "none"]
    told = call("limits", "--limit", "1 GiB", "--folder", tmp_path, "--ttl", 60)
    assert told == call("limits") == f"limit: {2**30}\nttl_s: 60.0\nfolder: {tmp_path}\n"
    with Client(cluster) as client:
        assert Store(client).put("soon", pd.DataFrame({"a": [1]})).expires is not None
    assert "Error: limit: found 'lots'" in call("limits", "--limit", "lots", status=1)


def test_a_shared_name_is_mapped_by_its_descriptor(cluster, call):
    with Client(cluster) as client:
        Store(client).put("table", pd.DataFrame({"a": np.arange(5)}))
    with attach(json.loads(call("share", "table"))) as shared:
        assert shared.table[0]["a"].tolist() == [0, 1, 2, 3, 4]
    assert "no such name in the store; allowed: " in call("share", "nothing", status=1)


@pytest.mark.parametrize("address", ["nonsense", "tcp://host", "tcp://host:port", "://"])
def test_an_address_that_is_none_is_told_in_a_line(address):
    command = [sys.executable, "-m", "ecg_dask", "store", "list", "--scheduler", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: address: found {address!r}, where no scheduler answered")
    assert len(done.stderr.splitlines()) == 1
