"""An event simulation of a job: frames pass ranks, channels and the window.

It follows the runtime, but for computing, which takes a given time:

* A rank has one thread that computes. It runs a segment when all inputs of the segment's next
  frame are there and each output has a free slot; of several that are ready, the one with the
  oldest frame. Ranks that share cores take turns on them.
* A tensor has as many slots as the runtime gives it. Between boards a channel carries a frame when
  the sender has it and the receiver has a free slot; inside a board the receiver reads the sender's
  slot, and gives it back when it is done. So a slow rank holds up those before it.
* Ranks that take turns handle the frames that the plan says. A channel carries those that both of
  its ends handle, and who reads what several ranks make takes each frame from the one that made it.
* The source lets a frame in while fewer than ``window`` are inside; the sink sends a credit for
  each frame that comes out. On a CPU rank of a single core frames that do not come by the clock
  are let in by the thread that computes, once it has nothing to compute.
* Messages between boards take turns on each board's link, each direction for itself: bytes over
  bandwidth, then the latency. Where sizes are open, each frame has its own. Inside a board a rank
  sees a frame once it has woken up.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.pipeline.wiring import threadless_stages
from rankslice.exploration.problem.links import LinkSpeeds
from rankslice.exploration.problem.overheads import NO_OVERHEADS, Overheads
from rankslice.exploration.simulator.assembly import Parts, SentBytes, assemble
from rankslice.exploration.simulator.figures import (
    LinkUse,
    RankUse,
    Simulation,
    Step,
    latency_summary,
)
from rankslice.exploration.simulator.parts import Pipe, Rank, SimulatedStage, SkippedRing
from rankslice.framework.plan import Plan
from rankslice.measurement.throughput import throughput_fps

Times: TypeAlias = NDArray[np.float64]


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


def simulate(
    plan: Plan,
    compute_s: Sequence[Times],
    links: LinkSpeeds,
    *,
    frames: int = 100,
    arrivals: Arrivals | None = None,
    window: int | None = None,
    overheads: Overheads = NO_OVERHEADS,
    traced: int = 0,
    sent_bytes: SentBytes = MappingProxyType({}),
) -> Simulation:
    """Return what a job would show; the same arguments give the same answer.

    Args:
        plan: ranks, segments and channels.
        compute_s: by segment of the plan: its times, frame by frame and again from the beginning;
            one time is the same for every frame. All in seconds. A rank that does not handle every
            frame takes for each that it handles the time of its number.
        links: the links between the boards of the plan's ranks.
        frames: how many come, if not by the clock: each as soon as it is let in.
        arrivals: frames that come by the clock.
        window: most frames inside; the plan's by default.
        overheads: processor time of a rank besides computing.
        traced: for how many frames from the first the steps are kept.
        sent_bytes: sizes of messages with open sizes, by frame; by default those of the bounds.
    """
    come = frames if arrivals is None else len(arrivals.times_s)
    parts = assemble(plan, compute_s, links, window or plan.window, overheads, sent_bytes, come)
    machine = _Machine(plan, parts, links, window or plan.window, traced)
    machine.run(frames, arrivals)
    return machine.outcome()


class _Machine:
    """All parts of a simulated job, and the events to come."""

    def __init__(
        self,
        plan: Plan,
        parts: Parts,
        links: LinkSpeeds,
        window: int,
        traced: int,
    ) -> None:
        self.plan, self.window, self.traced = plan, window, traced
        self.parts = parts
        self.now = 0.0
        self.events: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self.count = 0
        self.joined_source: Rank | None = None
        """The rank whose thread that computes lets frames in, too."""
        self.waiting: deque[float] = deque()
        """When the frames came that wait to be let in."""
        self.waiting_max = self.found_waiting = 0
        self.dropped: list[int] = []
        self.left = 0
        self.entered = 0
        self.credited = 0
        self.arrived_s: list[float] = []
        self.latencies_s: list[float] = []
        self.completed_s: list[float] = []
        self.steps: list[Step] = []
        self.credit_s = 0.0
        if plan.sink != plan.source:
            ends = plan.ranks[plan.sink].board, plan.ranks[plan.source].board
            self.credit_s = float(links.figures([ends])[1][0])
        self._connect()

    def _connect(self) -> None:
        """Register who waits for each ring."""
        parts = self.parts
        for ring, _ in parts.sink.all_inputs:
            ring.on_written.append(self._try_sink)
        for ring in parts.source.outputs:
            ring.on_freed.append(self._try_source)
        for ring, rank in {pipe.origin: pipe.sender for pipe in parts.pipes}.items():
            ring.on_freed.append(partial(self._try_rank, rank))
        for pipe in parts.pipes:
            advance = partial(self._try_pipe, pipe)
            pipe.origin.on_written.append(advance)
            pipe.target.on_freed.append(advance if pipe.ports else self._giving_back(pipe))
            pipe.target.on_written.append(partial(self._try_rank, pipe.receiver))

    def _giving_back(self, pipe: Pipe) -> Callable[[], None]:
        """Return what gives the slots back that a receiver reads itself."""
        skips = isinstance(pipe.target, SkippedRing)
        return partial(self._give_back_to if skips else self._give_back, pipe)

    def _at(self, time_s: float, action: Callable[[Any], None], about: Any) -> None:
        self.count += 1
        heapq.heappush(self.events, (time_s, self.count, action, about))

    def run(self, frames: int, arrivals: Arrivals | None) -> None:
        """Let all frames through."""
        self.frames = frames
        if arrivals is None:
            self.left = frames
            source = self.plan.source
            if "source" in threadless_stages(self.parts.job.ranks[source], is_timed=False):
                self.joined_source = self.parts.ranks[source]
        else:
            self.frames = len(arrivals.times_s)
            for number, time_s in enumerate(arrivals.times_s.tolist()):
                self._at(time_s, partial(self._arrive, arrivals.queue), number)
        self._try_source()
        events, pop = self.events, heapq.heappop
        while events:
            self.now, _, action, about = pop(events)
            action(about)

    def _arrive(self, queue: int, number: int) -> None:
        self.found_waiting += len(self.waiting)
        if len(self.waiting) >= queue:
            self.dropped.append(number)
            return
        self.waiting.append(self.now)
        self._try_source()
        self.waiting_max = max(self.waiting_max, len(self.waiting))

    def _try_source(self) -> None:
        while (self.left or self.waiting) and self._may_enter():
            if self.left:
                self.left -= 1
                self.arrived_s.append(self.now)
            else:
                self.arrived_s.append(self.waiting.popleft())
            self.entered += 1
            for ring in self.parts.source.outputs:
                ring.put()
                for tell in ring.on_written:
                    tell()
            self._try_rank(self.parts.ranks[self.plan.source])

    def _may_enter(self) -> bool:
        if self.entered - self.credited >= self.window:
            return False
        rank = self.joined_source
        if rank is not None and (rank.is_busy or rank.ready):
            return False
        return not self.parts.source.lacking

    def _try_rank(self, rank: Rank) -> None:
        if rank.is_busy:
            return
        if not rank.ready:
            if rank is self.joined_source:
                self._try_source()
            return
        if rank.cores and not self._take_cores(rank):
            return
        rank.is_busy = True
        stage = rank.take_ready()
        times = stage.times
        seconds = times[stage.frame % len(times)] if len(times) > 1 else times[0]
        rank.busy_s += seconds
        end_s = self.now + seconds
        if stage.frame < self.traced:
            self.steps.append(Step(rank.number, stage.index, stage.frame, self.now, end_s))
        self._at(end_s, self._finish, (rank, stage))

    def _finish(self, about: tuple[Rank, SimulatedStage]) -> None:
        rank, stage = about
        rank.is_busy = False
        rank.count_step(stage.waits() - 1)
        freed = stage.go_on()
        for ring in stage.outputs:
            ring.put()
        stage.line_up()
        if rank.cores:
            self._release_cores(rank)
        else:
            self._try_rank(rank)
        for ring in stage.outputs:
            for tell in ring.on_written:
                tell()
        for ring in freed:
            for tell in ring.on_freed:
                tell()

    def _take_cores(self, rank: Rank) -> bool:
        if any(core.is_taken for core in rank.cores):
            if not rank.is_waiting:
                rank.is_waiting = True
                for core in rank.cores:
                    core.waiting.append(rank)
            return False
        for core in rank.cores:
            core.is_taken = True
        return True

    def _release_cores(self, rank: Rank) -> None:
        """Free a rank's cores, and let those that wait go on, the oldest frame first."""
        waiting: dict[int, Rank] = {}
        for core in rank.cores:
            core.is_taken = False
            waiting |= {other.number: other for other in core.waiting}
        for other in waiting.values():
            other.is_waiting = False
            for core in other.cores:
                if other in core.waiting:
                    core.waiting.remove(other)
        waiting[rank.number] = rank
        for other in sorted(waiting.values(), key=lambda other: other.frames.lowest):
            self._try_rank(other)

    def _try_pipe(self, pipe: Pipe) -> None:
        origin, target = pipe.origin, pipe.target
        while pipe.next < origin.written and target.has_room_for(pipe.sent):
            link_s = pipe.link_s[pipe.sent % len(pipe.link_s)]
            pipe.sent += 1
            pipe.next += pipe.jumps[pipe.next % len(pipe.jumps)] if pipe.jumps else 1
            there_s = self.now
            if pipe.ports is not None:
                out, into = pipe.ports
                passed_s = out.take(self.now, link_s)
                # What leaves one board enters the other meanwhile, unless that one is taken.
                there_s = into.take(passed_s - link_s, link_s)
            self._at(there_s + pipe.latency_s, self._arrive_by_pipe, pipe)

    def _arrive_by_pipe(self, pipe: Pipe) -> None:
        pipe.target.put()
        for tell in pipe.target.on_written:
            tell()
        if pipe.ports is not None:
            self._give_back(pipe)
            self._try_pipe(pipe)

    def _give_back(self, pipe: Pipe) -> None:
        for tell in pipe.origin.on_freed if pipe.origin.free(pipe.reader) else ():
            tell()

    def _give_back_to(self, pipe: Pipe) -> None:
        """Give back all that the receiver is done with: its readers leave frames out."""
        origin = pipe.origin
        for tell in origin.on_freed if origin.free_up_to(pipe.reader, pipe.target.slowest) else ():
            tell()

    def _try_sink(self) -> None:
        while not self.parts.sink.lacking:
            self.completed_s.append(self.now)
            self._at(self.now + self.credit_s, self._credit, None)
            for ring in self.parts.sink.go_on():
                for tell in ring.on_freed:
                    tell()
            self._try_rank(self.parts.ranks[self.plan.sink])

    def _credit(self, _: Any) -> None:
        self.latencies_s.append(self.now - self.arrived_s[self.credited])
        self.credited += 1
        self._try_source()

    def outcome(self) -> Simulation:
        """Return what all this showed."""
        completed = np.array(self.completed_s)
        latencies = np.array(self.latencies_s)
        duration = self.completed_s[-1] - self.arrived_s[0] if self.completed_s else 0.0
        rate, rate_of = throughput_fps(completed, self.window)
        return Simulation(
            frames=self.frames,
            completed=len(completed),
            dropped=tuple(self.dropped),
            window=self.window,
            throughput_fps=rate,
            throughput_of=rate_of,
            latency_ms=latency_summary(latencies),
            waiting_mean=self.found_waiting / max(1, self.frames),
            waiting_max=self.waiting_max,
            ranks=tuple(self._rank_use(rank, duration) for rank in self.parts.ranks),
            links=tuple(
                LinkUse(board, is_outgoing, port.messages, _share(port.busy_s, duration))
                for (board, is_outgoing), port in self.parts.ports.items()
            ),
            duration_s=duration,
            steps=tuple(self.steps),
            completed_s=completed,
            latencies_s=latencies,
        )

    def _rank_use(self, rank: Rank, duration_s: float) -> RankUse:
        handled = rank.steps // max(1, len(rank.stages))
        return RankUse(
            rank=rank.number,
            key=self.plan.ranks[rank.number].key,
            busy_ms=1e3 * rank.busy_s / max(1, handled),
            utilisation=_share(rank.busy_s, duration_s),
            queue_mean=rank.queued / max(1, rank.steps),
            queue_max=rank.queued_max,
        )


def _share(part_s: float, whole_s: float) -> float:
    return min(1.0, part_s / whole_s) if whole_s else 0.0
