"""A frame's tensors as bytes: in the results file, and on the way to and from the keeper."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .job import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray


class RecordForm:
    """What stands where in a record."""

    def __init__(self, outputs: Sequence[Tensor]) -> None:
        """Take the outputs, in the order in which they are written."""
        self._outputs = outputs
        self._open = {n: len(spec.shape) for n, spec in enumerate(outputs) if spec.is_open}
        self.head = struct.Struct(f"<Qd{sum(self._open.values())}I")
        """Frame number, time of completion, the sizes of all open tensors."""
        self.has_sizes = bool(self._open)
        self.fields: list[Any] = [
            *(("frame", "<u8"), ("completed_s", "<f8")),
            *((f"shape_{n}", "<u4", (count,)) for n, count in self._open.items()),
        ]
        """The same as fields of a numpy type."""

    def sizes_of(self, tensors: Sequence[NDArray[Any]]) -> list[int]:
        """Return the sizes that the head of a record has, by the arrays of all its tensors."""
        return [size for number in self._open for size in tensors[number].shape]

    def sizes(self, raw: Any, begin: int) -> tuple[int, ...]:
        """Return the sizes in the head of the record that begins there."""
        return self.head.unpack_from(raw, begin)[2:]

    def outputs_of(self, sizes: Sequence[int]) -> list[Tensor]:
        """Return the outputs with the shapes that they have in a frame.

        Raises:
            JobError: one of them cannot have that shape.
        """
        rest = iter(sizes)
        return [
            spec.of_shape([next(rest) for _ in spec.shape]) if spec.is_open else spec
            for spec in self._outputs
        ]

    def nbytes(self, sizes: tuple[int, ...]) -> int:
        """Return the size of a record whose head has these sizes.

        Raises:
            JobError: an output cannot have its shape.
        """
        return self.head.size + sum(spec.nbytes for spec in self.outputs_of(sizes))
