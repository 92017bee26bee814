"""A flag that one thread sleeps on and any thread raises."""

from __future__ import annotations

import ctypes
import threading
from contextlib import suppress

_PR_SET_TIMERSLACK = 29


def sharpen_timers() -> None:
    """Make this thread's short sleeps end on time: Linux would add 50 us to each."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1000, 0, 0, 0)


class Wakeup:
    """What one thread sleeps on between two checks of its work.

    The sleeper checks first, then sleeps. Others provide work first, then call :meth:`set`. So work
    that comes between check and sleep ends the sleep at once. A ``threading.Event`` that is cleared
    before each check does the same in three times the time, and wake-ups are most of what the
    runtime costs.
    """

    __slots__ = ("_lowered",)

    def __init__(self) -> None:
        """Begin with the flag lowered."""
        self._lowered = threading.Lock()
        self._lowered.acquire()

    def set(self) -> None:
        """Raise the flag: the sleeper's present or next :meth:`wait` returns at once."""
        if self._lowered.locked():
            # Another thread may have raised it since the check.
            with suppress(RuntimeError):
                self._lowered.release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Sleep until the flag is raised, and lower it; return whether it was.

        Args:
            timeout_s: the longest sleep in seconds; ``None``: without bound.
        """
        return self._lowered.acquire(timeout=-1 if timeout_s is None else timeout_s)
