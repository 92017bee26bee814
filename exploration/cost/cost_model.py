"""What an assignment of layers to devices costs: rate, latency, memory and energy.

Computing and sending overlap, so a pipeline is as fast as its busiest part. Those parts are

* a device: its layers' times, which are a little longer in a pipeline than when they are measured;
  what the runtime takes of the same cores for each frame and each message; a message between two
  ranks of one board is copied by the cores of both;
* a core that several devices share: the sum over them;
* a board's link, each direction for itself: bytes over bandwidth, summed over all messages that
  leave the board, or come in.

A tensor goes once to each device that needs it. :func:`predict` explains one assignment, segment
by segment and with the source of every figure; :func:`evaluate` gives four figures for each of
many assignments. Both have the same rate.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.cost.evaluation import (
    Evaluations,
    blocks_of,
    core_users,
    evaluate,
    memory_of,
    spans_of,
)
from rankslice.exploration.cost.messages import messages_of, producer_of
from rankslice.exploration.problem.problem import MODEL_INPUT, LayerTensor, Problem
from rankslice.framework.plan import Plan
from rankslice.frontend.partition.partition import partition

__all__ = [
    "BoardCost",
    "ChannelCost",
    "DeviceCost",
    "Evaluations",
    "LinkCost",
    "Prediction",
    "SegmentCost",
    "SharedCore",
    "evaluate",
    "predict",
    "predict_plan",
]


@dataclass(frozen=True, slots=True)
class SegmentCost:
    """A segment: what it runs and how long that takes."""

    device: int
    """Index of the problem's device."""
    index: int
    """Number within the device, from 0."""
    layers: tuple[int, ...]
    compute_s: float
    busy_s: float
    """With the messages that it takes and gives, and what the runtime takes of each frame."""


@dataclass(frozen=True, slots=True)
class DeviceCost:
    """What a device is busy with for each frame, in seconds."""

    key: str
    board: str
    layers: int
    segments: int
    compute_s: float
    copy_s: float
    """Copying tensors to and from other ranks: of its board, or into and out of the network."""
    runtime_s: float
    """What the runtime takes for each frame and each message."""
    source: str
    """Where the times of computing are from."""
    gpu_bytes: int | None
    """Memory of the GPU; ``None``: not measured, or there is none."""

    @property
    def busy_s(self) -> float:
        """All of it."""
        return self.compute_s + self.copy_s + self.runtime_s


@dataclass(frozen=True, slots=True)
class ChannelCost:
    """A tensor that goes from one device to another, once for each frame."""

    tensor: str
    origin: str
    """Mapping key."""
    target: str
    nbytes: float
    seconds: float
    """Bytes over bandwidth, and latency."""
    source: str
    """Where bandwidth and latency are from."""


@dataclass(frozen=True, slots=True)
class LinkCost:
    """One direction of a board's link to the others."""

    board: str
    is_outgoing: bool
    nbytes: float
    seconds: float
    """How long the messages of a frame take of it."""
    source: str


@dataclass(frozen=True, slots=True)
class SharedCore:
    """A core that several used devices share."""

    board: str
    core: int
    keys: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class BoardCost:
    """What a used board holds, and takes for each frame."""

    name: str
    memory_bytes: float
    weight_bytes: float
    capacity_bytes: int | None
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
    links: tuple[LinkCost, ...]
    """Those that are used."""
    shared_cores: tuple[SharedCore, ...]
    boards: tuple[BoardCost, ...]
    bottleneck_s: float
    bottleneck: str
    """What is busiest, in words."""
    latency_s: float
    """Time of a frame that is alone in the pipeline."""
    notes: tuple[str, ...]
    """What was left out because nobody knows it."""

    @property
    def throughput_fps(self) -> float:
        """Frames per second; 0 if it cannot run."""
        return 1 / self.bottleneck_s if self.bottleneck_s else math.inf

    def to_json(self) -> dict[str, Any]:
        """Return the record for ``--json``."""
        return {**asdict(self), "throughput_fps": self.throughput_fps}


