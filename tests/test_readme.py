"""What the README shows works as it stands there."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from distributed import Client, LocalCluster

from ecg_dask import Store, find_beats
from ecg_dask.synthetic import synthetic, write_csv

README = (Path(__file__).parent.parent / "README.md").read_text()


#: The examples in Python: the API, a module that filters, one that classifies, a reader.
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.cluster
def test_the_example_runs_as_a_script(tmp_path):
    (tmp_path / "example.py").write_text(EXAMPLES[0])
    write_csv(synthetic(120.0, 250.0), tmp_path / "holter.csv")
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert "score" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.cluster
def test_modules_work_on_beats_by_name(tmp_path):
    def run(example, given="", *arguments):
        (tmp_path / "module.py").write_text(example)
        command = [sys.executable, "module.py", *arguments]
        return subprocess.run(
            command, cwd=tmp_path, input=given, capture_output=True, text=True, check=True
        ).stdout

    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        store = Store(client)
        whole = synthetic(120.0, 250.0, seed=5, ventricular=0.1).recording
        beats = find_beats(replace(whole, signal=whole.signal.rechunk((10_000, 1))))
        assert beats.table.npartitions == 3
        store.put("beats", beats)
        keeps, classifies, reads = EXAMPLES[1:]
        assert "kind='beats'" in run(keeps, "", cluster.scheduler_address)
        assert 0 < len(store.get("good").table) < len(beats.table)
        assert "kind='table'" in run(classifies, "", cluster.scheduler_address)
        early = store.get("early").compute()
        assert early["sample"].tolist() == beats.table["sample"].compute().tolist()
        assert 0 < early["early"].sum() < len(early) / 2
        rows, _ = run(reads, json.dumps(store.share("beats"))).split()
        assert int(rows) == len(beats.table.partitions[0])


def test_the_first_commands_are_those_of_the_makefile():
    commands = re.findall(r"^    make (\w+)", README, re.MULTILINE)
    assert commands == ["demo", "test"]
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    for command in commands:
        assert f"\n{command}:" in makefile


def test_its_pictures_and_pages_are_there():
    for target in re.findall(r"\]\((?!http)([^)]+)\)", README):
        assert (Path(__file__).parent.parent / target).exists(), target
