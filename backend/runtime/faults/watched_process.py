"""Processes of this user, told apart from later ones with their numbers, and their deaths.

It needs only the standard library, as the watchdog loads it without the rest of the runtime.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from dataclasses import dataclass

from ..system.processes import stat_of, status_of

_SAME_START = 200
"""Clock ticks by which views of a process's start may differ: some tens of milliseconds under qemu.
Process numbers are not reused so soon."""


@dataclass(frozen=True)
class Process:
    """A process, by its number and when it started in clock ticks since boot."""

    number: int
    started: int

    @property
    def is_alive(self) -> bool:
        """Whether this process of this user still runs; its number may have been reused."""
        if self.number < 1:  # a signal to it would reach several processes
            return False
        started = process_start(self.number)
        return (
            started >= 0
            and abs(started - self.started) <= _SAME_START
            and status_of(self.number, "Uid").split()[:1] == [str(os.getuid())]
        )

    def open(self) -> int | None:
        """Open a descriptor of it, which gets readable when it ends.

        ``None`` if it has ended, or where the system has no such descriptors.
        """
        try:
            handle = os.pidfd_open(self.number)  # first, so that the checked process is held
        except (AttributeError, OSError, OverflowError):
            return None
        if self.is_alive:
            return handle
        os.close(handle)
        return None

    def kill(self) -> None:
        """Kill the process, but no later one with its number."""
        handle = self.open()
        with contextlib.suppress(OSError):
            if handle is not None:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            elif self.is_alive:
                os.kill(self.number, signal.SIGKILL)
        if handle is not None:
            os.close(handle)


class Deaths:
    """Notices the ends of processes, in their order.

    Where the system has no descriptors of processes, it looks whether they still run.
    """

    def __init__(self) -> None:
        self.ended: list[Process] = []
        """The processes that have ended, in this order."""
        # Of several that are ready, poll() would tell the order of registration.
        self._events = select.epoll()
        self._by_handle: dict[int, Process] = {}
        self._without_handle: set[Process] = set()
        self._watched: set[Process] = set()

    def watch(self, process: Process) -> None:
        """Watch a process from now on; it may have ended."""
        if process in self._watched:
            return
        self._watched.add(process)
        handle = process.open()
        if handle is None:
            self._without_handle.add(process)
            return
        self._by_handle[handle] = process
        self._events.register(handle, select.EPOLLIN)

    def wait(self, timeout_s: float) -> bool:
        """Wait until a process ends; return whether one has ended since the last call."""
        before = len(self.ended)
        for handle, _ in self._events.poll(timeout_s):
            self.ended.append(self._by_handle.pop(handle))
            os.close(handle)
        gone = [process for process in self._without_handle if not process.is_alive]
        self.ended += gone
        self._without_handle -= set(gone)
        return len(self.ended) > before


def process_start(process: int) -> int:
    """Clock ticks from boot until the process started; -1 if it has ended."""
    stat = stat_of(process)
    return -1 if stat is None or stat.has_ended else stat.started
