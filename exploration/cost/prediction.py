"""What one assignment of layers to devices costs, segment by segment, with all sources."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.job import ALL, Turns
from rankslice.backend.runtime.summary.bottleneck import Load, busiest, core_load, link_load
from rankslice.exploration.cost.board_memory import weights_of
from rankslice.exploration.cost.cost_model import Costs, core_groups
from rankslice.exploration.cost.timing import blocks_of, segment_times
from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.problem.runtime_costs import bounds_text
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.frontend.partition.partition import partition


@dataclass(frozen=True, slots=True)
class SegmentCost:
    """A segment: what it runs and how long that takes."""

    device: int
    """Index of the problem's device."""
    layers: tuple[int, ...]
    compute_s: float
    busy_s: float
    """With the messages that it takes and gives, and what the runtime takes of each frame."""


@dataclass(frozen=True, slots=True)
class DeviceCost:
    """What a device is busy with for each frame that it handles, in seconds."""

    key: str
    board: str
    layer_count: int
    compute_s: float
    copy_s: float
    """Converting tensors, and copying them into and out of the network."""
    runtime_s: float
    """What the runtime takes for each frame and each message."""
    source: str
    """Where the times of computing are from."""
    gpu_bytes: int | None
    """Memory of the GPU: for its engine, weights and work; ``None``: not measured, or none."""
    turns: Turns = ALL

    @property
    def busy_s(self) -> float:
        return self.compute_s + self.copy_s + self.runtime_s

    @property
    def load_s(self) -> float:
        """For how long it is busy for each frame of the stream, on average."""
        return self.busy_s * float(self.turns.share)


@dataclass(frozen=True, slots=True)
class ChannelCost:
    """A tensor that goes from one device to another, once for each frame of both."""

    tensor: str
    origin: str
    """Mapping key of the device that sends it, or whose slots are read."""
    target: str
    nbytes: float
    seconds: float
    """Bytes over bandwidth, and latency; inside a board how long waking up takes."""
    source: str
    """Where bandwidth and latency are from."""
    share: float = 1.0
    """Of how many frames."""


@dataclass(frozen=True, slots=True)
class BoardCost:
    """What a used board holds, and takes for each frame."""

    name: str
    memory_bytes: float
    weight_bytes: float
    memory_source: str
    energy_j: float | None
    """``None``: neither measured nor given."""
    energy_source: str | None
    """``measured``, ``modelled``, or ``None``."""
    energy_from: str
    """The lines or measurements that it rests on, or what is missing."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What one assignment costs, and where each figure is from."""

    devices: tuple[DeviceCost, ...]
    """Those that have layers, in the order of the problem's."""
    segments: tuple[SegmentCost, ...]
    """In a topological order."""
    channels: tuple[ChannelCost, ...]
    boards: tuple[BoardCost, ...]
    bottleneck_s: float
    bottleneck: str
    latency_s: float
    """Time of a frame that is alone in the pipeline, of the slowest ranks if some take turns."""
    notes: tuple[str, ...]
    """Costs that are not known and so count as nothing."""

    @property
    def throughput_fps(self) -> float:
        """Frames per second; 0 if it cannot run."""
        return 1 / self.bottleneck_s if self.bottleneck_s else math.inf


def predict(
    problem: Problem,
    assignment: Sequence[int] | NDArray[np.int64],
    blocks: Sequence[Sequence[int]] | None = None,
) -> Prediction:
    """Return what an assignment costs: rate, latency, memory, energy, and why.

    Args:
        assignment: (layers,) number of each layer's device or team.
        blocks: layers of each segment, in a topological order; by default those that the
            partition makes.

    Raises:
        RankSliceError: a tensor would have to be sent that has no fixed size, or layers would be
            on several ranks that cannot be apart, or a device would be in two teams.
    """
    chosen = np.asarray(assignment, np.int64)
    explained = _Explained(
        problem, chosen, _blocks(problem, chosen.tolist()) if blocks is None else blocks
    )
    costs, segments = explained.costs, explained.segment_of
    return Prediction(
        devices=tuple(map(explained.device, explained.used)),
        segments=explained.segments,
        channels=tuple(dict.fromkeys(explained.channels)),
        boards=tuple(explained.boards()),
        bottleneck_s=float(costs.bottleneck_s[0]),
        bottleneck=explained.bottleneck(),
        latency_s=float(costs.latency_s(segments)[0]),
        notes=tuple(explained.notes()),
    )


