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
* Of two routes the source takes the one that the runtime's own decision names, which is asked when
  the runtime asks it: when frames arrive, come out, or could enter. It changes the route once
  nothing is inside.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.figures.events import (
    COMPUTE,
    FRAME,
    READ,
    RECEIVE,
    SEND,
    THREADS,
    WAIT,
    WRITE,
)
from rankslice.backend.runtime.pipeline.routes import UPDATE_PERIOD_S, RouteChoice, Switching
from rankslice.backend.runtime.pipeline.wiring import threadless_stages
from rankslice.backend.runtime.sources.switching import USUAL, Fixed, Observation
from rankslice.backend.runtime.summary.rates import throughput_fps
from rankslice.exploration.problem.runtime_costs import (
    NO_OVERHEADS,
    LinkSpeeds,
    Overheads,
    slot_bytes,
)
from rankslice.exploration.simulator.assembly import Parts, Ports, SentBytes, assemble
from rankslice.exploration.simulator.simulated_parts import Pipe, Rank, SimulatedStage
from rankslice.exploration.simulator.simulation import (
    LinkUse,
    RankUse,
    Simulation,
    latency_summary,
)
from rankslice.framework.plan import Plan
from rankslice.measurement.trace.trace_events import EVENTS, RankEvents, Trace

Times: TypeAlias = NDArray[np.float64]

_ALWAYS_USUAL = Fixed(USUAL)
_COMPUTES, _READS, _WRITES = map(THREADS.index, ("compute", "source", "sink"))


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
        variation: standard deviation over mean; they are distributed by a gamma distribution.
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
    switching: Switching = _ALWAYS_USUAL,
) -> Simulation:
    """Return what a job would show; the same arguments give the same answer.

    Args:
        compute_s: by segment of the plan, then of its route for a surge, if it has one: its times,
            frame by frame and again from the beginning; one time is the same for every frame. All
            in seconds. A rank that does not handle every frame takes for each that it handles the
            time of its number. Each of two routes counts its own frames.
        frames: how many come, if not by the clock: each as soon as it is let in.
        traced: for how many frames from the first the events are kept.
        sent_bytes: sizes of messages with open sizes, by frame; by default those of the bounds.
    """
    come = frames if arrivals is None else len(arrivals.times_s)
    ports: Ports = {}
    segments = iter(compute_s)
    routes = [
        assemble(
            route,
            [next(segments) for _ in route.segments],
            links,
            window or route.job.window,
            overheads,
            sent_bytes,
            come,
            ports,
        )
        for route in plan.routes
    ]
    machine = _Machine(plan, routes, ports, links, switching, traced)
    machine.read_s = overheads.read_s + overheads.read_s_per_byte * sum(
        map(slot_bytes, plan.job.inputs)
    )
    machine.wake_s = 0.0 if arrivals is None else overheads.arrival_s
    machine.run(frames, arrivals)
    return machine.outcome()


