"""The command as a user runs it, and its checks on made-up machines.

GPUs, their driver's library and network adapters are made up, since the tests' machine has none.
"""

import json
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest
from distributed import LocalCluster

from ecg_dask.doctor import Case, examination
from ecg_dask.doctor.examination import Examined, examine, written
from ecg_dask.doctor.findings import Finding, missing, note, ok, wrong
from ecg_dask.doctor.gpus import check_gpus, check_use
from ecg_dask.doctor.network import Port, check_network, ports
from ecg_dask.doctor.packages import check_packages, requirements
from ecg_dask.doctor.probe import ProbeError, probe
from ecg_dask.doctor.scheduler import compared, on_gpus
from ecg_dask.doctor.settings import check_settings
from ecg_dask.doctor.storage import check_storage
from ecg_dask.doctor.transfer import DIRECT, check_transfer, verdict
from ecg_dask.doctor.ucx import check_ucx
from ecg_dask.gpu.devices import Gpu, gpus

GIB = 2**30
H200 = Gpu(0, "NVIDIA H200", "GPU-1", 140 * GIB, 100 * GIB)
OTHER = Gpu(1, "NVIDIA H200", "GPU-2", 140 * GIB, 100 * GIB)

no_gpu = pytest.mark.skipif(bool(gpus()), reason="needs a machine without a GPU")


def doctor(*arguments, status=0, **environment):
    command = [sys.executable, "-m", "ecg_dask", "doctor", *arguments]
    # UCX leaves variables in a process that has used it, such as that of other tests.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("UCX_")}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=250, env={**kept, **environment}
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout


def by_name(findings):
    return {finding.name: finding for finding in findings}


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """Write modules that both this process and probes find before all others."""
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))

    def write(**sources):
        for name, source in sources.items():
            (folder / f"{name}.py").write_text(source)

    write.folder = folder
    return write


# The command


def test_a_machine_without_a_gpu_is_healthy():
    text = doctor("--device", "cpu")
    for line in ("Machine", "GPU", "Packages", "Network", "UCX", "Storage", "Cluster"):
        assert f"\n{line}\n" in f"\n{text}"
    assert "  ok       Python: 3." in text
    assert "  ok       dask: 20" in text
    assert "  missing" not in text
    assert "  wrong" not in text


def test_the_same_as_json():
    rows = json.loads(doctor("--device", "cpu", "--json"))
    assert {tuple(row) for row in rows} == {("group", *Finding._fields)}
    assert {row["state"] for row in rows} <= {"ok", "note"}
    assert all(bool(row["do"]) == (row["state"] != "ok") for row in rows)
    assert {row["name"] for row in rows} >= {"Python", "memory", "torch", "network devices"}


@no_gpu
def test_a_gpu_that_is_asked_for_and_not_there():
    rows = json.loads(doctor("--device", "gpu", "--json", status=1))
    failing = {row["name"]: row for row in rows if row["asked"]}
    assert failing["GPU"]["state"] == "missing"
    assert "nvidia-smi" in failing["GPU"]["do"]
    assert failing["numba.cuda"]["state"] == "wrong"
    assert "driver" in failing["numba.cuda"]["found"]
    assert "pip install 'ecg_dask[gpu-cu1" in failing["cudf"]["do"]


@no_gpu
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--pool", "2 GiB"], "missing  pool: '2 GiB', and no GPU to have it on"),
        (["--protocol", "tls"], "missing  tls: no ca_file, cert, key"),
        (["--scheduler", "tcp://127.0.0.1:9"], "no scheduler answered"),
        (["--scheduler", "tcp://127.0.0.1:9", "--pool", "1 GiB"], "pool beside a running"),
    ],
)
def test_what_is_asked_for_and_not_there(arguments, words):
    text = doctor(*arguments, status=1)
    assert words in text
    assert ".." not in text.replace("...", "")


