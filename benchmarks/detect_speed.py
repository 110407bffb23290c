"""Detection speed of ours and of other open detectors on a synthetic day in memory.

    python benchmarks/detect_speed.py [-t cpu|gpu] [--samples N] [--out DIR] [--detectors NAME ...]

On the CPU every detector has one core. Ours takes the samples as float32, the others as float64 in
mV, made beforehand; what is timed is the one call from samples to beats, ours with amplitude and
quality. The first call is timed apart, for it compiles (Numba's cache is an empty folder). The
detectors take turns, so that a busy machine is shared fairly; those that are slow work on the
first million samples. On the GPU, where only ours runs, the signal is resident, repeated to the
length asked for, and the time is that until all results are there; its share of the copy
bandwidth counts 8 bytes a sample, whatever was really moved.

DIR, by default ``benchmarks/results``, gets ``detect_speed.md`` or ``detect_speed_gpu.md``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from machine import COPIED_ON_GPU, copy_bandwidth, machine
from peers import PEERS

import ecg_dask

RESULTS = Path(__file__).parent / "results"
FS = 250.0
DAY = 20_140_000
GPU_LENGTHS = (DAY, 200_000_000, 2_000_000_000)

#: Detectors that take too long for a day.
SLOW = {"xqrs": 1_000_000, "hamilton": 1_000_000, "two-average": 1_000_000}


@dataclass
class Contender:
    """A detector with its input, and what its calls took."""

    name: str
    version: str
    samples: int
    find: Callable[[], int]
    repeats: int
    seconds: list[float] = field(default_factory=list)
    beats: int = 0

    def call(self) -> None:
        """Find the beats once more."""
        begun = time.perf_counter()
        self.beats = self.find()
        self.seconds.append(time.perf_counter() - begun)

    @property
    def first_s(self) -> float:
        """Seconds of the first call, which compiles and loads."""
        return self.seconds[0]

    @property
    def warm_s(self) -> list[float]:
        """Seconds of the others."""
        return self.seconds[1:]

    @property
    def median_s(self) -> float:
        """Median seconds of those."""
        return statistics.median(self.warm_s)

    @property
    def rate(self) -> float:
        """Million samples a second, at the median."""
        return self.samples / self.median_s / 1e6


def synthetic_lead(n_samples: int) -> Any:
    """Return the first lead of a synthetic ECG, float32 of shape (n_samples,)."""
    from ecg_dask.synthetic import synthetic

    signal = synthetic(n_samples / FS, FS).recording.signal
    return np.ascontiguousarray(signal.compute(scheduler="threads")[:, 0])


def ours(x: Any, convolution: str = "direct") -> Callable[[], int]:
    """Return a call that finds the beats of `x` and returns their number."""
    from ecg_dask import Detector
    from ecg_dask.segment.detector import detect

    detector = Detector() if convolution == "direct" else Detector(convolution=convolution)
    return lambda: detect(x, 0, (0, x.size), detector, FS).sample.size


def own_detectors() -> dict[str, str]:
    """Return the names of our detectors and their ways of convolving."""
    from ecg_dask import Detector

    named = {"ecg_dask": "direct"}
    if "convolution" in {one.name for one in fields(Detector)}:
        named["ecg_dask-fft"] = "fft"
    return named


def on_cpu(x: Any, names: Sequence[str], repeats: int) -> list[Contender]:
    """Time the detectors of these names on one lead."""
    contenders = []
    lead = x.astype(np.float64)
    for name, convolution in own_detectors().items():
        contenders.append(
            Contender(name, ecg_dask.__version__, x.size, ours(x, convolution), repeats)
        )
    for name, peer in PEERS.items():
        if peer.version is None:
            print(f"{name} is not installed: left out", file=sys.stderr)
            continue
        part = lead[: SLOW.get(name, lead.size)].copy()

        def find(peer: Any = peer, part: Any = part) -> int:
            return len(peer.find(part, FS))

        times = min(repeats, 2) if name in SLOW else repeats
        contenders.append(Contender(name, peer.version, part.size, find, times))
    contenders = [contender for contender in contenders if contender.name in names]
    for turn in range(repeats + 1):
        for contender in contenders:
            if turn <= contender.repeats:
                contender.call()
    return contenders


def on_gpu(
    x: Any, lengths: Sequence[int], names: Sequence[str], repeats: int
) -> tuple[list[Contender], float]:
    """Time our detector on a signal in GPU memory; also return the copy bandwidth in bytes/s."""
    import cupy

    bandwidth = copy_bandwidth(gpu=True)
    timings = []
    day = cupy.asarray(x)
    for length in lengths:
        for name, convolution in own_detectors().items():
            if name in names:
                try:
                    timings.append(_on_repeated(day, length, name, convolution, repeats))
                except cupy.cuda.memory.OutOfMemoryError:
                    print(f"{name} has no room for {length:,} samples: left out", file=sys.stderr)
                cupy.get_default_memory_pool().free_all_blocks()
    return timings, bandwidth


def _on_repeated(day: Any, length: int, name: str, convolution: str, repeats: int) -> Contender:
    import cupy

    detect = ours(cupy.tile(day, -(-length // day.size))[:length], convolution)

    def find() -> int:
        beats = detect()
        cupy.cuda.get_current_stream().synchronize()
        return beats

    contender = Contender(name, ecg_dask.__version__, length, find, repeats)
    for _ in range(repeats + 1):
        contender.call()
    # The call holds the signal.
    contender.find = int
    return contender


def cpu_page(timings: Sequence[Contender], head: str) -> str:
    """Return the table as Markdown."""
    rates = {timing.name: timing.rate for timing in timings}
    lines = [
        "# Detection speed on one core",
        "",
        head,
        "",
        "| detector | version | samples | beats | first call, s | median, s | least, s "
        "| Msamples/s | of sleepecg's speed |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for timing in timings:
        ratio = f"{timing.rate / rates['sleepecg']:.2f}" if "sleepecg" in rates else "-"
        lines.append(
            f"| {timing.name} | {timing.version} | {timing.samples:,} | {timing.beats:,} "
            f"| {timing.first_s:.3f} | {timing.median_s:.3f} | {min(timing.warm_s):.3f} "
            f"| {timing.rate:.2f} | {ratio} |"
        )
    return "\n".join(lines) + "\n"


def gpu_page(timings: Sequence[Contender], bandwidth: float, head: str) -> str:
    """Return the table as Markdown."""
    lines = [
        "# Detection speed on a GPU",
        "",
        head,
        "",
        f"Copy bandwidth: {bandwidth / 1e12:.3f} TB/s, read and written, "
        f"{COPIED_ON_GPU / 1e9:g} GB.",
        "",
        "| detector | samples | beats | first call, s | median, ms | least, ms | Msamples/s "
        "| share of the copy bandwidth at 8 bytes a sample |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for timing in timings:
        share = 8 * timing.samples / timing.median_s / bandwidth
        lines.append(
            f"| {timing.name} | {timing.samples:,} | {timing.beats:,} | {timing.first_s:.3f} "
            f"| {1e3 * timing.median_s:.3f} | {1e3 * min(timing.warm_s):.3f} "
            f"| {timing.rate:,.0f} | {share:.1%} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-t", "--type", choices=["cpu", "gpu"], default="cpu", help="device")
    parser.add_argument("--samples", type=int, help="instead of a day, or of three lengths")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--repeats", type=int, default=5, help="calls after the first")
    choice = [*own_detectors(), *PEERS]
    parser.add_argument("--detectors", nargs="+", choices=choice, default=choice)
    options = parser.parse_args()
    command = f"python benchmarks/detect_speed.py -t {options.type} --repeats {options.repeats}"
    if options.samples:
        command += f" --samples {options.samples}"
    if options.detectors != choice:
        command += f" --detectors {' '.join(options.detectors)}"
    x = synthetic_lead(min(options.samples or DAY, DAY))
    gpu = options.type == "gpu"
    where = f"{machine(gpu=gpu)}.\n\n    {command}"
    # Others' warnings are theirs.
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as cache:
        # Before anything imports Numba.
        os.environ["NUMBA_CACHE_DIR"] = cache
        if gpu:
            lengths = [options.samples] if options.samples else GPU_LENGTHS
            timings, bandwidth = on_gpu(x, lengths, options.detectors, options.repeats)
            page = gpu_page(timings, bandwidth, where)
        else:
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
            timings = on_cpu(x, options.detectors, options.repeats)
            page = cpu_page(timings, where)
    name = "detect_speed_gpu.md" if gpu else "detect_speed.md"
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / name).write_text(page)
    print(page)


if __name__ == "__main__":
    main()
