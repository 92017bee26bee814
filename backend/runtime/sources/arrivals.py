"""When frames arrive: as fast as the pipeline takes them, by the clock, or by themselves."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import JobError, reason_of

PATIENCE_S = 40.0
"""Time for the watches to name a silent or hanging rank, which takes them up to 31 s."""

MAX_DROPPED = 100_000
"""Numbers of dropped frames that are kept: a stream may have no end."""

_POLL_S = 0.1
"""While the cause of a full queue is unknown."""
_IDLE_S = 1.0


class EndOfStreamError(Exception):
    """There is no such frame: the stream has ended before it."""

    def __init__(self, frames: int | None = None) -> None:
        """Say how many frames there were; ``None``: as many as the number of that frame."""
        super().__init__()
        self.frames = frames


class Arrivals(ABC):
    """The queue between the world and the source."""

    fps: float | None = None
    """Frames that arrive per second by the clock; ``None``: there is no such rate."""
    awaits_results = False
    """Whether it goes on only once frames have come out."""
    is_over = False
    """Whether the last frame was taken, as far as :meth:`take` and :meth:`is_exhausted` know."""

    def __init__(self, frames: int | None) -> None:
        """Begin with frame 0; ``frames``: their number, ``None`` if unknown."""
        self.dropped: list[int] = []
        """Numbers of the first :data:`MAX_DROPPED` frames that found no room, in order."""
        self.more_dropped = 0
        """How many others found none."""
        self._frames = math.inf if frames is None else frames

    @abstractmethod
    def end(self) -> None:
        """Let no further frame arrive; called by any thread."""

    @abstractmethod
    def end_at(self, frames: int) -> None:
        """Forget what arrived after the last of so many frames: it does not exist."""

    @abstractmethod
    def is_exhausted(self) -> bool:
        """Whether the last frame has been taken."""

    @abstractmethod
    def poll(self, entered: int, came_out: int) -> bool | None:
        """Return whether an arrived frame has not been taken yet; ``None``: none will come.

        So many frames have ``entered`` the pipeline, and so many ``came_out``.

        Raises:
            JobError: a frame found no room, and may not be dropped.
        """

    @abstractmethod
    def take(self) -> tuple[int, float]:
        """Return number and arrival time (``time.monotonic``) of the frame that waits longest.

        Raises:
            EndOfStreamError: the last frame has been taken.
        """

    def pause_s(self) -> float | None:
        """Seconds until the next arrival; ``None`` if frames do not arrive by the clock."""
        return None

    @abstractmethod
    def counts(self) -> tuple[int, int]:
        """Return how many frames have arrived, and how many of them wait."""


class Pulled(Arrivals):
    """A frame arrives when the pipeline has room for it; none is lost."""

    def __init__(self, frames: int | None) -> None:
        super().__init__(frames)
        self._next = 0
        self.is_over = frames == 0

    def end(self) -> None:
        self._frames = 0
        self.is_over = True

    def end_at(self, frames: int) -> None:
        """None arrives before it is taken."""

    def is_exhausted(self) -> bool:
        return self.is_over

    def poll(self, entered: int, came_out: int) -> bool | None:
        return None if self.is_over else True

    def take(self) -> tuple[int, float]:
        if self.is_over:
            raise EndOfStreamError
        index = self._next
        self._next = index + 1
        self.is_over = self._next >= self._frames
        return index, time.monotonic()

    def counts(self) -> tuple[int, int]:
        """There is always one that waits."""
        return self._next + 1, 1


class Queries(Pulled):
    """Frames arrive several at once, a query, when all frames of the query before have come out."""

    def __init__(self, frames: int | None, samples: int) -> None:
        """Begin with frame 0; a query has so many ``samples``, the last one may have fewer."""
        super().__init__(frames)
        self._samples = samples
        self._issued_s = 0.0

    def poll(self, entered: int, came_out: int) -> bool | None:
        self.awaits_results = self._next % self._samples == 0 and came_out < self._next
        return None if self.is_over else not self.awaits_results

    def take(self) -> tuple[int, float]:
        index, now_s = super().take()
        if index % self._samples == 0:
            self._issued_s = now_s
        return index, self._issued_s


@dataclass(frozen=True, slots=True)
class Queue:
    capacity: int
    overflow: str
    """What happens to an arrival that finds it full: ``fail`` or ``drop``."""
    clock: Callable[[], float] = time.monotonic
    """Returns seconds."""
    patience_s: float = PATIENCE_S
    """How long the watches may search for a fault after a frame found no room."""


class _Queued(Arrivals):
    """Frames arrive whether there is room or not: they wait in a queue, or are lost."""

    def __init__(self, frames: int | None, queue: Queue) -> None:
        super().__init__(frames)
        self.capacity = queue.capacity
        self._overflow, self._clock = queue.overflow, queue.clock
        self._patience_s = queue.patience_s
        self._queue: deque[tuple[int, float]] = deque()
        """Numbers and times of arrival."""
        self._arrived = 0
        self._lost_s: float | None = None
        """When a frame that may not be dropped found the queue full; none has arrived since."""
        self._entered_by_then: int | None = None

    def end(self) -> None:
        self._frames = self._arrived

    def end_at(self, frames: int) -> None:
        """Forget what waits, too, and what was dropped; the one that was taken has neither."""
        absent = self._arrived - frames - len(self._queue) - 1
        kept = [number for number in self.dropped if number < frames]
        self.more_dropped -= max(0, absent - (len(self.dropped) - len(kept)))
        self.dropped[:] = kept
        self._queue.clear()
        self._arrived = self._frames = frames

    def is_exhausted(self) -> bool:
        self._arrive()
        self.is_over = self._arrived >= self._frames and not self._queue
        return self.is_over

    def poll(self, entered: int, came_out: int) -> bool | None:
        if self.is_exhausted():
            return None
        self._judge(entered, came_out)
        return bool(self._queue)

    def _judge(self, entered: int, came_out: int) -> None:
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
            self.awaits_results = True
        lost = f"frame {self._arrived} arrived while {self.capacity} frames were waiting"
        if came_out > self._entered_by_then:
            raise JobError(
                f"{lost}: the pipeline is slower than {self._rate()}"
                " (--overflow drop would leave frames out)"
            )
        if self._clock() - self._lost_s >= self._patience_s:
            raise JobError(
                f"{lost}, and no frame that entered after it has come out for"
                f" {self._patience_s:g} s"
            )

    def pause_s(self) -> float | None:
        return None if self._lost_s is None else _POLL_S

    def counts(self) -> tuple[int, int]:
        return self._arrived, len(self._queue)

    def take(self) -> tuple[int, float]:
        if self.is_exhausted():
            raise EndOfStreamError
        return self._queue.popleft()

    @abstractmethod
    def _arrive(self) -> None:
        """Take in what has arrived by now."""

    @abstractmethod
    def _rate(self) -> str:
        """Return how fast frames arrive, for messages."""

    def _take_in(self, arrived_s: float) -> bool:
        """Take the next frame in, if there is room; return whether there is."""
        has_room = len(self._queue) < self.capacity
        if has_room:
            self._queue.append((self._arrived, arrived_s))
        elif self._overflow == "drop":
            if len(self.dropped) < MAX_DROPPED:
                self.dropped.append(self._arrived)
            else:
                self.more_dropped += 1
        else:
            self._lost_s = self._clock()
            return False
        self._arrived += 1
        return has_room


class Timed(_Queued):
    """Frames arrive by the clock, from the first poll on."""

    def __init__(self, frames: int | None, rhythm: float | Sequence[float], queue: Queue) -> None:
        """``rhythm``: arrivals per second, or the time of each, in seconds, ascending."""
        super().__init__(frames, queue)
        self._times_s = None if isinstance(rhythm, float | int) else rhythm
        self.fps = rhythm if isinstance(rhythm, float | int) else None
        if self._times_s is not None:
            self._frames = min(self._frames, len(self._times_s))
        self._start_s: float | None = None

    def pause_s(self) -> float | None:
        """Seconds until the next arrival, or until the cause of a full queue is checked again."""
        if self._lost_s is not None or self._arrived >= self._frames:
            return super().pause_s()
        return max(0.0, self._due_s(self._arrived) - self._clock())

    def _due_s(self, index: int) -> float:
        if self._start_s is None:
            self._start_s = self._clock()
        if self._times_s is not None:
            return self._start_s + self._times_s[index]
        return self._start_s + index / (self.fps or 1.0)

    def _arrive(self) -> None:
        now_s = self._clock()
        while self._lost_s is None and self._arrived < self._frames:
            due_s = self._due_s(self._arrived)
            if due_s > now_s:
                return
            self._take_in(due_s)

    def _rate(self) -> str:
        return "they arrive" if self.fps is None else f"{self.fps:g} frames/s"


class Live(_Queued):
    """Frames arrive when a thread of the source hands them over, from the first poll on."""

    def __init__(self, frames: int | None, queue: Queue) -> None:
        super().__init__(frames, queue)
        self.content: dict[int, Any] = {}
        """What the source has of each frame that waits; it takes it out."""
        self.on_arrival: Callable[[], None] = lambda: None
        """Called by the source's thread when something has come."""
        self._has_begun = False
        self._failure = ""

    def arrive(self, content: Any) -> None:
        """Take the next frame in if there is room; only one thread of the source calls it.

        What comes before all ranks are ready is no frame.
        """
        if not self._has_begun or self._lost_s is not None or self._arrived >= self._frames:
            return
        # The other thread looks at the queue, so that comes last.
        index = self._arrived
        self.content[index] = content
        if not self._take_in(self._clock()):
            del self.content[index]
        self.on_arrival()

    def fail(self, reason: str) -> None:
        """Let the job fail once the frames that wait have been taken."""
        self._failure = reason
        self.on_arrival()

    def _judge(self, entered: int, came_out: int) -> None:
        super()._judge(entered, came_out)
        if self._failure and not self._queue and self._arrived < self._frames:
            raise JobError(self._failure)

    def pause_s(self) -> float | None:
        """Seconds until it is time to look at the rate of arrivals again, though none may come."""
        return super().pause_s() or _IDLE_S

    def _arrive(self) -> None:
        self._has_begun = True

    def _rate(self) -> str:
        return "they arrive"


