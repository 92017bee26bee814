"""A guard per board: tells where a killed rank was, and removes what mpirun leaves behind.

A rank that is killed cannot tell where it was. So each rank keeps a status page, a small file
mapped into memory, in a folder that the ranks of one job on one board share. The lowest rank of
the board starts the guard before MPI, in a session of its own, so nothing that ends the
ranks ends the guard. It reads the pages, and ends by itself with the last rank of the board.

This file is also the guard's program; it starts without the rest of the runtime.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ALIVE", "DONE", "FAILED", "STOPPED", "StatusPage", "say", "start_guard"]

ALIVE, DONE, FAILED, STOPPED = range(4)
"""States of a rank: starting or running; ended well; a message told why it ended;
ended because it was told to."""

_HEAD = struct.Struct("<qqq")
_TEXT = 512
_SIZE = _HEAD.size + 2 * _TEXT

_LOOK_EVERY_S = 0.1
_SAME_START = 200
"""Clock ticks between the start of a process as it sees it and as others do: under qemu's emulation
some tens of milliseconds, as qemu tells when it was ready. Nobody gets its number so soon again."""
_GRACE_S = 4.0
"""Time that the other ranks get to end by themselves once one has ended badly."""
_MESSAGES = "RANKSLICE_MESSAGES"
"""Variable that names the socket of the board's watch, in the abstract namespace."""
_LONELY_S = 2.0
"""Time after which a guard without any rank ends, if some have never shown up."""


class StatusPage:
    """What a rank says of itself, for the guard; saying it takes about a microsecond."""

    def __init__(self, folder: Path, rank: int, place: str) -> None:
        """Make the page of this process; ``place`` is how messages name the rank."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = folder / f".rank-{rank}"
        with temporary.open("w+b") as file:
            file.truncate(_SIZE)
            self._page = mmap.mmap(file.fileno(), _SIZE)
        self._process = os.getpid()
        self._started = _process_start(self._process)
        self._put(0, place)
        self.tell(ALIVE)
        temporary.replace(folder / f"rank-{rank}")

    def tell(self, state: int) -> None:
        """Say in what state the rank is."""
        _HEAD.pack_into(self._page, 0, self._process, self._started, state)

    def at(self, step: str) -> None:
        """Say what the rank is working on: ``segment 0, frame 17``."""
        self._put(1, step)

    def _put(self, number: int, text: str) -> None:
        begin = _HEAD.size + number * _TEXT
        self._page[begin : begin + _TEXT] = text.encode()[:_TEXT].ljust(_TEXT, b"\0")


@dataclass(frozen=True)
class _Status:
    """A page, read."""

    process: int
    started: int
    state: int
    place: str
    step: str

    @property
    def is_alive(self) -> bool:
        if self.process < 1:  # no process: a signal to it would go to many
            return False
        started = _process_start(self.process)
        return started >= 0 and abs(started - self.started) <= _SAME_START


def _read_page(path: Path) -> _Status:
    page = path.read_bytes().ljust(_SIZE, b"\0")
    place, step = (
        page[begin : begin + _TEXT].rstrip(b"\0").decode(errors="replace")
        for begin in (_HEAD.size, _HEAD.size + _TEXT)
    )
    process, started, state = _HEAD.unpack_from(page)
    return _Status(process, started, state, place, step)


def _process_start(process: int) -> int:
    """Return when a process started, in clock ticks since boot; -1 if it has ended."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return -1
    fields = text.rpartition(")")[2].split()
    return -1 if fields[0] in "ZX" else int(fields[19])


def start_guard() -> Path | None:
    """Start this board's guard if this is its lowest rank; return the folder for status pages.

    The ranks of a board have the same parent, mpirun or its daemon, which names the folder.
    ``None`` if the process was not started by Open MPI.
    """
    ranks = os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE")
    if ranks is None:
        return None
    parent = os.getppid()
    memory = Path("/dev/shm")
    base = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
    folder = base / f"rankslice-{os.getuid()}-{parent}-{_process_start(parent)}"
    if os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK") == "0":
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        subprocess.Popen(
            [sys.executable, "-E", "-S", __file__, str(folder), ranks, str(parent)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    return folder


def _guard(folder: Path, ranks: int, parent: int) -> None:
    """Watch until all ranks have ended; kill those that outlive a failure."""
    parent_started = _process_start(parent)
    failed_at: float | None = None
    leftovers: dict[int, set[Path]] = {}
    alone_since = time.monotonic()
    while True:
        found = [_read_page(path) for path in folder.glob("rank-*")]
        alive = [status for status in found if status.is_alive]
        for status in alive:
            if status.step and status.process not in leftovers:
                leftovers[status.process] = _shared_memory(status)
        now = time.monotonic()
        if failed_at is None and (
            any(status.state in (FAILED, STOPPED) for status in found)
            or any(status.state != DONE and not status.is_alive for status in found)
            or _process_start(parent) != parent_started
        ):
            failed_at = now
            _tell(found)
        if alive:
            alone_since = now
        elif len(found) >= ranks or now - alone_since > _LONELY_S:
            break
        if failed_at is not None and now - failed_at > _GRACE_S:
            for status in alive:
                _kill(status)
        time.sleep(_LOOK_EVERY_S)
    for path in set().union(*leftovers.values()):
        path.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _shared_memory(status: _Status) -> set[Path]:
    """Return Open MPI's shared memory files of a rank: one that is killed cannot remove them."""
    try:
        lines = Path(f"/proc/{status.process}/maps").read_text().splitlines()
    except OSError:
        return set()
    mapped = {Path(line.split(maxsplit=5)[5]) for line in lines if "/dev/shm/" in line}
    return {path for path in mapped if path.name.startswith(("sm_segment.", "vader_segment."))}


def _tell(found: list[_Status]) -> None:
    """Say which rank ended first and where it was, unless one has told so itself."""
    if any(status.state == FAILED for status in found):
        return
    killed = [s for s in found if s.state == ALIVE and not s.is_alive]
    stopped = [status for status in found if status.state == STOPPED]
    for status in (killed or stopped)[:1]:
        what = "the process was killed or crashed" if killed else "the process was told to stop"
        last = f"last at {status.step}" if status.step else "while it started"
        hint = "; dmesg on its board tells whether memory ran out" if killed else ""
        say(_printable(f"{status.place}: {what}, {last}{hint}"))


def say(message: str) -> None:
    """Print a message, and leave it with the board's watch, if there is one.

    mpirun forwards nothing once a board is lost. Nobody may listen any more, and there is still
    work to do.
    """
    text = f"rankslice: {message}".encode(errors="replace")
    with contextlib.suppress(OSError):
        os.write(2, text + b"\n")
    watch = os.environ.get(_MESSAGES)
    if watch:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.setblocking(False)
            out.sendto(text, b"\0" + watch.encode())


def _printable(text: str) -> str:
    """Return a text as one line that controls no terminal."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def _kill(status: _Status) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(status.process, signal.SIGKILL)


if __name__ == "__main__":
    _guard(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
