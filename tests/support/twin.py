"""Messages between threads of one process: a pipeline of many ranks inside a test.

It keeps MPI's promises and no others: messages of a channel stay in order, a send's slot may
be reused once the message has left it, and nothing moves unless a rank polls.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.transport import Completion, Lane

_END = -1


class ThreadLinks:
    """What the ranks of one in-process job share."""

    def __init__(
        self,
        size: int,
        *,
        eager_bytes: int = 4096,
        direct: Collection[tuple[int, int]] | None = None,
    ) -> None:
        """Connect ``size`` ranks.

        Args:
            size: number of ranks.
            direct: pairs of ranks, the lower one first, that can share memory; ``None``: all.
            eager_bytes: messages up to this size leave their slot at once, larger ones only when
                the receiver takes them; MPI does both.
        """
        self.size = size
        self._direct = direct
        self.eager_bytes = eager_bytes
        self.lock = threading.Lock()
        self.aborted_by: int | None = None
        self.mail: dict[tuple[int, int, int], deque[_Message]] = {}
        self.records: list[bytes] = [b""] * size
        self.numbers: dict[tuple[int, int], SimpleQueue[int]] = {
            (sender, receiver): SimpleQueue() for sender in range(size) for receiver in range(size)
        }
        self.barrier = threading.Barrier(size)

    def record_for(self, rank: int, sender: int) -> bytes:
        """Return a rank's record as another one gets it: no address, if it cannot call there."""
        record, pair = self.records[sender], (min(rank, sender), max(rank, sender))
        if self._direct is None or rank == sender or pair in self._direct:
            return record
        return (
            json.dumps(json.loads(record) | {"address": ""}).encode()
            if b'"address"' in record
            else record
        )

    def transport(self, rank: int) -> TwinTransport:
        """Return the end of the links that belongs to ``rank``."""
        return TwinTransport(self, rank)


class _Message:
    """A message under way: the sender's slot, or a copy of it if sent eagerly."""

    def __init__(self, payload: NDArray[np.uint8]) -> None:
        self.payload = payload
        self.taken = threading.Event()


class TwinTransport:
    """One rank's end of a :class:`ThreadLinks`."""

    library = "in-process"

    def __init__(self, links: ThreadLinks, rank: int) -> None:
        self.rank = rank
        self.size = links.size
        self._links = links
        self._sends: Sequence[Lane] = ()
        self._receives: Sequence[Lane] = ()
        self._sending: list[tuple[_Message, Completion]] = []
        self._posted: list[deque[int]] = []

    def open(self, sends: Sequence[Lane], receives: Sequence[Lane]) -> None:
        """Remember the lanes."""
        self._sends, self._receives = sends, receives
        self._posted = [deque() for _ in receives]

    def send(self, lane: int, slot: int) -> None:
        """Put the slot into the receiver's mailbox."""
        self._post(lane, slot, self._sends[lane].usual(slot))

    def send_part(self, lane: int, slot: int, nbytes: int) -> None:
        """Put the first bytes of the slot into the receiver's mailbox."""
        self._post(lane, slot, self._sends[lane].slots[slot][:nbytes])

    def send_end(self, lane: int) -> None:
        """Put an empty message into the receiver's mailbox."""
        self._post(lane, _END, np.empty(0, np.uint8))

    def _post(self, lane: int, slot: int, payload: NDArray[np.uint8]) -> None:
        end = self._sends[lane]
        eager = payload.nbytes <= self._links.eager_bytes
        message = _Message(payload.copy() if eager else payload)
        if eager:
            message.taken.set()
        with self._links.lock:
            mailbox = self._links.mail.setdefault((self.rank, end.peer, end.channel), deque())
            mailbox.append(message)
        self._sending.append((message, Completion(lane, slot, slot == _END)))

    def receive(self, lane: int, slot: int) -> None:
        """Let the lane's next message go into the slot."""
        self._posted[lane].append(slot)

    def poll(self) -> tuple[list[Completion], list[Completion]]:
        """Take messages for which a slot is ready; report sends whose message was taken."""
        self._check()
        received = []
        for lane, end in enumerate(self._receives):
            mailbox = self._links.mail.get((end.peer, self.rank, end.channel))
            while mailbox and self._posted[lane]:
                slot = self._posted[lane].popleft()
                message = mailbox.popleft()
                size = message.payload.nbytes
                if size > end.slots[slot].nbytes:
                    raise JobError(
                        f"rank {end.peer} sent {size} bytes through channel {end.channel}, more"
                        " than its tensor may have"
                    )
                end.slots[slot][:size] = message.payload
                message.taken.set()
                received.append(Completion(lane, slot, not size, size))
        sent, sending = [], []
        for message, completion in self._sending:
            # Asked once: the receiver may take the message at any time.
            if message.taken.is_set():
                sent.append(completion)
            else:
                sending.append((message, completion))
        self._sending = sending
        return sent, received

    def exchange(self, record: bytes) -> list[bytes]:
        """Hand the record over through shared memory."""
        try:
            self._links.barrier.wait()
            self._links.records[self.rank] = record
            self._links.barrier.wait()
        except threading.BrokenBarrierError:
            self._check()
            raise
        return [self._links.record_for(self.rank, sender) for sender in range(self.size)]

    def send_number(self, peer: int, number: int) -> None:
        """Put the number into the queue of the pair."""
        self._links.numbers[self.rank, peer].put(number)

    def receive_number(self, peer: int) -> int:
        """Take the number out of it."""
        while True:
            self._check()
            with suppress(Empty):
                return self._links.numbers[peer, self.rank].get(timeout=0.1)

    def close(self) -> None:
        """Nothing is held that would need releasing."""

    def abort(self) -> None:
        """Make every other rank's next call fail."""
        with self._links.lock:
            if self._links.aborted_by is None:
                self._links.aborted_by = self.rank
        self._links.barrier.abort()

    def _check(self) -> None:
        rank = self._links.aborted_by
        if rank is not None and rank != self.rank:
            raise JobError(f"ended by rank {rank}")
