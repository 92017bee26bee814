"""The seam between the runtime and whatever carries its messages.

Two implementations exist: :mod:`.mpi`, and one in the tests (``tests/support/twin.py``), with
which a whole pipeline runs inside one process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Lane:
    """One end of a channel: where its messages go to or come from, and its slots."""

    channel: int
    """Its number; below zero if it serves the runtime itself and carries no frames."""
    peer: int
    """The other rank."""
    slots: tuple[NDArray[np.uint8], ...]
    is_open: bool = False
    """Whether messages have lengths of their own."""
    spare: int = 0
    """Bytes at the end of each slot that messages have only if :meth:`Transport.send_part` says."""

    def usual(self, slot: int) -> NDArray[np.uint8]:
        """Return what :meth:`Transport.send` sends of a slot."""
        return self.slots[slot][: self.slots[slot].nbytes - self.spare]

    @property
    def carries_frames(self) -> bool:
        """Whether it is a channel of the job or the credits'."""
        return self.channel >= 0


class Completion(NamedTuple):
    """A transfer that is over: its slot may be used again (sent), or holds a frame (received)."""

    lane: int
    """Index in the list of lanes given to :meth:`Transport.open`."""
    slot: int
    """-1 for a finished :meth:`Transport.send_end`."""
    is_end: bool = False
    """Whether this was the message that ends the stream."""
    nbytes: int = 0
    """Length of a received message."""


class Transport(Protocol):
    """Moves slots between ranks. One thread calls it at a time."""

    rank: int
    size: int

    def open(self, sends: Sequence[Lane], receives: Sequence[Lane]) -> None:
        """Set up all transfers of the job; nothing is allocated afterwards."""

    def send(self, lane: int, slot: int) -> None:
        """Start to send one slot; slots of a lane are sent in ring order."""

    def send_part(self, lane: int, slot: int, nbytes: int) -> None:
        """Start to send the first bytes of a slot, at least one."""

    def send_end(self, lane: int) -> None:
        """Start to send the message of zero length that ends the stream."""

    def receive(self, lane: int, slot: int) -> None:
        """Make one slot ready for the lane's next message."""

    def poll(self) -> tuple[list[Completion], list[Completion]]:
        """Move what can be moved, without blocking; return the finished sends and receives."""

    def exchange(self, record: bytes) -> list[bytes]:
        """Give ``record`` to all ranks and return everybody's, by rank. Collective."""

    def tell(self, peer: int, number: int) -> None:
        """Send a number to a rank that :meth:`hear`s it meanwhile, or does so soon."""

    def hear(self, peer: int) -> int:
        """Wait for the next number that a rank :meth:`tell`s this one."""

    def close(self) -> None:
        """Cancel the receives still posted, and release everything."""

    def abort(self) -> None:
        """End all ranks of the job at once, whatever they do."""