Block: TypeAlias = tuple[int, tuple[int, ...]]
"""A device, and layers that it runs together."""


def predict(problem: Problem, assignment: Sequence[int] | NDArray[np.int64]) -> Prediction:
    """Return what an assignment costs: rate, latency, memory, energy, and why.

    Args:
        problem: layers and devices.
        assignment: (layers,) index of each layer's device.

    Raises:
        RankSliceError: a tensor would have to be sent that has no fixed size, or layers would be
            on several ranks that cannot be apart.
    """
    chosen = tuple(int(device) for device in assignment)
    return _predict(problem, chosen, _blocks(problem, chosen))


def predict_plan(problem: Problem, plan: Plan) -> Prediction:
    """Return what a plan costs whose ranks are the devices of a problem, by their keys.

    Args:
        problem: of the plan's model.
        plan: its segments are taken as they are.
    """
    number = {device.key: index for index, device in enumerate(problem.devices)}
    position = {name: index for index, name in enumerate(problem.layers)}
    chosen = [0] * len(problem.layers)
    blocks: list[Block] = []
    for segment in plan.segments:
        device = number[plan.ranks[segment.rank].key]
        layers = tuple(position[name] for name in segment.layers if name in position)
        blocks.append((device, layers))
        for layer in layers:
            chosen[layer] = device
    return _predict(problem, tuple(chosen), blocks)


def _blocks(problem: Problem, assignment: tuple[int, ...]) -> list[Block]:
    """Return the segments that the partition makes."""
    if problem.graph is not None:
        position = {name: index for index, name in enumerate(problem.layers)}
        where = dict(zip(problem.layers, assignment, strict=True))
        return [
            (each.rank, tuple(position[x.name] for x in each.layers if x.name in position))
            for each in partition(problem.graph, where).segments
        ]
    return [(assignment[block[0]], block) for block in blocks_of(problem, assignment)]


def _predict(problem: Problem, assignment: tuple[int, ...], blocks: list[Block]) -> Prediction:
    channels = list(_channels(problem, assignment))
    segments = _segments(problem, assignment, blocks, channels)
    devices = tuple(_device_costs(problem, segments, channels))
    links = tuple(_link_costs(problem, channels))
    cores = tuple(_shared_cores(problem, segments))
    parts = [
        *((device.busy_s, f"computing on {device.key}") for device in devices),
        *((core.seconds, _core_in_words(core)) for core in cores),
        *((link.seconds, _link_in_words(link)) for link in links),
    ]
    bottleneck_s, bottleneck = max(parts, key=lambda part: part[0])
    return Prediction(
        devices=devices,
        segments=tuple(segments),
        channels=tuple(_channel_cost(problem, channel) for channel in channels),
        links=links,
        shared_cores=cores,
        boards=tuple(_board_costs(problem, assignment, segments, bottleneck_s)),
        bottleneck_s=bottleneck_s,
        bottleneck=bottleneck,
        latency_s=_latency(problem, assignment, segments, channels),
        notes=tuple(_notes(problem, assignment, channels)),
    )


def _core_in_words(core: SharedCore) -> str:
    return f"core {core.core} of {core.board}, shared by {' and '.join(core.keys)}"


def _link_in_words(link: LinkCost) -> str:
    return f"sending from {link.board}" if link.is_outgoing else f"receiving on {link.board}"


@dataclass(frozen=True, slots=True)
class _Channel:
    tensor: LayerTensor
    origin: int
    target: int
    carry_s: float
    """Bytes over bandwidth."""
    copy_s: float
    """Time of the cores at each of its ends."""
    same_board: bool


def _channels(problem: Problem, assignment: tuple[int, ...]) -> Iterator[_Channel]:
    for tensor in problem.tensors:
        origin = assignment[producer_of(problem, tensor)]
        targets = {assignment[reader] for reader in tensor.readers}
        if tensor.is_output:
            targets.add(assignment[problem.sink_layer])
        for target in sorted(targets - {origin}):
            yield _channel(problem, tensor, origin, target)


