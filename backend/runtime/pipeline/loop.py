"""Moves slots between ranks until the stream has ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from ..transport.transport import Lane, Transport
from .backoff import LONG_STEP_S, NETWORK_S, RESTS_S, Backoff, computing_pause_s
from .slots import Ring
from .waiting import Waiter, sharpen_timers

_EAGER = 4096
"""Bytes; Open MPI sends messages up to this size at once on every kind of link, awaited or not."""


class Outgoing:
    """A channel's sending end: sends each frame that the ring's writer puts in, in order."""

    def __init__(
        self, channel: int, peer: int, ring: Ring, reader: int, *, uses_network: bool = False
    ) -> None:
        self.lane = Lane(channel, peer, ring.raw)
        self.uses_network = uses_network
        """Whether its messages are large and the other rank is on another board."""
        self._is_eager = ring.tensor.nbytes <= _EAGER
        self._ring = ring
        self._reader = reader
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
        return self._end_sent and self._ring.read[self._reader] == self._started

    @property
    def is_under_way(self) -> bool:
        """Whether a frame has been sent whose slot is not free yet."""
        return self._started > self._ring.read[self._reader]

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
        """Note a finished send; give slots back in order."""
        if is_end:
            self._end_sent = True
            return
        self.busy_s += time.perf_counter() - self._begun_s[slot]
        self._sent[slot] = True
        read, depth = self._ring.read, self._ring.depth
        while self._sent[read[self._reader] % depth]:
            self._sent[read[self._reader] % depth] = False
            self._ring.free(self._reader)


class Incoming:
    """A channel's receiving end: keeps receives posted for all free slots of its ring."""

    def __init__(self, channel: int, peer: int, ring: Ring, *, uses_network: bool = False) -> None:
        self.lane = Lane(channel, peer, ring.raw)
        self.uses_network = uses_network
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
        """Note a received message; pass frames on in order."""
        self._arrived[slot] = is_end
        ring = self._ring
        while not self.finished and (end := self._arrived[ring.written % ring.depth]) is not None:
            self._arrived[ring.written % ring.depth] = None
            if end:
                ring.finish()
            else:
                ring.put()


class Computing(Protocol):
    """The computing thread, as the loop sees it."""

    @property
    def finished(self) -> bool:
        """Whether it has come to its end."""

    @property
    def is_waiting(self) -> bool:
        """Whether it has nothing to compute and polls messages."""

    @property
    def step_s(self) -> float:
        """How long the step takes that it is in, in seconds."""


