"""The versions of the packages, against those that this package asks for."""

from __future__ import annotations

import importlib.util
import re
import runpy
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..cluster import GPU_PACKAGES
from .findings import Case, Finding, missing, note, ok, wrong

#: Packages that every run needs.
BASE = ("dask", "distributed", "numba", "numpy", "pandas", "torch")

#: Packages that a run on GPUs needs.
GPU = tuple(name.replace("_", "-") for name in GPU_PACKAGES)

#: Packages that UCX needs.
UCX = ("ucxx", "distributed-ucxx")

#: What a package's name ends with when it is built for one version of CUDA.
_SUFFIX = re.compile(r"-(?:cu|cuda)(\d\d)x?$")


def check_packages(case: Case) -> Iterator[Finding]:
    """Tell of each package's version."""
    installed = _installed()
    built_for = _built_for(installed)
    extra = f"gpu-cu{max(built_for, key=lambda cuda: len(built_for[cuda]), default='13')}"
    install = f"pip install 'ecg_dask[{extra}]'"
    if not built_for:
        install += " (gpu-cu12 where the driver is for CUDA 12)"
    try:
        asked_for = requirements(metadata.requires("ecg_dask") or [], extra)
    except metadata.PackageNotFoundError:
        asked_for = {}
        yield note(
            "ecg_dask",
            "no installed metadata, so versions are not compared",
            "Install it with pip, if a version below looks old",
        )
    gpu = case.has_gpu or case.wants_gpu
    for family in BASE:
        yield from _compared(family, installed, asked_for, f"pip install {family}", asked=False)
    if not gpu and not any(family in installed for family in (*GPU, *UCX)):
        yield ok("GPU packages", "none installed, none needed without a GPU")
    else:
        for family in (*GPU, *UCX):
            if gpu or family in installed:
                asked = case.wants_gpu and family in GPU
                yield from _compared(family, installed, asked_for, install, asked=asked)
    if len(built_for) > 1:
        found = "; ".join(
            f"CUDA {cuda}: {', '.join(built_for[cuda])}" for cuda in sorted(built_for)
        )
        yield wrong("CUDA", found, "Uninstall those of one version", asked=case.wants_gpu)
    yield from _torch(case)


def _installed() -> dict[str, list[str]]:
    """Return the names under which each package is installed, such as cudf-cu13 for cudf."""
    found: dict[str, list[str]] = {}
    wanted = {*BASE, *GPU, *UCX}
    for distribution in metadata.distributions():
        name = canonicalize_name(distribution.metadata["Name"] or "")
        family = _SUFFIX.sub("", name)
        if family in wanted and name not in found.setdefault(family, []):
            found[family].append(name)
    return found


def _built_for(installed: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the installed packages by the version of CUDA that they are built for."""
    found: dict[str, list[str]] = {}
    for name in sorted(name for several in installed.values() for name in several):
        if match := _SUFFIX.search(name):
            found.setdefault(match[1], []).append(name)
    return found


def requirements(lines: list[str], extra: str) -> dict[str, Requirement]:
    """Return what the lines of a package's metadata ask for, with one extra, by plain name."""
    wanted: dict[str, Requirement] = {}
    for line in lines:
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": name}) for name in ("", extra)):
            wanted[_SUFFIX.sub("", canonicalize_name(requirement.name))] = requirement
    return wanted


def _compared(
    family: str,
    installed: dict[str, list[str]],
    asked_for: dict[str, Requirement],
    do: str,
    *,
    asked: bool,
) -> Iterator[Finding]:
    requirement = asked_for.get(family)
    allowed = "" if requirement is None else str(requirement.specifier)
    names = installed.get(family, [])
    if not names:
        yield missing(
            family, f"not installed{allowed and f', {allowed} is asked for'}", do, asked=asked
        )
    elif len(names) > 1:
        do = f"Uninstall all of them, then {do}"
        yield wrong(
            family, f"installed more than once: {', '.join(sorted(names))}", do, asked=asked
        )
    else:
        version = metadata.version(names[0])
        found = version if family == names[0] else f"{version} ({names[0]})"
        if requirement is None:
            yield ok(family, found)
        elif requirement.specifier.contains(version, prereleases=True):
            yield ok(family, f"{found}, {allowed} is asked for")
        else:
            do = f"pip install '{requirement.name}{allowed}'"
            yield wrong(family, f"{found}, {allowed} is asked for", do, asked=asked)


def _torch(case: Case) -> Iterator[Finding]:
    """Tell what PyTorch is built for, from the file that says so: importing it takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return
    cuda = runpy.run_path(str(Path(spec.origin).with_name("version.py"))).get("cuda")
    if cuda is None and (case.has_gpu or case.wants_gpu):
        do = "Install the build of PyTorch for this driver's CUDA"
        yield wrong("torch's build", "for the CPU", do, asked=case.wants_gpu)
    else:
        yield ok("torch's build", f"for CUDA {cuda}" if cuda else "for the CPU")
