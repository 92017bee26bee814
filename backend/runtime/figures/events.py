"""What a rank has done last: a ring of events in a file, readable after the rank was killed.

It needs only the standard library and ``system/``, as boards and launchers load it without the
other parts.
"""

from __future__ import annotations

import itertools
import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..system.files import map_new_file

if TYPE_CHECKING:
    import mmap

COMPUTE, READ, WRITE, WAIT, SEND, RECEIVE, FRAME = range(1, 8)
"""Kinds of events. A segment, the source, the sink did a frame; a thread had no stage that was
ready; a message was on its way out; a message has arrived; a frame was under way, from its arrival
until its results were out, on the clock of the source."""

THREADS = ("compute", "source", "sink")
"""Names of the threads that do stages, by their number in events."""

FORMAT = "rankslice-events"
VERSION = 2
NAME = "events-"
"""Of a rank's file, before the number of the rank."""

EVENT = struct.Struct("<qqqBBHi")
"""Begin and end in nanoseconds of CLOCK_MONOTONIC; number of the frame, which in segments of a job
with two routes counts those of the route, -1 if there is none; kind; route (0 the usual one, 1 that
for a surge; known to segments and to the source); thread; number of the segment in its rank and
route, or of the channel, or, of :data:`FRAME`, how many frames had taken the route before."""
HEAD_BYTES = 4096
"""JSON, filled up with zeros. The events follow."""
USUAL_EVENTS = 4096


class EventRing:
    """The last events of a rank; any thread may add to it."""

    def __init__(self, capacity: int = 64, memory: mmap.mmap | None = None) -> None:
        """Keep as many events as ``capacity``, in memory of the given kind, head included."""
        self._memory = memory if memory is not None else bytearray(_size(capacity))
        self._capacity = capacity
        self._numbers = itertools.count()
        self._head: dict[str, Any] = {}

    def add(
        self,
        kind: int,
        begin_s: float,
        end_s: float,
        frame: int,
        number: int = 0,
        thread: int = 0,
        route: int = 0,
    ) -> None:
        """Note an event that has ended, as :data:`EVENT` describes it.

        Times are in seconds of ``time.perf_counter``, or ``time.monotonic``.
        """
        # A number is drawn in one step, whichever thread does it.
        place = HEAD_BYTES + next(self._numbers) % self._capacity * EVENT.size
        begin, end = int(begin_s * 1e9), int(end_s * 1e9)
        EVENT.pack_into(self._memory, place, begin, end, frame, kind, route, thread, number)

    def describe(self, **head: Any) -> None:
        """Add to what the head of the file says.

        Raises:
            ValueError: it is too long.
        """
        self._head.update(head)
        whole = {"format": FORMAT, "version": VERSION, "capacity": self._capacity, **self._head}
        text = json.dumps(whole).encode()
        if len(text) > HEAD_BYTES:
            raise ValueError(f"the head of a file of events has {len(text)} bytes")
        self._memory[:HEAD_BYTES] = text.ljust(HEAD_BYTES, b"\0")

    def close(self) -> None:
        self.describe(events=next(self._numbers))


def open_ring(folder: Path, rank: int, capacity: int = USUAL_EVENTS) -> EventRing:
    """Return the ring of a rank, in a new file of its own.

    Raises:
        OSError: there is no room for it.
    """
    return EventRing(capacity, map_new_file(folder / f"{NAME}{rank}", _size(capacity)))


def _size(capacity: int) -> int:
    return HEAD_BYTES + capacity * EVENT.size
