"""Pipelines that run: what is up to date, what goes on after a failure, what is refused."""

import os
import re
import signal
import subprocess
import time

import pandas as pd
import pyarrow.parquet as pq
import pytest
from distributed import Client
from stage_clusters import TOOL, cluster, environment, tool

from ecg_dask.store import Store
from ecg_dask.synthetic import synthetic, write_csv

pytestmark = pytest.mark.cluster

KEEP_GOOD = """
import os
from ecg_dask import connect
from ecg_dask.store import Store

with connect(os.environ["ECG_DASK_SCHEDULER"]) as client:
    store = Store(client)
    good = store.get("beats").where(lambda table: table["quality"] > {quality})
    store.put("good", good, overwrite=True)
"""

PIPELINE = """
steps:
  - {load: holter.csv, fs: 250, chunk: 10000, out: day}
  - {segment: , in: day, out: beats}
  - {command: [python, keep_good.py], in: [beats], out: good}
  - {train: , in: good, out: model, epochs: 2}
  - {score: , in: [good, model], out: scored}
  - {sql: "select record, count(*) n from scored group by record", out: counts}
  - {report: , in: [day, scored, model], out: result}
"""

#: Steps that take no seconds to import PyTorch.
LIGHT = """
steps:
  - {load: holter.csv, fs: 250, chunk: 10000, out: day}
  - {segment: , in: day, out: beats}
  - {command: [python, keep_good.py], in: [beats], out: good}
  - {sql: "select record, count(*) n from good group by record", out: counts}
"""

TITLES = ["load", "segment", "command", "train", "score", "sql", "report"]
LIGHT_TITLES = ["load", "segment", "command", "sql"]


class Place:
    """A folder with a pipeline, and a scheduler that it runs on."""

    def __init__(self, folder, running):
        self.folder = folder
        self.running = running
        self.address = running.address
        write_csv(synthetic(120.0, 250.0, seed=9, ventricular=0.05), folder / "holter.csv")
        self.write("keep_good.py", KEEP_GOOD.format(quality=0.5))
        self.write("pipeline.yaml", LIGHT)

    def write(self, name, text):
        (self.folder / name).write_text(text)

    def change(self, old, new):
        text = (self.folder / "pipeline.yaml").read_text()
        assert old in text
        self.write("pipeline.yaml", text.replace(old, new))

    def run(self, *arguments, status=0):
        """Run the pipeline; return what it says, and the state of each step of its table."""
        done = tool(
            *("stage", "run", "pipeline.yaml", *arguments),
            status=status,
            scheduler=self.address,
            cwd=self.folder,
        )
        rows = re.findall(
            r"^ *(\d+) +(\w+) .*?(done|up to date|failed|not run) *([\d.]*) *$",
            done.stdout,
            re.MULTILINE,
        )
        return done, {title: state for _, title, state, _ in rows}


@pytest.fixture
def place(tmp_path):
    with cluster(tmp_path, workers=1) as running:
        yield Place(tmp_path, running)


def states(*done, of=LIGHT_TITLES):
    return {title: "done" if title in done else "up to date" for title in of}


def test_a_whole_pipeline_and_what_hangs_on_a_parameter(place):
    place.write("pipeline.yaml", PIPELINE)
    done, told = place.run()
    assert told == states(*TITLES, of=TITLES)
    assert "beats: " in done.stdout
    assert re.search(r"^ *4 +train +model +done +\d+\.\d *$", done.stdout, re.MULTILINE)
    assert pq.read_table(place.folder / "result" / "beats.parquet").num_rows > 100
    place.change("epochs: 2", "epochs: 1")
    assert place.run()[1] == states("train", "score", "sql", "report", of=TITLES)
    (place.folder / "result" / "report.html").unlink()
    assert place.run()[1] == states("report", of=TITLES)


def test_only_what_is_not_up_to_date_is_done(place):
    assert place.run()[1] == states(*LIGHT_TITLES)
    with Client(place.address) as client:
        entries = {entry.name: entry for entry in Store(client).list()}
        assert entries["good"].recipe["parameters"]["command"] == ["python", "keep_good.py"]
        assert list(entries["good"].made_from) == ["beats"]
    assert place.run()[1] == states()
    with Client(place.address) as client:
        assert {one.name: one.id for one in Store(client).list()} == {
            name: entry.id for name, entry in entries.items()
        }
    place.change("group by record", "group by record having count(*) > 0")
    assert place.run()[1] == states("sql")
    place.write("keep_good.py", KEEP_GOOD.format(quality=0.75))
    assert place.run()[1] == states("command", "sql")
    write_csv(synthetic(121.0, 250.0, seed=9), place.folder / "holter.csv", overwrite=True)
    assert place.run()[1] == states(*LIGHT_TITLES)
    assert place.run("--force")[1] == states(*LIGHT_TITLES)


