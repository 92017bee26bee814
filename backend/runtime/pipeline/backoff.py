"""How long to sleep between two looks at the messages."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

LONGEST_S = 25e-3
"""Longest sleep of a rank that waits, or is in a long step."""

RESTS_S = 0.2
"""Pause of the main thread while another one polls often enough."""

NETWORK_S = 500e-6
"""Pause while a large message from or to another board may be under way: Open MPI feeds and drains
the network within calls only."""

_NETWORK_LONGEST_S = 2e-3
"""The same, beside steps that leave more time than the message needs."""
_LOOKS_A_MESSAGE = 4
"""During a step, besides those that move bytes: the ranks agree on the message first."""
_BYTES_A_LOOK = 128 << 10
"""What a look moves of a large message."""

LONG_STEP_S = 8e-3
"""Longer steps are worth a look before they end."""

_SHARE_COMPUTING = 1 / 2


class Backoff:
    """The sleeps of a thread that waits for a message.

    Its core is free meanwhile. A sleep is a small share of the time waited so far, so it adds only
    that share to any delay, and the number of looks grows with the logarithm of the time. The last
    waits show the rhythm of the pipeline: until the shortest of them is over, a sleep is a share of
    the time left. If one was so short that sleeps, which cost tens of microseconds each, would be
    most of it, the thread polls without sleep at first.
    """

    _SHARE_WAITING = 1 / 32
    _SHARE_LEFT = 1 / 4
    _WAITS_KEPT = 8
    _SHORTEST_S = 20e-6
    _WAKEFUL_S = 150e-6
    _SHORT_WAIT = 3
    """Waits of up to so many times the time without sleep are short."""
    _LONG_STEP = 8
    """Steps of more than so many times the time without sleep are long."""
    _BYTES_PER_S = 1e9
    """Large messages on one board move within looks only, so looks last longer."""

    def __init__(
        self,
        message_bytes: int = 0,
        clock: Callable[[], float] = time.perf_counter,
        *,
        never_sleeps: bool = False,
    ) -> None:
        """Begin now.

        Args:
            message_bytes: size of the rank's largest message on its board.
            clock: seconds; the source of time.
            never_sleeps: poll without sleep, however long it takes.
        """
        self.spin_s = 0.0
        """How long the next look may last, in seconds; 0 if a sleep comes first."""
        self._clock = clock
        self._never_sleeps = never_sleeps
        self._wakeful_s = self._WAKEFUL_S + message_bytes / self._BYTES_PER_S
        self._idle_since = clock()
        self._waits_since: float | None = None
        self._waits_s: deque[float] = deque(maxlen=self._WAITS_KEPT)
        self._shortest_s = 0.0

    def reset(self) -> None:
        """A message was moved."""
        if not self._never_sleeps:
            self._idle_since = self._clock()

    def begin_wait(self, step_s: float = 0.0) -> None:
        """The thread has no work: it looks at once, for ``spin_s``.

        Args:
            step_s: as for :meth:`pause_s`.
        """
        if not self._never_sleeps:
            self._waits_since = self._clock()
        self.spin_s = self._wakeful_left_s(0.0, step_s)

    def end_wait(self) -> None:
        """The thread has work again."""
        self.spin_s = 0.0
        if self._waits_since is not None:
            self._waits_s.append(self._clock() - self._waits_since)
            self._shortest_s = min(self._waits_s)
            self._waits_since = None

    def pause_s(self, *, is_sending: bool, uses_network: bool, step_s: float = 0.0) -> float:
        """Return the seconds to sleep before the next look, which lasts for ``spin_s``.

        Args:
            is_sending: a receiver may have to wait for this rank's next look.
            uses_network: a large message may be on its way from or to another board.
            step_s: how long a step of the rank takes, in seconds; beside long steps large messages
                need not be moved soon.
        """
        now = self._clock()
        if self._waits_since is None:
            self._waits_since = now
        waited = now - self._waits_since
        self.spin_s = self._wakeful_left_s(waited, step_s)
        if self.spin_s:
            return 0.0
        pause = max(self._SHARE_WAITING * (now - self._idle_since), self._SHORTEST_S)
        if not is_sending and self._shortest_s:
            left = self._shortest_s - waited
            longest = NETWORK_S if uses_network else LONGEST_S
            pause = max(pause, min(self._SHARE_LEFT * left, longest))
        return min(pause, LONGEST_S)

    def _wakeful_left_s(self, waited_s: float, step_s: float) -> float:
        """Return the seconds that the thread polls without sleep."""
        if self._never_sleeps:
            return self._wakeful_s
        is_long = step_s > self._LONG_STEP * self._wakeful_s
        wakeful_s = self._WAKEFUL_S if is_long else self._wakeful_s
        is_short = 0.0 < self._shortest_s < self._SHORT_WAIT * wakeful_s
        return max(0.0, wakeful_s - waited_s) if is_short else 0.0


def computing_pause_s(step_s: float, *, is_urgent: bool, network_bytes: int) -> float:
    """Return the seconds to sleep between two looks while the rank computes.

    A look costs the engine 50 us or more, as it finds and leaves cold caches. Slots hide delays up
    to the time of a step, and the computing thread looks after each step. So only long steps have
    looks inside, if another rank may wait; a large message has as many as it needs to arrive
    within a step.

    Args:
        step_s: how long a step of the rank takes, in seconds; 0 if unknown.
        is_urgent: this rank or another may have to wait if no message is moved meanwhile.
        network_bytes: size of the largest message that may be on its way from or to another
            board; 0 if there is none.
    """
    if network_bytes and step_s > NETWORK_S:
        looks = _LOOKS_A_MESSAGE + network_bytes / _BYTES_A_LOOK
        return min(max(step_s / looks, NETWORK_S), _NETWORK_LONGEST_S)
    if 0 < step_s < LONG_STEP_S:
        return RESTS_S
    if not is_urgent or not step_s:
        return LONGEST_S
    return min(_SHARE_COMPUTING * step_s, LONGEST_S)
