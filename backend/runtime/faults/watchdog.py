"""A watchdog per board: reports where a killed rank was, and ends ranks that outlive a failure.

A killed rank cannot report where it was. So each rank keeps a status page (``pages.py``) in a
private folder that the ranks of a job on one board share. The lowest rank of the board starts the
watchdog before MPI, in a session of its own, so that it survives whatever ends the ranks. It reads
the pages and ends with the last rank of the board.

The watchdog's process loads this module and its neighbours without the rest of the runtime.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import subprocess
import sys
import time
from itertools import takewhile
from pathlib import Path

from ..system.processes import kills_for_memory
from .pages import ALIVE, DONE, FAILED, STOPPED, Status, read_pages
from .private_folder import PrivateFolder, make_shared, open_private
from .watched_process import Deaths, Process, process_start

SESSION = "RANKSLICE_SESSION"
"""Variable that names the folder of a job on this board, if the launcher made one."""
MESSAGES = "messages"
"""Name of the socket of the board's watch in that folder."""

_POLL_S = 0.1
_GRACE_S = 4.0
"""Time for the other ranks to end by themselves after one has failed."""
_LATE_S = 2.0
"""Time after which ranks cannot report by themselves that the job has not started: while MPI
initialises, their Python stands still."""
_RELEASE_S = 2.0
"""Time that an ended process may need to release its files."""
_SHORT_RELEASE_S = 0.05
"""The same if the launcher holds the folder until mpirun has ended: that waits for the watchdog."""
_LONELY_S = 2.0
"""Time after which a watchdog without ranks ends, if some have never started."""

_HINT = "; dmesg on its board shows whether memory ran out"
_MEMORY_HINT = (
    "; meanwhile the kernel has killed a process because memory ran out: give the board or the"
    " container more, or run with a smaller --window"
)

_PROGRAM = """
import sys, types
package = sys.modules["runtime"] = types.ModuleType("runtime")
package.__path__ = [sys.argv[1].rsplit("/", 2)[0]]
from runtime.faults.watchdog import watchdog
watchdog(*sys.argv[2:])
"""
"""Called with the path of this file; loads no other part of the runtime."""


def start_watchdog(start_timeout_s: float) -> PrivateFolder | None:
    """Start this board's watchdog if this is its lowest rank; return the folder for status pages.

    ``None`` if Open MPI did not start the process, or no such folder can be made.
    """
    ranks = os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE")
    if ranks is None:
        return None
    is_lowest = os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK") == "0"
    parent = os.getppid()
    folder = _session(parent)
    if folder is not None and is_lowest:
        subprocess.Popen(
            [*_command(), str(folder.path), ranks, str(parent), str(start_timeout_s)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    elif is_lowest:
        say("there is no private folder for status pages: the job runs without a watchdog")
    return folder


def _command() -> list[str]:
    return [sys.executable, "-E", "-S", "-c", _PROGRAM, __file__]


def _session(parent: int) -> PrivateFolder | None:
    """Open the folder that the ranks on this board share, whose parent is this process."""
    session = os.environ.get(SESSION)
    if session:
        with contextlib.suppress(OSError):
            return open_private(Path(session))
    name = f"{parent} {process_start(parent)}"
    return make_shared(hashlib.sha256(name.encode()).hexdigest()[:8])


def watchdog(folder: str, ranks: str, parent: str, start_timeout_s: str) -> None:
    """Watch until all ranks have ended; kill those that outlive a failure.

    ``folder`` has the status pages; ``parent``: process number of mpirun or its daemon.
    """
    private = open_private(Path(folder))
    try:
        _watch(private.descriptor, int(ranks), int(parent), float(start_timeout_s))
    finally:
        private.release(_SHORT_RELEASE_S if os.environ.get(SESSION) else _RELEASE_S)


def _watch(folder: int, ranks: int, parent: int, start_timeout_s: float) -> None:
    mpirun = Process(parent, process_start(parent))
    deaths = Deaths()
    if mpirun.is_alive:  # it may be outside of a container
        deaths.watch(mpirun)
    failed_at: float | None = None
    begin = alone_since = time.monotonic()
    kills_before = kills_for_memory()
    while True:
        pages = _read_pages(folder, deaths)
        alive = [status for status in pages if status.process not in deaths.ended]
        now = time.monotonic()
        if failed_at is None and (
            mpirun in deaths.ended
            or any(status.state in (FAILED, STOPPED) for status in pages)
            or any(status.state != DONE and status not in alive for status in pages)
        ):
            failed_at = now
            _tell(pages, deaths.ended, mpirun, ran_out=kills_for_memory() > kills_before)
        late = [status for status in alive if not status.step]
        if failed_at is None and late and now - begin > start_timeout_s + _LATE_S:
            failed_at = now
            say(printable(not_started(late[0].rank_name, start_timeout_s)))
        if alive:
            alone_since = now
        elif len(pages) >= ranks or now - alone_since > _LONELY_S:
            break
        if failed_at is not None and now - failed_at > _GRACE_S:
            for status in alive:
                status.process.kill()
        deaths.wait(_POLL_S)


def _read_pages(folder: int, deaths: Deaths) -> list[Status]:
    """Read the pages as they are after the last death, and watch the process of each.

    One that ends may first say in its page that it is done; one that mpirun stops says so after the
    death that was the cause.
    """
    while True:
        pages = read_pages(folder)
        for status in pages:
            deaths.watch(status.process)
        if not deaths.wait(0):
            return pages


def _tell(pages: list[Status], ended: list[Process], mpirun: Process, *, ran_out: bool) -> None:
    """Report which rank ended first and where, unless a rank has reported its failure.

    Ranks that ended after mpirun, the parent, did so because of it, which the launcher reports.
    ``ran_out``: the kernel has killed a process for want of memory, of this job or not.
    """
    if any(status.state == FAILED for status in pages):
        return
    by_process = {status.process: status for status in pages}
    before = takewhile(lambda process: process != mpirun, ended)
    in_order = [by_process[process] for process in before if process in by_process]
    killed = [status for status in in_order if status.state == ALIVE]
    stopped = [status for status in (*in_order, *pages) if status.state == STOPPED]
    for status in (killed or stopped)[:1]:
        what = "the process was killed or crashed" if killed else "the process was told to stop"
        last = f"last at {status.step}" if status.step else "while it started"
        hint = (_MEMORY_HINT if ran_out else _HINT) if killed else ""
        say(printable(f"{status.rank_name}: {what}, {last}{hint}"))


def not_started(rank_name: str, limit_s: float) -> str:
    return (
        f"{rank_name}: the job has not started within {limit_s:g} s: a rank is missing, or takes"
        " longer to load its sub-models (--start-timeout sets the limit)"
    )


def say(message: str) -> None:
    """Print a message, and send it to the board's watch, if there is one.

    mpirun forwards nothing once a board is lost. A closed stderr is no error: work remains.
    """
    text = f"rankslice: {message}".encode(errors="replace")
    with contextlib.suppress(OSError):
        os.write(2, text + b"\n")
    session = os.environ.get(SESSION)
    if session:
        with contextlib.suppress(OSError):
            _leave(text, session)


def _leave(text: bytes, session: str) -> None:
    """Send a text to the board's watch, unless there is none or its queue is full: OSError."""
    folder = os.open(session, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.setblocking(False)
            # The path of the folder may be longer than a socket's name can be.
            out.sendto(text, f"/proc/self/fd/{folder}/{MESSAGES}")
    finally:
        os.close(folder)


def printable(text: str) -> str:
    """Put a text on one line that controls no terminal."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )
