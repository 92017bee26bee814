"""From a plan to the parts of a simulated job, put together as the runtime's wiring says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.job import Job, make_job
from rankslice.backend.runtime.pipeline.wiring import (
    Reader,
    StageSpec,
    Wiring,
    pairs_within_boards,
    wire_all,
)
from rankslice.exploration.cost.messages import MessageCosts, message_costs
from rankslice.exploration.problem.frame_bytes import slot_bytes
from rankslice.exploration.problem.links import LinkSpeeds
from rankslice.exploration.problem.overheads import Overheads
from rankslice.exploration.simulator.parts import Core, Pipe, Port, Rank, Ring, SimulatedStage
from rankslice.framework.engines import computes
from rankslice.framework.plan import Plan, plan_record

SentBytes: TypeAlias = Mapping[str, NDArray[np.float64]]
"""By tensor: the size of its messages in bytes, frame by frame and again from the beginning."""


@dataclass(frozen=True, slots=True)
class Parts:
    """All parts of a job; completion credits have none, as they take nothing of ranks and links."""

    job: Job
    """The plan as the runtime reads it."""
    ranks: list[Rank]
    source: SimulatedStage
    """Writes the model inputs, where frames enter."""
    sink: SimulatedStage
    """Reads the model outputs, where results leave."""
    pipes: list[Pipe]
    ports: dict[tuple[str, bool], Port]
    """By board, and whether messages leave it."""


def assemble(
    plan: Plan,
    compute_s: Sequence[NDArray[np.float64]],
    links: LinkSpeeds,
    window: int,
    overheads: Overheads,
    sent_bytes: SentBytes,
) -> Parts:
    """Return the parts of a job; the arguments are those of ``simulator.simulate``."""
    job = make_job(plan_record(plan))
    wirings = wire_all(job, window, pairs_within_boards(job))
    rings = [[Ring(spec.depth, spec.readers) for spec in wiring.rings] for wiring in wirings]
    ranks = [Rank(number) for number in range(len(wirings))]
    source, sink = SimulatedStage(), SimulatedStage()
    for rank, wiring, own in zip(ranks, wirings, rings, strict=True):
        for segment, spec in wiring.segments:
            rank.stages.append(_joined(SimulatedStage(segment.index, rank), spec, own))
        rank.frames.count = len(rank.stages)
        if wiring.source is not None:
            _joined(source, StageSpec((), wiring.source.outputs), own)
        if wiring.sink is not None:
            _joined(sink, StageSpec(wiring.sink.inputs, ()), own)
    senders = {
        send.channel: (rank, send.reader)
        for rank, wiring in enumerate(wirings)
        for send in (*wiring.sends, *wiring.shares)
    }
    costs = _message_costs(plan, senders, links, overheads, sent_bytes)
    ports: dict[tuple[str, bool], Port] = defaultdict(Port)
    pipes = list(_pipes(plan, wirings, senders, rings, ranks, costs, ports))
    message_s = _message_s(pipes, costs.core_s)
    _set_times(plan, compute_s, ranks, message_s, overheads)
    _share_cores(plan, ranks)
    return Parts(job, ranks, source, sink, pipes, dict(ports))


def _joined(stage: SimulatedStage, spec: StageSpec, rings: Sequence[Ring]) -> SimulatedStage:
    """Return a stage that reads and writes some rings of its rank."""
    for reader in spec.inputs:
        stage.reads(rings[reader.ring], reader.index)
    for ring in spec.outputs:
        stage.writes(rings[ring])
    return stage


_Senders: TypeAlias = Mapping[int, tuple[int, Reader]]
"""By channel, the rank that sends it or whose slots are read, and its number as a reader there."""


def _message_costs(
    plan: Plan,
    senders: _Senders,
    links: LinkSpeeds,
    overheads: Overheads,
    sent_bytes: SentBytes,
) -> MessageCosts:
    """Return what a plan's channels take; arrays are (channels, frames), or (channels, 1)."""
    boards = [rank.board for rank in plan.ranks]
    ends = [(boards[senders[c.number][0]], boards[c.destination]) for c in plan.channels]
    bandwidths, latencies = links.figures(ends)
    return message_costs(
        _channel_bytes(plan, sent_bytes),
        bandwidths[:, np.newaxis],
        latencies[:, np.newaxis],
        np.array([one == other for one, other in ends], bool)[:, np.newaxis],
        overheads,
    )


