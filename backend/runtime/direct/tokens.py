"""Tokens: notifications from one rank to a thread of another rank of its board, through a pipe.

A token says how far a ring's writer, or one of its readers, has come. The kernel orders memory by
it: what was written to a slot before the token is sent is seen by whoever has taken the token.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from ..errors import JobError

WRITTEN, FREED, ENDED = range(3)
"""Kinds: so many frames have been written; a reader is done with so many; so many are all."""

_TOKEN = struct.Struct("=iiqq")
_MAX_BYTES = 4096 // _TOKEN.size * _TOKEN.size
"""Of tokens written or read at once: so writes are never mixed, and reads end between tokens."""
_F_SETPIPE_SZ, _F_GETPIPE_SZ = 1031, 1032


class Inbox:
    """A pipe through which other ranks send tokens to one thread of this rank."""

    def __init__(self) -> None:
        try:
            ends = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise JobError(
                f"no pipe for tokens ({error.strerror}): raise the limits of open files (ulimit -n,"
                " /proc/sys/fs/file-max) or end other programs"
            ) from None
        self.descriptor, self.entry = ends
        """What is polled and read; what other ranks write to."""
        self._handlers: dict[tuple[int, int], Callable[[int], object]] = {}
        self._capacity = 0
        self.on_stamp: Callable[[int, int], None] | None = None
        """Called with the channel and the time of each :data:`WRITTEN`, in nanoseconds of the
        monotonic clock."""

    def expect(self, most: int) -> None:
        """Have room for ``most`` more tokens that may be under way at once."""
        self._capacity += most

    def handle(self, kind: int, channel: int, handler: Callable[[int], object]) -> None:
        """Have the thread that takes the tokens call ``handler`` with the count of each."""
        self._handlers[kind, channel] = handler

    def make_room(self) -> None:
        """Make the pipe large enough for all tokens that may be under way.

        Raises:
            JobError: the system refuses it.
        """
        # The kernel leaves the rest of a page unused if a write does not fit into it.
        needed = 2 * self._capacity * _TOKEN.size
        with suppress(OSError):
            if fcntl.fcntl(self.descriptor, _F_GETPIPE_SZ) < needed:
                fcntl.fcntl(self.descriptor, _F_SETPIPE_SZ, needed)
        if fcntl.fcntl(self.descriptor, _F_GETPIPE_SZ) < needed:
            raise JobError(
                f"a pipe of {needed} bytes is needed for tokens, and the system refuses it"
                " (/proc/sys/fs/pipe-max-size, pipe-user-pages-soft): use a smaller --window,"
                " or --no-direct"
            )

    def take(self) -> bool:
        """Handle the tokens that have come; return whether there were any.

        After so many that one read does not take them all, the rest makes the pipe readable.
        """
        try:
            data = os.read(self.descriptor, _MAX_BYTES)
        except BlockingIOError:
            return False
        for kind, channel, count, stamp in _TOKEN.iter_unpack(data):
            if kind == WRITTEN and self.on_stamp is not None:
                self.on_stamp(channel, stamp)
            self._handlers[kind, channel](count)
        return True

    def close(self) -> None:
        os.close(self.descriptor)
        os.close(self.entry)


class Counts(Protocol):
    written: int
    end: int | None
    freed: int
    """Of another rank's ring: how many of its frames this one has read."""


class Outbox:
    """The tokens that one thread has for other ranks. They leave in one write to each inbox.

    Counts are absolute, and who takes them only ever raises its own. So it does no harm if tokens
    of several threads overtake each other.
    """

    def __init__(self) -> None:
        self.pending: dict[int, bytes] = defaultdict(bytes)
        """By the descriptor of an inbox, what has not been sent."""
        self._is_closed = False

    def add_written(self, ring: Counts, entry: int, channel: int) -> None:
        """Add a token on the frames of a ring, or on its end, for the inbox behind a descriptor."""
        end, now_ns = ring.end, time.monotonic_ns()
        self.pending[entry] += (
            _TOKEN.pack(WRITTEN, channel, ring.written, now_ns)
            if end is None
            else _TOKEN.pack(ENDED, channel, end, now_ns)
        )

    def add_freed(self, ring: Counts, entry: int, channel: int) -> None:
        """Add a token on the slots of another rank's ring that this one has read."""
        self.pending[entry] += _TOKEN.pack(FREED, channel, ring.freed, 0)

    def flush(self) -> None:
        pending, self.pending = self.pending, defaultdict(bytes)
        for entry in pending:
            tokens = pending[entry]
            while tokens and not self._is_closed:
                try:
                    os.write(entry, tokens[:_MAX_BYTES])
                except BrokenPipeError:  # a rank that has died is named by those who watch it
                    break
                tokens = tokens[_MAX_BYTES:]

    def close(self) -> None:
        """Send nothing any more: descriptors are closed, and their numbers used again."""
        self._is_closed = True


def send_freed(ring: Counts, entry: int, channel: int) -> None:
    """Send a token on the slots that have been read, from whichever thread."""
    outbox = Outbox()
    outbox.add_freed(ring, entry, channel)
    outbox.flush()