class _Machine:
    """All parts of a simulated job, and the events to come."""

    def __init__(
        self,
        plan: Plan,
        routes: Sequence[Parts],
        ports: Ports,
        links: LinkSpeeds,
        switching: Switching,
        traced: int,
    ) -> None:
        self.plan, self.traced = plan, traced
        self.routes, self.ports = routes, ports
        self.parts, self.route = routes[USUAL], USUAL
        self.before = 0
        """How many frames took the other route so far."""
        self.choice = RouteChoice(switching) if routes[1:] else None
        self.next_check_s: float | None = None
        """When the route is chosen again if nothing happens before."""
        self.now = 0.0
        self.events: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self.count = 0
        self.joins_source = False
        """Whether a rank's thread that computes lets frames in, too."""
        self.read_s = self.wake_s = 0.0
        """What the source takes for a frame, and what waking up takes where it waited for one."""
        self.is_reading = False
        self.times_s: list[float] = []
        """When frames come by the clock."""
        self.queue = self.arrived = 0
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
        self.events_of: list[list[tuple[int, ...]]] = [[] for _ in plan.ranks]
        """What each rank did, in the order of the fields of ``EVENTS``."""
        self.idle_s = [0.0] * len(plan.ranks)
        """By rank, when its thread that computes last ended a step."""
        self.credit_s = 0.0
        if plan.job.sink != plan.job.source:
            ends = plan.ranks[plan.job.sink].board, plan.ranks[plan.job.source].board
            self.credit_s = float(links.figures([ends])[1][0])
        for parts in routes:
            self._connect(parts)

    def _connect(self, parts: Parts) -> None:
        for ring, _ in parts.sink.all_inputs:
            ring.on_written.append(self._try_sink)
        for ring in parts.source.outputs:
            ring.on_freed.append(self._try_source)
        for ring, rank in {pipe.origin: pipe.sender for pipe in parts.pipes}.items():
            ring.on_freed.append(partial(self._try_rank, rank))
        for pipe in parts.pipes:
            advance = partial(self._try_pipe, pipe)
            pipe.origin.on_written.append(advance)
            pipe.target.on_freed.append(advance if pipe.ports else partial(self._give_back, pipe))
            pipe.target.on_written.append(partial(self._try_rank, pipe.receiver))

    def _at(self, time_s: float, action: Callable[[Any], None], about: Any) -> None:
        self.count += 1
        heapq.heappush(self.events, (time_s, self.count, action, about))

    def _note(
        self,
        rank: int,
        kind: int,
        begin_s: float,
        frame: int,
        number: int = 0,
        *,
        thread: int = _COMPUTES,
        end_s: float | None = None,
    ) -> None:
        """Keep an event, which ends now unless ``end_s`` is given.

        Events of the source and the sink count the frames of the stream, the others those of the
        route.
        """
        before = 0 if kind in (READ, WRITE, FRAME) else self.before
        if frame + before < self.traced:
            times = round(1e9 * begin_s), round(1e9 * (self.now if end_s is None else end_s))
            self.events_of[rank].append((*times, frame, kind, self.route, thread, number))

    def run(self, frames: int, arrivals: Arrivals | None) -> None:
        if arrivals is None:
            self.frames = self.left = frames
            self.joins_source = all(
                "source" in threadless_stages(parts.job.ranks[self.plan.job.source], is_timed=False)
                for parts in self.routes
            )
        else:
            self.times_s, self.queue = arrivals.times_s.tolist(), arrivals.queue
            self.frames = len(self.times_s)
            for number, time_s in enumerate(self.times_s):
                self._at(time_s, self._arrive, number)
        # After the frames that come at once.
        self._at(0.0, lambda _: self._try_source(), None)
        events, pop = self.events, heapq.heappop
        while events:
            self.now, _, action, about = pop(events)
            action(about)

    def _arrive(self, number: int) -> None:
        self.arrived = number + 1
        self.found_waiting += len(self.waiting)
        if len(self.waiting) < self.queue:
            self.waiting.append(self.now)
        else:
            self.dropped.append(number)
        # The source sees all that arrive together.
        if self.times_s[self.arrived : self.arrived + 1] != [self.now]:
            self._try_source()
            self.waiting_max = max(self.waiting_max, len(self.waiting))

    def _try_source(self) -> None:
        while not self.is_reading and self._may_enter():
            if self.left:
                self.left -= 1
                self.arrived_s.append(self.now)
            else:
                self.arrived_s.append(self.waiting.popleft())
            self.entered += 1
            self.parts.entered += 1
            waited = self.arrived_s[-1] == self.now
            seconds = self.read_s + self.wake_s * waited
            if not seconds:
                self._let_in(self.now)
                continue
            self.is_reading = True
            if self.joins_source:
                rank = self.parts.ranks[self.plan.job.source]
                rank.is_busy = True
                rank.busy_s += seconds
            self._at(self.now + seconds, self._have_read, self.now)

    def _have_read(self, begin_s: float) -> None:
        self.is_reading = False
        if self.joins_source:
            source = self.plan.job.source
            self.parts.ranks[source].is_busy = False
            self._note_wait(source, begin_s, self.entered - self.before - 1)
        self._let_in(begin_s)
        self._try_source()

    def _let_in(self, begin_s: float) -> None:
        thread = _COMPUTES if self.joins_source else _READS
        self._note(self.plan.job.source, READ, begin_s, self.entered - 1, thread=thread)
        for ring in self.parts.source.outputs:
            ring.put()
            _tell(ring.on_written)
        self._try_rank(self.parts.ranks[self.plan.job.source])

    def _may_enter(self) -> bool:
        if self.choice is not None and not self._may_go_on(self.choice):
            return False
        if not (self.left or self.waiting):
            return False
        if self.entered - self.credited >= self.parts.window:
            return False
        if self.joins_source:
            rank = self.parts.ranks[self.plan.job.source]
            if rank.is_busy or rank.ready:
                return False
        return not self.parts.source.lacking

    def _may_go_on(self, choice: RouteChoice) -> bool:
        """Choose the route as the runtime's source does; return whether it is to stay as it is."""
        waiting = len(self.waiting)
        if self.left:  # there is always one that waits
            self.arrived, waiting = self.entered + 1, 1
        elif not waiting and self.arrived == self.frames:
            return False
        choice.update(Observation(self.now, self.arrived, waiting, self.credited), self.entered)
        if self.parts is not self.routes[choice.route]:
            self.parts, self.route = self.routes[choice.route], choice.route
            self.before = self.entered - self.parts.entered
        if choice.route != USUAL and not self.left and self.arrived < self.frames:
            if self.next_check_s is None:
                self._at(self.now + UPDATE_PERIOD_S, self._check_again, None)
            self.next_check_s = self.now + UPDATE_PERIOD_S
        return choice.wanted == choice.route

    def _check_again(self, _: Any) -> None:
        """Choose the route, unless something else had the source do so in the meantime."""
        due_s, self.next_check_s = self.next_check_s, None
        if due_s is not None and due_s > self.now:
            self._at(due_s, self._check_again, None)
            self.next_check_s = due_s
        else:
            self._try_source()

    def _try_rank(self, rank: Rank) -> None:
        if rank.is_busy:
            return
        if not rank.ready:
            if self.joins_source and rank is self.parts.ranks[self.plan.job.source]:
                self._try_source()
            return
        if rank.cores and not self._take_cores(rank):
            return
        rank.is_busy = True
        stage = heapq.heappop(rank.ready)[2]
        times = stage.times
        seconds = times[stage.frame % len(times)] if len(times) > 1 else times[0]
        rank.busy_s += seconds
        self._at(self.now + seconds, self._finish, (rank, stage, self.now))

    def _finish(self, about: tuple[Rank, SimulatedStage, float]) -> None:
        rank, stage, begin_s = about
        rank.is_busy = False
        self._note_wait(rank.number, begin_s, stage.frame, stage.index)
        self._note(rank.number, COMPUTE, begin_s, stage.frame, stage.index)
        queued = stage.waits() - 1
        rank.steps += 1
        rank.queued += queued
        rank.queued_max = max(rank.queued_max, queued)
        freed = stage.go_on()
        for ring in stage.outputs:
            ring.put()
        stage.line_up()
        if rank.cores:
            self._release_cores(rank)
        else:
            self._try_rank(rank)
        for ring in stage.outputs:
            _tell(ring.on_written)
        for ring in freed:
            _tell(ring.on_freed)

    def _note_wait(self, rank: int, end_s: float, frame: int, number: int = 0) -> None:
        """Keep the wait of a rank's thread that computes for the step that ends now."""
        begin_s, self.idle_s[rank] = self.idle_s[rank], self.now
        if begin_s < end_s:
            self._note(rank, WAIT, begin_s, frame, number, end_s=end_s)

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
            self._at(there_s + pipe.latency_s, self._arrive_by_pipe, (pipe, self.now))

    def _arrive_by_pipe(self, about: tuple[Pipe, float]) -> None:
        pipe, begin_s = about
        if pipe.ports is not None and self.traced:
            frame = pipe.carried.frame(pipe.target.written)
            self._note(pipe.sender.number, SEND, begin_s, frame, pipe.channel)
            self._note(pipe.receiver.number, RECEIVE, self.now, frame, pipe.channel)
        pipe.target.put()
        _tell(pipe.target.on_written)
        if pipe.ports is not None:
            self._give_back(pipe)
            self._try_pipe(pipe)

    def _give_back(self, pipe: Pipe) -> None:
        """Give back a frame that was sent, or all that the receivers on the same board are done
        with: these leave frames out.
        """
        origin = pipe.origin
        count = pipe.target.slowest if pipe.ports is None else origin.read[pipe.reader] + 1
        if origin.free_up_to(pipe.reader, count):
            _tell(origin.on_freed)

    def _try_sink(self) -> None:
        while not self.parts.sink.lacking:
            frame = len(self.completed_s)
            self._note(self.plan.job.sink, WRITE, self.now, frame, thread=_WRITES)
            self.completed_s.append(self.now)
            self._at(self.now + self.credit_s, self._credit, None)
            for ring in self.parts.sink.go_on():
                _tell(ring.on_freed)
            self._try_rank(self.parts.ranks[self.plan.job.sink])

    def _credit(self, _: Any) -> None:
        arrived_s, before = self.arrived_s[self.credited], self.credited - self.before
        self._note(self.plan.job.source, FRAME, arrived_s, self.credited, before)
        self.latencies_s.append(self.now - arrived_s)
        self.credited += 1
        self._try_source()

    def outcome(self) -> Simulation:
        completed = np.array(self.completed_s)
        latencies = np.array(self.latencies_s)
        duration = self.completed_s[-1] - self.arrived_s[0] if self.completed_s else 0.0
        windows = [parts.window for parts in self.routes]
        rate, rate_of = throughput_fps(completed, max(windows))
        return Simulation(
            frames=self.frames,
            completed=len(completed),
            dropped=tuple(self.dropped),
            window=windows[USUAL],
            throughput_fps=rate,
            throughput_of=rate_of,
            latency_ms=latency_summary(latencies),
            waiting_mean=self.found_waiting / max(1, self.frames),
            waiting_max=self.waiting_max,
            ranks=tuple(self._rank_uses(duration)),
            links=tuple(
                LinkUse(board, is_outgoing, port.messages, _share(port.busy_s, duration))
                for (board, is_outgoing), port in self.ports.items()
            ),
            duration_s=duration,
            trace=Trace(self.plan, tuple(self._rank_events())),
            completed_s=completed,
            latencies_s=latencies,
            switches=tuple(self.choice.changes if self.choice is not None else ()),
            surge_window=windows[1] if windows[1:] else None,
        )

    def _rank_events(self) -> Iterator[RankEvents]:
        for rank, listed in enumerate(self.events_of):
            events = np.array(listed, EVENTS)
            yield RankEvents(rank, events[np.argsort(events["end_ns"], kind="stable")], 0)

    def _rank_uses(self, duration_s: float) -> Iterator[RankUse]:
        for number, records in enumerate(zip(*(parts.ranks for parts in self.routes), strict=True)):
            handled = sum(rank.steps // max(1, len(rank.stages)) for rank in records)
            steps = sum(rank.steps for rank in records)
            busy_s = sum(rank.busy_s for rank in records)
            yield RankUse(
                rank=number,
                key=self.plan.ranks[number].key,
                busy_ms=1e3 * busy_s / max(1, handled),
                utilisation=_share(busy_s, duration_s),
                queue_mean=sum(rank.queued for rank in records) / max(1, steps),
                queue_max=max(rank.queued_max for rank in records),
            )


def _tell(listeners: Sequence[Callable[[], None]]) -> None:
    for listener in listeners:
        listener()


def _share(part_s: float, whole_s: float) -> float:
    return min(1.0, part_s / whole_s) if whole_s else 0.0
