"""Two clocks that find hangs: heartbeats between ranks, and a deadline for each step.

Both count the watcher's own ticks, at least a second apart. A watcher without processor time ticks
less often, so neither a crowded machine nor a suspended board raises an alarm. For half a minute,
nor does a rank of the same board that could run but gets no processor time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

import numpy as np

from ..errors import JobError
from ..job import Rank
from ..system.processes import cpu_s_of, stat_of, threads_of
from .executor import Executor
from .slots import Ring
from .wiring import BEAT

_MISSES = 5
_MISSES_OF_A_STARVED = 30
_HARDLY_S = 0.05
"""Processor time between two ticks below which a process counts as starved."""
_MIN_DEADLINE_S = 30.0
_DEADLINE_FACTOR = 20


class Ticker:
    def __init__(self, period_s: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._period_s = period_s
        self._clock = clock
        self._next_s = clock() + period_s

    def is_due(self) -> bool:
        now = self._clock()
        if now < self._next_s:
            return False
        self._next_s = now + self._period_s
        return True


class StarvationWatch:
    """Finds out whether a process of this board is short of processor time.

    If jobs of several sessions share a core, Linux may not run one of their processes for more than
    five seconds.
    """

    def __init__(self, process: int) -> None:
        self._process = process
        self._cpu_s = cpu_s_of(process)

    def is_starved(self) -> bool:
        """Whether it could run now, but hardly has since the last call.

        A process that is stopped, or waits for anything but a core, could not.
        """
        before_s, self._cpu_s = self._cpu_s, cpu_s_of(self._process)
        return self._cpu_s - before_s < _HARDLY_S and self._can_run()

    def _can_run(self) -> bool:
        with suppress(OSError):
            names = (f"{self._process}/task/{thread}" for thread in threads_of(self._process))
            return any(stat is not None and stat.state == "R" for stat in map(stat_of, names))
        return False


class Heartbeat:
    """One rank's part in the ring of heartbeats: it listens to the rank before, beats for the next.

    A beat names the step that its sender works on. The stream of beats ends like any other stream.
    """

    def __init__(
        self,
        ranks: Sequence[Rank],
        rank: int,
        beats: Ring,
        heard: Ring,
        processes: Sequence[int] = (),
    ) -> None:
        """Take the rings of a channel to the next rank and of one from the rank before.

        ``processes``: process numbers by rank; one of this board can be examined.
        """
        before = (rank - 1) % len(ranks)
        self._hears = len(ranks) > 1
        self._watched = ranks[before]
        self._starvation: StarvationWatch | None = None
        is_near = ranks[before].board == ranks[rank].board
        if processes and is_near and processes[before] != os.getpid():
            self._starvation = StarvationWatch(processes[before])
        self._beats = beats
        self._heard = heard
        self._heard_by_last_tick = 0
        self._misses = 0
        self._misses_starved = 0
        self._last_step = ""

    def listen(self) -> None:
        while self._heard.has_frame(0):
            slot = self._heard.raw[self._heard.read[0] % self._heard.depth]
            self._last_step = slot.tobytes().rstrip(b"\0").decode(errors="replace")
            self._heard.free(0)

    def beat(self, step: str) -> None:
        if self._beats.end is None and self._beats.has_room():
            text = step.encode()[: BEAT.nbytes].ljust(BEAT.nbytes, b"\0")
            slot = self._beats.raw[self._beats.written % self._beats.depth]
            slot[:] = np.frombuffer(text, np.uint8)
            self._beats.put()

    def tick(self) -> None:
        """Count the ticks in which nothing was heard.

        Raises:
            JobError: five in a row in which the rank could have beaten, or thirty in all.
        """
        is_starved = self._starvation is not None and self._starvation.is_starved()
        heard = self._heard.written
        if heard != self._heard_by_last_tick or self.has_ended:
            self._misses = self._misses_starved = 0
        elif is_starved:
            self._misses_starved += 1
        else:
            self._misses += 1
        self._heard_by_last_tick = heard
        silent_s = self._misses + self._misses_starved
        if self._misses >= _MISSES:
            self._raise_alarm(silent_s, "it is stopped, overloaded, or cannot be reached")
        if silent_s >= _MISSES_OF_A_STARVED:
            self._raise_alarm(silent_s, "other work on its cores leaves it no processor time")

    def _raise_alarm(self, silent_s: int, reason: str) -> NoReturn:
        last = self._last_step or "its start"
        raise JobError(
            f"no sign of life for {silent_s} s from {self._watched.name}, last heard at {last}:"
            f" {reason}"
        )

    @property
    def has_ended(self) -> bool:
        return not self._hears or self._heard.end is not None

    def finish(self) -> None:
        if self._beats.end is None:
            self._beats.finish()


class ProgressWatch:
    """Finds a step that does not end: an engine that hangs, a disk that blocks."""

    def __init__(self, executor: Executor, deadline_s: float | None) -> None:
        """``deadline_s``: that a step may take; ``None``: 30 s, or 20 times the slowest so far."""
        self._executor = executor
        self._deadline_s = deadline_s
        self._steps_seen = -1
        self._ticks = 0

    def tick(self) -> None:
        step = self._executor.step_under_way
        self._ticks = self._ticks + 1 if step is not None and step == self._steps_seen else 0
        self._steps_seen = -1 if step is None else step
        allowed = self._deadline_s or max(
            _MIN_DEADLINE_S, _DEADLINE_FACTOR * self._executor.slowest_s
        )
        if self._ticks > allowed:
            raise JobError(
                f"{self._executor.at}: not finished after {self._ticks} s"
                " (--frame-timeout sets the limit)"
            )
