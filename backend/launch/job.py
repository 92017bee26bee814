"""A job of mpirun, from its start to its end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import TextIO

from rankslice.backend.launch.messages import MESSAGE, explain
from rankslice.backend.launch.mpirun import home_variable
from rankslice.backend.runtime.faults import connection_filter
from rankslice.backend.runtime.faults.private_folder import in_memory
from rankslice.backend.runtime.faults.watchdog import SESSION
from rankslice.backend.runtime.figures.sampling import Sample, Sampling
from rankslice.backend.runtime.system.processes import all_processes
from rankslice.backend.temporary import temporary_folder
from rankslice.framework.errors import Mistake, RankSliceError

MAX_LINES = 2000
"""Lines of a job's messages that are kept; of mpirun's other output, half as many."""
_MAX_LINE = 1 << 14

_END_TIMEOUT_S = 10.0
_END_ASKED = 3
"""How often mpirun is asked in this time. Within five seconds of the first request, the second one
ends it at once."""
_SESSION_TIMEOUT_S = 1.0


def run_job(
    command: Sequence[str],
    on_completed: Callable[[int], None],
    *,
    boards: int | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
    lines: list[str] | None = None,
    on_start: Callable[[subprocess.Popen[str]], None] = lambda process: None,
    was_ended: Callable[[], bool] = lambda: False,
    on_sample: Callable[[Sample], None] | None = None,
    events: Path | None = None,
    on_failed: Callable[[Path], None] = lambda session: None,
) -> None:
    """Run an mpirun command to its end.

    Args:
        command: from :func:`.mpirun.launch_command`.
        on_completed: called now and then with the number of frames that have come out.
        boards: other machines that run ranks; ``None``: all ranks are on this machine.
        variables: for mpirun's environment.
        lines: takes the lines of stderr; others may add messages of ranks to it.
        on_start: called with mpirun's process.
        was_ended: tells at the end whether the launcher itself has ended mpirun.
        on_sample: told once a second, in a thread, what this machine and its ranks are like, if
            all ranks are here.
        events: folder of the ranks' rings of events; ``None``: they are in the private one.
        on_failed: called when the job has failed, if all ranks are on this machine, with the folder
            that they shared, which is removed afterwards.

    Raises:
        RankSliceError: the job failed; with the message of the rank that ended it.
    """
    errors = [] if lines is None else lines
    with ExitStack() as stack:
        # In /tmp the names of mpirun's files could be guessed, and those of a killed mpirun would
        # keep a later one with the same process number from starting.
        own = stack.enter_context(temporary_folder())
        environment = {"TMPDIR": str(own.path), **home_variable(own.path), **variables}
        if boards is None:
            session = stack.enter_context(temporary_folder(in_memory()))
            environment[SESSION] = str(session.path)
            if on_sample is not None:
                stack.enter_context(Sampling(events or session.path, on_sample))
        line = tethered(command, "loopback" if boards is None else str(boards))
        # The folder is in use while mpirun holds its lock.
        code = _run(line, environment, own.lock, on_completed, errors, on_start)
        if code and boards is None:
            on_failed(session.path)
    if code:
        raise RankSliceError(explain(errors, code, was_killed=code < 0 and not was_ended()))


def _run(
    command: Sequence[str],
    environment: Mapping[str, str],
    lock: int,
    on_completed: Callable[[int], None],
    errors: list[str],
    on_start: Callable[[subprocess.Popen[str]], None],
) -> int:
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        pass_fds=[lock],
        env={**os.environ, **environment},
    )
    reader = threading.Thread(target=_collect, args=(process.stderr, errors), daemon=True)
    reader.start()
    try:
        on_start(process)
        assert process.stdout is not None
        with process.stdout as lines:
            while line := lines.readline(_MAX_LINE):
                word, _, number = line.strip().partition(" ")
                if word == "completed" and number.isdecimal() and len(number) < 19:
                    on_completed(int(number))
        code = process.wait()
    except BaseException:
        end_job(process)
        raise
    reader.join(_END_TIMEOUT_S)
    return code


def _collect(stream: TextIO, lines: list[str]) -> None:
    """Keep the first lines, and messages beyond them: boards may print without end."""
    with stream:
        while line := stream.readline(_MAX_LINE):
            most = MAX_LINES if MESSAGE in line else MAX_LINES // 2
            if len(lines) < most:
                lines.append(line.rstrip("\n"))


def end_job(process: subprocess.Popen[str]) -> None:
    """Ask mpirun to end its job, then kill whatever is left of it.

    It is asked again, as it may never act on a signal that comes while it starts; not at once, as
    it then leaves its ranks to the watchdogs.
    """
    for _ in range(_END_ASKED):
        process.terminate()
        try:
            process.wait(_END_TIMEOUT_S / _END_ASKED)
            return
        except subprocess.TimeoutExpired:
            continue
    _kill_session(process.pid)
    process.wait()


def end_session(process: subprocess.Popen[str]) -> None:
    """End mpirun and what it started here: its ssh processes may outlive it."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_SESSION_TIMEOUT_S)
    _kill_session(process.pid)


def _kill_session(session: int) -> None:
    for process in all_processes():
        with contextlib.suppress(OSError):
            if os.getsid(process) == session:
                os.kill(process, signal.SIGKILL)


def tethered(command: Sequence[str], reach: str = "all") -> list[str]:
    """Return a command line that ends with the thread of this process that starts it.

    ``reach``: who may connect to it, as for
    :mod:`~rankslice.backend.runtime.faults.connection_filter`.
    """
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        found = "is ignored in this program, so it cannot learn how a job has ended"
        remedy = "call signal.signal(signal.SIGCHLD, signal.SIG_DFL) before"
        raise RankSliceError(Mistake("SIGCHLD", found, remedy))
    filtered = [sys.executable, "-E", "-S", connection_filter.__file__]
    return [*filtered, str(os.getpid()), reach, *command]