def test_after_a_failure_it_goes_on_from_there(place):
    place.write("keep_good.py", "raise SystemExit('no beat is good')")
    done, told = place.run(status=1)
    assert "no beat is good" in done.stderr
    assert "pipeline.yaml, step 3 (command): found exit status 1" in done.stderr
    assert told == {"load": "done", "segment": "done", "command": "failed", "sql": "not run"}
    place.write("keep_good.py", KEEP_GOOD.format(quality=0.5))
    place.change("from good", "from bad")
    done, told = place.run(status=1)
    assert "bad" in done.stderr
    place.change("from bad", "from good")
    assert place.run()[1] == states("sql")


def test_a_module_must_make_what_the_pipeline_says(place):
    place.write("keep_good.py", "print('I am done')")
    done, told = place.run(status=1)
    assert "I am done" in done.stdout
    assert "no new good" in done.stderr
    assert 'put("good", ..., overwrite=True)' in done.stderr
    assert told["command"] == "failed"
    place.change("[python, keep_good.py]", "[no-such-program]")
    assert "no-such-program, which cannot be started" in place.run(status=1)[0].stderr


def test_nothing_runs_when_a_later_step_is_wrong(place):
    place.write("pipeline.yaml", PIPELINE.replace("in: good, out: model", "in: god, out: model"))
    done, told = place.run(status=1)
    assert "step 4 (train), in: found god" in done.stderr
    assert told == {}
    with Client(place.address) as client:
        store = Store(client)
        assert len(store.list()) == 0
        store.put("scored", pd.DataFrame({"a": [1]}))
        place.write("pipeline.yaml", PIPELINE)
        done, _ = place.run(status=1)
        assert "step 5 (score), out: found scored, which is there" in done.stderr
        assert [entry.name for entry in store.list()] == ["scored"]
        store.drop("scored")
    (place.folder / "result").mkdir()
    (place.folder / "result" / "summary.json").write_text("{}")
    assert "step 7 (report), out: found result" in place.run(status=1)[0].stderr


def test_what_restarted_workers_held_is_made_again(place):
    place.write("pipeline.yaml", "\n".join(LIGHT.splitlines()[:4]))
    assert place.run()[1] == dict.fromkeys(["load", "segment"], "done")
    with Client(place.address) as client:
        beats = Store(client).get("beats").table.compute()
        pid = next(iter(client.run(os.getpid).values()))
        place.running.kill(pid)
        place.running.start_worker()
        # Dask computes it again.
        again = Store(client).get("beats").table.compute()
        pd.testing.assert_frame_equal(beats, again, check_exact=True)
    assert place.run()[1] == dict.fromkeys(["load", "segment"], "up to date")
    with Client(place.address) as client:
        client.restart(wait_for_workers=False)
    place.running.start_worker()
    assert place.run()[1] == dict.fromkeys(["load", "segment"], "done")


def test_the_file_may_name_the_scheduler(place):
    address = place.address
    place.change("steps:", f"scheduler: {address}\nsteps:")
    place.address = None
    assert place.run()[1] == states(*LIGHT_TITLES)
    place.change(address, "tcp://127.0.0.1:1")
    assert "no scheduler answered" in place.run(status=1)[0].stderr
    assert place.run("--scheduler", address)[1] == states()


def test_an_interrupted_pipeline_says_what_stays(place):
    place.write("pipeline.yaml", PIPELINE.replace("epochs: 2", "epochs: 1000000"))
    running = subprocess.Popen(
        [*TOOL, "stage", "run", "pipeline.yaml"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=place.folder,
        env=environment(place.address),
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    for line in running.stdout:
        if line.startswith("4/7 train"):
            break
    time.sleep(4)
    # As a terminal does it, with the whole group.
    os.killpg(running.pid, signal.SIGINT)
    said, complained = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "what the steps before made stays" in complained
    assert "Traceback" not in complained
    assert re.search(r"^ *4 +train +model +failed", said, re.MULTILINE)
