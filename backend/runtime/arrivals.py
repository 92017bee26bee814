"""When frames arrive: as fast as the pipeline takes them, or by the clock."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from .errors import JobError

__all__ = ["Arrivals", "Pulled", "Timed"]


class Arrivals(Protocol):
    """The queue between the world and the source."""

    dropped: list[int]
    """Numbers of arrived frames that found no room, in order."""

    def is_exhausted(self) -> bool:
        """Whether the last frame has been taken."""

    def is_waiting(self) -> bool:
        """Whether a frame has arrived and was not taken yet."""

    def take(self) -> tuple[int, float]:
        """Return number and arrival time (``time.monotonic``) of the frame that waits longest."""

    def pause_s(self) -> float | None:
        """Seconds until the next arrival; ``None`` if arrivals do not go by the clock."""


class Pulled:
    """A frame arrives when the pipeline has room for it; none is ever lost."""

    def __init__(self, frames: int) -> None:
        self.dropped: list[int] = []
        self._frames = frames
        self._next = 0

    def is_exhausted(self) -> bool:
        """Whether all frames have been taken."""
        return self._next >= self._frames

    def is_waiting(self) -> bool:
        """Whether there is another frame."""
        return not self.is_exhausted()

    def take(self) -> tuple[int, float]:
        """Return the next frame, arriving now."""
        self._next += 1
        return self._next - 1, time.monotonic()

    def pause_s(self) -> float | None:
        """Nothing happens by the clock."""
        return None


class Timed:
    """Frame k arrives k / fps seconds after the first look, whether there is room or not."""

    def __init__(
        self,
        frames: int,
        fps: float,
        capacity: int,
        overflow: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set the rhythm.

        Args:
            frames: number of frames that arrive.
            fps: arrivals per second.
            capacity: how many arrived frames may wait.
            overflow: ``fail`` or ``drop``: what happens to an arrival that finds the queue full.
            clock: seconds; the source of time.
        """
        self.dropped: list[int] = []
        self._frames = frames
        self._fps = fps
        self._capacity = capacity
        self._overflow = overflow
        self._clock = clock
        self._queue: deque[int] = deque()
        self._arrived = 0
        self._start_s: float | None = None

    def is_exhausted(self) -> bool:
        """Whether all frames have arrived and none waits."""
        self._arrive()
        return self._arrived >= self._frames and not self._queue

    def is_waiting(self) -> bool:
        """Whether a frame waits.

        Raises:
            JobError: a frame arrived, the queue was full, and overflow means to fail.
        """
        self._arrive()
        return bool(self._queue)

    def take(self) -> tuple[int, float]:
        """Return the frame that waits longest."""
        index = self._queue.popleft()
        return index, self._due_s(index)

    def pause_s(self) -> float | None:
        """Seconds until the next arrival."""
        if self._arrived >= self._frames:
            return None
        return max(0.0, self._due_s(self._arrived) - self._clock())

    def _due_s(self, index: int) -> float:
        if self._start_s is None:
            self._start_s = self._clock()
        return self._start_s + index / self._fps

    def _arrive(self) -> None:
        now = self._clock()
        while self._arrived < self._frames and self._due_s(self._arrived) <= now:
            if len(self._queue) < self._capacity:
                self._queue.append(self._arrived)
            elif self._overflow == "drop":
                self.dropped.append(self._arrived)
            else:
                raise JobError(
                    f"frame {self._arrived} arrived while {self._capacity} frames were waiting:"
                    f" the pipeline is slower than {self._fps:g} frames/s"
                    " (--overflow drop would leave frames out)"
                )
            self._arrived += 1
