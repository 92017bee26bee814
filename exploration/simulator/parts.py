"""The parts of a simulated job, and how a plan puts them together as the runtime does."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.problem.links import LinkSpeeds
from rankslice.exploration.problem.problem import Overheads
from rankslice.framework.engines import computes
from rankslice.framework.mapping import Placement
from rankslice.framework.plan import Channel, Plan
from rankslice.framework.rings import rings_of

__all__ = ["Inputs", "Parts", "Pipe", "Port", "Rank", "Ring", "SimulatedStage", "parts_of"]


class Counters:
    """Counters that go up one by one: tells the lowest of them without looking at all."""

    __slots__ = ("_passed", "count", "lowest")

    def __init__(self) -> None:
        self.count = 0
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

    Stages are told what they wait for, so that none has to look at all of its rings again.
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

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.written = 0
        self.read: list[int] = []
        self.readers: list[SimulatedStage | None] = []
        """By place; ``None``: a channel."""
        self.writer: SimulatedStage | None = None
        """``None``: a channel."""
        self.on_written: list[Callable[[], None]] = []
        self.on_freed: list[Callable[[], None]] = []
        self._slowest = Counters()

    def reader(self, stage: SimulatedStage | None) -> int:
        """Add a reader; return its place."""
        self.read.append(0)
        self.readers.append(stage)
        self._slowest.count += 1
        if stage is not None:
            stage.lacking += 1
        return len(self.read) - 1

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

    def free(self, place: int) -> bool:
        """Let a reader give its oldest frame back; return whether that freed a slot."""
        before = self.read[place]
        self.read[place] = before + 1
        stage = self.readers[place]
        if stage is not None and before + 1 == self.written:
            stage.lacking += 1
        was_full = not self.has_room_for(self.written)
        is_freed = self._slowest.step(before)
        if is_freed and was_full and self.writer is not None:
            self.writer.has_one_more()
        return is_freed


Inputs: TypeAlias = list[tuple[Ring, int]]


class SimulatedStage:
    """What takes and makes tensors: a segment, the source, or the sink."""

    __slots__ = ("frame", "index", "inputs", "lacking", "outputs", "ready", "times")

    def __init__(self, index: int, times: list[float], ready: Ready | None = None) -> None:
        self.index = index
        self.frame = 0
        self.times = times
        self.inputs: Inputs = []
        self.outputs: list[Ring] = []
        self.lacking = 0
        """Inputs whose next frame is not there, and outputs without room."""
        self.ready = ready
        """Where a segment stands once it lacks nothing."""

    def reads(self, ring: Ring) -> None:
        """Add an input."""
        self.inputs.append((ring, ring.reader(self)))

    def writes(self, ring: Ring) -> None:
        """Add an output."""
        self.outputs.append(ring)
        ring.writer = self

    def has_one_more(self) -> None:
        """Take note of an input that has come, or of an output that has room."""
        self.lacking -= 1
        self.line_up()

    def line_up(self) -> None:
        """Stand among those that are ready, if it is."""
        if not self.lacking and self.ready is not None:
            heappush(self.ready, (self.frame, self.index, self))


Ready: TypeAlias = list[tuple[int, int, SimulatedStage]]
"""Segments that could run, by frame and index: a heap."""


class Core:
    """A core that several ranks use: one at a time."""

    __slots__ = ("is_taken", "waiting")

    def __init__(self) -> None:
        self.is_taken = False
        self.waiting: list[Rank] = []


class Rank:
    """A rank: one thread that computes."""

    __slots__ = (
        "busy_s",
        "cores",
        "frames",
        "held_share",
        "is_busy",
        "is_waiting",
        "number",
        "queued",
        "queued_max",
        "ready",
        "stages",
        "steps",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.stages: list[SimulatedStage] = []
        self.ready: Ready = []
        self.frames = Counters()
        """The next frames of its stages."""
        self.is_busy = False
        self.is_waiting = False
        self.cores: list[Core] = []
        self.held_share = 1.0
        self.busy_s = 0.0
        self.steps = 0
        self.queued = 0
        self.queued_max = 0

    def count_step(self, queued: int) -> None:
        """Take note of a step, and of the frames that wait at its end."""
        self.steps += 1
        self.queued += queued
        if queued > self.queued_max:
            self.queued_max = queued

    def take_ready(self) -> SimulatedStage:
        """Return the stage that is ready and has the oldest frame; it is about to run."""
        return heappop(self.ready)[2]


class Port:
    """One direction of a board's link."""

    __slots__ = ("busy_s", "free_s", "messages")

    def __init__(self) -> None:
        self.free_s = 0.0
        self.busy_s = 0.0
        self.messages = 0

    def take(self, ready_s: float, carry_s: float) -> float:
        """Carry a message that is ready; return when its last byte has passed."""
        self.free_s = max(ready_s, self.free_s) + carry_s
        self.busy_s += carry_s
        self.messages += 1
        return self.free_s


@dataclass(slots=True)
class Pipe:
    """A channel."""

    source: int
    """Rank."""
    destination: int
    origin: Ring
    place: int
    target: Ring
    carry_s: float
    latency_s: float
    ports: tuple[Port, Port] | None
    """Out of one board and into another; ``None`` inside a board."""
    started: int = 0


@dataclass(frozen=True, slots=True)
class Parts:
    """All parts of a job."""

    ranks: list[Rank]
    rings: dict[tuple[int, str], Ring]
    """By rank and tensor."""
    source: SimulatedStage
    """Writes the model inputs, where frames enter."""
    sink: SimulatedStage
    """Reads the model outputs, where results leave."""
    pipes: list[Pipe]
    ports: dict[tuple[str, bool], Port]
    """By board, and whether messages leave it."""


