"""The command as a user runs it: a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import psutil
import pytest
from distributed import LocalCluster

TOOL = [sys.executable, "-m", "ecg_dask"]


@pytest.fixture(scope="module")
def scheduler():
    with LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None, protocol="tcp"
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture(scope="module")
def ecg(tmp_path_factory):
    path = tmp_path_factory.mktemp("ecg") / "holter.csv"
    done = call("synth", path, "--hours", "0.05", "--gaps", "1", "--seed", "3")
    assert "45,000 samples at 250 Hz" in done.stdout
    return path


def call(*arguments, status=0):
    done = subprocess.run(
        [*TOOL, *map(str, arguments)], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_help_names_the_commands_and_what_it_is_not():
    text = call("--help").stdout
    assert "Not a medical device" in text
    for command in ("run", "evaluate", "synth", "doctor"):
        assert f"\n  {command}" in text
    assert "0.1.0" in call("--version").stdout


def test_run_then_evaluate(ecg, scheduler, tmp_path):
    out = tmp_path / "out"
    done = call("run", ecg, "--out", out, "--fs", 250, "--scheduler", scheduler, "--epochs", 2)
    assert "beats" in done.stdout
    assert str(out / "report.html") in done.stdout
    assert "Device: cpu, 1 worker." in done.stderr
    assert "segment" in done.stderr
    assert "MiB, to one worker" in done.stderr
    summary = json.loads((out / "summary.json").read_text())
    assert f"{summary['records']['holter']['beats']:,} beats" in done.stdout
    sizes = ", ".join(str(group["beats"]) for group in summary["groups"])
    assert f"groups of anomalies: {len(summary['groups'])}, of {sizes} beats\n" in done.stdout
    shown = call("evaluate", out, "--reference", ecg.with_suffix("")).stdout
    assert shown.startswith("150 ms: ")
    assert "sensitivity 100.000%" in shown
    again = call("run", ecg, "--out", out, "--fs", 250, "--scheduler", scheduler, status=1)
    assert "overwrite" in again.stderr


def test_quiet_prints_nothing(ecg, scheduler, tmp_path):
    options = ["--fs", 250, "--scheduler", scheduler, "--until", "segment", "--quiet"]
    done = call("run", ecg, "--out", tmp_path / "out", *options)
    assert (done.stdout, done.stderr) == ("", "")
    assert len(pd.read_parquet(tmp_path / "out" / "beats.parquet")) > 100


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.csv"], ["nowhere.csv", "no such file"]),
        (["{ecg}"], ["holter.csv", "--fs"]),
        (["{ecg}", "--fs", "250", "--lead", "V9"], ["V9", "II"]),
        (["{ecg}", "--fs", "250", "--until", "lunch"], ["until", "segment"]),
        (["{ecg}", "--fs", "-5"], ["fs", "positive"]),
        (["{ecg}", "--fs", "250", "--chunk", "10"], ["chunk", "1,000 samples"]),
        (["{junk}", "--fs", "250"], ["junk.csv"]),
        (["{bad}", "--fs", "250"], ["bad.csv", "line 302", "'oops'"]),
    ],
)
def test_a_bad_input_is_told_in_words(ecg, scheduler, tmp_path, arguments, words):
    (tmp_path / "junk.csv").write_bytes(os.urandom(5000))
    (tmp_path / "bad.csv").write_text("ecg\n" + "1\n2\n3\n" * 100 + "oops\n" + "1\n2\n3\n" * 100)
    places = {"ecg": ecg, "junk": tmp_path / "junk.csv", "bad": tmp_path / "bad.csv"}
    given = [argument.format(**places) for argument in arguments]
    done = call("run", *given, "--out", tmp_path / "out", "--scheduler", scheduler, status=1)
    for word in [*words, "allowed"]:
        assert word in done.stderr
    assert not list((tmp_path / "out").glob("*"))


def test_other_commands_tell_in_words_too(tmp_path):
    assert "allowed" in call("evaluate", tmp_path, "--reference", "x", status=1).stderr
    assert "allowed" in call("synth", tmp_path / "x.csv", "--hours", "-1", status=1).stderr
    (tmp_path / "y.csv").write_text("mine")
    assert "overwrite" in call("synth", tmp_path / "y.csv", "--hours", "0.01", status=1).stderr
    gpu = ["--out", tmp_path / "out", "--device", "gpu"]
    assert "the driver lists no GPU" in call("run", "x.csv", *gpu, status=1).stderr


@pytest.mark.cluster
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_stopped_leaves_no_half_file(ecg, tmp_path, how):
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("kept")
    options = ["--fs", "250", "--epochs", "100000", "--workers", "1"]
    running = subprocess.Popen(
        [*TOOL, "run", str(ecg), "--out", str(out), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell that runs the tests in the background lets them, and what they start, ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while not list(out.glob(".unfinished-*")):
        assert running.poll() is None
        time.sleep(0.1)
    # It begins with its cluster, and then trains for hours.
    time.sleep(10)
    assert running.poll() is None
    children = psutil.Process(running.pid).children(recursive=True)
    assert children
    # As a terminal does it, with the whole group.
    os.killpg(running.pid, how)
    _, said = running.communicate(timeout=60)
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive
    assert "Traceback" not in said
    assert (out / "mine.txt").read_text() == "kept"
    left = {path.name for path in out.iterdir()} - {"mine.txt"}
    if how == signal.SIGINT:
        assert running.returncode == 130
        assert "Interrupted; nothing was written." in said
        assert left == set()
    else:
        assert all(name.startswith(".unfinished-") for name in left)


@pytest.mark.cluster
def test_a_worker_that_keeps_dying_is_told_in_words(ecg, tmp_path):
    """A task that kills its worker every time: Dask gives up, and the command says why."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if any('spawn_main' in word for word in sys.orig_argv):\n"
        "    import ecg_dask.segment.halos as halos\n"
        "    halos.detect = lambda *arguments: os._exit(9)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    environment["DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES"] = "0"
    options = ["--out", str(tmp_path / "out"), "--fs", "250", "--workers", "1"]
    done = subprocess.run(
        [*TOOL, "run", str(ecg), *options],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 1
    assert "Choose a smaller --chunk" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_numpy_file_needs_no_more_than_fs(scheduler, tmp_path):
    x = np.zeros(5000, np.float32)
    x[500::250] = 1
    np.save(tmp_path / "x.npy", x)
    options = ["--fs", 250, "--scheduler", scheduler, "--until", "segment"]
    done = call("run", tmp_path / "x.npy", "--out", tmp_path / "out", *options)
    assert "18 beats" in done.stdout
