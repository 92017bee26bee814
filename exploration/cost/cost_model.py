"""What an assignment of layers to devices costs: rate, latency, memory and energy.

Computing and sending overlap, so a pipeline is as fast as its busiest part. Those parts are

* a device: its layers' times, which are a little longer in a pipeline than when they are measured;
  what the runtime takes of the same cores for each frame and each message, and the network for each
  byte of a message between boards;
* a core that several devices share: the sum over them;
* a board's link, each direction for itself: bytes over bandwidth, summed over all messages that
  leave the board, or come in.

A tensor goes once to each device that needs it: to another board in one message, inside a board
without a copy. :func:`predict` explains one assignment, segment
by segment and with the source of every figure; :func:`evaluate` gives four figures for each of
many assignments. Both have the same rate.

Devices that take turns are busy with their part of the frames, and so are links. Each holds what it
needs for a frame, and a frame takes as long as with the slowest of them, as results come in order.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.cost.evaluation import (
    Evaluations,
    board_energies,
    core_users,
    evaluate,
)
from rankslice.exploration.cost.memory import memory_of, weights_of
from rankslice.exploration.cost.messages import messages_of
from rankslice.exploration.cost.phases import phases_of
from rankslice.exploration.cost.prediction import (
    BoardCost,
    ChannelCost,
    DeviceCost,
    LinkCost,
    Prediction,
    SegmentCost,
    SharedCore,
)
from rankslice.exploration.cost.spans import spans_of
from rankslice.exploration.cost.timing import blocks_of, latencies, segment_times
from rankslice.exploration.problem.frame_bytes import bounds_text
from rankslice.exploration.problem.problem import Problem
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.frontend.partition.partition import partition

__all__ = ["Evaluations", "evaluate", "predict"]


def predict(
    problem: Problem,
    assignment: Sequence[int] | NDArray[np.int64],
    blocks: Sequence[Sequence[int]] | None = None,
) -> Prediction:
    """Return what an assignment costs: rate, latency, memory, energy, and why.

    Args:
        problem: layers and devices.
        assignment: (layers,) number of each layer's device or team.
        blocks: layers of each segment, in a topological order; by default those that the
            partition makes.

    Raises:
        RankSliceError: a tensor would have to be sent that has no fixed size, or layers would be
            on several ranks that cannot be apart, or a device would be in two teams.
    """
    chosen = np.asarray(assignment, np.int64)
    found = _blocks(problem, chosen.tolist()) if blocks is None else blocks
    return _Predictor(problem, chosen, found).prediction()


def _blocks(problem: Problem, assignment: list[int]) -> list[Sequence[int]]:
    """Return the layers of the segments that the partition makes."""
    if problem.graph is None:
        return list(blocks_of(problem, assignment))
    position = {name: index for index, name in enumerate(problem.layers)}
    where = dict(zip(problem.layers, assignment, strict=True))
    return [
        [position[layer.name] for layer in segment.layers if layer.name in position]
        for segment in partition(problem.graph, where).segments
    ]


class _Predictor:
    """One assignment, evaluated as a population of its phases."""

    def __init__(
        self, problem: Problem, assignment: NDArray[np.int64], blocks: Sequence[Sequence[int]]
    ) -> None:
        self.problem, self.blocks = problem, blocks
        self.phases = phases_of(problem, assignment[np.newaxis])
        if self.phases.clashes.any():
            found = "an accelerator would take turns and have other layers, too"
            raise RankSliceError(Mistake("assignment", found))
        self.population = self.phases.population
        self.numbers = np.zeros_like(self.population)
        for number, block in enumerate(blocks):
            self.numbers[:, list(block)] = number
        self.sent = messages_of(problem, self.phases, spans_of(self.population))
        self.times = segment_times(problem, self.population, self.numbers, self.sent)
        self.used = sorted({*self.population.ravel().tolist()})
        self.board_of = [device.board for device in problem.devices]

    def prediction(self) -> Prediction:
        """Return its costs, with their sources."""
        devices = tuple(map(self._device_cost, self.used))
        cores, links = tuple(self._shared_cores()), tuple(self._link_costs())
        parts = [
            *((device.load_s, f"computing on {device.key}") for device in devices),
            *((core.seconds, _core_in_words(core)) for core in cores),
            *((link.seconds, _link_in_words(link)) for link in links),
        ]
        bottleneck_s, bottleneck = max(parts, key=lambda part: part[0])
        return Prediction(
            devices=devices,
            segments=self._segments,
            channels=tuple(dict.fromkeys(self._channels)),
            links=links,
            boards=tuple(self._board_costs(bottleneck_s)),
            bottleneck_s=bottleneck_s,
            bottleneck=bottleneck,
            latency_s=float(
                latencies(self.problem, self.population, self.numbers, self.sent, self.times).max()
            ),
            notes=tuple(self._notes()),
        )

    @cached_property
    def _segments(self) -> tuple[SegmentCost, ...]:
        count = dict.fromkeys(self.used, 0)
        found = []
        for number, block in enumerate(self.blocks):
            for device in dict.fromkeys(self.times.devices[:, number].tolist()):
                phases = self.times.devices[:, number] == device
                shares = self.phases.shares[phases]
                found.append(
                    SegmentCost(
                        device,
                        count[device],
                        tuple(block),
                        _mean(shares, self.times.compute_s[phases, number]),
                        _mean(shares, self.times.busy_s[phases, number]),
                    )
                )
                count[device] += 1
        return tuple(found)

    @cached_property
    def _channels(self) -> tuple[ChannelCost, ...]:
        """By message: the same again, if it is there in several phases."""
        problem, sent = self.problem, self.sent
        ends = [*zip(sent.tensor.tolist(), sent.origin.tolist(), sent.target.tolist(), strict=True)]
        shares: dict[tuple[int, int, int], float] = defaultdict(float)
        for each, share in zip(ends, self.phases.shares[sent.row].tolist(), strict=True):
            shares[each] += share
        return tuple(
            ChannelCost(
                problem.tensors[tensor].name,
                problem.devices[origin].key,
                problem.devices[target].key,
                problem.tensors[tensor].nbytes,
                taken,
                self._link_source(origin, target),
                shares[tensor, origin, target],
            )
            for (tensor, origin, target), taken in zip(ends, sent.hop_s.tolist(), strict=True)
        )

    def _link_source(self, origin: int, target: int) -> str:
        sources = self.problem.link_sources
        return sources[self.board_of[origin]][self.board_of[target]] if sources else "given links"

    def _device_cost(self, device: int) -> DeviceCost:
        problem, sent = self.problem, self.sent
        own = [segment for segment in self._segments if segment.device == device]
        ends = (sent.origin == device) | (sent.target == device)
        turns = self.phases.turns[self.phases.turns_of[0, device]]
        # Of frames that others handle, too: frames enter and leave at one device.
        shares = self.phases.shares[sent.row[ends]] / float(turns.share)
        return DeviceCost(
            key=problem.devices[device].key,
            board=problem.boards[self.board_of[device]].name,
            layers=sum(len(segment.layers) for segment in own),
            segments=len(own),
            compute_s=sum(segment.compute_s for segment in own),
            copy_s=sum((shares * sent.costs.copy_s[ends]).tolist()),
            runtime_s=problem.overheads.frame_s
            + sum((shares * sent.costs.runtime_s[ends]).tolist()),
            source=problem.times_source,
            gpu_bytes=self._gpu_bytes(device),
            turns=turns,
        )

    def _gpu_bytes(self, device: int) -> int | None:
        """Return the memory of the GPU that a device takes: for its engine, weights and work."""
        problem, kind = self.problem, self.problem.device_kinds[device]
        if not len(problem.gpu_bytes) or np.isnan(problem.gpu_bytes[kind]):
            return None
        layers = (self.population == device).any(axis=0)
        work = problem.working_bytes[layers].max() if len(problem.working_bytes) else 0
        return int(problem.gpu_bytes[kind] + problem.weight_bytes[layers].sum() + work)

    def _link_costs(self) -> Iterator[LinkCost]:
        boards = self.problem.device_boards
        for number, board in enumerate(self.problem.boards):
            for is_outgoing, ends in ((True, self.sent.origin), (False, self.sent.target)):
                mine = np.flatnonzero(~self.sent.is_local & (boards[ends] == number)).tolist()
                if mine:
                    channels = [self._channels[message] for message in mine]
                    shares = self.phases.shares[self.sent.row[mine]]
                    nbytes = np.array([channel.nbytes for channel in channels], np.float64)
                    yield LinkCost(
                        board.name,
                        is_outgoing,
                        sum((shares * nbytes).tolist()),
                        sum((shares * self.sent.costs.link_s[mine]).tolist()),
                        "; ".join(sorted({channel.source for channel in channels})),
                    )

    def _shared_cores(self) -> Iterator[SharedCore]:
        devices, busy = self.problem.devices, self._busy_s()
        for (board, core), users in core_users(self.problem).items():
            sharers = [device for device in users if device in self.used]
            if len(sharers) > 1:
                yield SharedCore(
                    self.problem.boards[board].name,
                    core,
                    tuple(devices[device].key for device in sharers),
                    sum(float(busy[d]) * (devices[d].host_share or 0.0) for d in sharers),
                )

    def _busy_s(self) -> NDArray[np.float64]:
        """Return (devices,): for how long each is busy for a frame of the stream."""
        busy = np.zeros(len(self.problem.devices))
        if not self.phases.in_turn:
            for segment in self._segments:
                busy[segment.device] += segment.busy_s
            return busy
        for device in self.used:
            busy[device] = self._device_cost(device).load_s
        return busy

    def _board_costs(self, period_s: float) -> Iterator[BoardCost]:
        problem = self.problem
        memory = memory_of(problem, self.phases, self.numbers, self.sent)[0]
        held = self.phases.most(weights_of(problem, self.population))
        weights = (held @ problem.is_on_board)[0]
        used = np.isin(np.arange(len(problem.devices)), self.used)[np.newaxis]
        busy = np.where(math.isfinite(period_s), self._busy_s(), 0.0)[np.newaxis]
        energies = board_energies(problem, busy, np.array([period_s]), used)[0]
        energies = energies if math.isfinite(period_s) else np.full_like(energies, np.inf)
        for board in sorted({self.board_of[device] for device in self.used}):
            costs = problem.boards[board]
            source, told = self._energy_source(board)
            yield BoardCost(
                name=costs.name,
                memory_bytes=float(memory[board]),
                weight_bytes=float(weights[board]),
                capacity_bytes=costs.memory_bytes,
                memory_source=self._memory_source(costs.name),
                energy_j=None if source is None else float(energies[board]),
                energy_source=source,
                energy_from=told,
            )

    def _memory_source(self, board: str) -> str:
        problem = self.problem
        parts = [f"weights and tensors: {problem.model}"]
        if len(problem.rank_bytes):
            parts.append(f"engines: {problem.times_source}")
        parts.append(f"capacity: {problem.platform}: boards.{board}.memory_mb")
        return "; ".join(parts)

    def _energy_source(self, board: int) -> tuple[str | None, str]:
        """Return how the energy of a used board is known, and what it rests on."""
        problem, costs = self.problem, self.problem.boards[board]
        devices = [device for device in self.used if self.board_of[device] == board]
        lines = f"{problem.platform}: boards.{costs.name}"
        if costs.idle_w is None or not np.isfinite(problem.active_w[devices]).all():
            return None, f"no sensor, and {lines} has not both idle_w and busy_w"
        is_measured = {problem.is_power_measured(device) for device in devices}
        sources = [problem.times_source] if costs.is_idle_measured or True in is_measured else []
        given = [] if costs.is_idle_measured else ["idle_w"]
        given += ["busy_w"] if False in is_measured else []
        if given:
            sources.append(f"{lines}.{' and '.join(given)}")
        return "modelled" if given else "measured", "; ".join(sources)

    def _notes(self) -> Iterator[str]:
        """Yield costs that are not known and so count as nothing."""
        problem = self.problem
        sharing = {device for users in core_users(problem).values() for device in users}
        for device in self.used:
            if problem.devices[device].host_share is None and device in sharing:
                key = problem.devices[device].key
                yield (
                    f"{key}: how long it keeps its host core busy is not known, and counted as"
                    " nothing"
                )
        unknown = np.flatnonzero(~self.sent.is_local & (self.sent.costs.link_s == 0)).tolist()
        yield from sorted({self._channels[message].source for message in unknown})
        sent = np.unique(self.sent.tensor[~self.sent.is_local]).tolist()
        if bounds := [tensor.name for n in sent if (tensor := problem.tensors[n]).is_bound]:
            yield bounds_text(bounds)
        if not len(problem.rank_bytes):
            yield "memory of interpreters and engines is not known, and counted as nothing"
        if problem.overheads.source == "left out":
            yield "what the runtime takes of the cores is not known, and counted as nothing"


def _mean(shares: NDArray[np.float64], values: NDArray[np.float64]) -> float:
    return float(values[0]) if len(values) == 1 else float(np.average(values, weights=shares))


def _core_in_words(core: SharedCore) -> str:
    return f"core {core.core} of {core.board}, shared by {' and '.join(core.keys)}"


def _link_in_words(link: LinkCost) -> str:
    return f"sending from {link.board}" if link.is_outgoing else f"receiving on {link.board}"