def _channel(problem: Problem, tensor: LayerTensor, origin: int, target: int) -> _Channel:
    boards = problem.devices[origin].board, problem.devices[target].board
    carry = float(tensor.nbytes / problem.bandwidth_bytes_s[boards])
    same_board = boards[0] == boards[1]
    copy = carry if same_board else tensor.nbytes * problem.overheads.network_s_per_byte
    return _Channel(tensor, origin, target, carry, copy, same_board)


def _channel_cost(problem: Problem, channel: _Channel) -> ChannelCost:
    boards = problem.devices[channel.origin].board, problem.devices[channel.target].board
    return ChannelCost(
        channel.tensor.name,
        problem.devices[channel.origin].key,
        problem.devices[channel.target].key,
        channel.tensor.nbytes,
        channel.carry_s + float(problem.latency_s[boards]),
        _link_source(problem, *boards),
    )


def _link_source(problem: Problem, origin: int, target: int) -> str:
    return problem.link_sources[origin][target] if problem.link_sources else "given links"


def _segments(
    problem: Problem,
    assignment: tuple[int, ...],
    blocks: Sequence[Block],
    channels: Sequence[_Channel],
) -> list[SegmentCost]:
    """Return segments whose times sum up to those of their devices' spans."""
    totals = _device_compute_s(problem, assignment)
    raw = [_compute_s(problem, device, layers) for device, layers in blocks]
    sums: dict[int, float] = defaultdict(float)
    for (device, _), seconds in zip(blocks, raw, strict=True):
        sums[device] += seconds
    around = _around(problem, blocks, channels)
    count: dict[int, int] = defaultdict(int)
    found = []
    for number, (device, layers) in enumerate(blocks):
        is_scaled = 0 < sums[device] < math.inf and math.isfinite(totals[device])
        compute = raw[number] * (totals[device] / sums[device] if is_scaled else 1.0)
        first = problem.overheads.frame_s if not count[device] else 0.0
        found.append(
            SegmentCost(device, count[device], layers, compute, compute + around[number] + first)
        )
        count[device] += 1
    return found


def _device_compute_s(problem: Problem, assignment: tuple[int, ...]) -> dict[int, float]:
    spans = spans_of(np.array([assignment], np.int64))
    totals: dict[int, float] = defaultdict(float)
    for device, first, last in zip(spans.device, spans.first, spans.last, strict=True):
        kind = problem.devices[device].kind
        totals[int(device)] += float(problem.span_tables[kind, first, last])
    return totals


def _compute_s(problem: Problem, device: int, layers: tuple[int, ...]) -> float:
    """Return the time of a segment: of each of its pieces without a gap."""
    kind, total, first = problem.devices[device].kind, 0.0, 0
    for number, layer in enumerate(layers):
        is_last = number + 1 == len(layers) or layers[number + 1] != layer + 1
        if is_last:
            total += float(problem.span_tables[kind, layers[first], layer])
            first = number + 1
    return total


def _around(problem: Problem, blocks: Sequence[Block], channels: Sequence[_Channel]) -> list[float]:
    """Return what messages take of each segment's cores: copies, and the runtime's time."""
    maker = {layer: number for number, (_, layers) in enumerate(blocks) for layer in layers}
    around = [0.0] * len(blocks)
    for channel in channels:
        seconds = channel.copy_s + problem.overheads.message_s
        around[maker[producer_of(problem, channel.tensor)]] += seconds
        readers = [*channel.tensor.readers]
        readers += [problem.sink_layer] if channel.tensor.is_output else []
        around[min(maker[r] for r in readers if blocks[maker[r]][0] == channel.target)] += seconds
    return around


def _device_costs(
    problem: Problem, segments: Sequence[SegmentCost], channels: Sequence[_Channel]
) -> Iterator[DeviceCost]:
    for device in sorted({segment.device for segment in segments}):
        own = [segment for segment in segments if segment.device == device]
        ends = [c for c in channels if device in (c.origin, c.target)]
        yield DeviceCost(
            key=problem.devices[device].key,
            board=problem.boards[problem.devices[device].board].name,
            layers=sum(len(segment.layers) for segment in own),
            segments=len(own),
            compute_s=sum(segment.compute_s for segment in own),
            copy_s=sum(channel.copy_s for channel in ends),
            runtime_s=problem.overheads.frame_s + len(ends) * problem.overheads.message_s,
            source=problem.times_source,
            gpu_bytes=_gpu_bytes(problem, device, own),
        )