def test_a_scheduler_that_answers():
    with LocalCluster(
        n_workers=2, threads_per_worker=3, processes=False, dashboard_address=None, protocol="tcp"
    ) as cluster:
        address = cluster.scheduler_address
        text = doctor("--scheduler", address)
        assert f"ok       scheduler: {address} (tcp) answers" in text
        assert "ok       workers: 2 with 6 threads and " in text
        assert "ok       workers' GPUs: 0 of 2 workers are on GPUs" in text
        assert "ok       versions: the same everywhere: python, dask, distributed" in text
        text = doctor("--scheduler", address, "--device", "gpu", status=1)
        assert "missing  workers' GPUs: 0 of 2 workers are on GPUs. Start all workers" in text


def test_a_scheduler_without_workers():
    with LocalCluster(
        n_workers=0, processes=False, dashboard_address=None, protocol="tcp"
    ) as cluster:
        text = doctor("--scheduler", cluster.scheduler_address, status=1)
    assert "missing  workers: none. Start some: dask worker tcp://" in text


@pytest.mark.cluster
def test_ucx_is_measured_without_a_gpu():
    pytest.importorskip("distributed_ucxx")
    text = doctor("--device", "cpu", "--protocol", "ucx")
    assert "ok       transports: may use " in text
    assert "ok       ucx: 32 MB from worker " in text
    assert " GB/s, in the host's memory" in text


def test_ucx_that_does_not_work():
    pytest.importorskip("distributed_ucxx")
    text = doctor("--device", "cpu", "--protocol", "ucx", status=1, UCX_TLS="rc")
    assert "note     environment: UCX_TLS=rc. Unset UCX_TLS" in text
    assert "wrong    UCX: does not start: No such device" in text
    assert "wrong    ucx: two workers cannot use it: Cluster failed to start" in text


# Code in a process of its own


def test_a_probe_returns_what_is_assigned():
    code = "import atexit; print('x', end=''); result = [1, 'a']; atexit.register(print, 'y')"
    assert probe(code) == [1, "a"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise OSError('a\\nb')", "^a b$"),
        ("import ecg_dask_without_such_a_module", "No module named"),
        ("raise SystemExit", "^SystemExit$"),
        ("import os; os.abort()", "ended by signal 6"),
        ("import os; os._exit(3)", "ended with status 3: no message"),
        ("result = object()", "not JSON serializable"),
        ("result =", "invalid syntax"),
    ],
)
def test_a_probe_that_fails(code, words):
    with pytest.raises(ProbeError, match=words):
        probe(code)


def test_a_probe_names_the_root_of_an_error():
    with pytest.raises(ProbeError, match=r"^above: below$"):
        probe("try: 1 / 0\nexcept ArithmeticError: raise OSError('above.') from OSError('below')")


def test_a_probe_says_what_an_input_error_says():
    with pytest.raises(ProbeError) as caught:
        probe("from ecg_dask import connect; connect(workers=0)")
    assert str(caught.value) == "0; allowed: 1 or more"
    assert caught.value.remedy == "Choose a number of at least 1"


def test_a_probe_that_hangs_is_ended_with_its_children(tmp_path):
    code = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with open({str(tmp_path / "pid")!r}, "w") as file:
    file.write(str(child.pid))
