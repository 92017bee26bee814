"""When frames arrive: as fast as the pipeline takes them, or by the clock."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from ..errors import JobError

PATIENCE_S = 40.0
"""Time for the watches to name a silent or hanging rank, which takes them up to 31 s."""

_LOOK_EVERY_S = 0.1
"""While the cause of a full queue is unknown."""


class Arrivals(Protocol):
    """The queue between the world and the source."""

    dropped: list[int]
    """Numbers of the frames that found no room, in order."""

    def is_exhausted(self) -> bool:
        """Whether the last frame has been taken."""

    def is_waiting(self) -> bool:
        """Whether an arrived frame has not been taken yet."""

    def take(self) -> tuple[int, float]:
        """Return number and arrival time (``time.monotonic``) of the frame that waits longest."""

    def judge(self, entered: int, came_out: int) -> None:
        """Note how many frames have entered the pipeline and how many have left it.

        Raises:
            JobError: a frame found no room, and may not be dropped.
        """

    def pause_s(self) -> float | None:
        """Seconds until the next arrival; ``None`` if frames do not arrive by the clock."""

    def counts(self) -> tuple[int, int]:
        """Return how many frames have arrived, and how many of them wait."""


class Pulled:
    """A frame arrives when the pipeline has room for it; none is lost."""

    def __init__(self, frames: int | None) -> None:
        """Begin with frame 0; ``frames``: their number, ``None`` if unknown."""
        self.dropped: list[int] = []
        self._frames = math.inf if frames is None else frames
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

    def judge(self, entered: int, came_out: int) -> None:
        """There is always room."""

    def pause_s(self) -> float | None:
        """Nothing happens by the clock."""
        return None

    def counts(self) -> tuple[int, int]:
        """There is always one that waits."""
        return self._next + 1, 1


class Timed:
    """Frames arrive by the clock, from the first look on, whether there is room or not."""

    def __init__(
        self,
        frames: int | None,
        rhythm: float | Sequence[float],
        capacity: int,
        overflow: str,
        clock: Callable[[], float] = time.monotonic,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Set the rhythm.

        Args:
            frames: number of frames that arrive; ``None`` if unknown.
            rhythm: arrivals per second, or the time of each, in seconds, ascending.
            capacity: how many arrived frames may wait.
            overflow: ``fail`` or ``drop``: what happens to an arrival that finds the queue full.
            clock: seconds; the source of time.
            patience_s: how long the watches may search for a fault after a frame found no room.
        """
        self.dropped: list[int] = []
        self._times_s = None if isinstance(rhythm, float | int) else rhythm
        self._fps = rhythm if isinstance(rhythm, float | int) else 0.0
        self._frames = math.inf if frames is None else frames
        if self._times_s is not None:
            self._frames = min(self._frames, len(self._times_s))
        self._capacity = capacity
        self._overflow = overflow
        self._clock = clock
        self._queue: deque[int] = deque()
        self._arrived = 0
        self._start_s: float | None = None
        self._patience_s = patience_s
        self._lost_s: float | None = None
        """When a frame that may not be dropped found the queue full; none has arrived since."""
        self._entered_by_then: int | None = None

    def is_exhausted(self) -> bool:
        """Whether all frames have arrived and none waits."""
        self._arrive()
        return self._arrived >= self._frames and not self._queue

    def is_waiting(self) -> bool:
        """Whether a frame waits."""
        self._arrive()
        return bool(self._queue)

    def take(self) -> tuple[int, float]:
        """Return the frame that waits longest."""
        index = self._queue.popleft()
        return index, self._due_s(index)

    def judge(self, entered: int, came_out: int) -> None:
        """Report why a frame found no room, once that is known.

        A rank may have stopped. But a frame that entered after the loss and has come out has passed
        every rank: so all ranks run, and the pipeline is too slow.

        Raises:
            JobError: that is so; or no such frame came out, and the watches found no fault.
        """
        if self._lost_s is None:
            return
        if self._entered_by_then is None:
            self._entered_by_then = entered
        lost = f"frame {self._arrived} arrived while {self._capacity} frames were waiting"
        if came_out > self._entered_by_then:
            rate = f"{self._fps:g} frames/s" if self._times_s is None else "they arrive"
            raise JobError(
                f"{lost}: the pipeline is slower than {rate}"
                " (--overflow drop would leave frames out)"
            )
        if self._clock() - self._lost_s >= self._patience_s:
            raise JobError(
                f"{lost}, and no frame that entered after it has come out for"
                f" {self._patience_s:g} s"
            )

    def pause_s(self) -> float | None:
        """Seconds until the next arrival, or until the cause of a full queue is checked again."""
        if self._lost_s is not None:
            return _LOOK_EVERY_S
        if self._arrived >= self._frames:
            return None
        return max(0.0, self._due_s(self._arrived) - self._clock())

    def counts(self) -> tuple[int, int]:
        """Return how many frames have arrived, and how many of them wait."""
        return self._arrived, len(self._queue)

    def _due_s(self, index: int) -> float:
        if self._start_s is None:
            self._start_s = self._clock()
        if self._times_s is not None:
            return self._start_s + self._times_s[index]
        return self._start_s + index / self._fps

    def _arrive(self) -> None:
        now = self._clock()
        while (
            self._lost_s is None
            and self._arrived < self._frames
            and self._due_s(self._arrived) <= now
        ):
            if len(self._queue) < self._capacity:
                self._queue.append(self._arrived)
            elif self._overflow == "drop":
                self.dropped.append(self._arrived)
            else:
                self._lost_s = now
                return
            self._arrived += 1
