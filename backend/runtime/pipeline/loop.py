"""Moves slots between ranks until the stream has ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from ..errors import JobError
from ..figures.events import RECEIVE, SEND, EventRing
from ..frame_records import RECORD_BYTES
from ..sizes import OpenSlot
from ..transport import Lane, Messages
from .slots import Ring
from .waiting import (
    IDLE_PAUSE_S,
    LARGE_PAUSE_S,
    LATENCY_PAUSE_S,
    MAX_PAUSE_S,
    Backoff,
    Waiter,
    computing_pause_s,
    sharpen_timers,
)

_LARGE = 1 << 16
"""Bytes; Open MPI sends smaller messages over a network at once, awaited or not."""


class _ChannelEnd:
    def __init__(
        self, channel: int, peer: int, ring: Ring, events: EventRing | None, compress: str
    ) -> None:
        self.channel = channel
        number_bytes = 0 if compress == "none" else ring.tensor.storage[0].itemsize
        is_open = ring.tensor.is_open
        self.lane = Lane(channel, peer, ring.messages, is_open, RECORD_BYTES, number_bytes)
        self.nbytes = ring.tensor.nbytes
        """Size of a message; of the last one if sizes are open."""
        self._ring = ring
        self._events = events or EventRing()

    def _frame_in(self, slot: int, first: int) -> int:
        """Number of the frame in a slot of the ring; ``first``: of the oldest that may be there."""
        ring = self._ring
        return ring.turns.frame(first + (slot - first) % ring.depth)


class Outgoing(_ChannelEnd):
    """A channel's sending end: sends what the ring's writer puts in, in order.

    Those are all frames of the ring, or those that the receiver handles as well.
    """

    def __init__(
        self,
        channel: int,
        peer: int,
        ring: Ring,
        reader: int,
        events: EventRing | None = None,
        compress: str = "none",
    ) -> None:
        super().__init__(channel, peer, ring, events, compress)
        self._reader = reader
        self._steps = ring.steps[reader]
        self._next = self._steps.first
        """The frame of the ring that is to be sent next."""
        self._begun_s = [0.0] * ring.depth
        self._sent = [False] * ring.depth
        self._end_started = False
        self._end_sent = False
        self.busy_s = 0.0
        """Sum over frames of the time from the start of a send until its slot was reusable."""

    @property
    def finished(self) -> bool:
        return self._end_sent and self._ring.read[self._reader] == self._next

    @property
    def is_under_way(self) -> bool:
        is_ending = self._end_started and not self._end_sent
        return is_ending or self._next > self._ring.read[self._reader]

    def advance(self, transport: Messages, lane: int) -> bool:
        """Start what can be started; return whether there was anything."""
        before = self._next
        while self._next < self._ring.written:
            slot = self._next % self._ring.depth
            self._begun_s[slot] = time.perf_counter()
            part = self._ring.slots[slot]
            if self._ring.records[slot][0]:
                transport.send_part(lane, slot, self._ring.messages[slot].nbytes)
            elif isinstance(part, OpenSlot):
                self.nbytes = part.message_bytes
                transport.send_part(lane, slot, self.nbytes)
            else:
                transport.send(lane, slot)
            self._next = self._steps.after(self._next)
        end = self._ring.end
        if end is not None and self._next >= end and not self._end_started:
            transport.send_end(lane)
            self._end_started = True
            return True
        return self._next != before

    def complete(self, slot: int, is_end: bool) -> None:
        if is_end:
            self._end_sent = True
            return
        now_s, begun_s = time.perf_counter(), self._begun_s[slot]
        self.busy_s += now_s - begun_s
        self._sent[slot] = True
        ring = self._ring
        read, depth = ring.read, ring.depth
        frame = self._frame_in(slot, read[self._reader])
        self._events.add(SEND, begun_s, now_s, frame, self.channel)
        while self._sent[read[self._reader] % depth]:
            self._sent[read[self._reader] % depth] = False
            ring.free(self._reader)


class Incoming(_ChannelEnd):
    """A channel's receiving end: keeps receives posted for all free slots of its ring."""

    def __init__(
        self,
        channel: int,
        peer: int,
        ring: Ring,
        events: EventRing | None = None,
        compress: str = "none",
    ) -> None:
        super().__init__(channel, peer, ring, events, compress)
        self._posted = 0
        self._arrived: list[bool | None] = [None] * ring.depth
        """Per slot: ``False`` a frame is there, ``True`` the end is there."""

    @property
    def finished(self) -> bool:
        return self._ring.end is not None

    @property
    def is_under_way(self) -> bool:
        return not self.finished and self._ring.has_room()

    def advance(self, transport: Messages, lane: int) -> bool:
        """Post what can be posted; return whether there was anything."""
        before = self._posted
        depth = self._ring.depth
        while not self.finished and self._posted - min(self._ring.read) < depth:
            transport.receive(lane, self._posted % depth)
            self._posted += 1
        return self._posted != before

    def complete(self, slot: int, is_end: bool, nbytes: int = 0) -> None:
        """Note a received message; pass frames on in order.

        Raises:
            JobError: the message is not what the tensor may be.
        """
        ring = self._ring
        frame = self._frame_in(slot, ring.written)
        if not is_end:
            now_s = time.perf_counter()
            self._events.add(RECEIVE, now_s, now_s, frame, self.channel)
            # No message of values is as long; what the sender wrote there is not believed.
            ring.records[slot][0] = has_failed = nbytes == ring.messages[slot].nbytes
            part, expected = ring.slots[slot], ring.raw[slot].nbytes
            try:
                if isinstance(part, OpenSlot) and not has_failed:
                    self.nbytes = nbytes
                    part.check_message(nbytes)
                elif nbytes != expected and not has_failed:
                    name = ring.tensor.name
                    raise JobError(f"tensor {name!r} came in {nbytes} bytes, expected {expected}")
            except JobError as error:
                raise JobError(
                    f"message of rank {self.lane.peer}, frame {frame}: {error}"
                ) from None
        self._arrived[slot] = is_end
        while not self.finished and (end := self._arrived[ring.written % ring.depth]) is not None:
            self._arrived[ring.written % ring.depth] = None
            if end:
                ring.finish()
            else:
                ring.put()