child.wait()
"""
    with pytest.raises(ProbeError, match="no answer within 5 s"):
        probe(code, limit_s=5)
    pid = int((tmp_path / "pid").read_text())
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.05)


def test_a_check_that_breaks_is_a_finding(monkeypatch):
    def broken(case):
        yield ok("first", "here")
        raise RuntimeError("libsomething.so: wrong ELF class")

    monkeypatch.setattr(examination, "check_network", broken)
    found = [one.finding for one in examine(Case(device="cpu")) if one.group == "Network"]
    assert [finding.state for finding in found] == ["ok", "wrong"]
    assert found[1].found == "RuntimeError: libsomething.so: wrong ELF class"
    assert not found[1].fails


def test_only_what_is_asked_for_fails():
    assert missing("x", "none", "Do", asked=True).fails
    assert wrong("x", "bad", "Do", asked=True).fails
    assert not wrong("x", "bad", "Do").fails
    assert not note("x", "odd", "Do").fails


def test_a_group_is_headed_once():
    found = [("A", ok("x", "1")), ("A", note("y", "2", "Do")), ("B", ok("z", "3"))]
    lines = list(written([Examined(*one) for one in found], as_json=False))
    assert lines == ["A", "  ok       x: 1", "  note     y: 2. Do.", "B", "  ok       z: 3"]


# The driver and the GPUs


class Nvml(SimpleNamespace):
    """NVML's Python package, as far as it is asked."""

    class NVMLError(Exception):
        pass

    NVML_DEVICE_MIG_ENABLE = 1

    def __init__(self, count, mig=None):
        super().__init__(count=count, mig=mig, open=0)

    def nvmlInit(self):
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlSystemGetDriverVersion(self):
        return "580.159.04"

    def nvmlSystemGetCudaDriverVersion(self):
        return 13020

    def nvmlDeviceGetCount(self):
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetCudaComputeCapability(self, handle):
        return (9, 0)

    def nvmlDeviceGetMigMode(self, handle):
        if self.mig is None:
            raise self.NVMLError("Not Supported")
        return [self.mig, self.mig]


def test_gpus_and_their_driver(monkeypatch):
    nvml = Nvml(2, mig=0)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert list(check_gpus(Case(gpus=(H200, OTHER)))) == [
        ok("driver", "580.159.04, for CUDA up to 13.2"),
        *(
            ok(
                f"GPU {i}",
                "NVIDIA H200, 140.00 GiB, 100.00 GiB free, compute capability 9.0, MIG off",
            )
            for i in range(2)
        ),
    ]
    assert nvml.open == 0


@pytest.mark.parametrize(("mig", "state"), [(None, "ok"), (0, "ok"), (1, "note")])
def test_parts_of_a_gpu_are_noted(monkeypatch, mig, state):
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(1, mig))
    assert by_name(check_gpus(Case(gpus=(H200,))))["GPU 0"].state == state


def test_gpus_that_are_hidden(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(2))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    hidden = by_name(check_gpus(Case(device="gpu")))["CUDA_VISIBLE_DEVICES"]
    assert hidden.found == "'7', which leaves none of 2 GPUs"
    assert hidden.fails
    assert not by_name(check_gpus(Case()))["CUDA_VISIBLE_DEVICES"].fails
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    chosen = by_name(check_gpus(Case(gpus=(OTHER,))))["CUDA_VISIBLE_DEVICES"]
    assert chosen == ok("CUDA_VISIBLE_DEVICES", "'1', 1 of 2 GPUs")


@pytest.mark.parametrize("trace", ["dev/nvidia0", "proc/driver/nvidia"])
def test_a_gpu_without_the_drivers_library(monkeypatch, tmp_path, trace):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    [found] = check_gpus(Case(), tmp_path)
    assert found.state == "ok"
    assert "nvidia-ml-py is not installed" in found.found
    [found] = check_gpus(Case(device="gpu"), tmp_path)
    assert (found.state, found.fails) == ("missing", True)
    (tmp_path / trace).mkdir(parents=True)
    [found] = check_gpus(Case(), tmp_path)
    assert (found.state, found.do, found.fails) == ("wrong", "Install nvidia-ml-py", False)
    assert f"/{trace} is there" in found.found
    [found] = check_gpus(Case(device="gpu"), tmp_path)
    assert found.fails


def test_libraries_are_tried_on_the_gpu(modules):
    modules(
        cupy="def arange(n):\n    import numpy; return numpy.arange(n)",
        cudf="raise ImportError('libcudf.so: no such file')",
        torch="import os\nos.abort()",
        numba="import sys",
    )
    found = by_name(check_use(Case(gpus=(H200,))))
    assert found["cupy"] == ok("cupy", "computes on the GPU")
    assert "fails on the GPU: libcudf.so: no such file" in found["cudf"].found
    assert "ended by signal 6" in found["torch"].found
    assert found["numba.cuda"].state == "wrong"
    assert not any(finding.fails for finding in found.values())
    modules(cupy="def arange(n):\n    import numpy; return numpy.ones(n)")
    found = by_name(check_use(Case(device="gpu", gpus=(H200,))))
    assert found["cupy"].found == "1 + 2 + 3 is 4 on the GPU"
    assert all(finding.fails for finding in found.values())


