"""Slots of tensors whose size changes from frame to frame.

Such a slot begins with a header, which says what shape the values behind it have. Whoever reads
the slot, maybe after a message or in memory of another rank, compares the header with what the
job says before it does anything else.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .errors import JobError
from .job import Tensor, typed_view

HEADER_BYTES = 64
"""Header of a slot; values behind it are aligned to as much."""

ALIGNMENT = 64
"""Of slots, in bytes."""

MAX_DIMENSIONS = 12
"""Of a tensor with open sizes."""

_HEADER = struct.Struct(f"<qiI{MAX_DIMENSIONS}i")
"""Bytes of the values, number of dimensions, a checksum of the type's name, sizes."""

_MAX_SIZE = 2**31 - 1


class OpenSlot:
    """Room for one frame's values of a tensor with open sizes, up to its bound."""

    __slots__ = ("_header", "_kind", "_values", "spec")

    def __init__(self, spec: Tensor, raw: NDArray[np.uint8]) -> None:
        """Take memory of at least ``slot_bytes(spec)``.

        Raises:
            JobError: a header cannot say which shapes the tensor may have.
        """
        if len(spec.shape) > MAX_DIMENSIONS or max(spec.shape) > _MAX_SIZE:
            raise JobError(
                f"tensor {spec.name!r} has open sizes and the bound {list(spec.shape)}: at most"
                f" {MAX_DIMENSIONS} dimensions of up to {_MAX_SIZE} can be sent"
            )
        self.spec = spec
        self._header = raw[:HEADER_BYTES].data
        self._values = raw[HEADER_BYTES:]
        self._kind = zlib.crc32(spec.dtype.encode())

    def shaped(self, shape: Sequence[int]) -> NDArray[Any]:
        """Note the shape of a frame's values; return the memory for them, in that shape.

        Raises:
            JobError: the tensor cannot have that shape; the message names it and its bound.
        """
        spec = self.spec.of_shape(shape)
        dims = (*spec.shape, *(0,) * (MAX_DIMENSIONS - len(shape)))
        _HEADER.pack_into(self._header, 0, spec.nbytes, len(shape), self._kind, *dims)
        return typed_view(spec, self._values)

    def write(self, values: NDArray[Any]) -> None:
        """Copy a frame's values in, with their shape.

        Raises:
            JobError: the tensor cannot have their shape or type.
        """
        target = self.shaped(values.shape)
        if target.dtype != values.dtype:
            raise JobError(
                f"tensor {self.spec.name!r} has values of type {values.dtype}, expected"
                f" {target.dtype}"
            )
        np.copyto(target, values, casting="no")

    def read(self) -> NDArray[Any]:
        """View the frame's values, in their shape.

        Raises:
            JobError: the header is none, or not one of this tensor.
        """
        nbytes, count, kind, *dims = _HEADER.unpack_from(self._header)
        if kind != self._kind or not 0 <= count <= MAX_DIMENSIONS:
            raise JobError(
                f"tensor {self.spec.name!r} came without a valid header, or with one of another"
                " type"
            )
        spec = self.spec.of_shape(dims[:count])
        if spec.nbytes != nbytes:
            raise JobError(
                f"tensor {self.spec.name!r} of shape {list(spec.shape)} came with {nbytes} bytes,"
                f" expected {spec.nbytes}"
            )
        return typed_view(spec, self._values)

    def check_message(self, nbytes: int) -> None:
        """Compare the length of a message, header included, with its header.

        Raises:
            JobError: they do not fit.
        """
        if nbytes < HEADER_BYTES or self.read().nbytes + HEADER_BYTES != nbytes:
            raise JobError(
                f"tensor {self.spec.name!r} came in a message of {nbytes} bytes, which does not fit"
                " its header"
            )

    @property
    def message_bytes(self) -> int:
        """Of the header, and of the values that were noted last."""
        return HEADER_BYTES + int(_HEADER.unpack_from(self._header)[0])


def private_memory(size: int) -> NDArray[np.uint8]:
    """Allocate zeros (uint8), aligned to 64 bytes, and touch them."""
    # Not zeros(), which takes no memory before the first frames and no huge pages at all.
    block = np.empty(size + ALIGNMENT, np.uint8)
    block.fill(0)
    start = -block.ctypes.data % ALIGNMENT
    return block[start : start + size]


def is_aligned(values: NDArray[Any]) -> bool:
    """Tell whether values lie in memory as those of a slot do."""
    return values.flags.c_contiguous and values.ctypes.data % ALIGNMENT == 0


Slot: TypeAlias = "NDArray[Any] | OpenSlot"
"""Where a frame's values of a tensor are put: an array if all sizes are fixed."""


def slot_bytes(spec: Tensor) -> int:
    if spec.is_open:
        return HEADER_BYTES + spec.nbytes
    # A message of zero length ends the stream, so an empty tensor still takes one byte.
    return max(1, spec.nbytes)


def make_slot(spec: Tensor, raw: NDArray[np.uint8] | None = None) -> Slot:
    """Make a slot in memory of at least :func:`slot_bytes`; ``None``: in memory of its own."""
    if raw is None:
        raw = np.zeros(slot_bytes(spec), np.uint8)
    return OpenSlot(spec, raw) if spec.is_open else typed_view(spec, raw)


def shaped(slot: Slot, shape: Sequence[int]) -> NDArray[Any]:
    """View where to put a frame's values of the given shape.

    Raises:
        JobError: the tensor cannot have that shape.
    """
    if isinstance(slot, OpenSlot):
        return slot.shaped(shape)
    if slot.shape != tuple(shape):
        raise JobError(f"values of shape {list(shape)} do not fit the shape {list(slot.shape)}")
    return slot


def values_in(slot: Slot) -> NDArray[Any]:
    """View a frame's values, in their shape.

    Raises:
        JobError: the header of an open slot is not valid.
    """
    return slot.read() if isinstance(slot, OpenSlot) else slot


def disagreement(slots: Sequence[Slot]) -> str:
    """Apply :func:`differing_size` to the open slots of a frame.

    Raises:
        JobError: the header of one is not valid.
    """
    opened = [slot for slot in slots if isinstance(slot, OpenSlot)]
    return differing_size((slot.spec, slot.read().shape) for slot in opened)


def differing_size(frame: Iterable[tuple[Tensor, Sequence[int]]]) -> str:
    """Say which size is not the same in all tensors of a frame that name it; empty: none.

    ``frame``: tensors, and the shapes that they have.
    """
    sizes: dict[str, tuple[int, str]] = {}
    for spec, shape in frame:
        # Without symbols all sizes are fixed.
        for size, symbol in zip(shape, spec.symbols, strict=False):
            first, name = sizes.setdefault(symbol, (size, spec.name))
            if symbol not in ("", "?") and size != first:
                return f"size {symbol!r} is {first} in {name!r} and {size} in {spec.name!r}"
    return ""
