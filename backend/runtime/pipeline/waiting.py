"""How threads sleep: until another one wakes them, a descriptor is ready, or time is over.

A rank with channels to other boards sleeps in between two polls of MPI's messages.
"""

from __future__ import annotations

import ctypes
import math
import os
import select
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from statistics import median

_PR_SET_TIMERSLACK = 29

MAX_PAUSE_S = 25e-3
"""Longest sleep of a rank that waits, or is in a long step."""

IDLE_PAUSE_S = 0.2
"""Pause of the main thread while another one polls often enough."""

LATENCY_PAUSE_S = 50e-6
"""Longest sleep of a rank that waits, with ``--latency``."""

LARGE_PAUSE_S = 500e-6
"""Pause while a large message may be under way: Open MPI feeds and drains the network within calls
only."""

_MAX_LARGE_PAUSE_S = 2e-3
"""The same, beside steps that leave more time than the message needs."""
_POLLS_A_MESSAGE = 4
"""During a step, besides those that move bytes: the ranks agree on the message first."""
_BYTES_A_POLL = 128 << 10
"""What a poll moves of a large message."""

_TIMES_KEPT = 8
_MAX_SHARE = 0.03
"""Of a period: how long before a frame is due the thread wakes at most, as it stays awake then."""
_MIN_EARLY_NS = 20_000
_STEADY_SHARE = 0.1
"""Of a period: how far times may be off for a rate to be steady."""
_MARGIN = 1.5
_MIN_PERIOD_NS = 500_000
"""After a shorter sleep a thread wakes so soon that nothing is gained."""

Watched = tuple[int, Callable[[], object]]
"""A descriptor, and what is called when it can be read."""


def sharpen_timers() -> None:
    """Make this thread's short sleeps end on time: Linux would add 50 us to each."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1000, 0, 0, 0)


def _polled(descriptors: Iterable[int], timeout_s: float | None) -> list[int]:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    # It takes whole milliseconds.
    timeout_ms = None if timeout_s is None else math.ceil(1e3 * timeout_s)
    return [descriptor for descriptor, _ in poll.poll(timeout_ms)]


def _take_event(event: int) -> None:
    with suppress(BlockingIOError):
        os.eventfd_read(event)


class Waiter:
    """What one thread sleeps on between two checks of its work.

    The sleeper checks first, then sleeps. Others provide work first, then call :meth:`set`, or
    write to a descriptor that is watched. So work that comes between check and sleep ends the
    sleep at once.
    """

    def __init__(self) -> None:
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        # Not earlier: a thread that hangs in its engine sleeps here later, or is woken.
        weakref.finalize(self, os.close, self._event).atexit = False
        self._is_raised = False
        self._is_asleep = False
        self._watched: dict[int, Callable[[], object]] = {
            self._event: partial(_take_event, self._event)
        }

    def watch(self, descriptor: int, on_ready: Callable[[], object]) -> None:
        """End sleeps when a descriptor can be read, and call ``on_ready`` in this thread."""
        self._watched[descriptor] = on_ready

    def forget(self, descriptor: int) -> None:
        self._watched.pop(descriptor, None)

    def set(self) -> None:
        """Let the sleeper's present or next :meth:`wait` return at once; called by any thread."""
        self._is_raised = True
        # The sleeper says that it sleeps, then looks at the flag: so one of both sees the other.
        if self._is_asleep:
            os.eventfd_write(self._event, 1)

    def wait(self, timeout_s: float | None = None, also: Sequence[Watched] = ()) -> bool:
        """Sleep until woken; return whether it was by something else than the time.

        ``also``: descriptors to watch during this sleep only.
        """
        watched = {**self._watched, **dict(also)} if also else self._watched
        ready: list[int] = []
        self._is_asleep = True
        if not self._is_raised:
            try:
                ready = select.select(watched, (), (), timeout_s)[0]
            except ValueError:  # a descriptor of 1024 or above
                ready = _polled(watched, timeout_s)
        self._is_asleep = False
        # What is raised after this look is left for the next sleep.
        was_raised = self._is_raised
        if was_raised:
            self._is_raised = False
        for descriptor in ready:
            watched[descriptor]()
        return was_raised or bool(ready)


class Backoff:
    """The sleeps of a thread that waits for a message.

    Its core is free meanwhile. A sleep is a small share of the time waited so far, so it adds only
    that share to any delay, and the number of polls grows with the logarithm of the time. The last
    waits show the rhythm of the pipeline: until the shortest of them is over, a sleep is a share of
    the time left.
    """

    _SHARE_WAITING = 1 / 32
    _SHARE_LEFT = 1 / 4
    _WAITS_KEPT = 8
    _MIN_PAUSE_S = 20e-6

    def __init__(
        self, max_s: float = MAX_PAUSE_S, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._max_s = max_s
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
        pause = max(self._SHARE_WAITING * (now - self._idle_since), self._MIN_PAUSE_S)
        left = self._shortest_s - (now - self._waits_since)
        rhythm = min(self._SHARE_LEFT * left, LARGE_PAUSE_S if moves_large else MAX_PAUSE_S)
        return min(max(pause, rhythm), self._max_s)


def computing_pause_s(step_s: float, large_bytes: int) -> float:
    """Choose the seconds to sleep between two polls while the rank computes.

    A poll costs the engine 50 us or more, as it finds and leaves cold caches. Slots hide delays up
    to the time of a step, and the computing thread polls after each step. So only a large message
    has polls within a step, as many as it needs to arrive until its end. A time or size of 0 is
    unknown, or not large.
    """
    if large_bytes and step_s > LARGE_PAUSE_S:
        polls = _POLLS_A_MESSAGE + large_bytes / _BYTES_A_POLL
        return min(max(step_s / polls, LARGE_PAUSE_S), _MAX_LARGE_PAUSE_S)
    return IDLE_PAUSE_S if 0 < step_s < MAX_PAUSE_S else MAX_PAUSE_S


class ArrivalPredictor:
    """Predicts when the next frame comes, from the times at which the writers of rings sent their
    last tokens.

    The writer's times do not depend on when this thread wakes, so errors do not add up. How early
    it wakes depends on how late its sleeps have ended.
    """

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        """``clock`` gives nanoseconds of the clock of the tokens."""
        self._clock = clock
        self._sent: dict[int, deque[int]] = {}
        self._due: dict[int, tuple[int, int]] = {}
        """By channel, when its next frame is due, and how far times have been off."""
        self._late_ns: deque[int] = deque([100_000], maxlen=2 * _TIMES_KEPT)
        self._wake_ns: int | None = None
        self._until_ns = 0

    def note(self, channel: int, sent_ns: int) -> None:
        sent = self._sent.setdefault(channel, deque(maxlen=_TIMES_KEPT))
        if sent and sent_ns - sent[-1] < _MIN_PERIOD_NS:
            sent.clear()
        sent.append(sent_ns)
        self._due.pop(channel, None)
        if len(sent) < _TIMES_KEPT:
            return
        times = list(sent)
        period = round(median(b - a for a, b in pairwise(times)))
        nexts = [sent_ns + (len(times) - index) * period for index, sent_ns in enumerate(times)]
        due = round(median(nexts))
        off = round(median(abs(next_ns - due) for next_ns in nexts))
        if off < _STEADY_SHARE * period:
            self._due[channel] = due, max(_MIN_EARLY_NS, round(_MAX_SHARE * period))

    def sleep_s(self) -> float | None:
        """How long the thread should sleep at most before it is awake for the next frame.

        ``None``: no frame can be predicted.
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