class Computing(Protocol):
    """The computing thread, as the loop sees it."""

    @property
    def finished(self) -> bool: ...
    @property
    def is_waiting(self) -> bool: ...
    @property
    def step_s(self) -> float: ...


class CommunicationLoop:
    """Moves messages for the threads of a rank; one of them at a time calls MPI: it *polls*.

    The computing thread polls between its steps and while it waits: handing that to another thread
    would cost two sleeps and wake-ups per frame. The main thread polls when a third thread has
    something to send, during long steps, and once nothing is left to compute.
    """

    def __init__(
        self,
        transport: Messages,
        outgoing: Sequence[Outgoing],
        incoming: Sequence[Incoming],
        *,
        computing: Computing | None = None,
        waiter: Waiter | None = None,
        after_poll: Callable[[], object] = lambda: None,
        latency: bool = False,
    ) -> None:
        """Set up the channels; the main thread sleeps on ``waiter``.

        ``after_poll`` is called by the thread that has polled. ``latency``: sleep shortly between
        two polls while the rank waits.
        """
        self._transport = transport
        self._outgoing = outgoing
        self._incoming = incoming
        self._computing = computing
        self._after_poll = after_poll
        self._polling = threading.Lock()
        self._waiter = waiter or Waiter()
        self._main_pause_s = 0.0
        self._ends: list[Outgoing | Incoming] = [*outgoing, *incoming]
        self._frame_ends = [end for end in self._ends if end.lane.carries_frames]
        self._large_ends = [end for end in self._ends if end.nbytes > _LARGE]
        self._backoff = Backoff(LATENCY_PAUSE_S if latency else MAX_PAUSE_S)
        self._watched_step_s = 2 * LARGE_PAUSE_S if self._large_ends else MAX_PAUSE_S
        transport.open([end.lane for end in outgoing], [end.lane for end in incoming])

    @property
    def has_channels(self) -> bool:
        return bool(self._frame_ends)

    def wake(self) -> None:
        self._waiter.set()

    def run(self, is_over: Callable[[], bool]) -> None:
        """Be the main thread until ``is_over`` and all channels have ended.

        ``is_over`` is called before each sleep; its exceptions end the loop early.
        """
        sharpen_timers()
        self._backoff.reset()
        self.poll()
        while not (is_over() and all(end.finished for end in self._ends)):
            if self._waiter.wait(self._choose_main_pause_s()) or not self._is_tended():
                self.poll()

    def poll(self) -> bool:
        """Move what can be moved; return whether a frame, or room for one, was among it."""
        with self._polling:
            moved = self._advance()
            self._after_poll()
        if moved:
            self._backoff.reset()
        return moved

    def begin_step(self, step_s: float) -> None:
        if step_s >= self._watched_step_s and self._step_pause_s(step_s) < self._main_pause_s:
            self._waiter.set()

    def begin_wait(self) -> None:
        self._backoff.begin_wait()

    def pause_s(self) -> float:
        """Seconds that the waiting thread may sleep before it polls again."""
        if not self._is_under_way():
            return MAX_PAUSE_S
        return self._backoff.pause_s(moves_large=self._large_bytes() > 0)

    def end_wait(self) -> None:
        self._backoff.end_wait()

    def _is_tended(self) -> bool:
        return self._computing is not None and self._computing.is_waiting

    def _choose_main_pause_s(self) -> float:
        # The longest while it is being chosen, so that a step which begins meanwhile wakes us.
        self._main_pause_s = IDLE_PAUSE_S
        if self._is_tended():
            return IDLE_PAUSE_S
        computing = self._computing
        if computing is None or computing.finished:
            return self.pause_s()
        self._main_pause_s = self._step_pause_s(computing.step_s)
        return self._main_pause_s

    def _step_pause_s(self, step_s: float) -> float:
        if not self._is_under_way():
            return IDLE_PAUSE_S
        return computing_pause_s(step_s, self._large_bytes())

    def _is_under_way(self) -> bool:
        return any(end.is_under_way for end in self._frame_ends)

    def _large_bytes(self) -> int:
        ends = (end for end in self._large_ends if end.is_under_way and end.nbytes > _LARGE)
        return max((end.nbytes for end in ends), default=0)

    def _advance(self) -> bool:
        """Move what can be moved; return whether a frame, or room for one, was among it.

        A heartbeat does not count: no other message follows from it.
        """
        moved = False
        for lane, outgoing in enumerate(self._outgoing):
            moved |= outgoing.advance(self._transport, lane) and outgoing.lane.carries_frames
        for lane, incoming in enumerate(self._incoming):
            moved |= incoming.advance(self._transport, lane) and incoming.lane.carries_frames
        sent, received = self._transport.poll()
        for done in sent:
            outgoing = self._outgoing[done.lane]
            outgoing.complete(done.slot, done.is_end)
            moved |= outgoing.lane.carries_frames
        for done in received:
            incoming = self._incoming[done.lane]
            incoming.complete(done.slot, done.is_end, done.nbytes)
            moved |= incoming.lane.carries_frames
        return moved
