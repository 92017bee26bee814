"""The loop that owns MPI: it moves slots between ranks until the stream has ended."""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections import deque
from collections.abc import Callable, Sequence

from .slots import Ring
from .transport import Lane, Transport
from .wakeup import Wakeup

__all__ = ["Backoff", "CommunicationLoop", "Incoming", "Outgoing"]


_PR_SET_TIMERSLACK = 29

_EAGER = 4096
"""Bytes; Open MPI sends messages up to this size at once, awaited or not, by every kind of link."""


class Backoff:
    """How long to sleep between two looks that found nothing.

    While the rank waits for a message, its core is free: a sleep is a small share of the time
    waited so far, so waiting adds only that share to any delay, and the number of looks grows
    with the logarithm of the time. But a pipeline has a rhythm: before the time that even the
    shortest of the last waits took, sleeps are a share of what is left of it.

    While the rank computes, a look takes some 50 us from it, as each finds cold caches and leaves
    cold ones; and slots hide delays up to the time of a step. So two looks a step are enough:
    the one at its begin, as the end of a step wakes the loop, and one in its midst. The second is
    left out where nobody waits for it: the next frames are there, and no large message is under
    way. Looks are more frequent while a large message may be on its way from or to another
    board, as Open MPI feeds the network, and drains it, within calls only.
    """

    _SHARE_WAITING = 1 / 32
    _SHARE_LEFT = 1 / 4
    _WAITS_KEPT = 8
    _SHORTEST_WAITING_S = 20e-6
    _LONGEST_S = 20e-3
    _NETWORK_S = 500e-6
    _SHARE_COMPUTING = 1 / 2
    _SHORTEST_COMPUTING_S = 1e-3

    def __init__(self, latency: bool, clock: Callable[[], float] = time.perf_counter) -> None:
        """Begin now; with ``latency`` the loop looks more often while the rank computes."""
        self._latency = latency
        self._clock = clock
        self._idle_since = clock()
        self._waits_since: float | None = None
        self._waits_s: deque[float] = deque(maxlen=self._WAITS_KEPT)

    def reset(self) -> None:
        """Something happened."""
        self._idle_since = self._clock()

    def waiting_s(self, *, is_sending: bool, uses_network: bool) -> float:
        """Return the seconds to sleep while the rank has nothing to compute.

        Args:
            is_sending: a receiver may have to wait for this rank's next look.
            uses_network: a large message may be on its way from or to another board.
        """
        now = self._clock()
        if self._waits_since is None:
            self._waits_since = now
        pause = max(self._SHARE_WAITING * (now - self._idle_since), self._SHORTEST_WAITING_S)
        if not is_sending and self._waits_s:
            left = min(self._waits_s) - (now - self._waits_since)
            longest = self._NETWORK_S if uses_network else self._LONGEST_S
            pause = max(pause, min(self._SHARE_LEFT * left, longest))
        return min(pause, self._LONGEST_S)

    def computing_s(self, step_s: float, *, is_urgent: bool, uses_network: bool) -> float:
        """Return the seconds to sleep while the rank computes.

        Args:
            step_s: how long a step of the rank takes, in seconds.
            is_urgent: this rank or another may have to wait if no message is moved meanwhile.
            uses_network: a large message may be on its way from or to another board.
        """
        if self._waits_since is not None:
            self._waits_s.append(self._clock() - self._waits_since)
            self._waits_since = None
        if uses_network or self._latency:
            return self._NETWORK_S
        if not is_urgent:
            return self._LONGEST_S
        pause = max(self._SHARE_COMPUTING * step_s, self._SHORTEST_COMPUTING_S)
        return min(pause, self._LONGEST_S)


