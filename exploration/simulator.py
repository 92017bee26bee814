"""A job without its boards: frames go through ranks, channels and windows, event by event.

What the runtime does is done here, but for the computing, which takes as long as it is told:

* A rank has one thread that computes. It runs a segment when all inputs of the segment's next
  frame are there and each output has a free slot; of several that are ready, the one with the
  oldest frame. Ranks that share cores take turns on them.
* A tensor has as many slots as the runtime gives it. A channel carries a frame when the sender has
  it and the receiver has a free slot; so a slow rank holds up those before it.
* The source lets a frame in while fewer than ``window`` are inside; the sink sends a credit for
  each frame that comes out.
* Messages between boards take turns on each board's link, each direction for itself: bytes over
  bandwidth, then the latency. Messages inside a board are copied by the cores of both ranks.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.links import Network
from rankslice.exploration.problem import NO_OVERHEADS, Overheads
from rankslice.framework.plan import Channel, Plan

__all__ = [
    "Arrivals",
    "LinkUse",
    "RankUse",
    "Simulation",
    "Step",
    "at_rate",
    "jittered",
    "sampled",
    "simulate",
]

Times: TypeAlias = NDArray[np.float64]

_LEAST_WARM_UP = 10
_PERCENTS = (50, 90, 99)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Frames that come by the clock."""

    times_s: Times
    """When each frame arrives, ascending."""
    queue: int
    """How many may wait for room; further ones are dropped."""


def at_rate(frames: int, fps: float) -> Times:
    """Return when frames arrive that come at a rate, from 0, in seconds."""
    return np.arange(frames) / fps


def jittered(seconds: float, variation: float, frames: int, random: np.random.Generator) -> Times:
    """Return times that scatter around a mean, (frames,), in seconds.

    Args:
        seconds: the mean.
        variation: standard deviation over mean; they are distributed by a gamma distribution.
        frames: how many.
        random: draws them.
    """
    if variation == 0 or seconds == 0:
        return np.full(1, seconds)
    shape = 1 / variation**2
    return random.gamma(shape, seconds / shape, frames)


def sampled(seconds: float, samples: Times, frames: int, random: np.random.Generator) -> Times:
    """Return measured times in another order, (frames,), scaled to a median, in seconds."""
    return random.choice(samples, frames) * (seconds / float(np.median(samples)))


@dataclass(frozen=True, slots=True)
class Step:
    """One run of a segment."""

    rank: int
    segment: int
    """Index within the rank."""
    frame: int
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class RankUse:
    """What a rank did."""

    rank: int
    key: str
    busy_ms: float
    """Mean time for each frame, messages and runtime included."""
    utilisation: float
    """Share of the time from the first frame to the last in which it was busy, from 0 to 1."""
    queue_mean: float
    """Frames that wait in its slots when it is done with one, on average."""
    queue_max: int