def parts_of(
    plan: Plan,
    compute_s: Sequence[NDArray[np.float64]],
    links: LinkSpeeds,
    window: int,
    overheads: Overheads,
    host_shares: Mapping[int, float],
) -> Parts:
    """Return the parts of a job; the arguments are those of ``simulator.simulate``."""
    wiring = _Wiring(plan, links, window, overheads)
    wiring.make_stages(compute_s)
    pipes = [wiring.pipe(channel) for channel in plan.channels]
    source, sink = wiring.source(), wiring.sink()
    _share_cores(plan, wiring.ranks, host_shares)
    return Parts(
        wiring.ranks,
        wiring.rings,
        source,
        sink,
        pipes,
        dict(wiring.ports),
    )


class _Wiring:
    """Puts the parts together."""

    def __init__(self, plan: Plan, links: LinkSpeeds, window: int, overheads: Overheads) -> None:
        self.plan, self.links, self.overheads = plan, links, overheads
        self.ranks = [Rank(placement.rank) for placement in plan.ranks]
        self.rings = {(r.rank, r.tensor): Ring(r.slots) for r in rings_of(plan, window)}
        self.ports: dict[tuple[str, bool], Port] = defaultdict(Port)
        self._nbytes = {tensor.name: tensor.nbytes or 0 for tensor in plan.tensors}

    def make_stages(self, compute_s: Sequence[NDArray[np.float64]]) -> None:
        """Make a stage for each segment."""
        around = self._around()
        for number, segment in enumerate(self.plan.segments):
            rank = self.ranks[segment.rank]
            first = self.overheads.frame_s if not rank.stages else 0.0
            if computes(self.plan.ranks[segment.rank].engine):
                first += self.overheads.slice_s
            times = (np.atleast_1d(compute_s[number]) + around[number] + first).tolist()
            stage = SimulatedStage(segment.index, times, rank.ready)
            for name in segment.inputs:
                stage.reads(self.rings[segment.rank, name])
            for name in segment.outputs:
                stage.writes(self.rings[segment.rank, name])
            rank.stages.append(stage)
            rank.frames.count += 1

    def _around(self) -> list[float]:
        """Return what messages take of the cores of each segment, in seconds.

        The maker of a tensor pays for sending it, its first reader on a rank for receiving it. What
        no segment makes or reads is paid by the source's first segment and the sink's last.
        """
        segments = self.plan.segments
        around = [0.0] * len(segments)
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        makers: dict[str, int] = {}
        readers: dict[tuple[int, str], int] = {}
        for number, segment in enumerate(segments):
            first.setdefault(segment.rank, number)
            last[segment.rank] = number
            makers |= dict.fromkeys(segment.outputs, number)
            for name in segment.inputs:
                readers.setdefault((segment.rank, name), number)
        for channel in self.plan.channels:
            seconds = self._copy_s(channel) + self.overheads.message_s
            target = channel.destination, channel.tensor
            around[makers.get(channel.tensor, first[channel.source])] += seconds
            around[readers.get(target, last[channel.destination])] += seconds
        return around

    def _boards(self, channel: Channel) -> tuple[str, str]:
        ranks = self.plan.ranks
        return ranks[channel.source].board, ranks[channel.destination].board

    def _carry_s(self, channel: Channel) -> float:
        link = self.links.between(*self._boards(channel))
        return self._nbytes[channel.tensor] / (link.bandwidth_mbps * 1e6 / 8)

    def _copy_s(self, channel: Channel) -> float:
        origin, target = self._boards(channel)
        if origin == target:
            return self._carry_s(channel)
        return self._nbytes[channel.tensor] * self.overheads.network_s_per_byte

    def pipe(self, channel: Channel) -> Pipe:
        """Return a channel, its sending end registered as a reader of its ring."""
        boards = self._boards(channel)
        is_local = boards[0] == boards[1]
        origin = self.rings[channel.source, channel.tensor]
        return Pipe(
            channel.source,
            channel.destination,
            origin,
            origin.reader(None),
            self.rings[channel.destination, channel.tensor],
            0.0 if is_local else self._carry_s(channel),
            self.links.between(*boards).latency_ms / 1e3,
            None if is_local else (self.ports[boards[0], True], self.ports[boards[1], False]),
        )

    def source(self) -> SimulatedStage:
        """Return what writes the model inputs."""
        source = SimulatedStage(0, [])
        for name in self.plan.model.inputs:
            source.writes(self.rings[self.plan.source, name])
        return source

    def sink(self) -> SimulatedStage:
        """Return what reads the model outputs."""
        sink = SimulatedStage(0, [])
        for name in self.plan.model.outputs:
            sink.reads(self.rings[self.plan.sink, name])
        return sink


def _share_cores(plan: Plan, ranks: Sequence[Rank], host_shares: Mapping[int, float]) -> None:
    """Let ranks that have a core in common take turns on it."""
    users: dict[tuple[str, int], list[Rank]] = defaultdict(list)
    for placement, core in _held_cores(plan):
        rank = ranks[placement.rank]
        rank.held_share = host_shares.get(placement.rank, 1.0 if _computes(placement) else 0.0)
        if rank.held_share:
            users[placement.board, core].append(rank)
    for sharers in users.values():
        if len(sharers) > 1:
            shared = Core()
            for rank in sharers:
                rank.cores.append(shared)


def _held_cores(plan: Plan) -> Iterator[tuple[Placement, int]]:
    return ((placement, core) for placement in plan.ranks for core in placement.cores)


def _computes(placement: Placement) -> bool:
    """Tell whether a rank computes on its cores; those of the null engine sleep."""
    return placement.accelerator == "cpu" and computes(placement.engine)
