"""The processes of jobs on the board: found by a variable of their environment, and ended."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from pathlib import Path

JOB_VARIABLE = "RANKSLICE_JOB"
DAEMON = re.compile(rb"^[^\0]*/(prted|orted)\0")
GUARD_S = 2.0


def end_processes(job: str) -> None:
    """Kill the remaining processes of a job; its guards get time to clean up first."""
    found = processes_of(job)
    guards = {process for process, command in found.items() if b"guard.py" in command}
    for process in found.keys() - guards:
        _kill(process)
    deadline = time.monotonic() + GUARD_S
    while guards & processes_of(job).keys() and time.monotonic() < deadline:
        time.sleep(0.05)
    for process in processes_of(job):
        _kill(process)


def processes_of(job: str) -> dict[int, bytes]:
    """Return the processes of a job, with their command lines."""
    return {process: line for process, (of, line) in processes().items() if of == job}


def processes() -> dict[int, tuple[str, bytes]]:
    """Return the processes of all jobs, with job and command line."""
    begin = f"{JOB_VARIABLE}=".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
            jobs = [each[len(begin) :] for each in variables if each.startswith(begin)]
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            if jobs and state not in "ZX":
                line = (folder / "cmdline").read_bytes()
                found[int(folder.name)] = jobs[0].decode(errors="replace"), line
        except OSError:
            continue
    return found


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process, signal.SIGKILL)
