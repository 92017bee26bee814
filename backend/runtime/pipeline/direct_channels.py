"""The direct channels of a rank: its shared rings, those of others that it reads, its inboxes."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..direct.memory import Memory, make_memory, map_memory
from ..direct.neighbours import Neighbour, swap
from ..direct.tokens import ENDED, FREED, WRITTEN, Inbox, Outbox, send_freed
from ..errors import JobError
from .slots import LentRing, Ring, SharedView, View, ring_bytes
from .stages import CREDITS, ROOM
from .wiring import (
    CREDIT,
    CREDIT_CHANNEL,
    HEARTBEAT_CHANNEL,
    RingSpec,
    Wiring,
    readers_of,
    writers_of,
)

NEWS = "news"
"""The inbox of frames; the others have what stages may lack."""
MAIN = "main"
"""The thread that waits for heartbeats, and for room where messages are received."""
POLLS = "polls"
"""Whichever thread polls the messages."""


class Post:
    """How one thread takes tokens and sends them.

    News wake it: frames have come. What tells of room, and of completion credits, is looked at only
    while one of its stages lacks just that, so a slot which is freed wakes nobody without need.
    """

    def __init__(self) -> None:
        self.inboxes: dict[str, Inbox] = defaultdict(Inbox)
        """Those that are used: :data:`NEWS`, :data:`ROOM`, :data:`CREDITS`."""
        self.outbox = Outbox()
        """Its thread alone adds tokens and sends them."""


class DirectChannels:
    """The rings of a rank, and what connects them to the rings of other ranks of its board."""

    def __init__(
        self,
        wiring: Wiring,
        neighbours: Mapping[int, Neighbour],
        *,
        joined: Collection[str] = (),
        lent: Mapping[int, Sequence[NDArray[Any]]] = {},
        computes_elsewhere: bool = False,
    ) -> None:
        """Allocate all slots of this rank, and its inboxes.

        ``joined``: stages beside the segments that the computing thread runs. ``lent``: rings whose
        slots are frames of the source. ``computes_elsewhere``: whether its engines, in processes of
        their own, need all slots.

        Raises:
            JobError: there is no memory, or the system refuses pipes.
        """
        self._wiring = wiring
        self._neighbours = neighbours
        self.joined = joined
        self._lent = lent
        self._posts: dict[str, Post] = defaultdict(Post)
        self._entries: list[int] = []
        self._offsets: dict[int, int] = {}
        self._size = 0
        for ring, spec in enumerate(wiring.rings):
            if spec.is_shared or (computes_elsewhere and spec.home is None):
                self._offsets[ring] = self._size
                self._size += ring_bytes(spec.tensor, spec.depth)
        self.memories: list[Memory] = []
        """Where slots are that other processes read or write; its own is the first, if any."""
        if self._size:
            self.memories.append(make_memory(self._size, others_write=computes_elsewhere))
        self.rings: list[Ring] = [self._own(ring, spec) for ring, spec in enumerate(wiring.rings)]
        self._expected: dict[int, list[tuple[int, int, Inbox]]] = defaultdict(list)
        """By neighbour: which tokens (kind, channel) it puts into which inbox of this rank."""
        self._expect_frees()
        self._expect_frames()
        for post in self._posts.values():
            for inbox in post.inboxes.values():
                inbox.make_room()

    def post(self, thread: str) -> Post:
        return self._posts[self._thread(thread)]

    def _thread(self, stage: str) -> str:
        return "compute" if stage in self.joined else stage

    def _own(self, ring: int, spec: RingSpec) -> Ring:
        if spec.home is not None:  # until memory is handed over
            return Ring(spec.tensor, 0, spec.readers)
        if ring in self._lent:
            return LentRing(spec.tensor, spec.depth, spec.readers, self._lent[ring])
        memory = None
        if ring in self._offsets:
            memory = self.memories[0].content[self._offsets[ring] :]
        # The window bounds the credits: whoever sends them to a rank that reads them where they are
        # need not know which ones have been taken.
        readers = () if spec.is_shared and spec.tensor is CREDIT else spec.readers
        return Ring(spec.tensor, spec.depth, readers, memory, spec.turns)

    def _expect_frees(self) -> None:
        writers = writers_of(self._wiring)
        for share in self._wiring.shares:
            ring = share.reader.ring
            if share.channel == CREDIT_CHANNEL:
                continue
            post = self.post(writers.get(ring, MAIN))
            # Its main thread has nothing to put into the slots, but has to receive messages.
            inbox = post.inboxes[ROOM if ring in writers else NEWS]
            free = partial(self.rings[ring].free_up_to, share.reader.index)
            inbox.expect(self._wiring.rings[ring].depth)
            inbox.handle(FREED, share.channel, free)
            self._expected[share.destination].append((FREED, share.channel, inbox))

    def _expect_frames(self) -> None:
        for view in self._wiring.views:
            # Of several readers the one that does not compute: it has no long steps.
            post = self.post(self._readers(view.ring)[-1])
            inbox = post.inboxes[CREDITS if view.channel == CREDIT_CHANNEL else NEWS]
            # As many frames as there are slots, and the end.
            inbox.expect(self._wiring.rings[view.ring].depth + 1)
            self._expected[view.sender].append((WRITTEN, view.channel, inbox))

    def hand_over(self) -> None:
        """Give the neighbours memory and inboxes, and take theirs."""
        messages = {rank: self._message_to(rank) for rank in self._neighbours}
        for rank, (message, descriptors) in swap(self._neighbours, messages).items():
            self._take_over(rank, json.loads(message), descriptors)

    def _message_to(self, rank: int) -> tuple[bytes, list[int]]:
        expected = self._expected[rank]
        entries = list(dict.fromkeys(inbox.entry for _, _, inbox in expected))
        places = [(kind, channel, entries.index(inbox.entry)) for kind, channel, inbox in expected]
        offsets = {
            share.channel: self._offsets[share.reader.ring]
            for share in self._wiring.shares
            if share.destination == rank
        }
        message = {
            "size": self._size if offsets else 0,
            "offsets": list(offsets.items()),
            "inboxes": places,
        }
        own = [memory.descriptor for memory in self.memories[:1] if offsets]
        return json.dumps(message).encode(), [*entries, *own]

    def _take_over(self, rank: int, message: dict[str, Any], descriptors: Sequence[int]) -> None:
        offsets, entries = dict(message["offsets"]), list(descriptors)
        if offsets:
            descriptor = entries.pop()
            memory = map_memory(descriptor, message["size"])
            self.memories.append(Memory(descriptor, memory))
            inboxes = {
                channel: inbox for kind, channel, inbox in self._expected[rank] if kind == WRITTEN
            }
            for view in self._wiring.views:
                if view.sender == rank:
                    shown = self._show(view.ring, memory, offsets[view.channel])
                    inboxes[view.channel].handle(WRITTEN, view.channel, shown.arrive)
                    inboxes[view.channel].handle(ENDED, view.channel, shown.arrive_end)
        self._entries += entries
        entry_of = {(kind, channel): entries[index] for kind, channel, index in message["inboxes"]}
        writers = writers_of(self._wiring)
        for share in self._wiring.shares:
            if share.destination == rank:
                entry, number = entry_of[WRITTEN, share.channel], share.reader.ring
                received = MAIN if share.channel == HEARTBEAT_CHANNEL else POLLS
                add = self.post(writers.get(number, received)).outbox.add_written
                ring = self.rings[number]
                ring.subscribe(share.reader.index, partial(add, ring, entry, share.channel))
        for view in self._wiring.views:
            if view.sender == rank and view.channel != CREDIT_CHANNEL:
                entry, ring = entry_of[FREED, view.channel], self.rings[view.ring]
                (thread, *others) = self._readers(view.ring)
                free = send_freed if others else self.post(thread).outbox.add_freed
                ring.on_freed += (partial(free, ring, entry, view.channel),)

    def _readers(self, ring: int) -> list[str]:
        stages = readers_of(self._wiring).get(ring, {MAIN})
        return sorted({self._thread(thread) for thread in stages})

    def _show(self, ring: int, memory: NDArray[np.uint8], offset: int) -> View:
        spec = self._wiring.rings[ring]
        if not 0 <= offset <= memory.nbytes - ring_bytes(spec.tensor, spec.depth):
            raise JobError(f"{spec.tensor.name!r}: the memory of rank {spec.home} is too small")
        kind = SharedView if self._readers(ring)[1:] else View
        view = kind(spec.tensor, spec.depth, spec.readers, memory[offset:], spec.turns)
        self.rings[ring] = view
        return view

    def close(self) -> None:
        """Release inboxes and descriptors; memory goes with the last ring that lies in it."""
        for post in self._posts.values():
            post.outbox.close()
            for inbox in post.inboxes.values():
                inbox.close()
        for entry in (*self._entries, *(memory.descriptor for memory in self.memories)):
            os.close(entry)