def _blocks(problem: Problem, assignment: list[int]) -> list[Sequence[int]]:
    if problem.graph is None:
        return list(blocks_of(problem, assignment))
    position = {name: index for index, name in enumerate(problem.layers)}
    where = dict(zip(problem.layers, assignment, strict=True))
    return [
        [position[layer.name] for layer in segment.layers if layer.name in position]
        for segment in partition(problem.graph, where).segments
    ]


class _Explained:
    """One assignment, evaluated as a population of its phases."""

    def __init__(
        self, problem: Problem, assignment: NDArray[np.int64], blocks: Sequence[Sequence[int]]
    ) -> None:
        self.problem, self.blocks = problem, blocks
        self.costs = costs = Costs(problem, assignment[np.newaxis])
        self.phases, self.sent = costs.phases, costs.sent
        if self.phases.clashes.any():
            found = "an accelerator would take turns and have other layers, too"
            raise RankSliceError(Mistake("assignment", found))
        self.segment_of = np.zeros_like(costs.population)
        for number, block in enumerate(blocks):
            self.segment_of[:, list(block)] = number
        self.used = np.flatnonzero(costs.used[0]).tolist()
        self.board_of = problem.device_boards.tolist()

    @cached_property
    def segments(self) -> tuple[SegmentCost, ...]:
        times = segment_times(self.problem, self.costs.population, self.segment_of, self.sent)
        segments = []
        for number, block in enumerate(self.blocks):
            for device in dict.fromkeys(times.devices[:, number].tolist()):
                phases = times.devices[:, number] == device
                compute_s, busy_s = (
                    _mean(self.phases.shares[phases], seconds[phases, number])
                    for seconds in (times.compute_s, times.busy_s)
                )
                segments.append(SegmentCost(device, tuple(block), compute_s, busy_s))
        return tuple(segments)

    @cached_property
    def channels(self) -> tuple[ChannelCost, ...]:
        """By message: the same again, if it is there in several phases."""
        problem, sent, boards = self.problem, self.sent, self.board_of
        sources = problem.link_sources
        ends = [*zip(sent.tensor.tolist(), sent.origin.tolist(), sent.target.tolist(), strict=True)]
        shares: dict[tuple[int, int, int], float] = defaultdict(float)
        for end, share in zip(ends, self.phases.shares[sent.row].tolist(), strict=True):
            shares[end] += share
        return tuple(
            ChannelCost(
                problem.tensors[tensor].name,
                problem.devices[origin].key,
                problem.devices[target].key,
                nbytes,
                seconds,
                sources[boards[origin]][boards[target]] if sources else "given links",
                shares[tensor, origin, target],
            )
            for (tensor, origin, target), nbytes, seconds in zip(
                ends, sent.nbytes.tolist(), sent.hop_s.tolist(), strict=True
            )
        )

    def device(self, device: int) -> DeviceCost:
        problem, sent = self.problem, self.sent
        own = [segment for segment in self.segments if segment.device == device]
        ends = (sent.origin == device) | (sent.target == device)
        turns = self.phases.turns[self.phases.turns_of[0, device]]
        # Of frames that others handle, too: frames enter and leave at one device.
        shares = self.phases.shares[sent.row[ends]] / float(turns.share)
        return DeviceCost(
            key=problem.devices[device].key,
            board=problem.boards[self.board_of[device]].name,
            layer_count=sum(len(segment.layers) for segment in own),
            compute_s=sum(segment.compute_s for segment in own),
            copy_s=sum((shares * sent.costs.copy_s[ends]).tolist()),
            runtime_s=problem.overheads.frame_s
            + sum((shares * sent.costs.runtime_s[ends]).tolist()),
            source=problem.times_source,
            gpu_bytes=self._gpu_bytes(device),
            turns=turns,
        )

    def _gpu_bytes(self, device: int) -> int | None:
        problem, kind = self.problem, self.problem.device_kinds[device]
        if not len(problem.gpu_bytes) or np.isnan(problem.gpu_bytes[kind]):
            return None
        layers = (self.costs.population == device).any(axis=0)
        work = problem.working_bytes[layers].max() if len(problem.working_bytes) else 0
        return int(problem.gpu_bytes[kind] + problem.weight_bytes[layers].sum() + work)

    def bottleneck(self) -> str:
        return busiest(self._loads()).name

    def _loads(self) -> Iterator[Load]:
        """Yield what may limit the rate; shares are of what takes longest."""
        problem, boards = self.problem, self.problem.boards
        loads_s = self.costs.loads_s[0]
        with np.errstate(invalid="ignore"):  # where a device cannot run a layer
            shares = iter(np.nan_to_num(loads_s / (loads_s.max() or 1.0), nan=1.0).tolist())
        for number, device in enumerate(problem.devices):
            share = next(shares)
            name = f"computing on {device.key}"
            # Costs are exact: a core is told unless the device alone takes as long.
            yield Load(
                kind="rank", name=name, share=share, ranks=(number,), on_core=float(share == 1)
            )
        for group, (board, core) in core_groups(problem).items():
            own = [device for device in group if device in self.used]
            keys = [problem.devices[device].key for device in own]
            yield core_load(boards[board].name, core, own, next(shares), names=keys)
        for costs in boards:
            for is_outgoing in (True, False):
                yield link_load(costs.name, next(shares), is_outgoing=is_outgoing)

    def boards(self) -> Iterator[BoardCost]:
        problem = self.problem
        memory = self.costs.memory_bytes(self.segment_of)[0]
        held = self.phases.most(weights_of(problem, self.costs.population))
        weights = (held @ problem.is_on_board)[0]
        for board in sorted({self.board_of[device] for device in self.used}):
            source, basis = self._energy_source(board)
            name = problem.boards[board].name
            yield BoardCost(
                name=name,
                memory_bytes=float(memory[board]),
                weight_bytes=float(weights[board]),
                memory_source=self._memory_source(name),
                energy_j=None if source is None else float(self.costs.energies_j[0, board]),
                energy_source=source,
                energy_from=basis,
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
        is_measured = set(problem.is_power_measured[devices].tolist())
        sources = [problem.times_source] if costs.is_idle_measured or True in is_measured else []
        from_platform = [] if costs.is_idle_measured else ["idle_w"]
        from_platform += ["busy_w"] if False in is_measured else []
        if from_platform:
            sources.append(f"{lines}.{' and '.join(from_platform)}")
        return "modelled" if from_platform else "measured", "; ".join(sources)

    def notes(self) -> Iterator[str]:
        """Yield costs that are not known and so count as nothing."""
        problem = self.problem
        sharing = {device for group in core_groups(problem) for device in group}
        for device in self.used:
            if problem.devices[device].host_share is None and device in sharing:
                key = problem.devices[device].key
                yield (
                    f"{key}: how long it keeps its host core busy is not known, and counted as"
                    " nothing"
                )
        unknown = np.flatnonzero(~self.sent.is_local & (self.sent.costs.link_s == 0)).tolist()
        yield from sorted({self.channels[message].source for message in unknown})
        sent = np.unique(self.sent.tensor[~self.sent.is_local]).tolist()
        if bounds := [tensor.name for n in sent if (tensor := problem.tensors[n]).is_bound]:
            yield bounds_text(bounds)
        if not len(problem.rank_bytes):
            yield "memory of interpreters and engines is not known, and counted as nothing"
        if problem.overheads.source == "left out":
            yield "what the runtime takes of the cores is not known, and counted as nothing"


def _mean(shares: NDArray[np.float64], values: NDArray[np.float64]) -> float:
    return float(values[0]) if len(values) == 1 else float(np.average(values, weights=shares))
