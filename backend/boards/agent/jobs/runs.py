"""Runs that have ended: their results are fetched, and old ones are removed."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import sys
from pathlib import Path

from ..protocol import Request, send
from .folders import HOME, KEPT_RUNS, age_s, newest, run_of
from .processes import end_processes, processes

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
    """Tell whether a run's watch holds its lock."""
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
