"""Status pages: the state of a rank, readable after the rank was killed.

It needs only the standard library, as the watchdog loads it alone.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..system.files import map_new_file, open_own_file
from .watched_process import Process, process_start

ALIVE, DONE, FAILED, STOPPED = range(4)
"""States of a rank: starting or running; ended well; failed, with a message; told to stop."""

_HEAD = struct.Struct("<qqq")
_NAMED = struct.Struct("<512s")
_STEP = struct.Struct("<q504s")
"""The frame, below 0 if there is none, and what stands before and after its number, a zero byte in
between."""
_SIZE = _HEAD.size + _NAMED.size + _STEP.size
_NAME = "rank-"


class StatusPage:
    """The state of a rank, for the watchdog; an update takes about a microsecond."""

    def __init__(self, folder: int, rank: int, rank_name: str) -> None:
        """Make the page of this process in a folder, given as its descriptor.

        Raises:
            OSError: the disk is full.
        """
        temporary = f".{_NAME}{rank}"
        self._page = map_new_file(temporary, _SIZE, folder)
        self._process = os.getpid()
        self._started = process_start(self._process)
        _NAMED.pack_into(self._page, _HEAD.size, rank_name.encode())
        self.at: Callable[[int, bytes], None] = partial(
            _STEP.pack_into, self._page, _HEAD.size + _NAMED.size
        )
        """Sets what the rank is working on: ``at(17, b"segment 0, frame ")``."""
        self.at(-1, b"")
        self.set_state(ALIVE)
        os.rename(temporary, f"{_NAME}{rank}", src_dir_fd=folder, dst_dir_fd=folder)

    def set_state(self, state: int) -> None:
        _HEAD.pack_into(self._page, 0, self._process, self._started, state)


@dataclass(frozen=True)
class Status:
    """A page, read."""

    process: Process
    """That made the page."""
    state: int
    rank_name: str
    step: str


def read_pages(folder: int) -> list[Status]:
    """Read all pages in a folder, given as its descriptor."""
    pages = []
    for name in sorted(os.listdir(folder)):
        if name.startswith(_NAME):
            with contextlib.suppress(OSError):
                pages.append(_read_page(name, folder))
    return pages


def _read_page(name: str, folder: int) -> Status:
    """Read a page; one that is cut short names no process.

    Raises:
        OSError: it is not a file of this user.
    """
    file = open_own_file(name, folder)
    try:
        page = os.pread(file, _SIZE, 0).ljust(_SIZE, b"\0")
    finally:
        os.close(file)
    (rank_name,) = _NAMED.unpack_from(page, _HEAD.size)
    frame, step = _STEP.unpack_from(page, _HEAD.size + _NAMED.size)
    before, _, after = step.rstrip(b"\0").partition(b"\0")
    if frame >= 0:
        before += b"%d" % frame
    process, started, state = _HEAD.unpack_from(page)
    rank_name, step = (
        text.rstrip(b"\0").decode(errors="replace") for text in (rank_name, before + after)
    )
    return Status(Process(process, started), state, rank_name, step)
