"""Why a frame has no results: the failure record, which travels in the place of its values.

Each slot has room for one behind its values, and so has each message. A record may come from
another rank, so nothing of it is used before it is checked.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .job import rank_name

RECORD_BYTES = 512
"""Of a record, its head included."""

_HEAD = struct.Struct("<B3xIiI")
"""Not zero if the frame has failed, the rank, the segment, bytes of the text that follows."""
_TEXT_BYTES = RECORD_BYTES - _HEAD.size
SOURCE = -1


@dataclass(frozen=True, slots=True, order=True)
class Failure:
    """Where and why a frame has failed. Of several, the least one is the frame's."""

    rank: int
    segment: int
    """On its rank and route; below 0: the source."""
    reason: str
    """It may have any characters if it comes from another rank."""

    def told(self, frame: int, ranks: Sequence[Any]) -> str:
        """Return ``rank 1 (key on host): segment 0, frame 17: reason``, given the job's ranks."""
        name = f"rank {self.rank}"
        for rank in ranks[self.rank :][:1]:
            name = rank_name(self.rank, rank.key, rank.host)
        step = "source" if self.segment < 0 else f"segment {self.segment}"
        return f"{name}: {step}, frame {frame}: {self.reason}"

    def to_bytes(self) -> bytes:
        """Return the record, of :data:`RECORD_BYTES`; a long reason is cut."""
        text = self.reason.encode(errors="replace")[:_TEXT_BYTES]
        head = _HEAD.pack(1, self.rank, self.segment, len(text))
        return (head + text).ljust(RECORD_BYTES, b"\0")

    @classmethod
    def from_bytes(cls, record: bytes | bytearray | memoryview) -> Failure:
        """Return what a record says, whatever its bytes are."""
        _, rank, segment, size = _HEAD.unpack_from(record)
        text = bytes(record[_HEAD.size :][: min(size, _TEXT_BYTES)])
        # A letter that was cut is left out.
        return cls(rank, max(segment, SOURCE), text.decode(errors="ignore"))
