"""What the README shows works as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ecg_dask.synthetic import synthetic, write_csv

README = (Path(__file__).parent.parent / "README.md").read_text()


@pytest.mark.cluster
def test_the_example_runs_as_a_script(tmp_path):
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert code is not None
    (tmp_path / "example.py").write_text(code[1])
    write_csv(synthetic(120.0, 250.0), tmp_path / "holter.csv")
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert "score" in done.stdout
    assert "Traceback" not in done.stderr


def test_the_first_commands_are_those_of_the_makefile():
    commands = re.findall(r"^    make (\w+)", README, re.MULTILINE)
    assert commands == ["demo", "test"]
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    for command in commands:
        assert f"\n{command}:" in makefile


def test_its_pictures_and_pages_are_there():
    for target in re.findall(r"\]\((?!http)([^)]+)\)", README):
        assert (Path(__file__).parent.parent / target).exists(), target
