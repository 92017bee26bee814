"""A frame as bytes: the record of its values, and the one that says why it has failed.

Records of values are in the results file, and travel to and from the keeper. A failure record
travels in the place of values: each slot has room for one behind its values, and so has each
message. It may come from another rank, so nothing of it is used before it is checked.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .job import Tensor, rank_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

RECORD_BYTES = 512
"""Of a record, its head included."""

_HEAD = struct.Struct("<B3xIiI")
"""Not zero if the frame has failed, the rank, the segment, bytes of the text that follows."""
_TEXT_BYTES = RECORD_BYTES - _HEAD.size
SOURCE = -1


class RecordForm:
    """The layout of a record."""

    def __init__(self, outputs: Sequence[Tensor]) -> None:
        self._outputs = outputs
        self._open = {n: len(spec.shape) for n, spec in enumerate(outputs) if spec.is_open}
        self.head = struct.Struct(f"<Qd{sum(self._open.values())}I")
        """Frame number, time of completion, the sizes of all open tensors."""
        self.fields: list[Any] = [
            *(("frame", "<u8"), ("completed_s", "<f8")),
            *((f"shape_{n}", "<u4", (count,)) for n, count in self._open.items()),
        ]
        """The same as fields of a numpy type."""

    def head_of(self, number: int, completed_s: float, tensors: Sequence[NDArray[Any]]) -> bytes:
        """Pack the head of a record, given the arrays of all its tensors."""
        sizes = (size for place in self._open for size in tensors[place].shape)
        return self.head.pack(number, completed_s, *sizes)

    def head_alone(self, number: int) -> bytes:
        """Pack the head of a record without values, such as that of a failed frame."""
        return self.head.pack(number, 0.0, *self.sizes(bytes(self.head.size), 0))

    def sizes(self, raw: Any, begin: int) -> tuple[int, ...]:
        return self.head.unpack_from(raw, begin)[2:]

    def outputs_of(self, sizes: Sequence[int]) -> list[Tensor]:
        """Give the outputs the shapes that they have in a frame.

        Raises:
            JobError: one of them cannot have that shape.
        """
        rest = iter(sizes)
        return [
            spec.of_shape([next(rest) for _ in spec.shape]) if spec.is_open else spec
            for spec in self._outputs
        ]

    def nbytes(self, sizes: tuple[int, ...]) -> int:
        """Size of a record whose head has these sizes.

        Raises:
            JobError: an output cannot have its shape.
        """
        return self.head.size + sum(spec.nbytes for spec in self.outputs_of(sizes))


@dataclass(frozen=True, slots=True, order=True)
class Failure:
    """Where and why a frame has failed; of several failures the least one counts."""

    rank: int
    segment: int
    """On its rank and route; below 0: the source."""
    reason: str
    """It may have any characters if it comes from another rank."""

    def describe(self, frame: int, ranks: Sequence[Any]) -> str:
        """Describe it, given the job's ranks: ``rank 1 (key on host): segment 0, frame 17:
        reason``.
        """
        name = f"rank {self.rank}"
        for rank in ranks[self.rank :][:1]:
            name = rank_name(self.rank, rank.key, rank.host)
        step = "source" if self.segment < 0 else f"segment {self.segment}"
        return f"{name}: {step}, frame {frame}: {self.reason}"

    def to_bytes(self) -> bytes:
        """Pack :data:`RECORD_BYTES`; a long reason is cut."""
        text = self.reason.encode(errors="replace")[:_TEXT_BYTES]
        head = _HEAD.pack(1, self.rank, self.segment, len(text))
        return (head + text).ljust(RECORD_BYTES, b"\0")

    @classmethod
    def from_bytes(cls, record: bytes | bytearray | memoryview) -> Failure:
        """Unpack a record, whatever its bytes are."""
        _, rank, segment, size = _HEAD.unpack_from(record)
        text = bytes(record[_HEAD.size :][: min(size, _TEXT_BYTES)])
        # A letter that was cut is left out.
        return cls(rank, max(segment, SOURCE), text.decode(errors="ignore"))