def sharpen_timers() -> None:
    """Let this thread's short sleeps end on time: Linux would add 50 us to each."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1000, 0, 0, 0)


class Outgoing:
    """A channel's sending end: sends each frame that the ring's writer puts in, in order."""

    def __init__(self, channel: int, peer: int, ring: Ring, place: int) -> None:
        self.lane = Lane(channel, peer, ring.raw)
        self.uses_network = False
        """Whether its messages are large and the other rank is on another board."""
        self._is_eager = ring.tensor.nbytes <= _EAGER
        self._ring = ring
        self._place = place
        self._started = 0
        self._begun_s = [0.0] * ring.depth
        self._sent = [False] * ring.depth
        self._end_started = False
        self._end_sent = False
        self.busy_s = 0.0
        """Sum over frames of the time from the start of a send until its slot was reusable."""

    @property
    def finished(self) -> bool:
        """Whether all frames and the end of the stream have left."""
        return self._end_sent and self._ring.read[self._place] == self._started

    @property
    def is_under_way(self) -> bool:
        """Whether a frame has been sent whose slot is not free yet."""
        return self._started > self._ring.read[self._place]

    @property
    def is_urgent(self) -> bool:
        """Whether the receiver may have to wait until this rank looks again."""
        return self.is_under_way and not self._is_eager

    def advance(self, transport: Transport, lane: int) -> bool:
        """Start what can be started; return whether there was anything."""
        before = self._started
        while self._started < self._ring.written:
            slot = self._started % self._ring.depth
            self._begun_s[slot] = time.perf_counter()
            transport.send(lane, slot)
            self._started += 1
        if self._ring.end == self._started and not self._end_started:
            transport.send_end(lane)
            self._end_started = True
            return True
        return self._started != before

    def complete(self, slot: int, is_end: bool) -> None:
        """Take note of a finished send; give slots back in order."""
        if is_end:
            self._end_sent = True
            return
        self.busy_s += time.perf_counter() - self._begun_s[slot]
        self._sent[slot] = True
        read, depth = self._ring.read, self._ring.depth
        while self._sent[read[self._place] % depth]:
            self._sent[read[self._place] % depth] = False
            self._ring.free(self._place)


class Incoming:
    """A channel's receiving end: keeps receives posted for all free slots of its ring."""

    def __init__(self, channel: int, peer: int, ring: Ring) -> None:
        self.lane = Lane(channel, peer, ring.raw)
        self.uses_network = False
        """Whether its messages are large and the other rank is on another board."""
        self._ring = ring
        self._posted = 0
        self._arrived: list[bool | None] = [None] * ring.depth
        """Per slot: ``False`` a frame is there, ``True`` the end is there."""

    @property
    def finished(self) -> bool:
        """Whether the end of the stream was received."""
        return self._ring.end is not None

    @property
    def is_under_way(self) -> bool:
        """Whether there is a slot for a frame that has not arrived."""
        return not self.finished and self._ring.has_room()

    @property
    def is_urgent(self) -> bool:
        """Whether there is no frame beside the one in work, if any."""
        return not self.finished and self._ring.written - min(self._ring.read) <= 1

    def advance(self, transport: Transport, lane: int) -> bool:
        """Post what can be posted; return whether there was anything."""
        before = self._posted
        depth = self._ring.depth
        while not self.finished and self._posted - min(self._ring.read) < depth:
            transport.receive(lane, self._posted % depth)
            self._posted += 1
        return self._posted != before

    def complete(self, slot: int, is_end: bool) -> None:
        """Take note of a received message; hand frames on in order."""
        self._arrived[slot] = is_end
        ring = self._ring
        while not self.finished and (end := self._arrived[ring.written % ring.depth]) is not None:
            self._arrived[ring.written % ring.depth] = None
            if end:
                ring.finish()
            else:
                ring.put()


class CommunicationLoop:
    """Runs in the thread that initialised MPI, next to the executors that compute."""

    def __init__(
        self,
        transport: Transport,
        outgoing: Sequence[Outgoing],
        incoming: Sequence[Incoming],
        *,
        step_s: Callable[[], float | None] = lambda: None,
        latency: bool = False,
    ) -> None:
        """Set up the channels.

        Args:
            transport: moves the messages.
            outgoing: channels from this rank.
            incoming: channels to this rank.
            step_s: returns how long a step takes that the rank computes at the moment, in seconds;
                ``None``: it computes nothing.
            latency: look without pause while the rank waits, and often while it computes.
        """
        self._transport = transport
        self._outgoing = outgoing
        self._incoming = incoming
        self._step_s = step_s
        self._latency = latency
        self._wakeup = Wakeup()
        self._frame_incoming = [end for end in incoming if end.lane.carries_frames]
        self._network_ends: list[Outgoing | Incoming] = []
        transport.open([end.lane for end in outgoing], [end.lane for end in incoming])

    def wake(self) -> None:
        """Let the loop look at once: there may be something to send, or room to receive."""
        self._wakeup.set()

    def run(self, is_over: Callable[[], bool]) -> None:
        """Move messages until ``is_over`` and all channels have ended.

        ``is_over`` is asked between looks; it raises what is to end the loop early.
        """
        sharpen_timers()
        ends: list[Outgoing | Incoming] = [*self._outgoing, *self._incoming]
        self._network_ends = [end for end in ends if end.uses_network]
        backoff = Backoff(self._latency)
        while not (is_over() and self._has_ended()):
            if self._advance():
                backoff.reset()
            if self._wakeup.wait(self._pause_s(backoff)):
                backoff.reset()

    def _pause_s(self, backoff: Backoff) -> float:
        step_s = self._step_s()
        if self._latency and step_s is None:
            return 0.0
        uses_network = any(end.is_under_way for end in self._network_ends)
        is_sending = any(end.is_urgent for end in self._outgoing)
        if step_s is None:
            return backoff.waiting_s(is_sending=is_sending, uses_network=uses_network)
        is_urgent = is_sending or any(end.is_urgent for end in self._frame_incoming)
        return backoff.computing_s(step_s, is_urgent=is_urgent, uses_network=uses_network)

    def _has_ended(self) -> bool:
        return all(end.finished for end in self._outgoing) and all(
            end.finished for end in self._incoming
        )

    def _advance(self) -> bool:
        """Move what can be moved; return whether a frame, or room for one, was among it.

        A heartbeat is not: it foretells no other message.
        """
        sent, received = self._transport.poll()
        moved = False
        for done in sent:
            outgoing = self._outgoing[done.lane]
            outgoing.complete(done.slot, done.is_end)
            moved |= outgoing.lane.carries_frames
        for done in received:
            incoming = self._incoming[done.lane]
            incoming.complete(done.slot, done.is_end)
            moved |= incoming.lane.carries_frames
        for lane, outgoing in enumerate(self._outgoing):
            moved |= outgoing.advance(self._transport, lane) and outgoing.lane.carries_frames
        for lane, incoming in enumerate(self._incoming):
            moved |= incoming.advance(self._transport, lane) and incoming.lane.carries_frames
        return moved
