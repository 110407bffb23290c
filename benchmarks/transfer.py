"""Arrays from one worker to another, over tcp and over ucx, beside a plain copy of the same size.

    python benchmarks/transfer.py [-t cpu|gpu] [--largest SIZE] [--repeats N] [--out DIR]
        [--pool SIZE]

On GPUs the two workers are on two of them, or on one where there is no other; the copy is then one
from GPU to GPU, or within the GPU's memory. What is timed is a task on one worker that needs a new
array of the other, from the client's call until it has the task's result; nothing is subtracted,
and an array of 1 kB shows what of that is no transfer. Over tcp, 1 GB and more go 3 times instead
of the number of repeats.

DIR, by default ``benchmarks/results``, gets ``transfer.csv`` and ``transfer.md``, with ``_gpu``
or ``_2gpus``.
"""

from __future__ import annotations

import importlib
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from dask.utils import parse_bytes
from distributed import Client, wait
from timings import (
    Timing,
    cold,
    least,
    median,
    number_of_gpus,
    on_device,
    parser,
    positive,
    report,
    table,
    warm,
)

import ecg_dask

#: Bytes of the arrays; the first one shows what a task costs.
SIZES = (1_000, 10**6, 16 * 10**6, 64 * 10**6, 256 * 10**6, 10**9, 2 * 10**9, 4 * 10**9)

#: From this size on, tcp is repeated less often.
LARGE, LARGE_REPEATS = 10**9, 3

#: Seconds until the workers must have given back what was sent.
RELEASE_LIMIT_S = 60

COPY = "copy"


def transfers(
    protocol: str, sizes: Sequence[int], gpus: int, repeats: int, where: dict[str, Any]
) -> list[Timing]:
    """Time the transfers between two workers of a new cluster.

    Parameters
    ----------
    protocol
        ``"tcp"`` or ``"ucx"``.
    sizes
        Bytes of the arrays.
    gpus
        GPUs that there are.
    repeats
        Transfers of each size after the first.
    where
        What `connect` is told of the device.
    """
    count = {"workers_per_gpu": 2} if gpus == 1 else {"threads": 1}
    timings = []
    with ecg_dask.connect(protocol=protocol, workers=2, **count, **where) as client:
        source, target = client.nthreads()
        for size in sizes:
            few = protocol == "tcp" and size >= LARGE
            for run in range((min(repeats, LARGE_REPEATS) if few else repeats) + 1):
                seconds = transfer(client, source, target, size, gpus > 0)
                timings.append(Timing(protocol, "transfer", 2, size, "bytes", run, seconds, size))
    return timings


def transfer(client: Client, source: str, target: str, size: int, gpu: bool) -> float:
    """Return the seconds of a task on one worker that needs a new array of another."""
    array = client.submit(new_array, size, gpu, workers=[source], pure=False)
    wait(array)
    begun = time.perf_counter()
    task = client.submit(received, array, gpu, workers=[target], pure=False)
    n_bytes = task.result()
    seconds = time.perf_counter() - begun
    if n_bytes != size:
        sys.exit(f"{n_bytes:,} bytes arrived of {size:,}")
    del array, task
    # Of two arrays that a worker holds it would move one to the host's memory.
    deadline = time.perf_counter() + RELEASE_LIMIT_S
    while any(client.run(n_held).values()):
        if time.perf_counter() > deadline:
            sys.exit("the workers keep arrays that nobody needs any more")
    return seconds


def new_array(size: int, gpu: bool) -> Any:
    """Return an array of so many bytes, once it is there (a task)."""
    array = importlib.import_module("cupy" if gpu else "numpy").ones(size, "uint8")
    received(array, gpu)
    return array


def received(array: Any, gpu: bool) -> int:
    """Return the bytes of an array, once they are there (a task)."""
    if gpu:
        importlib.import_module("cupy").cuda.runtime.deviceSynchronize()
    return int(array.nbytes)


def n_held(dask_worker: Any) -> int:
    """Return how many results a worker holds."""
    return len(dask_worker.data)


def copies(sizes: Sequence[int], gpus: int, repeats: int) -> list[Timing]:
    """Time plain copies in this process: between two GPUs, within one, or in the host's memory."""
    copy = copy_on_gpus if gpus else copy_on_host
    return [
        Timing(COPY, COPY, 0, size, "bytes", run, seconds, size)
        for size in sizes
        for run, seconds in enumerate(copy(size, min(gpus, 2), repeats))
    ]


