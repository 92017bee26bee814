"""Rings of slots: the bounded buffer between one writer and its readers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..frame_records import RECORD_BYTES, Failure
from ..job import ALL, EACH, Steps, Tensor, Turns
from ..sizes import ALIGNMENT, Slot, make_slot, private_memory, slot_bytes


def ring_bytes(tensor: Tensor, depth: int) -> int:
    return depth * _stride(tensor)


def _stride(tensor: Tensor) -> int:
    return -(-(slot_bytes(tensor) + RECORD_BYTES) // ALIGNMENT) * ALIGNMENT


class Ring:
    """A ring of slots for one tensor, with one writer and any number of readers.

    A ring has the frames that its writer handles, numbered from 0: its frame i lies in slot i mod
    depth, and is frame ``turns.frame(i)`` of the stream. ``written`` counts the frames that the
    writer has put in; ``read[i]`` is the one that reader i takes next, so it is done with those
    before. A reader may leave frames out. One thread at a time advances each counter, so
    no lock is needed: a stale value only makes the other side wait a little longer. Stages compare
    the counters themselves.
    All memory is there at construction.

    ``on_written`` holds the wake-up calls of the readers, ``on_freed`` those of the writer.
    """

    def __init__(
        self,
        tensor: Tensor,
        depth: int,
        readers: int | Sequence[Steps],
        memory: NDArray[np.uint8] | None = None,
        turns: Turns = ALL,
    ) -> None:
        """Lay ``depth`` slots out, each aligned to 64 bytes.

        ``readers``: which of its frames each one takes; a number: so many take all. ``memory``:
        uint8, at least :func:`ring_bytes` long, aligned to 64 bytes; ``None``: of its own.
        ``turns``: which frames of the stream it has.
        """
        self.tensor = tensor
        self.depth = depth
        self.turns = turns
        self.steps = (EACH,) * readers if isinstance(readers, int) else tuple(readers)
        self._jumps = tuple((taken.jumps, len(taken.jumps)) for taken in self.steps)
        self.written = 0
        self.read = [steps.first for steps in self.steps]
        self.end: int | None = None
        """Number of its frames in the whole stream, once the writer knows it."""
        self.freed = min(self.read, default=0)
        """Of a view: the frame with which not all readers are done."""
        self.on_written: tuple[Callable[[], object], ...] = ()
        self.on_freed: tuple[Callable[[], object], ...] = ()
        stride, size = _stride(tensor), slot_bytes(tensor)
        if memory is None:
            memory = private_memory(depth * stride)
        self.messages: tuple[NDArray[np.uint8], ...] = tuple(
            memory[begin : begin + size + RECORD_BYTES]
            for begin in range(0, depth * stride, stride)
        )
        """By slot, its values and what follows them, as they are sent if the frame has failed."""
        self.records = tuple(message[size:].data for message in self.messages)
        """By slot, the failure record: its first byte is zero unless the frame has failed."""
        self.raw: tuple[NDArray[np.uint8], ...] = tuple(message[:size] for message in self.messages)
        self.slots: tuple[Slot, ...] = tuple(make_slot(tensor, raw) for raw in self.raw)

    def has_room(self) -> bool:
        return all(read > self.written - self.depth for read in self.read)

    def has_frame(self, reader: int) -> bool:
        return self.read[reader] < self.written

    def has_ended(self, reader: int) -> bool:
        return self.end is not None and self.read[reader] >= self.end

    def fail(self, failure: Failure) -> None:
        """Note that frame ``written`` has failed; called by the writer before :meth:`put`."""
        self.records[self.written % self.depth][:] = failure.to_bytes()

    def put(self) -> None:
        """Hand the slot of frame ``written`` to the readers; called by the writer."""
        self.written += 1
        for notify in self.on_written:
            notify()

    def subscribe(self, reader: int, call: Callable[[], object]) -> None:
        """Have ``call`` called when there is a frame that ``reader`` takes, and at the end."""
        steps = self.steps[reader] if self.steps else EACH  # of credits nobody's reading is noted

        def call_if_taken() -> None:
            if self.end is not None or steps.takes(self.written - 1):
                call()

        self.on_written += (call if steps == EACH else call_if_taken,)

    def finish(self) -> None:
        self.end = self.written
        for notify in self.on_written:
            notify()

    def free(self, reader: int) -> None:
        """Give back the slot that ``reader`` read last; called by that reader."""
        # Only the writer of a full ring waits. It is full if the step frees a slot that the next
        # frame needs. The writer's count is read after the step, so a writer that fills the last
        # slot meanwhile is woken as well, or finds the slot that has just become free.
        before = self.read[reader]
        jumps, period = self._jumps[reader]
        self.read[reader] = before + jumps[before % period]
        if self.written - before >= self.depth:
            for notify in self.on_freed:
                notify()

    def free_up_to(self, reader: int, count: int) -> None:
        """Give back the slots of the first ``count`` frames, as a token of ``reader`` says."""
        before = self.read[reader]
        if count > before:
            self.read[reader] = count
            if self.written - before >= self.depth:
                for notify in self.on_freed:
                    notify()


class LentRing(Ring):
    """A ring whose slots are the frames of a source, which lie in its memory over and over.

    Nothing writes them, and none of their readers is on another rank or in another process.
    """

    def __init__(
        self, tensor: Tensor, depth: int, readers: Sequence[Steps], frames: Sequence[NDArray[Any]]
    ) -> None:
        super().__init__(tensor, 0, readers)
        self.slots = (*frames,) * -(-depth // len(frames))
        self.depth = len(self.slots)
        self.records = tuple(memoryview(bytearray(1)) for _ in self.slots)


class View(Ring):
    """A ring whose slots and writer are on another rank of the board; one thread reads it.

    Tokens advance ``written``, for the frames that a reader of this rank takes; ``on_freed`` is
    called once for each frame with which all of these readers are done.
    """

    def arrive(self, written: int) -> None:
        """Note how many frames the writer has put in; called by the thread that takes tokens."""
        if written > self.written:
            self.written = written
        for notify in self.on_written:
            notify()

    def arrive_end(self, end: int) -> None:
        self.end = end
        for notify in self.on_written:
            notify()

    def free(self, reader: int) -> None:
        before = self.read[reader]
        jumps, period = self._jumps[reader]
        self.read[reader] = before + jumps[before % period]
        for read in self.read:
            if read <= self.freed:
                return
        self.freed = min(self.read)
        for notify in self.on_freed:
            notify()


class SharedView(View):
    """A view that several threads read: of two that free the same frame one is the last."""

    def __init__(self, *view: Any) -> None:
        super().__init__(*view)
        self._freeing = threading.Lock()

    def free(self, reader: int) -> None:
        with self._freeing:
            super().free(reader)
