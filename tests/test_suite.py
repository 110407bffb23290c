"""The suite itself: nothing that is written as a test is left out unseen."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

from packaging.requirements import Requirement

HERE = Path(__file__).parent
ROOT = HERE.parent

#: Tests that are collected at the least, whatever the machine; raise it when adding some.
AT_LEAST = 1000


def test_every_test_file_is_collected():
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    counted = re.search(r"(\d+) tests collected", done.stdout)
    assert counted is not None
    assert int(counted[1]) >= AT_LEAST
    for path in HERE.glob("test_*.py"):
        assert f"tests/{path.name}::" in done.stdout, path.name


def test_no_two_tests_of_a_file_share_a_name():
    for path in HERE.rglob("test_*.py"):
        names = re.findall(r"^ *def (test_\w+)", path.read_text(), re.MULTILINE)
        assert len(names) == len(set(names)), path.name


def test_every_dependency_is_pinned_and_the_pins_are_what_runs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = {Requirement(line).name.lower().replace("_", "-"): line for line in lines}
    for text in [*project["dependencies"], *project["optional-dependencies"]["test"]]:
        requirement = Requirement(text)
        name = requirement.name.lower().replace("_", "-")
        assert name in pins, name
        if requirement.marker is None or requirement.marker.evaluate():
            pinned = Requirement(pins[name])
            installed = version(requirement.name)
            assert pinned.specifier.contains(installed), (name, installed)
            assert requirement.specifier.contains(installed), (name, installed)
