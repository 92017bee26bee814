"""From a plan to the parts of a simulated job, put together as the runtime's wiring says."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.job import ALL, EACH, Job, Rank as JobRank, Turns
from rankslice.backend.runtime.pipeline.wiring import (
    StageSpec,
    pairs_within_boards,
    wire_all,
)
from rankslice.exploration.cost.timing import MessageCosts, message_costs
from rankslice.exploration.problem.runtime_costs import LinkSpeeds, Overheads, slot_bytes
from rankslice.exploration.simulator.simulated_parts import (
    Core,
    Pipe,
    Port,
    Rank,
    Ring,
    SimulatedStage,
)
from rankslice.framework.engines import computes
from rankslice.framework.plan import Plan
from rankslice.framework.platform import WIRE_SHARE

SentBytes: TypeAlias = Mapping[str, NDArray[np.float64]]
"""By tensor: the size of its messages in bytes, frame by frame and again from the beginning."""


_MAX_PERIOD = 10_000
"""Frames after which turns have to begin again, to be counted exactly: as those of any two do."""


@dataclass(slots=True)
class Parts:
    """All parts of a job on one route.

    Completion credits have none, as they take nothing of ranks and links. Frames are on one route
    at a time, so each route has its own record of a rank, and what ranks share between routes, such
    as cores, holds up none of them.
    """

    job: Job
    """The plan as the runtime reads it."""
    ranks: list[Rank]
    source: SimulatedStage
    """Writes the model inputs, where frames enter."""
    sink: SimulatedStage
    """Reads the model outputs, where results leave."""
    pipes: list[Pipe]
    window: int
    entered: int = 0


Ports: TypeAlias = dict[tuple[str, bool], Port]
"""By board, and whether messages leave it."""


def assemble(
    plan: Plan,
    compute_s: Sequence[NDArray[np.float64]],
    links: LinkSpeeds,
    window: int,
    overheads: Overheads,
    sent_bytes: SentBytes,
    frames: int,
    ports: Ports,
) -> Parts:
    """Return the parts of a route; the arguments are those of ``simulator.simulate``.

    ``frames``: how many come at most; ``ports``: of all routes, to which this one adds its own.
    """
    lengths = [*map(len, compute_s), *map(len, sent_bytes.values())]
    period = _period(frames, [rank.turns.period for rank in plan.ranks], lengths)
    made = _Assembly(plan, window, period)
    costs = made.message_costs(links, overheads, sent_bytes)
    pipes = list(made.pipes(costs, ports))
    made.set_times(compute_s, made.paid_s(pipes, costs.core_s), overheads)
    _share_cores(plan, made.ranks)
    return Parts(plan.job, made.ranks, made.source, made.sink, pipes, window)


class _Assembly:
    """Ranks, stages and rings of a route, joined."""

    def __init__(self, plan: Plan, window: int, period: int) -> None:
        """Take the number of frames after which times and turns begin again."""
        self.period, self.plan, job = period, plan, plan.job
        self.wirings = wire_all(job, window, pairs_within_boards(job))
        self.rings = [list(map(Ring, wiring.rings)) for wiring in self.wirings]
        self.ranks = [Rank(spec.rank, spec.turns) for spec in job.ranks]
        self.source, self.sink = SimulatedStage(), SimulatedStage()
        for rank, wiring, own in zip(self.ranks, self.wirings, self.rings, strict=True):
            steps = rank.turns.steps_in(ALL)
            for segment, spec in wiring.segments:
                stage = SimulatedStage(segment.index, rank, steps.first, steps=steps)
                rank.stages.append(_joined(stage, spec, own))
            rank.frames.count = len(rank.stages)
            for stage in rank.stages:
                rank.frames.climb(0, stage.frame)
            if wiring.source is not None:
                _joined(self.source, StageSpec((), wiring.source.outputs), own)
            if wiring.sink is not None:
                spec = StageSpec(wiring.sink.inputs, ())
                self.sink = _joined(SimulatedStage(), spec, own)
        self.senders = {
            send.channel: (rank, send.reader)
            for rank, wiring in enumerate(self.wirings)
            for send in (*wiring.sends, *wiring.shares)
        }
        """By channel, the rank that sends it or whose slots are read, and its number as a reader
        there."""

    def message_costs(
        self, links: LinkSpeeds, overheads: Overheads, sent_bytes: SentBytes
    ) -> MessageCosts:
        """Return what the channels take; arrays are (channels, period), or (channels, 1)."""
        plan, tensors = self.plan, self.plan.job.tensors
        boards = [rank.board for rank in plan.ranks]
        ends = [(boards[self.senders[c.number][0]], boards[c.destination]) for c in plan.channels]
        bandwidths, latencies, shares = links.figures(ends)
        names = [channel.tensor for channel in plan.channels]
        sizes = [sent_bytes.get(n, np.array([float(slot_bytes(tensors[n]))])) for n in names]
        # What the plan converts has its size on the link.
        done = {one.sent: WIRE_SHARE[one.dtype] for one in plan.conversions}
        shares_done = np.array([done.get(name, 1.0) for name in names])[:, np.newaxis]
        is_float = np.array([tensors[name].dtype == "float32" for name in names], bool)
        nbytes = np.array([np.resize(by_frame, self.period) for by_frame in sizes])
        return message_costs(
            nbytes.reshape(-1, self.period) / shares_done,
            shares_done * np.where(is_float, shares, 1.0)[:, np.newaxis],
            bandwidths[:, np.newaxis],
            latencies[:, np.newaxis],
            np.array([one == other for one, other in ends], bool)[:, np.newaxis],
            overheads,
        )

    def pipes(self, costs: MessageCosts, ports: Ports) -> Iterator[Pipe]:
        """Yield the channels, in the plan's order."""
        job, ranks = self.plan.job, self.ranks
        targets = {
            receive.channel: receive.ring
            for wiring in self.wirings
            for receive in (*wiring.receives, *wiring.views)
        }
        for number, channel in enumerate(self.plan.channels):
            (sender, reader), receiver = self.senders[channel.number], channel.destination
            out, into = self.plan.ranks[sender].board, self.plan.ranks[receiver].board
            origin, is_direct = self.rings[sender][reader.ring], out == into
            made = job.turns_of_maker(channel.source, channel.tensor)
            carried = made.common(job.turns_of_reader(receiver, channel.tensor))
            steps = EACH if is_direct else origin.steps[reader.index]
            ends = (out, True), (into, False)
            link_s: list[float] = costs.link_s[number][self._handled(carried)].tolist()
            yield Pipe(
                channel.number,
                ranks[sender],
                ranks[receiver],
                origin,
                reader.index,
                self.rings[receiver][targets[channel.number]],
                carried,
                link_s if len({*link_s}) > 1 else link_s[:1],
                float(costs.latency_s[number, 0]),
                None if is_direct else tuple(ports.setdefault(end, Port()) for end in ends),
                () if steps == EACH else steps.jumps,
                steps.first,
            )

    def set_times(
        self,
        compute_s: Sequence[NDArray[np.float64]],
        message_s: Mapping[SimulatedStage, NDArray[np.float64]],
        overheads: Overheads,
    ) -> None:
        stages = {(rank.number, stage.index): stage for rank in self.ranks for stage in rank.stages}
        for segment, times in zip(self.plan.segments, compute_s, strict=True):
            stage = stages[segment.rank, segment.index]
            is_first = stage is self.ranks[segment.rank].stages[0]
            around_s = overheads.frame_s if is_first else 0.0
            if computes(self.plan.ranks[segment.rank].engine):
                around_s += overheads.slice_s
            stage.times = (np.resize(times, self.period) + message_s[stage] + around_s).tolist()

    def paid_s(
        self, pipes: Sequence[Pipe], at_each_end_s: NDArray[np.float64]
    ) -> dict[SimulatedStage, NDArray[np.float64]]:
        """Return what messages take of the cores of segments, frame by frame, in seconds.

        The maker of a tensor pays for sending it, its first reader on a rank for receiving it, and
        for letting others of its board read it there. What no segment makes or reads is paid by the
        source's first segment and the sink's last; of frames that these do not handle, with their
        next. Where source or sink are on a rank without segments, messages take nothing of it.
        """
        by_stage = {stage: np.zeros(self.period) for rank in self.ranks for stage in rank.stages}
        for pipe, seconds in zip(pipes, at_each_end_s, strict=True):
            if pipe.origin.writer is None:
                sender = _first_reader(pipe.origin, pipe.sender)
            else:
                sender = next(_segments([pipe.origin.writer, *pipe.sender.stages]), None)
            sent = np.flatnonzero(self._handled(pipe.carried))
            for stage in filter(None, (sender, _first_reader(pipe.target, pipe.receiver))):
                handled = np.flatnonzero(self._handled(stage.rank.turns if stage.rank else ALL))
                if len(handled):
                    paid_with = handled[np.searchsorted(handled, sent) % len(handled)]
                    np.add.at(by_stage[stage], paid_with, seconds[sent])
        return by_stage

    def _handled(self, turns: Turns) -> NDArray[np.bool_]:
        return np.isin(np.arange(self.period) % turns.period, turns.positions)