def copy_on_host(size: int, gpus: int, repeats: int) -> list[float]:
    """Return the seconds of copies of one NumPy array to another."""
    source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    seconds = []
    for _ in range(repeats + 1):
        begun = time.perf_counter()
        np.copyto(target, source)
        seconds.append(time.perf_counter() - begun)
    return seconds


def copy_on_gpus(size: int, gpus: int, repeats: int) -> list[float]:
    """Return the seconds of copies from the first GPU to the last one of `gpus`."""
    import cupy

    runtime = cupy.cuda.runtime
    target = cupy.cuda.Device(gpus - 1)
    with target:
        copied = cupy.zeros(size, cupy.uint8)
        target.synchronize()
    with cupy.cuda.Device(0) as here:
        array = cupy.ones(size, cupy.uint8)
        here.synchronize()
        stream = cupy.cuda.get_current_stream()
        seconds = []
        for _ in range(repeats + 1):
            begun = time.perf_counter()
            runtime.memcpyAsync(
                copied.data.ptr, array.data.ptr, size, runtime.memcpyDefault, stream.ptr
            )
            stream.synchronize()
            seconds.append(time.perf_counter() - begun)
    return seconds


def open_ways(gpus: int) -> bool:
    """Let two GPUs read each other's memory; return whether both can."""
    import cupy

    runtime = cupy.cuda.runtime
    pairs = [(0, 1), (1, 0)] if gpus > 1 else []
    able = all(runtime.deviceCanAccessPeer(*pair) for pair in pairs)
    for here, there in pairs if able else []:
        with cupy.cuda.Device(here):
            runtime.deviceEnablePeerAccess(there)
    return able


def page_lines(timings: Sequence[Timing], copied: str) -> list[str]:
    """Return the table; `copied` tells in words what the plain copy is."""
    head = ["bytes"]
    for way in ("tcp", "ucx", COPY):
        head += [f"{way}, first, s", f"{way}, median, ms", f"{way}, least, ms", f"{way}, GB/s"]
    head += ["ucx / tcp", "ucx / copy", "ucx without the task / copy"]
    sizes = sorted({timing.size for timing in timings})
    cost = statistics.median(warm(timings, what="ucx", size=sizes[0]))
    rows = []
    for size in sizes:
        times = {way: warm(timings, what=way, size=size) for way in ("tcp", "ucx", COPY)}
        tcp, ucx, copy = (statistics.median(seconds) for seconds in times.values())
        cells = [f"{size:,}"]
        for way, seconds in times.items():
            cells += [median(cold(timings, what=way, size=size)), median(seconds, 1e3)]
            cells += [least(seconds, 1e3), f"{size / statistics.median(seconds) / 1e9:.3g}"]
        cells += [f"{tcp / ucx:.1f}", f"{copy / ucx:.3f}"]
        cells += [f"{copy / (ucx - cost):.3f}" if size > sizes[0] and ucx > 2 * cost else "-"]
        rows.append(cells)
    return [
        *table(head, rows),
        "",
        f"The copy is one {copied}. All rates are bytes sent in the median of the times. "
        "Ratios are of rates; the last column takes the time of the smallest array off, where it "
        "is less than half.",
    ]


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--largest", help="size of the largest array (4 GB; on a CPU 64 MB)")
    made.add_argument("--repeats", type=positive, default=10, help="transfers after the first")
    options = made.parse_args()
    gpus = number_of_gpus(options)
    largest = parse_bytes(options.largest or ("4 GB" if gpus else "64 MB"))
    sizes = [size for size in SIZES if size <= largest]
    timings = []
    for protocol in ("tcp", "ucx"):
        timings += transfers(protocol, sizes, gpus, options.repeats, on_device(options))
    copied = "in the host's memory"
    if gpus:
        direct = open_ways(gpus)
        copied = "within the GPU's memory"
        if gpus > 1:
            copied = f"from GPU to GPU, {'directly' if direct else 'through the host'}"
    timings += copies(sizes, gpus, options.repeats)
    lines = page_lines(timings, copied)
    report("transfer", min(gpus, 2), options.out, timings, "Between two workers", lines)


if __name__ == "__main__":
    main()
