"""A guard per board: tells where a killed rank was, and ends those that outlive a failure.

A rank that is killed cannot tell where it was. So each rank keeps a status page (``pages.py``) in
a folder that the ranks of one job on one board share, and no other user can enter. The lowest rank
of the board starts the guard before MPI, in a session of its own, so nothing that ends the ranks
ends the guard. It reads the pages, and ends by itself with the last rank of the board.

The guard's process loads this module without the rest of the runtime.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from .pages import ALIVE, DONE, FAILED, STOPPED, Status, process_start, read_pages
from .private import PrivateFolder, make_shared, open_private

__all__ = ["MESSAGES", "SESSION", "printable", "say", "start_guard"]

SESSION = "RANKSLICE_SESSION"
"""Variable that names the folder of a job on this board, if whoever started the job made one."""
MESSAGES = "messages"
"""Name of the socket of the board's watch in that folder."""

_LOOK_EVERY_S = 0.1
_GRACE_S = 4.0
"""Time that the other ranks get to end by themselves once one has ended badly."""
_RELEASE_S = 2.0
"""Time that a process which has ended may still need to let go of its files."""
_SHORT_RELEASE_S = 0.05
"""The same where somebody holds the folder until mpirun has ended: mpirun waits for the guard."""
_LONELY_S = 2.0
"""Time after which a guard without any rank ends, if some have never shown up."""

_PROGRAM = """
import sys, types
package = sys.modules["runtime"] = types.ModuleType("runtime")
package.__path__ = [sys.argv[1].rsplit("/", 2)[0]]
from runtime.faults.guard import guard
guard(*sys.argv[2:])
"""
"""It is called with the path of this file, without the package that would load everything."""


def start_guard() -> PrivateFolder | None:
    """Start this board's guard if this is its lowest rank; return the folder for status pages.

    ``None`` if the process was not started by Open MPI, or there is no place for such a folder.
    """
    ranks = os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE")
    if ranks is None:
        return None
    is_lowest = os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK") == "0"
    parent = os.getppid()
    folder = _session(parent)
    if folder is not None and is_lowest:
        subprocess.Popen(
            [*_command(), str(folder.path), ranks, str(parent)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    elif is_lowest:
        say("there is no place that is this user's own for status pages: no guard watches this job")
    return folder


def _command() -> list[str]:
    return [sys.executable, "-E", "-S", "-c", _PROGRAM, __file__]


def _session(parent: int) -> PrivateFolder | None:
    """Return the folder that the job's ranks on this board share, whose parent is this process."""
    given = os.environ.get(SESSION)
    if given:
        with contextlib.suppress(OSError):
            return open_private(Path(given))
    name = f"{parent} {process_start(parent)}"
    return make_shared(hashlib.sha256(name.encode()).hexdigest()[:8])


def guard(folder: str, ranks: str, parent: str) -> None:
    """Watch until all ranks have ended; kill those that outlive a failure.

    Args:
        folder: of the status pages.
        ranks: their number, in digits.
        parent: process number of mpirun or its daemon, in digits.
    """
    private = open_private(Path(folder))
    try:
        _watch(private.descriptor, int(ranks), int(parent))
    finally:
        private.release(_SHORT_RELEASE_S if os.environ.get(SESSION) else _RELEASE_S)


def _watch(folder: int, ranks: int, parent: int) -> None:
    parent_started = process_start(parent)
    failed_at: float | None = None
    alone_since = time.monotonic()
    while True:
        found = read_pages(folder)
        alive = [status for status in found if status.is_alive]
        now = time.monotonic()
        if failed_at is None and (
            any(status.state in (FAILED, STOPPED) for status in found)
            or any(status.state != DONE and not status.is_alive for status in found)
            or process_start(parent) != parent_started
        ):
            failed_at = now
            _tell(found)
        if alive:
            alone_since = now
        elif len(found) >= ranks or now - alone_since > _LONELY_S:
            break
        if failed_at is not None and now - failed_at > _GRACE_S:
            for status in alive:
                status.kill()
        time.sleep(_LOOK_EVERY_S)


def _tell(found: list[Status]) -> None:
    """Say which rank ended first and where it was, unless one has told so itself."""
    if any(status.state == FAILED for status in found):
        return
    killed = [s for s in found if s.state == ALIVE and not s.is_alive]
    stopped = [status for status in found if status.state == STOPPED]
    for status in (killed or stopped)[:1]:
        what = "the process was killed or crashed" if killed else "the process was told to stop"
        last = f"last at {status.step}" if status.step else "while it started"
        hint = "; dmesg on its board tells whether memory ran out" if killed else ""
        say(printable(f"{status.rank_name}: {what}, {last}{hint}"))


def say(message: str) -> None:
    """Print a message, and leave it with the board's watch, if there is one.

    mpirun forwards nothing once a board is lost. Nobody may listen any more, and there is still
    work to do.
    """
    text = f"rankslice: {message}".encode(errors="replace")
    with contextlib.suppress(OSError):
        os.write(2, text + b"\n")
    session = os.environ.get(SESSION)
    if session:
        with contextlib.suppress(OSError):
            _leave(text, session)


def _leave(text: bytes, session: str) -> None:
    """Leave a text with the board's watch.

    Raises:
        OSError: there is none, or it takes no more.
    """
    folder = os.open(session, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.setblocking(False)
            # The path of the folder may be longer than the name of a socket can be.
            out.sendto(text, f"/proc/self/fd/{folder}/{MESSAGES}")
    finally:
        os.close(folder)


def printable(text: str) -> str:
    """Return a text as one line that controls no terminal."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )
