"""Where a thread sleeps: until another thread wakes it, a descriptor is ready, or time is over."""

from __future__ import annotations

import ctypes
import math
import os
import select
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

_PR_SET_TIMERSLACK = 29

Watched = tuple[int, Callable[[], object]]
"""A descriptor, and what is called when it can be read."""


def sharpen_timers() -> None:
    """Make this thread's short sleeps end on time: Linux would add 50 us to each."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1000, 0, 0, 0)


def _polled(descriptors: Iterable[int], timeout_s: float | None) -> list[int]:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    # It takes whole milliseconds.
    timeout_ms = None if timeout_s is None else math.ceil(1e3 * timeout_s)
    return [descriptor for descriptor, _ in poll.poll(timeout_ms)]


def _take_event(event: int) -> None:
    with suppress(BlockingIOError):
        os.eventfd_read(event)


class Waiter:
    """What one thread sleeps on between two checks of its work.

    The sleeper checks first, then sleeps. Others provide work first, then call :meth:`set`, or
    write to a descriptor that is watched. So work that comes between check and sleep ends the
    sleep at once.
    """

    def __init__(self) -> None:
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        # Not earlier: a thread that hangs in its engine sleeps here later, or is woken.
        weakref.finalize(self, os.close, self._event).atexit = False
        self._is_raised = False
        self._is_asleep = False
        self._watched: dict[int, Callable[[], object]] = {
            self._event: partial(_take_event, self._event)
        }

    def watch(self, descriptor: int, on_ready: Callable[[], object]) -> None:
        """End sleeps when a descriptor can be read, and call ``on_ready`` in this thread."""
        self._watched[descriptor] = on_ready

    def forget(self, descriptor: int) -> None:
        self._watched.pop(descriptor, None)

    def set(self) -> None:
        """Let the sleeper's present or next :meth:`wait` return at once; called by any thread."""
        self._is_raised = True
        # The sleeper says that it sleeps, then looks at the flag: so one of both sees the other.
        if self._is_asleep:
            os.eventfd_write(self._event, 1)

    def wait(self, timeout_s: float | None = None, also: Sequence[Watched] = ()) -> bool:
        """Sleep until woken; return whether it was by something else than the time.

        ``also``: descriptors to watch during this sleep only.
        """
        watched = {**self._watched, **dict(also)} if also else self._watched
        ready: list[int] = []
        self._is_asleep = True
        if not self._is_raised:
            try:
                ready = select.select(watched, (), (), timeout_s)[0]
            except ValueError:  # a descriptor of 1024 or above
                ready = _polled(watched, timeout_s)
        self._is_asleep = False
        # What is raised after this look is left for the next sleep.
        was_raised = self._is_raised
        if was_raised:
            self._is_raised = False
        for descriptor in ready:
            watched[descriptor]()
        return was_raised or bool(ready)
