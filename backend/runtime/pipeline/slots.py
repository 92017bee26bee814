"""Rings of slots: the bounded buffer between one writer and its readers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..job import TensorSpec, typed_view

_ALIGNMENT = 64


class Ring:
    """A ring of slots for one tensor, with one writer and any number of readers.

    Frame f lies in slot f mod depth. ``written`` counts the frames that the writer has put in,
    ``read[i]`` those that reader i is done with. One thread at a time advances each counter, so
    no lock is needed: a stale value only makes the other side wait a little longer.
    All memory is allocated at construction.

    ``on_written`` holds the wake-up calls of the readers, ``on_freed`` those of the writer.
    """

    def __init__(self, tensor: TensorSpec, depth: int, readers: int) -> None:
        """Allocate ``depth`` slots of ``tensor.nbytes`` bytes each, aligned to 64 bytes."""
        self.tensor = tensor
        self.depth = depth
        self.written = 0
        self.read = [0] * readers
        self.end: int | None = None
        """Number of frames of the whole stream, once the writer knows it."""
        self.on_written: tuple[Callable[[], None], ...] = ()
        self.on_freed: tuple[Callable[[], None], ...] = ()
        # A message of zero length ends the stream, so an empty tensor still takes one byte.
        size = max(1, tensor.nbytes)
        stride = -(-size // _ALIGNMENT) * _ALIGNMENT
        # Not zeros(), which takes no memory before the first frames and no huge pages at all.
        block = np.empty(depth * stride + _ALIGNMENT, np.uint8)
        block.fill(0)
        start = -block.ctypes.data % _ALIGNMENT
        self.raw: tuple[NDArray[np.uint8], ...] = tuple(
            block[start + slot * stride : start + slot * stride + size] for slot in range(depth)
        )
        self.slots: tuple[NDArray[Any], ...] = tuple(typed_view(tensor, raw) for raw in self.raw)

    def has_room(self) -> bool:
        """Whether the writer may write frame ``written`` now."""
        return not self.read or self.written - min(self.read) < self.depth

    def has_frame(self, reader: int) -> bool:
        """Whether the frame that ``reader`` needs next is there."""
        return self.read[reader] < self.written

    def has_ended(self, reader: int) -> bool:
        """Whether the writer is finished and ``reader`` has read everything."""
        return self.end is not None and self.read[reader] >= self.end

    def put(self) -> None:
        """Hand the slot of frame ``written`` to the readers; called by the writer."""
        self.written += 1
        self._tell_readers()

    def finish(self) -> None:
        """End the stream after the frames written so far; called by the writer."""
        self.end = self.written
        self._tell_readers()

    def _tell_readers(self) -> None:
        for tell in self.on_written:
            tell()

    def free(self, reader: int) -> None:
        """Give back the slot that ``reader`` read last; called by that reader."""
        self.read[reader] += 1
        # Only the writer of a full ring waits. Counted after the step, so a writer that fills the
        # last slot meanwhile is woken as well, or finds the slot that has just become free.
        if self.on_freed and self.written - min(self.read) >= self.depth - 1:
            for tell in self.on_freed:
                tell()
