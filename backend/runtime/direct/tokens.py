"""Tokens: what one rank tells a thread of another rank of its board, through a pipe.

A token says how far a ring's writer, or one of its readers, has come. The kernel orders memory by
it: what was written to a slot before the token is sent is seen by whoever has taken the token.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from ..errors import JobError

WRITTEN, FREED, ENDED = range(3)
"""Kinds: so many frames have been written; a reader is done with so many; so many are all."""

_TOKEN = struct.Struct("=iiqq")
_TOKENS_A_WRITE = 4096 // _TOKEN.size
"""A write of up to 4096 bytes is never mixed with others."""
_READ_BYTES = _TOKENS_A_WRITE * _TOKEN.size
"""So reads end between two tokens."""
_F_SETPIPE_SZ, _F_GETPIPE_SZ = 1031, 1032


class Inbox:
    """A pipe through which other ranks send tokens to one thread of this rank."""

    def __init__(self) -> None:
        """Make the pipe.

        Raises:
            JobError: the system refuses it.
        """
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
        """Call ``handler`` with the count of each token of a kind and a channel.

        It is called by the thread that takes the tokens.
        """
        self._handlers[kind, channel] = handler

    @property
    def is_used(self) -> bool:
        """Whether tokens may come."""
        return self._capacity > 0

    def make_room(self) -> None:
        """Make the pipe large enough for all tokens that may be under way.

        Raises:
            JobError: the system refuses.
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
        """Handle the tokens that have come; return whether there were any."""
        took = False
        while True:
            try:
                data = os.read(self.descriptor, _READ_BYTES)
            except BlockingIOError:
                return took
            for kind, channel, count, stamp in _TOKEN.iter_unpack(data):
                if kind == WRITTEN and self.on_stamp is not None:
                    self.on_stamp(channel, stamp)
                self._handlers[kind, channel](count)
            took = True
            if len(data) < _READ_BYTES:
                return took

    def close(self) -> None:
        """Release the pipe."""
        os.close(self.descriptor)
        os.close(self.entry)


class Outboxes:
    """The ways to other ranks' inboxes; tokens leave in one write to each, with :meth:`flush`.

    Any thread may add and flush; whoever has added flushes afterwards. Tokens to an inbox leave in
    the order in which they were added, whoever sends them.
    """

    def __init__(self) -> None:
        self._sending = threading.Lock()
        self._is_closed = False
        self._pending: dict[int, deque[bytes]] = {}
        self._filled: deque[int] = deque()

    def add(self, entry: int, kind: int, channel: int, count: int) -> None:
        """Add a token for the inbox behind a descriptor."""
        token = _TOKEN.pack(kind, channel, count, time.monotonic_ns())
        self._pending.setdefault(entry, deque()).append(token)
        self._filled.append(entry)

    def flush(self) -> None:
        """Send what was added."""
        while self._filled:
            with self._sending:
                if self._filled:
                    self._send(self._filled.popleft())

    def close(self) -> None:
        """Send nothing any more: descriptors are closed, and their numbers used again."""
        with self._sending:
            self._is_closed = True

    def _send(self, entry: int) -> None:
        pending = self._pending[entry]
        while pending and not self._is_closed:
            tokens = [pending.popleft() for _ in range(min(len(pending), _TOKENS_A_WRITE))]
            # A rank that has died is named by those who watch it.
            with suppress(BrokenPipeError):
                os.write(entry, b"".join(tokens))