# Times of arrivals in a file.


def parse_arrival_times(text: str) -> tuple[list[float], list[tuple[int, str]]]:
    """Return when frames arrive, ascending, in seconds; and what is wrong, by number of the line.

    The text has a number a line; what follows a ``#`` is left out.
    """
    times_s: list[float] = []
    faults = []
    for number, line in enumerate(text.splitlines(), 1):
        if word := line.partition("#")[0].strip():
            fault, seconds = _time(word, times_s[-1] if times_s else 0.0)
            if fault:
                faults.append((number, fault))
            else:
                times_s.append(seconds)
    return times_s, faults


def _time(text: str, last_s: float) -> tuple[str, float]:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        return f"{text!r} is not a time", 0.0
    if seconds < last_s:
        return f"{text} comes after {last_s:g}", 0.0
    return "", seconds


def read_arrival_times(path: Path) -> list[float]:
    """Return when frames arrive, ascending, in seconds.

    Raises:
        JobError: the file cannot be read, or a line is no time at or after the one before.
    """
    try:
        times_s, faults = parse_arrival_times(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise JobError(f"{path}: {reason_of(error)}") from None
    except UnicodeDecodeError:
        raise JobError(f"{path}: not a text") from None
    for number, fault in faults:
        raise JobError(f"{path}, line {number}: {fault}")
    return times_s


def max_in_a_second(times_s: Sequence[float]) -> int:
    counts = (bisect_left(times_s, begin + 1.0) - at for at, begin in enumerate(times_s))
    return max(counts, default=0)