@no_gpu
def test_nothing_is_tried_on_gpus_that_nobody_wants():
    assert check_use(Case()) == []
    assert check_use(Case(device="cpu", gpus=(H200,))) == []
    assert check_use(Case(device="gpu", scheduler="tcp://x:1")) == []


# Packages


def distribution(folder, name, version):
    where = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    where.mkdir()
    (where / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_requirements_of_one_extra():
    lines = [
        "numpy>=2.0",
        'cudf-cu13==26.12.*; extra == "gpu-cu13"',
        'cudf-cu12==26.10.*; extra == "gpu-cu12"',
        'cupy-cuda13x>=14; extra == "gpu-cu13"',
        'numba_cuda[cu13]>=0.30; extra == "gpu-cu13"',
        'pytest; extra == "test"',
    ]
    assert {
        name: str(wanted.specifier) for name, wanted in requirements(lines, "gpu-cu13").items()
    } == {
        "numpy": ">=2.0",
        "cudf": "==26.12.*",
        "cupy": ">=14",
        "numba-cuda": ">=0.30",
    }


def test_versions_are_compared(modules):
    distribution(modules.folder, "ecg_dask", "9")
    metadata = modules.folder / "ecg_dask-9.dist-info" / "METADATA"
    wanted = [
        "numpy<1.0",
        "cupy-cuda12x>=14; extra == 'gpu-cu12'",
        "cudf-cu12>=3; extra == 'gpu-cu12'",
    ]
    metadata.write_text(
        metadata.read_text() + "".join(f"Requires-Dist: {line}\n" for line in wanted)
    )
    for name, version in [
        ("cupy-cuda12x", "14.2"),
        ("cudf-cu12", "2.0"),
        ("dask-cudf-cu12", "1.0"),
        ("kvikio-cu12", "1.0"),
        ("kvikio-cu13", "1.0"),
    ]:
        distribution(modules.folder, name, version)
    found = by_name(check_packages(Case(gpus=(H200,))))
    assert found["numpy"].state == "wrong"
    assert found["numpy"].do == "pip install 'numpy<1.0'"
    assert found["cupy"] == ok("cupy", "14.2 (cupy-cuda12x), >=14 is asked for")
    assert found["cudf"].found == "2.0 (cudf-cu12), >=3 is asked for"
    assert found["cudf"].do == "pip install 'cudf-cu12>=3'"
    assert found["dask-cudf"] == ok("dask-cudf", "1.0 (dask-cudf-cu12)")
    assert found["kvikio"].found == "installed more than once: kvikio-cu12, kvikio-cu13"
    assert (
        "CUDA 12: cudf-cu12, cupy-cuda12x, dask-cudf-cu12, kvikio-cu12; CUDA 13:"
        in found["CUDA"].found
    )
    assert not any(finding.fails for finding in found.values())
    found = by_name(check_packages(Case(device="gpu", gpus=(H200,))))
    assert found["cudf"].fails
    assert not found["numpy"].fails


def test_without_own_metadata_versions_are_listed(monkeypatch):
    from importlib import metadata

    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", absent)
    found = by_name(check_packages(Case()))
    assert found["ecg_dask"].state == "note"
    assert found["dask"] == ok("dask", metadata.version("dask"))


@pytest.mark.parametrize(("cuda", "state"), [("None", "wrong"), ("'13.0'", "ok")])
def test_what_pytorch_is_built_for(modules, cuda, state, monkeypatch):
    # Where other tests have imported it, it would be found without a look at the path.
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    package = modules.folder / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    (package / "version.py").write_text(f"cuda = {cuda}")
    found = by_name(check_packages(Case(device="gpu", gpus=(H200,))))["torch's build"]
    assert (found.state, found.fails) == (state, state == "wrong")
    assert by_name(check_packages(Case()))["torch's build"].state == "ok"


# Network and UCX


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A made-up ``/`` with two interfaces, an InfiniBand port, and two of RoCE."""
    monkeypatch.delenv("UCX_NET_DEVICES", raising=False)
    files = {"net/eth0/operstate": "up", "net/eth1/operstate": "down"}
    for name, link, state in [
        ("mlx5_0/ports/1", "InfiniBand", "4: ACTIVE"),
        ("mlx5_1/ports/1", "Ethernet", "4: ACTIVE"),
        ("mlx5_1/ports/2", "Ethernet", "1: DOWN"),
    ]:
        port = f"infiniband/{name}"
        files |= {f"{port}/link_layer": link, f"{port}/state": state, f"{port}/rate": "400 Gb/sec"}
    for name, text in files.items():
        path = tmp_path / "sys/class" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return tmp_path


def test_infiniband_and_roce(root):
    assert ports(root) == [
        Port("mlx5_0:1", True, "InfiniBand", "4: ACTIVE, 400 Gb/sec"),
        Port("mlx5_1:1", True, "RoCE", "4: ACTIVE, 400 Gb/sec"),
        Port("mlx5_1:2", False, "RoCE", "1: DOWN, 400 Gb/sec"),
    ]
    (root / "sys/class/infiniband/mlx5_1/ports/2/rate").unlink()
    found = by_name(check_network(Case(), root))
    assert found["network devices"].found == "mlx5_0:1, mlx5_1:1, eth0 (UCX_NET_DEVICES=all)"
    assert found["mlx5_0:1"] == ok("mlx5_0:1", "InfiniBand, 4: ACTIVE, 400 Gb/sec")
    assert (found["mlx5_1:2"].state, found["mlx5_1:2"].found) == ("note", "RoCE, 1: DOWN, unknown")
    assert "GPUDirect RDMA" not in found


@pytest.mark.parametrize(
    ("devices", "state"),
    [
        ("eth1", "ok"),
        ("mlx5_0:1,eth0", "ok"),
        ("mlx5_1", "ok"),
        ("mlx5_7:1,eth0", "wrong"),
        ("^eth0", "ok"),
    ],
)
def test_devices_that_ucx_is_told_to_use(root, monkeypatch, devices, state):
    monkeypatch.setenv("UCX_NET_DEVICES", devices)
    found = by_name(check_network(Case(protocol="ucx"), root))["network devices"]
    assert (found.state, found.fails) == (state, state == "wrong")
    assert f"UCX_NET_DEVICES={devices}" in found.found
    if state == "wrong":
        assert "of which mlx5_7:1 is not here" in found.found
        assert "eth0, eth1, mlx5_0, mlx5_0:1" in found.do


def test_a_machine_without_any_device(tmp_path):
    found = by_name(check_network(Case(), tmp_path))
    assert "loopback" in found["network devices"].found
    assert found["InfiniBand, RoCE"].state == "ok"


@no_gpu
def test_gpudirect_rdma(root):
    found = by_name(check_network(Case(gpus=(H200,)), root))["GPUDirect RDMA"]
    assert found.state == "note"
    assert "libcuda.so.1" in found.found
    assert "modprobe nvidia-peermem" in found.do
    (root / "sys/module/nvidia_peermem").mkdir(parents=True)
    found = by_name(check_network(Case(gpus=(H200,)), root))["GPUDirect RDMA"]
    assert found == ok("GPUDirect RDMA", "the kernel module nvidia_peermem is loaded")


@no_gpu
def test_ucx_without_the_ways_that_the_machine_has(root, tmp_path):
    pytest.importorskip("distributed_ucxx")
    found = by_name(check_ucx(Case(protocol="ucx", gpus=(H200,)), root))
    assert "with the modules cma, cuda, " in found["UCX"].found
    assert found["transports"].found.endswith("; not cuda_ipc")
    assert found["transports"].fails
    assert "nodes talk over tcp" in found["InfiniBand in UCX"].found
    assert not by_name(check_ucx(Case(gpus=(H200,)), root))["transports"].fails
    assert "InfiniBand in UCX" not in by_name(check_ucx(Case(), tmp_path / "empty"))


@pytest.mark.parametrize(
    ("case", "state", "fails"),
    [
        (Case(), "ok", False),
        (Case(protocol="ucx"), "missing", True),
        (Case(gpus=(H200,)), "missing", False),
    ],
)
def test_ucx_that_is_not_installed(monkeypatch, case, state, fails):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    [found] = check_ucx(case)
    assert (found.state, found.fails) == (state, fails)
    assert list(check_transfer(case, works=True)) == []


# Transfers


def test_the_rate_tells_the_way():
    fast, slow = ("worker 0", "worker 1", 2 * DIRECT), ("worker 1", "worker 2", DIRECT / 4)
    found = verdict([fast, fast], on_gpu=True, asked=True)
    assert found.state == "ok"
    assert "used: 256 MB from worker 0 to worker 1 at 20 GB/s" in found.found
    found = verdict([fast, slow, fast], on_gpu=True, asked=True)
    assert found.fails
    assert "not used: 256 MB from worker 1 to worker 2 at 2.5 GB/s, the slowest of 3" in found.found
    assert "Unset UCX_TLS" in found.do
    assert not verdict([slow], on_gpu=True, asked=False).fails
    assert verdict([slow], on_gpu=False, asked=True).state == "ok"


@pytest.mark.parametrize(
    ("case", "names"),
    [
        (Case(), []),
        (Case(protocol="tcp", gpus=(H200,)), []),
        (Case(device="cpu", gpus=(H200,)), []),
        (Case(protocol="ucx", scheduler="tcp://x:1", gpus=(H200,)), []),
        (Case(pool="async", gpus=(H200, OTHER)), []),
        (Case(protocol="ucx", pool="async", gpus=(H200,)), []),
        (Case(protocol="ucx", pool="async", gpus=(H200, OTHER)), ["cuda_ipc"]),
        (Case(gpus=(H200,)), ["cuda_ipc"]),
    ],
)
def test_what_need_not_or_cannot_be_measured(case, names):
    pytest.importorskip("distributed_ucxx")
    found = list(check_transfer(case, works=False))
    assert [finding.name for finding in found] == names
    assert all(finding.state == "note" for finding in found)


@no_gpu
def test_a_measurement_that_fails():
    pytest.importorskip("distributed_ucxx")
    [found] = check_transfer(Case(protocol="ucx", gpus=(H200,)), works=True)
    assert found.fails
    assert "two workers cannot use it: 'gpu' where the driver lists no GPU" in found.found
    assert found.do == "See what ecg-dask doctor says, or choose cpu"


# Storage


def kvikio(modules, preferred):
    package = modules.folder / "kvikio"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text("")
    (package / "defaults.py").write_text(f"def is_compat_mode_preferred(): return {preferred}")


def test_the_way_of_a_file_and_why(modules, tmp_path, monkeypatch):
    monkeypatch.delenv("KVIKIO_COMPAT_MODE", raising=False)
    case = Case(gpus=(H200,))
    kvikio(modules, True)
    [found] = check_storage(case, tmp_path)
    assert found.state == "note"
    assert "/run/udev cannot be read" in found.found
    (tmp_path / "run/udev").mkdir(parents=True)
    [found] = check_storage(case, tmp_path)
    assert "libcufile cannot be loaded" in found.found
    monkeypatch.setenv("KVIKIO_COMPAT_MODE", "ON")
    [found] = check_storage(case, tmp_path)
    assert found.found == "POSIX through host memory: KVIKIO_COMPAT_MODE=ON"
    kvikio(modules, False)
    [found] = check_storage(case, tmp_path)
    assert "the driver nvidia-fs is not loaded" in found.found
    (tmp_path / "proc/driver/nvidia-fs").mkdir(parents=True)
    [found] = check_storage(case, tmp_path)
    assert found.state == "ok"
    assert found.found.startswith("GPUDirect Storage")


def test_a_broken_kvikio(modules):
    modules(kvikio="raise ImportError('libcufile.so.0: cannot open')")
    [found] = check_storage(Case(device="gpu", gpus=(H200,)))
    assert found.fails
    assert "libcufile.so.0: cannot open" in found.found
    [found] = check_storage(Case())
    assert found == ok("reading", "POSIX, into the host's memory")


# What a new cluster would be made of


def settings(**options):
    return by_name(check_settings(Case(**options)))


def test_the_pool_that_a_run_would_have():
    assert settings(gpus=(H200,))["pool of GPU 0"].found == "80.00 GiB a worker, of 140.00 GiB"
    found = settings(gpus=(H200, OTHER), pool="20 GiB", workers_per_gpu=2)
    assert found["pool of GPU 1"].found == "10.00 GiB a worker, of 140.00 GiB"
    busy = settings(gpus=(H200,), pool="120 GiB")["pool of GPU 0"]
    assert busy.fails
    assert "100.00 GiB free" in busy.found
    large = settings(gpus=(H200,), pool="1 TiB")["pool of GPU 0"]
    assert large.fails
    assert "up to the 140.00 GiB of the GPU" in large.found
    assert settings(gpus=(H200,), pool="much")["pool of GPU 0"].fails
    assert settings(gpus=(H200,), pool="async")["pool of GPU 0"].found.endswith("asynchronous")
    assert settings(gpus=(H200,), device="cpu", pool="1 GiB")["pool"].fails


def test_more_workers_than_gpus():
    assert settings(gpus=(H200, OTHER), workers=2)["workers"].state == "ok"
    assert settings(gpus=(H200, OTHER), workers=3)["workers"].fails
    assert settings(gpus=(H200, OTHER), workers=4, workers_per_gpu=2)["workers"].state == "ok"
    assert settings(device="gpu", workers=1)["workers"].fails
    assert "workers" not in settings(device="cpu", gpus=(H200,), workers=3)
    assert "workers" not in settings(gpus=(H200,), workers=3, scheduler="tcp://x:1")


def test_the_dashboards_port(monkeypatch):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr("ecg_dask.doctor.settings.PORT", taken.getsockname()[1])
        assert settings()["dashboard"].state == "note"
    assert settings()["dashboard"].state == "ok"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert settings()["dashboard"].state == "missing"


# A running scheduler


@pytest.mark.parametrize(
    ("told", "state", "words"),
    [
        ([True, True], "ok", "2 of 2 workers are on GPUs"),
        ([False, False], "ok", "0 of 2 workers are on GPUs"),
        ([True, False], "wrong", "1 of 2 workers are on GPUs; not w1"),
        ([True] + [False] * 6, "wrong", "1 of 7 workers are on GPUs; not w1, w2, w3, w4, ..."),
        ([True, None], "wrong", "1 of 2 workers cannot say: they have no ecg_dask"),
    ],
)
def test_workers_with_and_without_gpus(told, state, words):
    workers = [{"address": f"w{i}", "gpu": gpu} for i, gpu in enumerate(told)]
    found = on_gpus(Case(scheduler="tcp://x:1"), workers)
    assert (found.state, found.found, found.fails) == (state, words, False)
    found = on_gpus(Case(scheduler="tcp://x:1", device="gpu"), workers)
    assert (found.found, found.fails) == (words, not all(told))


def test_versions_that_differ_are_told():
    mine = {"python": "3.12.1", "dask": "2026.7.1", "ecg_dask": "1", "lz4": None}
    versions = {
        "client": [mine],
        "scheduler": [mine | {"dask": "2026.1.0"}],
        "workers": [mine, mine | {"ecg_dask": None}],
    }
    found = by_name(compared(versions))
    assert found["dask"].state == "wrong"
    assert found["dask"].found == "client 2026.7.1; scheduler 2026.1.0; workers 2026.7.1"
    assert found["ecg_dask"].found == "client 1; scheduler 1; workers 1, None"
    assert found["versions"] == ok("versions", "the same everywhere: python, lz4")