def _gpu_bytes(problem: Problem, device: int, segments: Sequence[SegmentCost]) -> int | None:
    """Return the memory of the GPU that a device takes: for its engine, weights and work."""
    kind = problem.device_kinds[device]
    if not len(problem.gpu_bytes) or np.isnan(problem.gpu_bytes[kind]):
        return None
    layers = [layer for segment in segments for layer in segment.layers]
    work = problem.working_bytes[layers].max() if len(problem.working_bytes) else 0
    return int(problem.gpu_bytes[kind] + problem.weight_bytes[layers].sum() + work)


def _link_costs(problem: Problem, channels: Sequence[_Channel]) -> Iterator[LinkCost]:
    for board in range(len(problem.boards)):
        for is_outgoing in (True, False):
            mine = [
                c
                for c in channels
                if not c.same_board
                and board == problem.devices[c.origin if is_outgoing else c.target].board
            ]
            if mine:
                yield LinkCost(
                    problem.boards[board].name,
                    is_outgoing,
                    sum(c.tensor.nbytes for c in mine),
                    sum(c.carry_s for c in mine),
                    "; ".join(sorted({_channel_cost(problem, c).source for c in mine})),
                )


def _shared_cores(problem: Problem, segments: Sequence[SegmentCost]) -> Iterator[SharedCore]:
    busy: dict[int, float] = defaultdict(float)
    for segment in segments:
        busy[segment.device] += segment.busy_s
    for (board, core), users in core_users(problem).items():
        devices = [device for device in users if device in busy]
        if len(devices) > 1:
            yield SharedCore(
                problem.boards[board].name,
                core,
                tuple(problem.devices[device].key for device in devices),
                sum(
                    busy[device] * (problem.devices[device].host_share or 0.0) for device in devices
                ),
            )


def _latency(
    problem: Problem,
    assignment: tuple[int, ...],
    segments: Sequence[SegmentCost],
    channels: Sequence[_Channel],
) -> float:
    """Return when the last result of a frame that is alone has reached the sink."""
    maker = {layer: number for number, s in enumerate(segments) for layer in s.layers}
    readings: dict[int, list[LayerTensor]] = defaultdict(list)
    for tensor in problem.tensors:
        for reader in tensor.readers:
            readings[maker[reader]].append(tensor)
    ends: list[float] = []
    free: dict[int, float] = defaultdict(float)
    under_way = {(c.tensor.name, c.target): _under_way_s(problem, c) for c in channels}

    def arrival(tensor: LayerTensor, device: int) -> float:
        made = 0.0 if tensor.producer == MODEL_INPUT else ends[maker[tensor.producer]]
        return made + under_way.get((tensor.name, device), 0.0)

    for number, segment in enumerate(segments):
        outside = (t for t in readings[number] if maker.get(t.producer, -1) != number)
        begin = max((arrival(t, segment.device) for t in outside), default=0.0)
        ends.append(max(begin, free[segment.device]) + segment.busy_s)
        free[segment.device] = ends[-1]
    sink = assignment[problem.sink_layer]
    return max((arrival(t, sink) for t in problem.tensors if t.is_output), default=max(ends))


def _under_way_s(problem: Problem, channel: _Channel) -> float:
    """Return the time from one rank to the other; copies count with the segments."""
    boards = problem.devices[channel.origin].board, problem.devices[channel.target].board
    return float(problem.latency_s[boards]) + (0.0 if channel.same_board else channel.carry_s)