def _joined(stage: SimulatedStage, spec: StageSpec, rings: Sequence[Ring]) -> SimulatedStage:
    for makers in spec.inputs:
        stage.reads([(rings[reader.ring], reader.index) for reader in makers])
    for ring in spec.outputs:
        stage.writes(rings[ring])
    return stage


def _period(frames: int, turns: Sequence[int], lengths: Sequence[int]) -> int:
    """Return after how many frames turns and series of times begin again, or no frame comes."""
    most, of_turns = max(1, frames, *lengths), math.lcm(*turns)
    if of_turns > _MAX_PERIOD:
        return most
    return min(math.lcm(of_turns, *lengths), -(-most // of_turns) * of_turns)


def _first_reader(ring: Ring, rank: Rank) -> SimulatedStage | None:
    return next(_segments([*ring.readers, *rank.stages[-1:]]), None)


def _segments(stages: Iterable[SimulatedStage | None]) -> Iterator[SimulatedStage]:
    return (stage for stage in stages if stage is not None and stage.rank is not None)


def core_users(plan: Plan) -> dict[tuple[str, int], list[int]]:
    """Return the ranks that compute on each core, by board and core; those that sleep use none."""
    users: dict[tuple[str, int], list[int]] = defaultdict(list)
    for rank in plan.ranks:
        for core in rank.cores if uses_its_cores(rank) else ():
            users[rank.board, core].append(rank.rank)
    return users


def uses_its_cores(rank: JobRank) -> bool:
    """Whether a rank computes on its cores: it neither sleeps nor leaves that to an accelerator."""
    return rank.accelerator == "cpu" and computes(rank.engine)


def _share_cores(plan: Plan, ranks: Sequence[Rank]) -> None:
    """Let ranks that compute on a core in common take turns on it."""
    for users in core_users(plan).values():
        shared = Core()
        for rank in users if len(users) > 1 else ():
            ranks[rank].cores.append(shared)