class CommunicationLoop:
    """Moves messages for the threads of a rank; one of them at a time calls MPI: a *look*.

    The computing thread looks between its steps and while it waits: handing that to another thread
    would cost two sleeps and wake-ups per frame. The main thread looks when a third thread has
    something to send, during long steps, and once nothing is left to compute.
    """

    def __init__(
        self,
        transport: Transport,
        outgoing: Sequence[Outgoing],
        incoming: Sequence[Incoming],
        *,
        computing: Computing | None = None,
        waiter: Waiter | None = None,
        after_look: Callable[[], object] = lambda: None,
        latency: bool = False,
    ) -> None:
        """Set up the channels.

        Args:
            transport: moves the messages.
            outgoing: channels from this rank.
            incoming: channels to this rank.
            computing: the computing thread, if there is one.
            waiter: on which the main thread sleeps; ``None``: one of its own.
            after_look: called after each look, by the same thread.
            latency: poll without pause while the rank waits, and often while it computes.
        """
        self._transport = transport
        self._outgoing = outgoing
        self._incoming = incoming
        self._computing = computing
        self._after_look = after_look
        self._latency = latency
        self._looking = threading.Lock()
        self._waiter = waiter or Waiter()
        self._main_pause_s = 0.0
        self._is_wanted = False
        self._spin_until_s = 0.0
        ends: list[Outgoing | Incoming] = [*outgoing, *incoming]
        self._frame_ends = [end for end in ends if end.lane.carries_frames]
        self._network_ends = [end for end in ends if end.uses_network]
        near = (end.lane.slots[0].nbytes for end in ends if not end.uses_network)
        self._backoff = Backoff(max(near, default=0), never_sleeps=latency)
        is_fast = latency or bool(self._network_ends)
        self._watched_step_s = 2 * NETWORK_S if is_fast else LONG_STEP_S
        transport.open([end.lane for end in outgoing], [end.lane for end in incoming])

    @property
    def has_channels(self) -> bool:
        """Whether frames or credits travel as messages."""
        return bool(self._frame_ends)

    def wake(self) -> None:
        """Have the main thread look at once: there may be something to send."""
        self._is_wanted = True
        self._waiter.set()

    def end_look(self) -> None:
        """End the look of the waiting thread: it may have something to compute."""
        self._is_wanted = True

    def run(self, is_over: Callable[[], bool]) -> None:
        """Be the main thread until ``is_over`` and all channels have ended.

        ``is_over`` is called before each sleep; its exceptions end the loop early.
        """
        sharpen_timers()
        self._backoff.reset()
        self._tend()
        while not (is_over() and self._has_ended()):
            if self._waiter.wait(self._choose_main_pause_s()) or not self._is_tended():
                self._tend()

    def _tend(self) -> None:
        self._look(0.0 if self._is_tended() else self._backoff.spin_s)

    def look(self) -> bool:
        """Move what can be moved; return whether a frame, or room for one, was among it.

        A thread that waits without sleep stays in it until there is, or it is needed elsewhere:
        over TCP one MPI call moves some 128 kB of a message, and the code between two looks takes
        as long, as the caches are full of the message.
        """
        return self._look(self._backoff.spin_s)

    def _look(self, spin_s: float) -> bool:
        with self._looking:
            moved = self._advance(spin_s)
            self._after_look()
        if moved:
            self._backoff.reset()
        return moved

    def begin_step(self, step_s: float) -> None:
        """Note that a step begins; it may take ``step_s`` seconds."""
        if step_s >= self._watched_step_s and self._computing_pause_s(step_s) < self._main_pause_s:
            self._waiter.set()

    def begin_wait(self) -> None:
        """Note that the computing thread has no work; it looks at once."""
        self._backoff.begin_wait(self._step_s())

    def pause_s(self) -> float:
        """Return the seconds that the waiting thread may sleep before it looks again."""
        return self._backoff.pause_s(
            is_sending=any(end.is_urgent for end in self._outgoing),
            uses_network=self._network_bytes() > 0,
            step_s=self._step_s(),
        )

    def end_wait(self) -> None:
        """Note that the computing thread has work again."""
        self._backoff.end_wait()

    def _step_s(self) -> float:
        return self._computing.step_s if self._computing is not None else 0.0

    def _is_tended(self) -> bool:
        return self._computing is not None and self._computing.is_waiting

    def _choose_main_pause_s(self) -> float:
        # The longest while it is being chosen, so that a step which begins meanwhile wakes us.
        self._main_pause_s = RESTS_S
        if self._is_tended():
            return RESTS_S
        computing = self._computing
        if computing is None or computing.finished:
            return self.pause_s()
        self._main_pause_s = self._computing_pause_s(computing.step_s)
        return self._main_pause_s

    def _computing_pause_s(self, step_s: float) -> float:
        if self._latency:
            return NETWORK_S
        return computing_pause_s(
            step_s,
            is_urgent=any(end.is_urgent for end in self._frame_ends),
            network_bytes=self._network_bytes(),
        )

    def _network_bytes(self) -> int:
        """Return the size of the largest message under way between boards; 0 if none is."""
        under_way = (end.lane.slots[0].nbytes for end in self._network_ends if end.is_under_way)
        return max(under_way, default=0)

    def _has_ended(self) -> bool:
        return all(end.finished for end in self._outgoing) and all(
            end.finished for end in self._incoming
        )

    def _goes_on(self) -> bool:
        return not self._is_wanted and time.perf_counter() < self._spin_until_s

    def _advance(self, spin_s: float) -> bool:
        """Move what can be moved; return whether a frame, or room for one, was among it.

        A heartbeat does not count: no other message follows from it.
        """
        moved = False
        for lane, outgoing in enumerate(self._outgoing):
            moved |= outgoing.advance(self._transport, lane) and outgoing.lane.carries_frames
        for lane, incoming in enumerate(self._incoming):
            moved |= incoming.advance(self._transport, lane) and incoming.lane.carries_frames
        if spin_s:
            self._spin_until_s = time.perf_counter() + spin_s
            sent, received = self._transport.poll(self._goes_on)
            # Requests are recorded before they end a look: the next look or the caller finds them.
            self._is_wanted = False
        else:
            sent, received = self._transport.poll()
        for done in sent:
            outgoing = self._outgoing[done.lane]
            outgoing.complete(done.slot, done.is_end)
            moved |= outgoing.lane.carries_frames
        for done in received:
            incoming = self._incoming[done.lane]
            incoming.complete(done.slot, done.is_end)
            moved |= incoming.lane.carries_frames
        return moved