def _board_costs(
    problem: Problem,
    assignment: tuple[int, ...],
    segments: Sequence[SegmentCost],
    period_s: float,
) -> Iterator[BoardCost]:
    population = np.array([assignment], np.int64)
    numbers = np.zeros_like(population)
    for number, segment in enumerate(segments):
        numbers[0, list(segment.layers)] = number
    memory = memory_of(problem, population, numbers, messages_of(problem, population))[0]
    for board in sorted({problem.devices[device].board for device in assignment}):
        on_board = [p for p in sorted(set(assignment)) if problem.devices[p].board == board]
        joules, source, told = _energy(problem, board, on_board, segments, period_s)
        costs = problem.boards[board]
        yield BoardCost(
            name=costs.name,
            memory_bytes=float(memory[board]),
            weight_bytes=_weights_on(problem, assignment, on_board),
            capacity_bytes=costs.memory_bytes,
            memory_source=_memory_source(problem, costs.name),
            energy_j=joules,
            energy_source=source,
            energy_from=told,
        )


def _weights_on(problem: Problem, assignment: tuple[int, ...], devices: Iterable[int]) -> float:
    """Return the size of the weights that devices hold, each once for each device."""
    total = 0.0
    for device in devices:
        total += sum(
            float(size)
            for size, where in zip(problem.weight_bytes, assignment, strict=True)
            if where == device
        )
        for weight in problem.shared_weights:
            readers = sum(assignment[reader] == device for reader in weight.readers)
            total -= weight.nbytes * max(0, readers - 1)
    return total


def _memory_source(problem: Problem, board: str) -> str:
    parts = [f"weights and tensors: {problem.model}"]
    if len(problem.rank_bytes):
        parts.append(f"engines: {problem.times_source}")
    parts.append(f"capacity: {problem.platform}: boards.{board}.memory_mb")
    return "; ".join(parts)


def _energy(
    problem: Problem,
    board: int,
    devices: Sequence[int],
    segments: Sequence[SegmentCost],
    period_s: float,
) -> tuple[float | None, str | None, str]:
    """Return the energy of a frame on a board, how it is known, and what it rests on."""
    costs = problem.boards[board]
    lines = f"{problem.platform}: boards.{costs.name}"
    told = _power_sources(problem, board, devices)
    if costs.idle_w is None or not np.isfinite(problem.active_w[list(devices)]).all():
        return None, None, f"no sensor, and {lines} has not both idle_w and busy_w"
    active = sum(
        segment.busy_s * float(problem.active_w[segment.device])
        for segment in segments
        if segment.device in devices
    )
    are_measured = all(problem.is_power_measured(device) for device in devices)
    is_measured = are_measured and costs.is_idle_measured
    return costs.idle_w * period_s + active, "measured" if is_measured else "modelled", told


def _power_sources(problem: Problem, board: int, devices: Sequence[int]) -> str:
    """Return which measurements and lines the power of a board and its devices is from."""
    costs = problem.boards[board]
    is_measured = {problem.is_power_measured(device) for device in devices}
    sources = [problem.times_source] if costs.is_idle_measured or True in is_measured else []
    given = [] if costs.is_idle_measured else ["idle_w"]
    given += ["busy_w"] if False in is_measured else []
    if given:
        sources.append(f"{problem.platform}: boards.{costs.name}.{' and '.join(given)}")
    return "; ".join(sources)


def _notes(
    problem: Problem, assignment: tuple[int, ...], channels: Sequence[_Channel]
) -> Iterator[str]:
    """Yield what was counted as nothing because nobody knows it."""
    used = sorted(set(assignment))
    users = core_users(problem)
    for device in used:
        shares = any(device in devices for devices in users.values())
        if problem.devices[device].host_share is None and shares:
            yield (
                f"{problem.devices[device].key}: how long it keeps its host core busy is not known,"
                " and counted as nothing"
            )
    unknown = {
        _link_source(problem, problem.devices[c.origin].board, problem.devices[c.target].board)
        for c in channels
        if not c.same_board and c.carry_s == 0
    }
    yield from sorted(unknown)
    if not len(problem.rank_bytes):
        yield "memory of interpreters and engines is not known, and counted as nothing"
    if problem.overheads.source == "left out":
        yield "what the runtime takes of the cores is not known, and counted as nothing"
