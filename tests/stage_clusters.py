"""A scheduler and workers as processes, for tests of what connects to them from outside."""

import os
import re
import subprocess
import sys
import threading
from contextlib import contextmanager

from distributed import Client

TOOL = [sys.executable, "-m", "ecg_dask"]


class Cluster:
    """A `dask scheduler` and `dask worker`s."""

    def __init__(self, folder):
        self._folder = folder
        self._processes = {}
        self._scheduler, line = self._start(
            ["scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"],
            r"Scheduler at:\s+(tcp://\S+)",
        )
        self.address = line[1]

    def start_worker(self):
        """Start a worker of one thread, and wait until it is registered."""
        options = ["--nthreads", "1", "--no-dashboard", "--local-directory", str(self._folder)]
        self._start(["worker", self.address, *options, "--no-nanny"], r"Registered to:")

    def kill(self, pid):
        """End a worker as a machine dies, without a word, and wait until the scheduler knows."""
        with Client(self.address, set_as_default=False) as client:
            before = len(client.nthreads())
            self._processes[pid].kill()
            self._processes[pid].wait(timeout=30)
            client.sync(_until_fewer, client, before)

    def _start(self, arguments, ready):
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self._folder,
            # The command, imported by other tests, tells Dask to say nothing.
            env={**os.environ, "DASK_LOGGING__DISTRIBUTED": "info"},
        )
        self._processes[process.pid] = process
        for line in process.stderr:
            found = re.search(ready, line)
            if found:
                # Else it would wait for somebody to read what it says.
                threading.Thread(target=process.stderr.read, daemon=True).start()
                return process, found
        raise RuntimeError(f"{arguments[0]} ended")

    def close(self):
        # At once: a scheduler that is asked to end waits for the workers.
        for process in self._processes.values():
            process.kill()
            process.wait(timeout=20)


async def _until_fewer(client, before):
    import asyncio

    async with asyncio.timeout(60):
        while len((await client.scheduler.identity())["workers"]) >= before:
            await asyncio.sleep(0.05)


@contextmanager
def cluster(folder, workers=2):
    started = Cluster(folder)
    try:
        for _ in range(workers):
            started.start_worker()
        yield started
    finally:
        started.close()


def environment(scheduler=None):
    """Return the variables of a process that is to know this scheduler, or none."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ECG_DASK_")}
    return kept if scheduler is None else {**kept, "ECG_DASK_SCHEDULER": scheduler}


def tool(*arguments, status=0, scheduler=None, cwd=None):
    """Run ecg-dask as a process of its own."""
    done = subprocess.run(
        [*TOOL, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=250,
        env=environment(scheduler),
        cwd=cwd,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done
