"""How long a rank with channels to other boards sleeps between two looks at MPI's messages."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

LONGEST_S = 25e-3
"""Longest sleep of a rank that waits, or is in a long step."""

RESTS_S = 0.2
"""Pause of the main thread while another one polls often enough."""

LATENCY_S = 50e-6
"""Longest sleep of a rank that waits, with ``--latency``."""

LARGE_S = 500e-6
"""Pause while a large message may be under way: Open MPI feeds and drains the network within calls
only."""

_MAX_LARGE_S = 2e-3
"""The same, beside steps that leave more time than the message needs."""
_LOOKS_A_MESSAGE = 4
"""During a step, besides those that move bytes: the ranks agree on the message first."""
_BYTES_A_LOOK = 128 << 10
"""What a look moves of a large message."""


class Backoff:
    """The sleeps of a thread that waits for a message.

    Its core is free meanwhile. A sleep is a small share of the time waited so far, so it adds only
    that share to any delay, and the number of looks grows with the logarithm of the time. The last
    waits show the rhythm of the pipeline: until the shortest of them is over, a sleep is a share of
    the time left.
    """

    _SHARE_WAITING = 1 / 32
    _SHARE_LEFT = 1 / 4
    _WAITS_KEPT = 8
    _SHORTEST_S = 20e-6

    def __init__(
        self, longest_s: float = LONGEST_S, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._longest_s = longest_s
        self._clock = clock
        self._idle_since = clock()
        self._waits_since: float | None = None
        self._waits_s: deque[float] = deque(maxlen=self._WAITS_KEPT)
        self._shortest_s = 0.0

    def reset(self) -> None:
        self._idle_since = self._clock()

    def begin_wait(self) -> None:
        self._waits_since = self._clock()

    def end_wait(self) -> None:
        if self._waits_since is not None:
            self._waits_s.append(self._clock() - self._waits_since)
            self._shortest_s = min(self._waits_s)
            self._waits_since = None

    def pause_s(self, *, moves_large: bool) -> float:
        now = self._clock()
        if self._waits_since is None:
            self._waits_since = now
        pause = max(self._SHARE_WAITING * (now - self._idle_since), self._SHORTEST_S)
        left = self._shortest_s - (now - self._waits_since)
        rhythm = min(self._SHARE_LEFT * left, LARGE_S if moves_large else LONGEST_S)
        return min(max(pause, rhythm), self._longest_s)


def computing_pause_s(step_s: float, large_bytes: int) -> float:
    """Return the seconds to sleep between two looks while the rank computes.

    A look costs the engine 50 us or more, as it finds and leaves cold caches. Slots hide delays up
    to the time of a step, and the computing thread looks after each step. So only a large message
    has looks within a step, as many as it needs to arrive until its end. A time or size of 0 is
    unknown, or not large.
    """
    if large_bytes and step_s > LARGE_S:
        looks = _LOOKS_A_MESSAGE + large_bytes / _BYTES_A_LOOK
        return min(max(step_s / looks, LARGE_S), _MAX_LARGE_S)
    return RESTS_S if 0 < step_s < LONGEST_S else LONGEST_S
