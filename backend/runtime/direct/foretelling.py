"""When the next frame is due, so that a thread can wake a little before and be ready for it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from statistics import median

_KEPT = 8
_MAX_SHARE = 0.03
"""Of a period: how long before a frame is due the thread wakes at most, as it stays awake then."""
_MIN_EARLY_NS = 20_000
_STEADY_SHARE = 0.1
"""Of a period: how far times may be off for a rate to be steady."""
_MARGIN = 1.5
_MIN_PERIOD_NS = 500_000
"""After a shorter sleep a thread wakes so soon that nothing is gained."""


class Foretelling:
    """Tells when to wake, from the times at which the writers of rings sent their last tokens.

    The writer's times do not depend on when this thread wakes, so errors do not add up. How early
    it wakes depends on how late its sleeps have ended.
    """

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        """Know nothing yet; ``clock`` gives nanoseconds of the clock of the tokens."""
        self._clock = clock
        self._sent: dict[int, deque[int]] = {}
        self._due: dict[int, tuple[int, int]] = {}
        """By channel, when its next frame is due, and how far times have been off."""
        self._late_ns: deque[int] = deque([100_000], maxlen=2 * _KEPT)
        self._wake_ns: int | None = None
        self._until_ns = 0

    def note(self, channel: int, sent_ns: int) -> None:
        """Note when a frame was sent through a channel."""
        sent = self._sent.setdefault(channel, deque(maxlen=_KEPT))
        if sent and sent_ns - sent[-1] < _MIN_PERIOD_NS:
            sent.clear()
        sent.append(sent_ns)
        self._due.pop(channel, None)
        if len(sent) < _KEPT:
            return
        times = list(sent)
        period = round(median(b - a for a, b in pairwise(times)))
        nexts = [each + (len(times) - index) * period for index, each in enumerate(times)]
        due = round(median(nexts))
        off = round(median(abs(each - due) for each in nexts))
        if off < _STEADY_SHARE * period:
            self._due[channel] = due, max(_MIN_EARLY_NS, round(_MAX_SHARE * period))

    def sleep_s(self) -> float | None:
        """Return how long the thread should sleep at most before it is awake for the next frame.

        ``None``: no frame can be foretold.
        """
        now = self._clock()
        early = round(_MARGIN * max(self._late_ns))
        coming = [(due, min(early, most)) for due, most in self._due.values() if due > now]
        if not coming:
            self._wake_ns = None
            return None
        due, early = min(coming)
        self._wake_ns = due - early
        self._until_ns = due + early
        return max(0, self._wake_ns - now) * 1e-9

    def stays_awake(self) -> bool:
        """Whether the frame is due so soon that another sleep would end too late."""
        now = self._clock()
        return self._wake_ns is not None and self._wake_ns <= now < self._until_ns

    def note_wake(self) -> None:
        """Note that a sleep of :meth:`sleep_s` ended by its time."""
        if self._wake_ns is not None:
            self._late_ns.append(max(0, self._clock() - self._wake_ns))
