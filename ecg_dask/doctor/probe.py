"""Code that is tried in a process of its own, since it may hang, crash or load what it likes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

#: Seconds that a probe may take, imports included.
LIMIT_S = 60

#: Libraries print as they please, so what is returned stands in a line that begins like this.
_MARK = "ecg_dask probe: "

_RUN = f"""
import json, sys
names = {{}}
try:
    exec(sys.argv[1], names)
    answer = {{"result": names["result"]}}
except BaseException as error:
    if type(error).__name__ == "InputError":
        _, found, allowed, remedy = error.args
        answer = {{"error": f"{{found}}; allowed: {{allowed}}", "remedy": remedy}}
    else:
        root = error
        while root.__cause__ or root.__context__:
            root = root.__cause__ or root.__context__
        told = dict.fromkeys(str(one).strip(" .") or type(one).__name__ for one in (error, root))
        answer = {{"error": ": ".join(told), "remedy": ""}}
print("\\n{_MARK}" + json.dumps(answer), flush=True)
"""


class ProbeError(Exception):
    """A probe that failed.

    Parameters
    ----------
    found
        How it failed.
    remedy
        What to do about it, where the probe knows.
    """

    def __init__(self, found: str, remedy: str = "") -> None:
        super().__init__(found)
        self.remedy = remedy


def probe(code: str, *, limit_s: float = LIMIT_S) -> Any:
    """Run Python code in a process of its own and return what it assigns to ``result``.

    Parameters
    ----------
    code
        The code; ``result`` must be JSON.
    limit_s
        Seconds after which it is ended, with every process that it started.

    Raises
    ------
    ProbeError
        When the code raises, crashes or takes too long.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", _RUN, code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        said, complaint = process.communicate(timeout=limit_s)
    except BaseException as stopped:
        # In a session of its own it is not interrupted with us, nor are its workers.
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(stopped, subprocess.TimeoutExpired):
            raise ProbeError(f"no answer within {limit_s:g} s") from None
        raise
    answers = [line for line in said.splitlines() if line.startswith(_MARK)]
    if not answers:
        last = (complaint.strip().splitlines() or ["no message"])[-1]
        raise ProbeError(f"{_ended(process.returncode)}: {last}")
    answer = json.loads(answers[-1].removeprefix(_MARK))
    if "error" in answer:
        raise ProbeError(" ".join(answer["error"].split()), answer["remedy"])
    return answer["result"]


def _ended(status: int) -> str:
    if status < 0:
        return f"the process was ended by signal {-status}"
    return f"the process ended with status {status}"
