"""Compiling and loading ahead of the first task: what a worker does while it waits for a file.

A first detection in a new process compiles some twenty kernels of ours and about a hundred of
CuPy's, and a first training loads PyTorch's libraries. Each step works here on a minute of made-up
signal, in a thread of its own: compilers and loaders mostly work without Python.
"""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

_logger = logging.getLogger(__name__)

_SECONDS, _BEATS = 60, 100


def warm_up(fs: float) -> threading.Thread:
    """Start to prepare this process for recordings at `fs` Hz with the default detector.

    Returns
    -------
    threading.Thread
        What does it. A step that fails is told in the log, and will fail again where it is needed.
    """
    steps = (_read, _detect, _spans, _cut, _train)
    thread = threading.Thread(target=_all, args=(steps, fs), name="ecg_dask-warm-up", daemon=True)
    thread.start()
    return thread


def _all(steps: tuple[Callable[[float], None], ...], fs: float) -> None:
    with ThreadPoolExecutor(len(steps)) as pool:
        for step, done in [(step, pool.submit(step, fs)) for step in steps]:
            error = done.exception()
            if error is not None:
                _logger.warning("Warm-up failed in %s: %s", step.__name__, error)


def _signal(fs: float) -> Any:
    """Return noise in coarse steps, which has plateaus and gaps, CuPy float32 (n, 1)."""
    import cupy

    x = np.random.default_rng(0).normal(size=(round(_SECONDS * fs), 1)).round(1)
    x[100:200] = np.nan
    return cupy.asarray(x, dtype=cupy.float32)


def _read(fs: float) -> None:
    from ..readers.text_blocks import Layout
    from ..readers.text_gpu import read_plain

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "warm.csv")
        text = b"0.5\n-1.25\n" * 1000
        path.write_bytes(text)
        read_plain(str(path), Layout(",", ".", ("1",), 0, 1), [0], 0, len(text))


def _detect(fs: float) -> None:
    from ..segment.detector import Detector, detect

    x = _signal(fs)[:, 0]
    detect(x, 0, (0, x.size), Detector(), fs)


def _spans(fs: float) -> None:
    import cupy

    from ..segment.spans import find_runs, widths

    x = _signal(fs)[:, 0]
    # Two seconds at a limit, which are flat as well: what has no such thing is not looked at.
    x[300 : 300 + round(2 * fs)] = 9
    crests = cupy.random.default_rng(0).random(-(-x.size // widths(fs).sub), dtype=cupy.float32)
    find_runs(x, crests, 0, (0, x.size), fs)


def _cut(fs: float) -> None:
    import cupy

    from ..segment.cut import are_complete, cut
    from ..segment.detector import Detector

    widths, x = Detector().widths(fs), _signal(fs)
    position = cupy.arange(_BEATS, dtype=cupy.int64) * (x.shape[0] // _BEATS)
    cut(x, position, widths.before, widths.after)
    are_complete(x, position, widths.before, widths.after)


def _train(fs: float) -> None:
    import cupy

    from ..anomaly.fit import fit
    from ..anomaly.inputs import model_inputs
    from ..anomaly.profile import profiles
    from ..anomaly.scoring import score_inputs
    from ..anomaly.training import LATENT
    from ..anomaly.vae import Network
    from ..segment.detector import Detector

    detector = Detector()
    widths, window = detector.widths(fs), (detector.before_s, detector.after_s)
    n = 3 * _BEATS
    shape = (n, 1, widths.before + widths.after)
    waves = cupy.asarray(np.random.default_rng(0).normal(size=shape), dtype=cupy.float32)
    inputs = model_inputs(waves, np.ones(n, np.float32), fs, window)
    done = fit(inputs, [n], np.ones(n, bool), epochs=1, latent=LATENT, seed=0)
    network = Network(done.weights, LATENT, window)
    usual = profiles([[("warm", inputs)]], network)
    score_inputs(inputs, np.zeros(n), [("warm", n)], network, usual)
