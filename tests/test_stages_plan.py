"""Pipelines in YAML: what is refused before anything runs, and how it is told."""

import pytest

from ecg_dask import InputError
from ecg_dask.stages.plan import arguments_of, check_names, read_plan

WHOLE = """
scheduler: tcp://127.0.0.1:8786
steps:
  - {load: holter.csv, fs: 250, out: day}
  - {segment: , in: day, out: beats}
  - {command: [python, keep_good.py, 1], in: [beats], out: good}
  - {train: , in: good, out: model, epochs: 5}
  - {score: , in: [good, model], out: scored}
  - {report: , in: [day, scored, model], out: result}
"""


def plan(tmp_path, text):
    path = tmp_path / "pipeline.yaml"
    path.write_text(text)
    return read_plan(str(path))


def steps(tmp_path, *lines):
    return plan(tmp_path, "steps:\n" + "".join(f"  - {line}\n" for line in lines))


def test_a_whole_pipeline(tmp_path):
    read = plan(tmp_path, WHOLE)
    assert read.scheduler == "tcp://127.0.0.1:8786"
    assert [one.title for one in read.steps] == [
        "load",
        "segment",
        "command",
        "train",
        "score",
        "report",
    ]
    load, segment, command, train, _, report = read.steps
    assert load.parameters == {
        "file": "holter.csv",
        "fs": 250.0,
        "lead": "0",
        "chunk": None,
        "record": None,
    }
    assert (segment.names, segment.out) == (("day",), "beats")
    assert command.command == ("python", "keep_good.py", "1")
    assert train.parameters["epochs"] == 5
    assert train.parameters["seed"] == 0
    assert report.makes_folder
    check_names(read, {})
    words = ["load", "--out", "day", "--fs", "250.0", "--lead", "0", "--", "holter.csv"]
    assert arguments_of(load, False) == words
    assert arguments_of(segment, True) == [
        *("segment", "--out", "beats", "--in", "day", "--overwrite"),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no list of steps"),
        ("steps:", "no list of steps"),
        ("steps: []", "no list of steps"),
        ("- {load: x, out: y}", "no list of steps"),
        ("steps: [{load: x, out: y}]\nstep: 3", "step beside the steps"),
        ("steps: [{load: x, out: y}]\nscheduler: 8786", "scheduler 8786"),
        ("steps: [{load: x, out: y}", "no YAML"),
        ("steps: [!!python/object:os.system {}]", "no YAML"),
        ("\x00", "no YAML"),
    ],
)
def test_a_file_that_is_no_pipeline(tmp_path, text, words):
    with pytest.raises(InputError, match=rf"pipeline\.yaml: found .*{words}"):
        plan(tmp_path, text)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="no file to read"):
        read_plan(str(tmp_path / "nowhere.yaml"))
    with pytest.raises(InputError, match="no file to read"):
        read_plan(str(tmp_path))
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(InputError, match="no text"):
        read_plan(str(tmp_path / "x.yaml"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{lod: x.csv, out: day}", "names no step; allowed: a mapping with one of load, segment"),
        ("load", "names no step"),
        ("{load: x.csv, segment: , out: day}", "names load and segment"),
        ("{load: x.csv}", r"step 1 \(load\): found no out"),
        ("{load: , out: day}", "no file"),
        ("{load: x.csv, out: day, in: beats}", "found in; allowed: out, fs, lead"),
        ("{load: x.csv, out: day, ffs: 250}", "found ffs; allowed: out, fs, lead"),
        ("{load: x.csv, out: day, fs: fast}", r"step 1 \(load\), fs: found 'fast'"),
        ("{load: x.csv, out: [a, b]}", "out"),
        ("{load: x.csv, out: ''}", "an empty name"),
        ("{load: [x.csv], out: day}", "file"),
        ("{segment: day, out: beats}", "'day' behind segment.*in: NAME"),
        ("{segment: , in: [day, day], out: beats}", "each name once"),
        ("{train: , in: beats, out: model, epochs: 1.5}", "epochs: found 1.5"),
        ("{command: python keep.py, out: good}", "as a list"),
        ("{command: [], out: good}", "as a list"),
        ("{command: [python], out: good, epochs: 3}", "found epochs; allowed: in, out"),
    ],
)
def test_a_step_that_is_wrong_is_named(tmp_path, line, words):
    with pytest.raises(InputError, match=words) as caught:
        steps(tmp_path, line)
    assert "pipeline.yaml, step 1" in str(caught.value)


def test_two_steps_that_make_the_same(tmp_path):
    with pytest.raises(InputError, match=r"step 2 \(load\), out: found day, which step 1 makes"):
        steps(tmp_path, "{load: a, out: day}", "{load: b, out: day}")
    # A folder is no name.
    steps(tmp_path, "{load: a, out: x}", "{report: , in: [x, t, m], out: x}")
    # A module that makes no name may be there twice.
    steps(tmp_path, "{command: [a]}", "{command: [b]}")


def test_names_must_be_there_before_they_are_read(tmp_path):
    read = steps(tmp_path, "{segment: , in: day, out: beats}", "{load: x.csv, out: day}")
    with pytest.raises(InputError, match=r"step 1 \(segment\), in: found day, .*only step 2 makes"):
        check_names(read, {"day": "recording"})
    read = steps(tmp_path, "{segment: , in: day, out: beats}")
    with pytest.raises(InputError, match="day, which is not in the store, and no step makes it"):
        check_names(read, {"other": "recording"})
    check_names(read, {"day": "recording"})
    with pytest.raises(InputError, match=r"step 1 \(segment\), in: found day, .* kind model"):
        check_names(read, {"day": "model"})


def test_kinds_are_checked_as_far_as_they_are_known(tmp_path):
    read = steps(
        tmp_path,
        "{load: x.csv, out: day}",
        "{command: [python, x.py], in: day, out: good}",
        "{score: , in: [good, day], out: scored}",
    )
    with pytest.raises(InputError, match=r"step 3 \(score\).*day, which is of kind recording"):
        check_names(read, {})
    read = steps(tmp_path, "{segment: , in: day, out: beats}", "{train: , in: day, out: m}")
    with pytest.raises(InputError, match=r"step 2 \(train\)"):
        check_names(read, {"day": "recording"})


def test_a_query_is_checked_as_well(tmp_path):
    pytest.importorskip("polars")
    lines = [
        "{load: x.csv, out: day}",
        "{segment: , in: day, out: beats}",
        "{sql: 'select record, count(*) n from beats group by record', out: counts}",
    ]
    check_names(steps(tmp_path, *lines), {})
    check_names(steps(tmp_path, lines[2]), {"beats": "beats"})
    with pytest.raises(InputError, match=r"step 1 \(sql\), in: found beats, .*only step 3 makes"):
        check_names(steps(tmp_path, lines[2], *lines[:2]), {"beats": "beats"})
    with pytest.raises(InputError, match=r"step 1 \(sql\), query: .*DROP.*one SELECT over"):
        check_names(steps(tmp_path, "{sql: 'drop table beats', out: x}"), {"beats": "beats"})