@dataclass(frozen=True, slots=True)
class LinkUse:
    """What one direction of a board's link did."""

    board: str
    is_outgoing: bool
    messages: int
    utilisation: float


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a simulated job showed."""

    frames: int
    """How many arrived."""
    completed: int
    dropped: tuple[int, ...]
    """Arrivals that found no room, by number."""
    window: int
    throughput_fps: float
    throughput_of: str
    """``steady state``, or ``all frames`` where there were too few to leave the start out."""
    latency_ms: dict[str, float]
    """``mean``, ``p50``, ``p90``, ``p99`` and ``max``, from arrival to completion."""
    waiting_mean: float
    """Frames that an arriving frame found waiting at the source, on average."""
    waiting_max: int
    """Most frames that waited at the source."""
    ranks: tuple[RankUse, ...]
    links: tuple[LinkUse, ...]
    """Those that carried something."""
    duration_s: float
    """From the first arrival to the last completion."""
    steps: tuple[Step, ...]
    """Of the first frames, as far as they were asked for."""
    completed_s: Times
    """When each frame came out, in seconds."""
    latencies_s: Times
    """Of each frame that came out, in order."""

    def to_json(self) -> dict[str, Any]:
        """Return the record for ``--json``; without the single frames."""
        plain = {
            name: getattr(self, name)
            for name in ("frames", "completed", "window", "throughput_fps", "throughput_of")
        }
        return {
            **plain,
            "dropped": list(self.dropped),
            "latency_ms": self.latency_ms,
            "waiting_mean": self.waiting_mean,
            "waiting_max": self.waiting_max,
            "duration_s": self.duration_s,
            "ranks": [
                {name: getattr(rank, name) for name in RankUse.__dataclass_fields__}
                for rank in self.ranks
            ],
            "links": [
                {name: getattr(link, name) for name in LinkUse.__dataclass_fields__}
                for link in self.links
            ],
        }


def simulate(
    plan: Plan,
    compute_s: Sequence[Times],
    network: Network,
    *,
    frames: int = 100,
    arrivals: Arrivals | None = None,
    window: int | None = None,
    overheads: Overheads = NO_OVERHEADS,
    host_shares: Mapping[int, float] | None = None,
    source_s: float = 0.0,
    sink_s: float = 0.0,
    traced: int = 0,
) -> Simulation:
    """Return what a job would show; the same arguments give the same answer.

    Args:
        plan: ranks, segments and channels.
        compute_s: by segment of the plan: its times, frame by frame and again from the beginning;
            one time is the same for every frame. All in seconds.
        network: the links between the boards of the plan's ranks.
        frames: how many come, if not by the clock: each as soon as it is let in.
        arrivals: frames that come by the clock.
        window: most frames inside; the plan's by default.
        overheads: processor time of a rank besides computing.
        host_shares: by rank: share of its time in which it keeps its cores busy; by default 1 of
            a CPU, and 0 of a GPU, an NPU, or the ``null`` engine, which sleeps.
        source_s: time to read a frame, in a thread of its own on no particular core.
        sink_s: time to take a result, likewise.
        traced: for how many frames from the first the steps are kept.
    """
    machine = _Machine(
        plan, compute_s, network, window or plan.window, overheads, host_shares or {}, traced
    )
    machine.source_s, machine.sink_s = source_s, sink_s
    machine.run(frames, arrivals)
    return machine.outcome()


class _Ring:
    """Slots of one tensor on one rank: counters alone."""

    __slots__ = ("depth", "on_freed", "on_written", "read", "written")

    def __init__(self) -> None:
        self.depth = 1
        self.written = 0
        self.read: list[int] = []
        self.on_written: list[Callable[[], None]] = []
        self.on_freed: list[Callable[[], None]] = []

    def reader(self) -> int:
        self.read.append(0)
        return len(self.read) - 1

    def has_room(self) -> bool:
        return not self.read or self.written - min(self.read) < self.depth


_Inputs: TypeAlias = list[tuple[_Ring, int]]


class _Stage:
    """A segment."""

    __slots__ = ("frame", "index", "inputs", "outputs", "times")

    def __init__(self, index: int, times: list[float]) -> None:
        self.index = index
        self.frame = 0
        self.times = times
        self.inputs: _Inputs = []
        self.outputs: list[_Ring] = []

    def is_ready(self) -> bool:
        for ring, place in self.inputs:
            if ring.read[place] >= ring.written:
                return False
        for ring in self.outputs:
            if ring.read and ring.written - min(ring.read) >= ring.depth:
                return False
        return True


class _Core:
    """A core that several ranks use: one at a time."""

    __slots__ = ("is_taken", "waiting")

    def __init__(self) -> None:
        self.is_taken = False
        self.waiting: list[_Rank] = []


class _Rank:
    """A rank: one thread that computes."""

    __slots__ = (
        "busy_s",
        "cores",
        "held_share",
        "is_busy",
        "is_waiting",
        "number",
        "queued",
        "queued_max",
        "stages",
        "steps",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.stages: list[_Stage] = []
        self.is_busy = False
        self.is_waiting = False
        self.cores: list[_Core] = []
        self.held_share = 1.0
        self.busy_s = 0.0
        self.steps = 0
        self.queued = 0
        self.queued_max = 0

    def count_step(self, queued: int) -> None:
        self.steps += 1
        self.queued += queued
        if queued > self.queued_max:
            self.queued_max = queued

    def next_ready(self) -> _Stage | None:
        best: _Stage | None = None
        for stage in self.stages:
            if (best is None or stage.frame < best.frame) and stage.is_ready():
                best = stage
        return best


class _Port:
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
class _Pipe:
    """A channel."""

    origin: _Ring
    place: int
    target: _Ring
    carry_s: float
    latency_s: float
    ports: tuple[_Port, _Port] | None
    """Out of one board and into another; ``None`` inside a board."""
    started: int = 0


class _Machine:
    """All parts of a simulated job, and the events to come."""

    def __init__(
        self,
        plan: Plan,
        compute_s: Sequence[Times],
        network: Network,
        window: int,
        overheads: Overheads,
        host_shares: Mapping[int, float],
        traced: int,
    ) -> None:
        self.plan, self.network, self.window, self.traced = plan, network, window, traced
        self.overheads = overheads
        self.now = 0.0
        self.events: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self.count = 0
        self.source_s = self.sink_s = 0.0
        self.nbytes = {tensor.name: tensor.nbytes or 0 for tensor in plan.tensors}
        self.boards = [rank.board for rank in plan.ranks]
        self.ports: dict[tuple[str, bool], _Port] = defaultdict(_Port)
        self.ranks = [_Rank(placement.rank) for placement in plan.ranks]
        self.rings: dict[tuple[int, str], _Ring] = {}
        self.levels: dict[int, tuple[int, list[int]]] = {}
        self._wire(compute_s)
        self._share_cores(host_shares)
        self.waiting: deque[tuple[int, float]] = deque()
        self.waiting_max = self.found_waiting = 0
        self.dropped: list[int] = []
        self.is_pulled = True
        self.left = 0
        self.entered = 0
        self.credited = 0
        self.is_reading = False
        self.is_writing = False
        self.taken = 0
        self.arrived_s: list[float] = []
        self.latencies_s: list[float] = []
        self.completed_s: list[float] = []
        self.steps: list[Step] = []
        self.credit_s = network.between(self.boards[plan.sink], self.boards[plan.source]).latency_ms
        self.credit_s = 0.0 if plan.sink == plan.source else self.credit_s / 1e3

    # Setting up.

    def _ring(self, rank: int, tensor: str, level: int) -> _Ring:
        ring = self.rings[rank, tensor] = _Ring()
        self.levels[id(ring)] = (level, [])
        return ring

    def _reader(self, ring: _Ring, level: int) -> int:
        self.levels[id(ring)][1].append(level)
        return ring.reader()

    def _wire(self, compute_s: Sequence[Times]) -> None:
        """Make rings, stages and channels as the runtime does."""
        plan = self.plan
        level_of = dict.fromkeys(plan.model.inputs, 0)
        for segment in plan.segments:
            level_of.update(dict.fromkeys(segment.outputs, segment.level))
        self.source_rings = [self._ring(plan.source, name, 0) for name in plan.model.inputs]
        for segment in plan.segments:
            for name in segment.outputs:
                self._ring(segment.rank, name, segment.level)
        for channel in plan.channels:
            self._ring(channel.destination, channel.tensor, level_of[channel.tensor] + 1)
        self._make_stages(compute_s)
        for channel in plan.channels:
            self._make_pipe(channel, level_of[channel.tensor] + 1)
        self.sink_inputs: _Inputs = []
        for name in plan.model.outputs:
            ring = self.rings[plan.sink, name]
            self.sink_inputs.append((ring, self._reader(ring, plan.path_length + 1)))
            ring.on_written.append(self._try_sink)
        for ring in self.source_rings:
            ring.on_freed.append(self._try_source)
        for ring in self.rings.values():
            level, readers = self.levels[id(ring)]
            ring.depth = min(self.window, max(readers, default=level) - level + 1)

    def _make_stages(self, compute_s: Sequence[Times]) -> None:
        around = self._around()
        for number, segment in enumerate(self.plan.segments):
            rank = self.ranks[segment.rank]
            first = self.overheads.frame_s if not rank.stages else 0.0
            times = (np.atleast_1d(compute_s[number]) + around[number] + first).tolist()
            stage = _Stage(segment.index, times)
            for name in segment.inputs:
                ring = self.rings[segment.rank, name]
                stage.inputs.append((ring, self._reader(ring, segment.level)))
            stage.outputs = [self.rings[segment.rank, name] for name in segment.outputs]
            rank.stages.append(stage)

    def _around(self) -> list[float]:
        """Return what messages take of the cores of each segment, in seconds."""
        plan = self.plan
        around = [0.0] * len(plan.segments)
        maker = {name: n for n, s in enumerate(plan.segments) for name in s.outputs}
        readers: dict[tuple[int, str], int] = {}
        last: dict[int, int] = {}
        for number, segment in enumerate(plan.segments):
            last[segment.rank] = number
            for name in segment.inputs:
                readers.setdefault((segment.rank, name), number)
        for channel in plan.channels:
            seconds = self._copy_s(channel) + self.overheads.message_s
            origin = maker.get(channel.tensor)
            if origin is None:  # a model input: the source's first segment pays
                origin = next(n for n, s in enumerate(plan.segments) if s.rank == channel.source)
            around[origin] += seconds
            target = (channel.destination, channel.tensor)
            around[readers.get(target, last[channel.destination])] += seconds
        return around

    def _is_local(self, channel: Channel) -> bool:
        return self.boards[channel.source] == self.boards[channel.destination]

    def _carry_s(self, channel: Channel) -> float:
        link = self.network.between(self.boards[channel.source], self.boards[channel.destination])
        return self.nbytes[channel.tensor] / (link.bandwidth_mbps * 1e6 / 8)

    def _copy_s(self, channel: Channel) -> float:
        return self._carry_s(channel) if self._is_local(channel) else 0.0

    def _make_pipe(self, channel: Channel, level: int) -> None:
        origin = self.rings[channel.source, channel.tensor]
        target = self.rings[channel.destination, channel.tensor]
        boards = self.boards[channel.source], self.boards[channel.destination]
        ports = None
        if not self._is_local(channel):
            ports = self.ports[boards[0], True], self.ports[boards[1], False]
        pipe = _Pipe(
            origin,
            self._reader(origin, level),
            target,
            0.0 if ports is None else self._carry_s(channel),
            self.network.between(*boards).latency_ms / 1e3,
            ports,
        )

        def advance() -> None:
            self._try_pipe(pipe)

        def sender_may_go_on() -> None:
            self._try_rank(self.ranks[channel.source])

        def receiver_may_go_on() -> None:
            self._try_rank(self.ranks[channel.destination])

        origin.on_written.append(advance)
        origin.on_freed.append(sender_may_go_on)
        target.on_freed.append(advance)
        target.on_written.append(receiver_may_go_on)

    def _share_cores(self, host_shares: Mapping[int, float]) -> None:
        users: dict[tuple[str, int], list[_Rank]] = defaultdict(list)
        for placement in self.plan.ranks:
            rank = self.ranks[placement.rank]
            # Ranks of the null engine sleep: their cores are free meanwhile.
            computes = placement.accelerator == "cpu" and placement.engine != "null"
            rank.held_share = host_shares.get(placement.rank, 1.0 if computes else 0.0)
            if rank.held_share:
                for core in placement.cores:
                    users[placement.board, core].append(rank)
        for ranks in users.values():
            if len(ranks) > 1:
                shared = _Core()
                for rank in ranks:
                    rank.cores.append(shared)

    # Running.

    def _at(self, time_s: float, action: Callable[[Any], None], about: Any) -> None:
        self.count += 1
        heapq.heappush(self.events, (time_s, self.count, action, about))

    def run(self, frames: int, arrivals: Arrivals | None) -> None:
        """Let all frames through."""
        self.arrivals = arrivals
        if arrivals is None:
            self.left = frames
        else:
            self.is_pulled = False
            frames = len(arrivals.times_s)
            for number, time_s in enumerate(arrivals.times_s.tolist()):
                self._at(time_s, self._arrive, number)
        self.frames = frames
        self._try_source()
        events, pop = self.events, heapq.heappop
        while events:
            self.now, _, action, about = pop(events)
            action(about)

    def _arrive(self, number: int) -> None:
        assert self.arrivals is not None
        self.found_waiting += len(self.waiting)
        if len(self.waiting) >= self.arrivals.queue:
            self.dropped.append(number)
            return
        self.waiting.append((number, self.now))
        self._try_source()
        self.waiting_max = max(self.waiting_max, len(self.waiting))

    def _try_source(self) -> None:
        while not self.is_reading and self._has_next() and self._may_enter():
            if self.is_pulled:
                self.left -= 1
                self.arrived_s.append(self.now)
            else:
                self.arrived_s.append(self.waiting.popleft()[1])
            if self.source_s:
                self.is_reading = True
                self._at(self.now + self.source_s, self._read, None)
            else:
                self._let_in()

    def _has_next(self) -> bool:
        return self.left > 0 if self.is_pulled else bool(self.waiting)

    def _may_enter(self) -> bool:
        if self.entered - self.credited >= self.window:
            return False
        return all(ring.has_room() for ring in self.source_rings)

    def _read(self, _: Any) -> None:
        self.is_reading = False
        self._let_in()
        self._try_source()

    def _let_in(self) -> None:
        self.entered += 1
        for ring in self.source_rings:
            self._put(ring)
        self._try_rank(self.ranks[self.plan.source])

    def _put(self, ring: _Ring) -> None:
        ring.written += 1
        for tell in ring.on_written:
            tell()

    def _free(self, ring: _Ring, place: int) -> None:
        ring.read[place] += 1
        for tell in ring.on_freed:
            tell()

    def _try_rank(self, rank: _Rank) -> None:
        if rank.is_busy:
            return
        stage = rank.next_ready()
        if stage is None:
            return
        if rank.cores and not self._take_cores(rank):
            return
        rank.is_busy = True
        times = stage.times
        seconds = times[stage.frame % len(times)] if len(times) > 1 else times[0]
        rank.busy_s += seconds
        end_s = self.now + seconds
        if stage.frame < self.traced:
            self.steps.append(Step(rank.number, stage.index, stage.frame, self.now, end_s))
        if rank.cores and rank.held_share < 1:
            self._at(self.now + rank.held_share * seconds, self._release_cores, rank)
        self._at(end_s, self._finish, (rank, stage))

    def _finish(self, about: tuple[_Rank, _Stage]) -> None:
        rank, stage = about
        rank.is_busy = False
        rank.count_step(min(ring.written - ring.read[place] for ring, place in stage.inputs) - 1)
        stage.frame += 1
        for ring, place in stage.inputs:
            ring.read[place] += 1
        for ring in stage.outputs:
            ring.written += 1
        if rank.cores and rank.held_share >= 1:
            self._release_cores(rank)
        else:
            self._try_rank(rank)
        for ring in stage.outputs:
            for tell in ring.on_written:
                tell()
        for ring, _ in stage.inputs:
            for tell in ring.on_freed:
                tell()

    def _take_cores(self, rank: _Rank) -> bool:
        if any(core.is_taken for core in rank.cores):
            if not rank.is_waiting:
                rank.is_waiting = True
                for core in rank.cores:
                    core.waiting.append(rank)
            return False
        for core in rank.cores:
            core.is_taken = True
        return True

    def _release_cores(self, rank: _Rank) -> None:
        """Free a rank's cores, and let those that wait go on, the oldest frame first."""
        waiting: dict[int, _Rank] = {}
        for core in rank.cores:
            core.is_taken = False
            waiting |= {other.number: other for other in core.waiting}
        for other in waiting.values():
            other.is_waiting = False
            for core in other.cores:
                if other in core.waiting:
                    core.waiting.remove(other)
        waiting[rank.number] = rank
        for other in sorted(waiting.values(), key=_oldest_frame):
            self._try_rank(other)

    def _try_pipe(self, pipe: _Pipe) -> None:
        origin, target = pipe.origin, pipe.target
        while pipe.started < origin.written and pipe.started - min(target.read) < target.depth:
            pipe.started += 1
            there_s = self.now
            if pipe.ports is not None:
                out, into = pipe.ports
                passed_s = out.take(self.now, pipe.carry_s)
                # What leaves one board enters the other meanwhile, unless that one is taken.
                there_s = into.take(passed_s - pipe.carry_s, pipe.carry_s)
            self._at(there_s + pipe.latency_s, self._arrive_by_pipe, pipe)

    def _arrive_by_pipe(self, pipe: _Pipe) -> None:
        pipe.target.written += 1
        pipe.origin.read[pipe.place] += 1
        for tell in pipe.target.on_written:
            tell()
        for tell in pipe.origin.on_freed:
            tell()
        self._try_pipe(pipe)

    def _try_sink(self) -> None:
        while not self.is_writing and all(
            r.read[place] < r.written for r, place in self.sink_inputs
        ):
            if self.sink_s:
                self.is_writing = True
                self._at(self.now + self.sink_s, self._write, None)
            else:
                self._complete()

    def _has_result(self) -> bool:
        return all(ring.read[place] < ring.written for ring, place in self.sink_inputs)

    def _write(self, _: Any) -> None:
        self.is_writing = False
        self._complete()
        self._try_sink()

    def _complete(self) -> None:
        self.completed_s.append(self.now)
        self._at(self.now + self.credit_s, self._credit, None)
        for ring, place in self.sink_inputs:
            self._free(ring, place)
        self._try_rank(self.ranks[self.plan.sink])

    def _credit(self, _: Any) -> None:
        self.latencies_s.append(self.now - self.arrived_s[self.credited])
        self.credited += 1
        self._try_source()

    # Telling.

    def outcome(self) -> Simulation:
        """Return what all this showed."""
        completed = np.array(self.completed_s)
        latencies = np.array(self.latencies_s)
        duration = self.completed_s[-1] - self.arrived_s[0] if self.completed_s else 0.0
        rate, rate_of = _throughput_fps(completed, self.window)
        return Simulation(
            frames=self.frames,
            completed=len(completed),
            dropped=tuple(self.dropped),
            window=self.window,
            throughput_fps=rate,
            throughput_of=rate_of,
            latency_ms=_summary_ms(latencies),
            waiting_mean=self.found_waiting / max(1, self.frames),
            waiting_max=self.waiting_max,
            ranks=tuple(self._rank_use(rank, duration) for rank in self.ranks),
            links=tuple(
                LinkUse(board, is_outgoing, port.messages, _share(port.busy_s, duration))
                for (board, is_outgoing), port in self.ports.items()
            ),
            duration_s=duration,
            steps=tuple(self.steps),
            completed_s=completed,
            latencies_s=latencies,
        )

    def _rank_use(self, rank: _Rank, duration_s: float) -> RankUse:
        return RankUse(
            rank=rank.number,
            key=self.plan.ranks[rank.number].key,
            busy_ms=1e3 * rank.busy_s / max(1, len(self.completed_s)),
            utilisation=_share(rank.busy_s, duration_s),
            queue_mean=rank.queued / max(1, rank.steps),
            queue_max=rank.queued_max,
        )