def _channel_bytes(plan: Plan, sent_bytes: SentBytes) -> NDArray[np.float64]:
    """Return what channels carry, (channels, frames); (channels, 1) if it never changes."""
    tensors = {tensor.name: tensor for tensor in plan.tensors}
    sizes = [
        sent_bytes.get(channel.tensor, np.array([slot_bytes(tensors[channel.tensor])], np.float64))
        for channel in plan.channels
    ]
    frames = max(map(len, sizes), default=1)
    return np.array([np.resize(each, frames) for each in sizes]).reshape(-1, frames)


def _pipes(
    plan: Plan,
    wirings: Sequence[Wiring],
    senders: _Senders,
    rings: Sequence[Sequence[Ring]],
    ranks: Sequence[Rank],
    costs: MessageCosts,
    ports: dict[tuple[str, bool], Port],
) -> Iterator[Pipe]:
    """Yield the channels, in the plan's order."""
    targets = {
        receive.channel: receive.ring
        for wiring in wirings
        for receive in (*wiring.receives, *wiring.views)
    }
    for number, channel in enumerate(plan.channels):
        (sender, reader), receiver = senders[channel.number], channel.destination
        out, into = plan.ranks[sender].board, plan.ranks[receiver].board
        yield Pipe(
            ranks[sender],
            ranks[receiver],
            rings[sender][reader.ring],
            reader.index,
            rings[receiver][targets[channel.number]],
            _shortened(costs.link_s[number]),
            float(costs.latency_s[number, 0]),
            None if out == into else (ports[out, True], ports[into, False]),
        )


def _shortened(times: NDArray[np.float64]) -> list[float]:
    """Return the times of frames; one, if all are the same."""
    found: list[float] = times.tolist()
    return found if len({*found}) > 1 else found[:1]


def _message_s(
    pipes: Sequence[Pipe], at_each_end_s: NDArray[np.float64]
) -> dict[SimulatedStage, NDArray[np.float64]]:
    """Return what messages take of the cores of segments, frame by frame, in seconds.

    The maker of a tensor pays for sending it, its first reader on a rank for receiving it, and for
    letting others of its board read it there. What no segment makes or reads is paid by the
    source's first segment and the sink's last.
    """
    found: dict[SimulatedStage, NDArray[np.float64]] = defaultdict(lambda: np.zeros(1))
    for pipe, seconds in zip(pipes, at_each_end_s, strict=True):
        if pipe.origin.writer is None:
            sender = _first_reader(pipe.origin, pipe.sender)
        else:
            sender = next(_segments([pipe.origin.writer]), pipe.sender.stages[0])
        for stage in (sender, _first_reader(pipe.target, pipe.receiver)):
            found[stage] = found[stage] + seconds
    return found


def _first_reader(ring: Ring, rank: Rank) -> SimulatedStage:
    return next(_segments(ring.readers), rank.stages[-1])


def _segments(stages: Iterable[SimulatedStage | None]) -> Iterator[SimulatedStage]:
    return (stage for stage in stages if stage is not None and stage.rank is not None)


def _set_times(
    plan: Plan,
    compute_s: Sequence[NDArray[np.float64]],
    ranks: Sequence[Rank],
    message_s: Mapping[SimulatedStage, NDArray[np.float64]],
    overheads: Overheads,
) -> None:
    for segment, times in zip(plan.segments, compute_s, strict=True):
        stage = ranks[segment.rank].stages[segment.index]
        around_s = overheads.frame_s if not segment.index else 0.0
        if computes(plan.ranks[segment.rank].engine):
            around_s += overheads.slice_s
        messages_s = message_s.get(stage, np.zeros(1))
        frames = max(np.size(times), len(messages_s))
        stage.times = (np.resize(times, frames) + np.resize(messages_s, frames) + around_s).tolist()


def _share_cores(plan: Plan, ranks: Sequence[Rank]) -> None:
    """Let ranks that compute on a core in common take turns on it; those that sleep share none."""
    users: dict[tuple[str, int], list[Rank]] = defaultdict(list)
    for placement, rank in zip(plan.ranks, ranks, strict=True):
        if placement.accelerator == "cpu" and computes(placement.engine):
            for core in placement.cores:
                users[placement.board, core].append(rank)
    for sharers in users.values():
        shared = Core()
        for rank in sharers if len(sharers) > 1 else ():
            rank.cores.append(shared)
