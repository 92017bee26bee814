"""What a simulated job is made of: rings, stages, ranks, and links between boards."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappush
from typing import TypeAlias

from rankslice.backend.runtime.job import ALL, EACH, Steps, Turns
from rankslice.backend.runtime.pipeline.wiring import RingSpec


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

    def climb(self, value: int, end: int) -> bool:
        """Let a counter go up in several steps; return whether the lowest is another now."""
        before = self.lowest
        for count in range(value, end):
            self.step(count)
        return self.lowest != before


class Ring:
    """Slots of one tensor on one rank: counters alone.

    They count the ring's own frames, as the runtime's do. A ring tells its stages of changes, so no
    stage has to look at all of its rings again.
    """

    def __init__(self, spec: RingSpec) -> None:
        self.depth = spec.depth
        self.steps = spec.readers
        self._are_skipped = any(steps != EACH for steps in spec.readers)
        """Whether readers leave frames out."""
        self.turns = spec.turns
        self.written = 0
        self.read = [steps.first for steps in self.steps]
        """By reader, the frame that it takes next."""
        self.readers: list[SimulatedStage | None] = [None] * len(self.steps)
        """``None``: a channel."""
        self.waiting: list[SimulatedStage | None] = [None] * len(self.steps)
        """The readers that are told; not those that go on with a frame of another ring."""
        self.writer: SimulatedStage | None = None
        """``None``: a channel."""
        self.on_written: list[Callable[[], None]] = []
        self.on_freed: list[Callable[[], None]] = []
        self._slowest = Counters(len(self.steps))
        for first in self.read:
            self._slowest.climb(0, first)

    @property
    def slowest(self) -> int:
        """The first frame that a reader still takes."""
        return self._slowest.lowest

    def waits(self, reader: int) -> int:
        read = self.read[reader]
        if self._are_skipped:
            return sum(map(self.steps[reader].takes, range(read, self.written)))
        return self.written - read

    def has_room_for(self, written: int) -> bool:
        """Whether there is a slot for the frame after so many."""
        return not self.read or written - self._slowest.lowest < self.depth

    def put(self) -> None:
        before = self.written
        self.written = before + 1
        for stage, read in zip(self.waiting, self.read, strict=True):
            if stage is not None and read == before:
                stage.has_one_more()
        if self.writer is not None and not self.has_room_for(self.written):
            self.writer.lacking += 1

    def free(self, reader: int) -> bool:
        """Let a reader give its oldest frame back; return whether that freed a slot."""
        before = self.read[reader]
        after = self.steps[reader].after(before) if self._are_skipped else before + 1
        self.read[reader] = after
        stage = self.waiting[reader]
        if stage is not None and after >= self.written:
            stage.lacking += 1
        was_full = not self.has_room_for(self.written)
        is_one = after == before + 1
        is_freed = self._slowest.step(before) if is_one else self._slowest.climb(before, after)
        if is_freed and was_full and self.writer is not None:
            self.writer.has_one_more()
        return is_freed

    def free_up_to(self, reader: int, count: int) -> bool:
        """Let a reader give the frames before one back; return whether that freed a slot."""
        is_freed = False
        while self.read[reader] < count:
            is_freed |= self.free(reader)
        return is_freed


Inputs: TypeAlias = list[tuple[Ring, int]]
"""Rings, each with the number of the reader."""


@dataclass(slots=True, eq=False)
class SimulatedStage:
    """What takes and makes tensors: a segment, the source, or the sink.

    It may leave frames out, and ranks in turn may make its inputs.
    """

    index: int = 0
    rank: Rank | None = None
    """Of a segment."""
    frame: int = 0
    """The next one."""
    times: list[float] = field(default_factory=list)
    """Of its frames, in seconds, and again from the beginning."""
    inputs: Inputs = field(default_factory=list)
    """For each tensor, the ring with the next frame."""
    makers: list[Inputs] = field(default_factory=list)
    """For each tensor, the rings of all who make it."""
    outputs: list[Ring] = field(default_factory=list)
    lacking: int = 0
    """Inputs whose next frame is not there, and outputs without room."""
    steps: Steps = EACH

    def reads(self, makers: Inputs) -> None:
        for ring, reader in makers:
            ring.readers[reader] = self
        ring, reader = min(makers, key=_next_frame)
        ring.waiting[reader] = self
        self.inputs.append((ring, reader))
        self.makers.append(makers)
        self.lacking += 1

    def writes(self, ring: Ring) -> None:
        self.outputs.append(ring)
        ring.writer = self

    @property
    def all_inputs(self) -> Inputs:
        return [pair for makers in self.makers for pair in makers]

    def waits(self) -> int:
        return min(sum(ring.waits(reader) for ring, reader in makers) for makers in self.makers)

    def go_on(self) -> list[Ring]:
        """Be done with a frame's inputs; return the rings in which that freed a slot."""
        freed = [ring for ring, reader in self.inputs if ring.free(reader)]
        for number, makers in enumerate(self.makers):
            if len(makers) > 1:
                self._take_from(number, *min(makers, key=_next_frame))
        before, self.frame = self.frame, self.steps.after(self.frame)
        if self.rank is not None:
            self.rank.frames.climb(before, self.frame)
        return freed

    def _take_from(self, number: int, ring: Ring, reader: int) -> None:
        """Take the next frame of an input from a ring."""
        before, index = self.inputs[number]
        self.lacking -= before.read[index] >= before.written
        before.waiting[index] = None
        self.inputs[number] = ring, reader
        ring.waiting[reader] = self
        self.lacking += ring.read[reader] >= ring.written

    def has_one_more(self) -> None:
        """Take note of an input that has come, or of an output that has room."""
        self.lacking -= 1
        self.line_up()

    def line_up(self) -> None:
        """Stand among the segments of its rank that are ready, if it is."""
        if not self.lacking and self.rank is not None:
            heappush(self.rank.ready, (self.frame, self.index, self))


def _next_frame(pair: tuple[Ring, int]) -> int:
    ring, reader = pair
    return ring.turns.frame(ring.read[reader])


@dataclass(slots=True)
class Core:
    """A core that several ranks use: one at a time."""

    is_taken: bool = False
    waiting: list[Rank] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Rank:
    """A rank: one thread that computes."""

    number: int
    turns: Turns = ALL
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

    channel: int
    sender: Rank
    receiver: Rank
    origin: Ring
    reader: int
    """Its number among the readers of ``origin``."""
    target: Ring
    """Inside a board, what the receiver knows of ``origin``."""
    carried: Turns
    """The frames of the stream that it carries."""
    link_s: list[float]
    """How long messages take of each port, one by one, and again from the beginning."""
    latency_s: float
    """Of the link; inside a board, how long the receiver takes to wake up."""
    ports: tuple[Port, ...] | None
    """Out of one board and into another; ``None`` inside a board."""
    jumps: tuple[int, ...]
    """From a frame of ``origin`` that is sent to the next, as in ``Steps``; empty: all are sent.
    Inside a board they are: those who read leave frames out."""
    next: int
    """The frame of ``origin`` that is to be sent next."""
    sent: int = 0
