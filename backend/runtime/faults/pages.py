"""Status pages: the state of a rank, readable after the rank was killed.

It needs only the standard library, as the guard loads it alone.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
import struct
from dataclasses import dataclass

from .processes import Process, process_start

ALIVE, DONE, FAILED, STOPPED = range(4)
"""States of a rank: starting or running; ended well; failed, with a message; told to stop."""

_HEAD = struct.Struct("<qqq")
_TEXT = 512
_SIZE = _HEAD.size + 2 * _TEXT
_NAME = "rank-"


class StatusPage:
    """The state of a rank, for the guard; an update takes about a microsecond."""

    def __init__(self, folder: int, rank: int, rank_name: str) -> None:
        """Make the page of this process in a folder, given as its descriptor.

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

    process: Process
    """That made the page."""
    state: int
    rank_name: str
    step: str


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
            raise PermissionError(errno.EACCES, "is not a status page of this user", name)
        page = os.pread(file, _SIZE, 0).ljust(_SIZE, b"\0")
    finally:
        os.close(file)
    rank_name, step = (
        page[begin : begin + _TEXT].rstrip(b"\0").decode(errors="replace")
        for begin in (_HEAD.size, _HEAD.size + _TEXT)
    )
    process, started, state = _HEAD.unpack_from(page)
    return Status(Process(process, started), state, rank_name, step)
