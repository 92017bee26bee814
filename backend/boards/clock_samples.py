"""What the clock of a board shows while a job runs, compared with that of the launcher."""

from __future__ import annotations

import threading

MOST_SAMPLES = 512
"""That are kept of a board; then the better one of each two."""
_MOST_PENDING = 64
"""Numbers to which no answer has come yet."""

ClockSample = tuple[int, int, int]
"""The clock of the board; that of the launcher in the middle of the round trip; the length of the
round trip. Nanoseconds of CLOCK_MONOTONIC."""


class ClockSamples:
    """Samples of a board's clock, spread over the whole job, in bounded memory."""

    def __init__(self) -> None:
        self._sent_ns: dict[int, int] = {}
        self._numbers = 0
        self._group = 1
        """Of so many round trips the shortest is kept."""
        self._open: list[ClockSample] = []
        self._kept: list[ClockSample] = []
        self._lock = threading.Lock()

    def ask(self, now_ns: int) -> int:
        """Note that a number is sent now; return it."""
        with self._lock:
            self._numbers += 1
            self._sent_ns[self._numbers] = now_ns
            self._sent_ns.pop(self._numbers - _MOST_PENDING, None)
            return self._numbers

    def take(self, number: int, board_ns: int, now_ns: int) -> None:
        """Take the answer to a number; an answer to one that was not sent is ignored."""
        with self._lock:
            sent_ns = self._sent_ns.pop(number, None)
            if sent_ns is None:
                return
            self._open.append((board_ns, (sent_ns + now_ns) // 2, now_ns - sent_ns))
            if len(self._open) < self._group:
                return
            self._kept.append(_shortest(self._open))
            self._open = []
            if len(self._kept) == MOST_SAMPLES:
                pairs = zip(self._kept[::2], self._kept[1::2], strict=True)
                self._kept = [_shortest(pair) for pair in pairs]
                self._group *= 2

    def samples(self) -> list[ClockSample]:
        with self._lock:
            return [*self._kept, *self._open]


def _shortest(samples: list[ClockSample] | tuple[ClockSample, ...]) -> ClockSample:
    return min(samples, key=lambda sample: sample[2])
