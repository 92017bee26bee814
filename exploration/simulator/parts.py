"""What a simulated job is made of: rings, stages, ranks, and links between boards."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TypeAlias


class Counters:
    """Counters that only go up, by one; the lowest is known without a search."""

    __slots__ = ("_passed", "count", "lowest")

    def __init__(self, count: int = 0) -> None:
        self.count = count
        self.lowest = 0
        self._passed: deque[int] = deque()
        """How many counters are above ``lowest``, above ``lowest + 1`` and so on."""

    def step(self, value: int) -> bool:
        """Let a counter that is at ``value`` go up; return whether the lowest is another now."""
        passed = self._passed
        above = value - self.lowest
        if above == len(passed):
            passed.append(0)
        passed[above] += 1
        if passed[0] < self.count:
            return False
        passed.popleft()
        self.lowest += 1
        return True


class Ring:
    """Slots of one tensor on one rank: counters alone.

    A ring tells its stages of changes, so no stage has to look at all of its rings again.
    """

    __slots__ = (
        "_slowest",
        "depth",
        "on_freed",
        "on_written",
        "read",
        "readers",
        "writer",
        "written",
    )

    def __init__(self, depth: int, readers: int) -> None:
        self.depth = depth
        self.written = 0
        self.read = [0] * readers
        self.readers: list[SimulatedStage | None] = [None] * readers
        """``None``: a channel."""
        self.writer: SimulatedStage | None = None
        """``None``: a channel."""
        self.on_written: list[Callable[[], None]] = []
        self.on_freed: list[Callable[[], None]] = []
        self._slowest = Counters(readers)

    def has_room_for(self, written: int) -> bool:
        """Whether there is a slot for the frame after so many."""
        return not self.read or written - self._slowest.lowest < self.depth

    def put(self) -> None:
        """Add a frame."""
        before = self.written
        self.written = before + 1
        for stage, read in zip(self.readers, self.read, strict=True):
            if stage is not None and read == before:
                stage.has_one_more()
        if self.writer is not None and not self.has_room_for(self.written):
            self.writer.lacking += 1

    def free(self, reader: int) -> bool:
        """Let a reader give its oldest frame back; return whether that freed a slot."""
        before = self.read[reader]
        self.read[reader] = before + 1
        stage = self.readers[reader]
        if stage is not None and before + 1 == self.written:
            stage.lacking += 1
        was_full = not self.has_room_for(self.written)
        is_freed = self._slowest.step(before)
        if is_freed and was_full and self.writer is not None:
            self.writer.has_one_more()
        return is_freed


Inputs: TypeAlias = list[tuple[Ring, int]]
"""Rings, each with the number of the reader."""


@dataclass(slots=True, eq=False)
class SimulatedStage:
    """What takes and makes tensors: a segment, the source, or the sink."""

    index: int = 0
    rank: Rank | None = None
    """Of a segment."""
    frame: int = 0
    """The next one."""
    times: list[float] = field(default_factory=list)
    """Of its frames, in seconds, and again from the beginning."""
    inputs: Inputs = field(default_factory=list)
    outputs: list[Ring] = field(default_factory=list)
    lacking: int = 0
    """Inputs whose next frame is not there, and outputs without room."""

    def reads(self, ring: Ring, reader: int) -> None:
        """Add an input."""
        self.inputs.append((ring, reader))
        ring.readers[reader] = self
        self.lacking += 1

    def writes(self, ring: Ring) -> None:
        """Add an output."""
        self.outputs.append(ring)
        ring.writer = self

    def has_one_more(self) -> None:
        """Take note of an input that has come, or of an output that has room."""
        self.lacking -= 1
        self.line_up()

    def line_up(self) -> None:
        """Stand among the segments of its rank that are ready, if it is."""
        if not self.lacking and self.rank is not None:
            heappush(self.rank.ready, (self.frame, self.index, self))


@dataclass(slots=True)
class Core:
    """A core that several ranks use: one at a time."""

    is_taken: bool = False
    waiting: list[Rank] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Rank:
    """A rank: one thread that computes."""

    number: int
    stages: list[SimulatedStage] = field(default_factory=list)
    ready: list[tuple[int, int, SimulatedStage]] = field(default_factory=list)
    """Segments that could run, by frame and index: a heap."""
    frames: Counters = field(default_factory=Counters)
    """The next frames of its stages."""
    is_busy: bool = False
    is_waiting: bool = False
    cores: list[Core] = field(default_factory=list)
    """Those that it shares with others."""
    busy_s: float = 0.0
    steps: int = 0
    queued: int = 0
    queued_max: int = 0

    def count_step(self, queued: int) -> None:
        """Take note of a step, and of the frames that wait at its end."""
        self.steps += 1
        self.queued += queued
        if queued > self.queued_max:
            self.queued_max = queued

    def take_ready(self) -> SimulatedStage:
        """Return the stage that is ready and has the oldest frame; it is about to run."""
        return heappop(self.ready)[2]


@dataclass(slots=True)
class Port:
    """One direction of a board's link."""

    free_s: float = 0.0
    busy_s: float = 0.0
    messages: int = 0

    def take(self, ready_s: float, link_s: float) -> float:
        """Carry a message that is ready; return when its last byte has passed."""
        self.free_s = max(ready_s, self.free_s) + link_s
        self.busy_s += link_s
        self.messages += 1
        return self.free_s


@dataclass(slots=True)
class Pipe:
    """A channel; inside a board the receiver reads the slots of ``origin`` itself."""

    sender: Rank
    receiver: Rank
    origin: Ring
    reader: int
    """Its number among the readers of ``origin``."""
    target: Ring
    """Inside a board, what the receiver knows of ``origin``."""
    link_s: list[float]
    """How long messages take of each port, frame by frame, and again from the beginning."""
    latency_s: float
    """Of the link; inside a board, how long the receiver takes to wake up."""
    ports: tuple[Port, Port] | None
    """Out of one board and into another; ``None`` inside a board."""
    started: int = 0