def _oldest_frame(rank: _Rank) -> int:
    return min(stage.frame for stage in rank.stages)


def _share(part_s: float, whole_s: float) -> float:
    return min(1.0, part_s / whole_s) if whole_s else 0.0


def _throughput_fps(completed_s: Times, window: int) -> tuple[float, str]:
    """Return frames per second at the sink, and of what: as ``run`` counts them."""
    warm_up = max(window, _LEAST_WARM_UP)
    is_steady = len(completed_s) > 2 * warm_up
    counted = completed_s[warm_up - 1 :] if is_steady else completed_s
    elapsed = float(counted[-1] - counted[0]) if len(counted) else 0.0
    rate = (len(counted) - 1) / elapsed if elapsed > 0 else 0.0
    return rate, "steady state" if is_steady else "all frames"


def _summary_ms(seconds: Times) -> dict[str, float]:
    if not len(seconds):
        return dict.fromkeys(("mean", *(f"p{percent}" for percent in _PERCENTS), "max"), math.nan)
    milliseconds = 1e3 * seconds
    values = np.percentile(milliseconds, _PERCENTS).tolist()
    named = {f"p{percent}": value for percent, value in zip(_PERCENTS, values, strict=True)}
    return {"mean": float(milliseconds.mean()), **named, "max": float(milliseconds.max())}
