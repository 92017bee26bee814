"""Status pages: the state of a rank, readable after the rank was killed.

It needs only the standard library, as the guard loads it alone.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import signal
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

ALIVE, DONE, FAILED, STOPPED = range(4)
"""States of a rank: starting or running; ended well; failed, with a message; told to stop."""

_HEAD = struct.Struct("<qqq")
_TEXT = 512
_SIZE = _HEAD.size + 2 * _TEXT
_NAME = "rank-"

_SAME_START = 200
"""Clock ticks by which views of a process's start may differ: some tens of milliseconds under qemu.
Process numbers are not reused so soon."""


class StatusPage:
    """The state of a rank, for the guard; an update takes about a microsecond."""

    def __init__(self, folder: int, rank: int, rank_name: str) -> None:
        """Make the page of this process.

        Args:
            folder: descriptor of the folder of the board's pages.
            rank: number of the rank.
            rank_name: how messages name the rank.

        Raises:
            OSError: the disk is full.
        """
        temporary = f".{_NAME}{rank}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(temporary, flags, 0o600, dir_fd=folder)
        try:
            os.posix_fallocate(file, 0, _SIZE)  # or a full disk would end the rank by SIGBUS
            self._page = mmap.mmap(file, _SIZE)
        finally:
            os.close(file)
        self._process = os.getpid()
        self._started = process_start(self._process)
        self._put(0, rank_name)
        self.tell(ALIVE)
        os.rename(temporary, f"{_NAME}{rank}", src_dir_fd=folder, dst_dir_fd=folder)

    def tell(self, state: int) -> None:
        """Set the state of the rank."""
        _HEAD.pack_into(self._page, 0, self._process, self._started, state)

    def at(self, step: str) -> None:
        """Set what the rank is working on: ``segment 0, frame 17``."""
        self._put(1, step)

    def _put(self, number: int, text: str) -> None:
        begin = _HEAD.size + number * _TEXT
        self._page[begin : begin + _TEXT] = text.encode()[:_TEXT].ljust(_TEXT, b"\0")


@dataclass(frozen=True)
class Status:
    """A page, read."""

    process: int
    started: int
    state: int
    rank_name: str
    step: str

    @property
    def is_alive(self) -> bool:
        """Whether the process that made the page still runs; its number may have been reused."""
        if self.process < 1:  # a signal to it would reach several processes
            return False
        started = process_start(self.process)
        return (
            started >= 0
            and abs(started - self.started) <= _SAME_START
            and _user_of(self.process) == os.getuid()
        )

    def kill(self) -> None:
        """Kill the process, but no later one with its number."""
        handle = _handle_of(self.process)  # first, so that the checked process is killed
        with contextlib.suppress(OSError):
            if handle is not None and self.is_alive:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            elif self.is_alive:
                os.kill(self.process, signal.SIGKILL)
        if handle is not None:
            os.close(handle)


def _handle_of(process: int) -> int | None:
    """Return a descriptor of a process; ``None`` where the system has none."""
    try:
        return os.pidfd_open(process)
    except (AttributeError, OSError):
        return None


def read_pages(folder: int) -> list[Status]:
    """Return the pages in a folder, given as its descriptor."""
    found = []
    for name in sorted(os.listdir(folder)):
        if name.startswith(_NAME):
            with contextlib.suppress(OSError):
                found.append(_read_page(name, folder))
    return found


def _read_page(name: str, folder: int) -> Status:
    """Return a page; one that is cut short names no process.

    Raises:
        OSError: it is not a file of this user.
    """
    # A FIFO would keep the guard waiting.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.open(name, flags, dir_fd=folder)
    try:
        found = os.fstat(file)
        if found.st_uid != os.geteuid() or not stat.S_ISREG(found.st_mode):
            raise PermissionError(errno.EACCES, "is no page of this user", name)
        page = os.pread(file, _SIZE, 0).ljust(_SIZE, b"\0")
    finally:
        os.close(file)
    rank_name, step = (
        page[begin : begin + _TEXT].rstrip(b"\0").decode(errors="replace")
        for begin in (_HEAD.size, _HEAD.size + _TEXT)
    )
    process, started, state = _HEAD.unpack_from(page)
    return Status(process, started, state, rank_name, step)


def process_start(process: int) -> int:
    """Return when a process started, in clock ticks since boot; -1 if it has ended."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return -1
    fields = text.rpartition(")")[2].split()
    return -1 if fields[0] in "ZX" else int(fields[19])


def _user_of(process: int) -> int:
    """Return the number of the user that a process runs as; -1 if it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("Uid:"):
                return int(line.split()[1])
    return -1
