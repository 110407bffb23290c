"""The registry of steps, and the commands that are made from it; no cluster."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from ecg_dask import InputError
from ecg_dask.cli import main
from ecg_dask.stages import STEPS, Input, Parameter, Step
from ecg_dask.stages.recipe import recipe_of, recording_stamps, stamps


def call(*arguments, status=0):
    done = CliRunner().invoke(main, list(map(str, arguments)))
    assert done.exit_code == status, done.output
    return done.output


def test_the_list_is_what_a_page_needs():
    listed = {step["name"]: step for step in json.loads(call("stage", "list", "--json"))}
    assert list(listed) == ["load", "segment", "train", "score", "report", "sql"]
    assert [step["output"] for step in listed.values()] == [
        "recording",
        "beats",
        "model",
        "table",
        "folder",
        "table",
    ]
    assert listed["score"]["inputs"] == [
        {"kind": "beats", "many": True},
        {"kind": "model", "many": False},
    ]
    assert listed["sql"]["inputs_named_in"] == "query"
    assert listed["load"]["inputs"] == []
    file, fs, lead, *_ = listed["load"]["parameters"]
    assert (file["name"], file["kind"], file["required"]) == ("file", "text", True)
    assert (fs["name"], fs["kind"], fs["default"], fs["required"]) == ("fs", "number", None, False)
    assert (lead["kind"], lead["default"]) == ("text", "0")
    seed = next(one for one in listed["train"]["parameters"] if one["name"] == "seed")
    assert (seed["kind"], seed["default"]) == ("integer", 0)
    for step in listed.values():
        for parameter in step["parameters"]:
            assert set(parameter) == {"name", "kind", "required", "default", "help"}
            assert parameter["kind"] in ("text", "integer", "number")


def test_every_step_is_a_command_with_its_parameters():
    text = call("stage", "list")
    for step in STEPS.values():
        help_ = call("stage", step.name, "--help")
        assert step.help in text
        assert " ".join(step.help.split()) in " ".join(help_.split())
        assert "--scheduler" in help_
        assert "--overwrite" in help_
        for parameter in step.parameters:
            assert parameter.option in help_
            assert parameter.option in text


def test_a_command_that_is_not_done_imports_nothing_slow():
    slow = ("dask", "distributed", "pandas", "numba", "torch", "rich", "yaml", "polars")
    code = (
        "import sys\n"
        "sys.argv = ['ecg-dask', 'stage', 'list']\n"
        "from ecg_dask.cli import main\n"
        "main(standalone_mode=False)\n"
        f"print([name for name in {slow} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_names_are_told_apart_by_their_kinds_in_any_order():
    report = STEPS["report"]
    kinds = {"m": "model", "b": "recording", "t": "table", "a": "recording"}
    assert report.by_kind(kinds, "in") == {
        "recording": ["b", "a"],
        "table": ["t"],
        "model": ["m"],
    }


@pytest.mark.parametrize(
    ("step", "kinds", "words"),
    [
        ("segment", {}, "in: found no name of kind recording; allowed: a recording for the step"),
        ("segment", {"b": "beats"}, "b, which is of kind beats; allowed: a recording"),
        ("segment", {"a": "recording", "b": "recording"}, "a and b, all of kind recording"),
        ("score", {"b": "beats"}, "no name of kind model; allowed: beats .or several. and a model"),
        ("score", {"b": "beats", "m": "model", "n": "model"}, "m and n, all of kind model"),
        ("load", {"b": "beats"}, "b, which is of kind beats; allowed: no names"),
    ],
)
def test_wrong_names_are_refused_in_words(step, kinds, words):
    with pytest.raises(InputError, match=words):
        STEPS[step].by_kind(kinds, "in")


def test_a_kind_that_is_not_known_yet_may_be_what_is_missing():
    assert STEPS["segment"].by_kind({"a": None}, "in") == {"recording": []}
    with pytest.raises(InputError, match="m, which is of kind model"):
        STEPS["segment"].by_kind({"a": None, "m": "model"}, "in")


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("text", "a", "a"),
        ("text", 3, "3"),
        ("integer", 3, 3),
        ("number", 3, 3.0),
        ("number", 2.5, 2.5),
        ("integer", None, None),
    ],
)
def test_values_of_a_file_become_those_of_the_command_line(kind, value, expected):
    checked = Parameter("x", kind).checked(value, "step 1")
    assert checked == expected
    assert type(checked) is type(expected)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("text", True),
        ("text", 2.5),
        ("text", ["a"]),
        ("integer", 2.5),
        ("integer", "3"),
        ("integer", False),
        ("number", "3"),
        ("number", float("nan")),
        ("number", True),
    ],
)
def test_values_of_another_kind_are_refused(kind, value):
    with pytest.raises(InputError, match="step 1, x"):
        Parameter("x", kind).checked(value, "step 1")


def test_without_a_scheduler_a_step_says_what_to_do(monkeypatch):
    monkeypatch.delenv("ECG_DASK_SCHEDULER", raising=False)
    said = call("stage", "load", "x.csv", "--out", "day", status=1)
    assert "scheduler: found no address" in said
    assert "ECG_DASK_SCHEDULER" in said
    said = call("store", "list", "--scheduler-file", "nowhere.json", status=1)
    assert "nowhere.json" in said


def test_a_recipe_is_json_and_differs_with_what_it_names(tmp_path):
    one = recipe_of("train", {"epochs": 5, "seed": 0}, {"beats": "abc"})
    assert json.loads(json.dumps(one)) == one
    assert one == recipe_of("train", {"seed": 0, "epochs": 5}, {"beats": "abc"})
    assert one != recipe_of("train", {"epochs": 6, "seed": 0}, {"beats": "abc"})
    assert one != recipe_of("train", {"epochs": 5, "seed": 0}, {"beats": "abd"})
    assert one != recipe_of("train", {"epochs": 5, "seed": 0}, {"beat": "abc"})
    file = tmp_path / "x.csv"
    file.write_text("1")
    before = recipe_of("load", {"file": str(file)}, {}, recording_stamps(str(file)))
    file.write_text("12")
    assert before != recipe_of("load", {"file": str(file)}, {}, recording_stamps(str(file)))


def test_the_files_of_a_wfdb_record_are_all_looked_at(tmp_path):
    for suffix in (".hea", ".dat", ".atr"):
        (tmp_path / f"100{suffix}").write_text("x")
    expected = {str(tmp_path / "100.hea"), str(tmp_path / "100.dat")}
    for name in ("100", "100.hea", "100.dat"):
        assert set(recording_stamps(str(tmp_path / name))) == expected
    (tmp_path / "v1.2.hea").write_text("x")
    assert set(recording_stamps(str(tmp_path / "v1.2"))) == {str(tmp_path / "v1.2.hea")}


def test_of_a_commands_words_those_that_are_files_count(tmp_path):
    script = tmp_path / "keep.py"
    script.write_text("pass")
    found = stamps(["python", str(script), str(tmp_path), "--nothing"])
    assert list(found) == [str(script)]


def test_a_step_of_ones_own_is_described_alike():
    step = Step("x", "Do it.", str, "table", (Input("beats"), Input("table", many=True)))
    assert step.wants == "beats and a table (or several)"
    assert step.facts()["parameters"] == []
