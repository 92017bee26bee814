"""Runs on the board: their processes, their results, and what is left of them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import stat
import sys
import time
from pathlib import Path

from ...runtime.system.processes import all_processes, bytes_of, stat_of
from ..protocol import Request, send
from .folders import HOME, KEPT_RUNS, age_s, newest, run_of

OLD_RUN_S = 600
"""After its end: the launcher fetches results within this time."""
UNUSED_RUN_S = 86400


def fetch(request: Request) -> None:
    """Send a file of a run; remove it once the launcher confirms that it has it."""
    path = run_of(request) / request["name"]
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        send({"nbytes": size})
        left = size
        while left and (block := file.read(min(left, 1 << 20))):
            sys.stdout.buffer.write(block)
            left -= len(block)
        sys.stdout.buffer.flush()
    if sys.stdin.buffer.readline() == b"fetched\n":
        path.unlink()


def sweep_runs() -> None:
    """End the processes of runs that nobody watches any more; remove all but the newest runs."""
    living = {job for job, _ in processes().values()}
    ended = [run for run in newest(HOME / "runs") if _has_ended(run, living)]
    for run in ended:
        if run.name in living:
            end_processes(run.name)
    for old in ended[KEPT_RUNS:]:
        if age_s(old / "lock") > OLD_RUN_S:
            shutil.rmtree(old, ignore_errors=True)


def _has_ended(run: Path, living: set[str]) -> bool:
    """Tell whether a run is of this account and over.

    A run that never had a watch may still be started by hand, for a day.
    """
    status = run.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or is_watched(run):
        return False
    return (run / "lock").exists() or (age_s(run) > UNUSED_RUN_S and run.name not in living)


def is_watched(run: Path) -> bool:
    try:
        lock = os.open(run / "lock", os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


JOB_VARIABLE = "RANKSLICE_JOB"
DAEMON = re.compile(rb"^[^\0]*/(prted|orted)\0")
WATCHDOG_S = 2.0


def end_processes(job: str) -> None:
    """Kill the remaining processes of a job; its watchdogs get time to clean up first."""
    living = processes_of(job)
    watchdogs = {process for process, command in living.items() if b"watchdog.py" in command}
    for process in living.keys() - watchdogs:
        _kill(process)
    deadline = time.monotonic() + WATCHDOG_S
    while watchdogs & processes_of(job).keys() and time.monotonic() < deadline:
        time.sleep(0.05)
    for process in processes_of(job):
        _kill(process)


def processes_of(job: str, variable: str = JOB_VARIABLE) -> dict[int, bytes]:
    return {process: line for process, (of, line) in processes(variable).items() if of == job}


def processes(variable: str = JOB_VARIABLE) -> dict[int, tuple[str, bytes]]:
    """Return the processes of all jobs, with job and command line."""
    begin = f"{variable}=".encode()
    of_jobs = {}
    for process in all_processes():
        with contextlib.suppress(OSError):
            variables = bytes_of(process, "environ").split(b"\0")
            jobs = [setting[len(begin) :] for setting in variables if setting.startswith(begin)]
            stat = stat_of(process) if jobs else None
            if stat is not None and not stat.has_ended:
                line = bytes_of(process, "cmdline")
                of_jobs[process] = jobs[0].decode(errors="replace"), line
    return of_jobs


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process, signal.SIGKILL)
