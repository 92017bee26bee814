"""What is to be decided: layers and what they cost, devices to put them on, links between boards.

Everything that explores works on a :class:`Problem`: plain arrays, with neither a model file nor
a board behind them. :func:`make_problem` makes one of a graph, a platform and times; what the
figures rest on is kept beside them, for :mod:`rankslice.exploration.cost.cost_model` to tell.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.problem.devices import Device, Kind, default_keys, kinds_and_devices
from rankslice.exploration.problem.links import LOCAL_LINK, LinkSpeeds
from rankslice.framework.engines import USUAL_ENGINE, computes
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.graph import Graph, Layer, Tensor, constant_layers
from rankslice.framework.platform import Board, Link, Platform
from rankslice.framework.quantisers import copied_layers
from rankslice.frontend.costs.costs import held_by
from rankslice.frontend.partition.partition import (
    Grouping,
    Reads,
    crossing_fault,
    layer_reads,
    used_layers,
)

__all__ = [
    "LOCAL_LINK",
    "NO_OVERHEADS",
    "SLEEPING_OVERHEADS",
    "USUAL_OVERHEADS",
    "BoardCosts",
    "Device",
    "Kind",
    "LayerTensor",
    "Overheads",
    "Problem",
    "SharedWeight",
    "SpanTimes",
    "SummedTimes",
    "explored_layers",
    "make_problem",
    "mapping_of",
    "usual_overheads",
]

MODEL_INPUT = -1
"""Producer of a model's inputs."""


class SpanTimes(Protocol):
    """How long contiguous layers take when they run as one slice."""

    def span_s(self, kind: int, first: int, last: int) -> float:
        """Return the seconds that layers ``first`` to ``last``, included, take on a kind."""

    def table(self, kind: int) -> NDArray[np.float64]:
        """Return all of them, (layers, layers), by first and last layer, in seconds.

        Entries with the last before the first mean nothing.
        """


class SummedTimes:
    """Spans that take as long as their layers one by one."""

    def __init__(self, times_s: NDArray[np.float64]) -> None:
        """Take the times of the layers, (kinds, layers), in seconds; inf where one cannot run."""
        can_run = np.isfinite(times_s)
        self._sums = _cumulative(np.where(can_run, times_s, 0.0))
        self._refused = _cumulative((~can_run).astype(np.float64))

    def span_s(self, kind: int, first: int, last: int) -> float:
        """Return the sum over the layers; inf if the kind cannot run one of them."""
        if self._refused[kind, last + 1] > self._refused[kind, first]:
            return float("inf")
        return float(self._sums[kind, last + 1] - self._sums[kind, first])

    def table(self, kind: int) -> NDArray[np.float64]:
        """Return all sums, (layers, layers)."""
        sums, refused = self._sums[kind], self._refused[kind]
        table: NDArray[np.float64] = sums[np.newaxis, 1:] - sums[:-1, np.newaxis]
        table[refused[np.newaxis, 1:] > refused[:-1, np.newaxis]] = np.inf
        return table


def _cumulative(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.pad(np.cumsum(values, axis=1), ((0, 0), (1, 0)))


@dataclass(frozen=True, slots=True)
class BoardCosts:
    """What a board has, as far as the platform file tells."""

    name: str
    memory_bytes: int | None = None
    idle_w: float | None = None
    """Power of the board doing nothing, in watts."""
    busy_w: float | None = None
    """Power of the board with all accelerators busy, in watts."""
    is_idle_measured: bool = False
    """Whether a sensor told ``idle_w``, and not the platform file."""


@dataclass(frozen=True, slots=True)
class LayerTensor:
    """A tensor that a cut may have to carry."""

    name: str
    producer: int
    """Index of the layer that makes it; -1: a model input."""
    nbytes: float
    """Size; inf for one that cannot leave its segment, so that no cut may separate its readers
    from its producer."""
    readers: tuple[int, ...]
    """Indices of the layers that read it, ascending."""
    is_output: bool
    """Whether it is an output of the model, and so goes to the sink."""


@dataclass(frozen=True, slots=True)
class SharedWeight:
    """A constant that several layers read: a device holds it once."""

    nbytes: int
    readers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Overheads:
    """Processor time of a rank besides computing; it is taken from the rank's own cores."""

    frame_s: float = 0.0
    """For each frame, in seconds."""
    message_s: float = 0.0
    """For each message, at each of its ends, in seconds."""
    source: str = "left out"
    """Where the figures are from."""
    slice_s: float = 0.0
    """For each run of layers without a gap, in seconds: by how much it takes longer in a pipeline
    than when it is measured, as others interrupt it and use its caches in between."""
    network_s_per_byte: float = 0.0
    """For each byte that goes to another board or comes from there, in seconds: the system's
    network code runs on the rank's cores, too."""


NO_OVERHEADS = Overheads()

SLEEPING_OVERHEADS = Overheads(
    frame_s=0.1e-3,
    message_s=20e-6,
    source="the runtime as measured on two cores of an Intel Xeon",
)
"""What the runtime takes of the cores of a rank that sleeps, if nobody measured it there."""

USUAL_OVERHEADS = replace(SLEEPING_OVERHEADS, slice_s=0.3e-3, network_s_per_byte=3e-9)
"""The same of a rank that computes; ``benchmarks/message_cost.py`` measures it."""


def usual_overheads(engines: Iterable[str]) -> Overheads:
    """Return what is usual for ranks of these engines."""
    computing = {computes(engine) for engine in engines}
    return SLEEPING_OVERHEADS if computing == {False} else USUAL_OVERHEADS


@dataclass(frozen=True)
class Problem:
    """Layers, devices for them, and what everything costs."""

    layers: tuple[str, ...]
    """Topological order. Left out are constant layers and dequantisers, which are copied to their
    readers, and layers that no output needs."""
    devices: tuple[Device, ...]
    boards: tuple[BoardCosts, ...]
    times_s: NDArray[np.float64]
    """(kinds, layers): estimate for each layer, in seconds; inf where a kind cannot run it."""
    spans: SpanTimes
    """Times of contiguous layers, in which what engines merge is counted."""
    weight_bytes: NDArray[np.int64]
    """(layers,): size of what each layer holds, weights that it shares with others included."""
    tensors: tuple[LayerTensor, ...]
    """Model inputs first, then in the order of their producers; left out is what layers make and
    nobody reads, unless it is a model output."""
    bandwidth_bytes_s: NDArray[np.float64]
    """(boards, boards): from and to; the diagonal is inside one board. inf: not known."""
    latency_s: NDArray[np.float64]
    """(boards, boards)"""
    kinds: tuple[Kind, ...] = ()
    """What each row of the time table is; empty if that is not known."""
    shared_weights: tuple[SharedWeight, ...] = ()
    together: tuple[tuple[int, ...], ...] = ()
    """Layers that only work on one device, as groups of indices."""
    working_bytes: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """(layers,): inputs and outputs of each layer; empty: not known, counted as nothing."""
    rank_bytes: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    """(kinds,): memory of a rank before it loads a layer; empty: not measured, counted as
    nothing."""
    gpu_bytes: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    """(kinds,): memory of the GPU that a rank takes besides its layers; NaN or empty: not
    measured."""
    measured_w: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    """(kinds,): power above idle while the kind computes, by a sensor; NaN or empty: none."""
    overheads: Overheads = NO_OVERHEADS
    model: str = "model"
    """Name of the model's file."""
    graph: Graph | None = None
    """The model, if there is one: its partition tells the segments."""
    times_source: str = "given times"
    """Where the times are from."""
    platform: str = "platform"
    """Name of the platform's file."""
    link_sources: tuple[tuple[str, ...], ...] = ()
    """(boards, boards): where bandwidth and latency are from."""

    @cached_property
    def device_kinds(self) -> NDArray[np.int64]:
        """(devices,): the kind of each device."""
        return np.array([device.kind for device in self.devices], np.int64)

    @cached_property
    def device_boards(self) -> NDArray[np.int64]:
        """(devices,): the board of each device."""
        return np.array([device.board for device in self.devices], np.int64)

    @cached_property
    def is_on_board(self) -> NDArray[np.float64]:
        """(devices, boards): 1 where a device is on a board."""
        return np.eye(len(self.boards))[self.device_boards]

    @cached_property
    def span_tables(self) -> NDArray[np.float64]:
        """(kinds, layers, layers): what all spans take in a pipeline, in seconds."""
        tables = np.stack([self.spans.table(kind) for kind in range(len(self.times_s))])
        return np.asarray(tables + self.overheads.slice_s)

    @cached_property
    def source_layer(self) -> int:
        """The first layer that reads a model input: frames enter where it runs."""
        read = (t.readers[0] for t in self.tensors if t.producer == MODEL_INPUT and t.readers)
        return min(read, default=0)

    @cached_property
    def sink_layer(self) -> int:
        """The last layer that makes a model output: results leave where it runs."""
        return max((t.producer for t in self.tensors if t.is_output), default=len(self.layers) - 1)

    @cached_property
    def grouping(self) -> Grouping | None:
        """What groups the layers into segments; ``None``: there is no model."""
        if self.graph is None:
            return None
        layers = explored_layers(self.graph)
        return Grouping(self.graph, layers, _reads(self.graph, layers))

    @property
    def has_energy(self) -> bool:
        """Whether the energy of each board is known, measured or modelled."""
        return bool(np.isfinite(self.active_w).all()) and all(
            board.idle_w is not None for board in self.boards
        )

    @cached_property
    def active_w(self) -> NDArray[np.float64]:
        """(devices,): power above idle while a device computes, in watts; NaN if not known."""
        return np.array([self._active_w(device) for device in self.devices])

    def is_power_measured(self, device: int) -> bool:
        """Tell whether a sensor told what a device draws."""
        kind = self.devices[device].kind
        return bool(len(self.measured_w)) and bool(np.isfinite(self.measured_w[kind]))

    def _active_w(self, device: Device) -> float:
        if len(self.measured_w) and np.isfinite(self.measured_w[device.kind]):
            return float(self.measured_w[device.kind])
        board = self.boards[device.board]
        if board.idle_w is None or board.busy_w is None:
            return float("nan")
        return (board.busy_w - board.idle_w) * device.power_share


def explored_layers(graph: Graph) -> tuple[Layer, ...]:
    """Return the layers to which exploration gives a device, in the graph's order.

    Left out are layers that are copied to their readers (see
    :func:`rankslice.framework.quantisers.copied_layers`), and those that no output needs.
    """
    kept = used_layers(graph) - copied_layers(graph, ())
    return tuple(layer for layer in graph.layers if layer.name in kept)


def make_problem(
    graph: Graph,
    platform: Platform,
    times_s: NDArray[np.float64],
    *,
    keys: Sequence[str] | None = None,
    spans: SpanTimes | None = None,
    default_engine: str = USUAL_ENGINE,
    alike: Sequence[Collection[str]] = (),
    local_link: Link = LOCAL_LINK,
    overheads: Overheads = NO_OVERHEADS,
    rank_bytes: NDArray[np.float64] | None = None,
    measured_w: NDArray[np.float64] | None = None,
    idle_w: Mapping[str, float] = MappingProxyType({}),
    times_source: str = "given times",
) -> Problem:
    """Return the problem of putting a model on the accelerators of a platform.

    Args:
        graph: the model.
        platform: the boards, or ``local``.
        times_s: (kinds, layers), in seconds, inf where a kind cannot run a layer; layers as
            :func:`explored_layers` has them, kinds as
            :func:`rankslice.exploration.problem.devices.kinds_and_devices` finds them for ``keys``.
        keys: mapping keys of the devices; by default
            :func:`rankslice.exploration.problem.devices.default_keys`.
        spans: times of contiguous layers; by default the sums of ``times_s``.
        default_engine: engine of CPU ranks on boards whose platform names none.
        alike: groups of keys that are known to be of one kind.
        local_link: between two ranks of one board.
        overheads: processor time of a rank besides computing.
        rank_bytes: (kinds,) memory of a rank before it loads a layer.
        measured_w: (kinds,) power above idle while a kind computes, NaN where no sensor told.
        idle_w: by name of a board: its power doing nothing, where a sensor told it; it goes before
            what the platform file says.
        times_source: where the times are from, for people.

    Raises:
        RankSliceError: a key is wrong, or the times are not of that form. All mistakes at once.
    """
    layers = explored_layers(graph)
    chosen = default_keys(platform) if keys is None else tuple(keys)
    kinds, devices = kinds_and_devices(chosen, platform, default_engine=default_engine, alike=alike)
    times = np.asarray(times_s, np.float64)
    raise_mistakes(_time_mistakes(times, (len(kinds), len(layers)), times_source))
    bandwidths, latencies, sources = _links(platform, local_link)
    weights = _weights(graph, layers)
    position = {layer.name: index for index, layer in enumerate(layers)}
    return Problem(
        layers=tuple(position),
        devices=devices,
        boards=tuple(_board_costs(board, idle_w.get(board.name)) for board in platform.boards),
        times_s=times,
        spans=SummedTimes(times) if spans is None else spans,
        weight_bytes=_weight_bytes(weights, len(layers)),
        tensors=tuple(_tensors(graph, layers)),
        bandwidth_bytes_s=bandwidths,
        latency_s=latencies,
        kinds=kinds,
        shared_weights=tuple(each for each in weights if len(each.readers) > 1),
        together=tuple(
            tuple(sorted(position[name] for name in bond.layers if name in position))
            for bond in graph.bonds
        ),
        working_bytes=np.array([_working_bytes(layer) for layer in layers], np.int64),
        rank_bytes=np.zeros(0) if rank_bytes is None else rank_bytes,
        measured_w=np.zeros(0) if measured_w is None else measured_w,
        overheads=overheads,
        model=graph.name,
        graph=graph,
        times_source=times_source,
        platform=platform.name,
        link_sources=sources,
    )


def _time_mistakes(
    times: NDArray[np.float64], shape: tuple[int, int], source: str
) -> Iterator[Mistake]:
    if times.shape != shape:
        found = f"the times have the shape {times.shape}"
        yield Mistake(source, found, f"expected {shape}: kinds of accelerators and layers")
    elif np.isnan(times).any() or (times < 0).any():
        yield Mistake(source, "some times are no numbers, or below 0", "expected seconds")


def _board_costs(board: Board, measured_idle_w: float | None) -> BoardCosts:
    memory = None if board.memory_mb is None else round(board.memory_mb * 1e6)
    is_measured = measured_idle_w is not None
    idle_w = measured_idle_w if is_measured else board.idle_w
    return BoardCosts(board.name, memory, idle_w, board.busy_w, is_measured)


def _links(
    platform: Platform, local_link: Link
) -> tuple[NDArray[np.float64], NDArray[np.float64], tuple[tuple[str, ...], ...]]:
    """Return bandwidths, latencies and where they are from, (boards, boards)."""
    links = LinkSpeeds(platform, local_link)
    names = [board.name for board in platform.boards]
    shape = len(names), len(names)
    bandwidths, latencies = links.figures(itertools.product(names, names))
    sources = tuple(tuple(links.source(one, other) for other in names) for one in names)
    return bandwidths.reshape(shape), latencies.reshape(shape), sources


def _tensors(graph: Graph, layers: Sequence[Layer]) -> Iterator[LayerTensor]:
    """Yield what layers read and give out, model inputs first.

    A layer that reads nothing is taken to read the smallest model input, which paces a segment of
    such layers alone: among others it is a message too many.
    """
    reads = _reads(graph, layers)
    readers: dict[str, list[int]] = {}
    for index, layer in enumerate(layers):
        for tensor in reads[layer.name] or (_smallest(graph.inputs),):
            readers.setdefault(tensor.name, []).append(index)
    given = {tensor.name for tensor in graph.outputs}
    made = [(MODEL_INPUT, tensor) for tensor in graph.inputs]
    made += [(index, tensor) for index, layer in enumerate(layers) for tensor in layer.outputs]
    for producer, tensor in made:
        if producer == MODEL_INPUT or tensor.name in readers or tensor.name in given:
            yield LayerTensor(
                tensor.name,
                producer,
                float("inf") if crossing_fault(tensor) else float(tensor.nbytes or 0),
                tuple(readers.get(tensor.name, ())),
                tensor.name in given,
            )


def _reads(graph: Graph, layers: Sequence[Layer]) -> Reads:
    """Return what layers read of others, copied layers seen through."""
    return layer_reads(layers, _copied(graph))


def _copied(graph: Graph) -> list[Layer]:
    copies = copied_layers(graph, ())
    return [layer for layer in graph.layers if layer.name in copies]


def _smallest(tensors: Sequence[Tensor]) -> Tensor:
    """Return what the planner gives a segment that reads nothing."""
    return min(tensors, key=lambda tensor: tensor.nbytes or float("inf"))


def _weights(graph: Graph, layers: Sequence[Layer]) -> list[SharedWeight]:
    """Return the constants of the model with their readers, those of copied layers included."""
    held: dict[str, dict[str, int]] = {}  # by tensor: what the copies behind it hold
    for copy in _copied(graph):
        own = _held(copy, held)
        held |= {tensor.name: own for tensor in copy.outputs}
    sizes: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    for index, layer in enumerate(layers):
        for name, nbytes in _held(layer, held).items():
            sizes[name] = nbytes
            readers.setdefault(name, []).append(index)
    return [SharedWeight(sizes[name], tuple(readers[name])) for name in sizes]


def _held(layer: Layer, behind: dict[str, dict[str, int]]) -> dict[str, int]:
    """Return the sizes of the constants that a layer brings along, by name."""
    found = {item.name: item.nbytes or 0 for item in held_by(layer)}
    for tensor in layer.inputs:
        found |= behind.get(tensor.name, {})
    return found


def _weight_bytes(weights: Iterable[SharedWeight], layers: int) -> NDArray[np.int64]:
    total = np.zeros(layers, np.int64)
    for weight in weights:
        total[list(weight.readers)] += weight.nbytes
    return total


def _working_bytes(layer: Layer) -> int:
    return sum(tensor.nbytes or 0 for tensor in (*layer.inputs, *layer.outputs))


def mapping_of(problem: Problem, assignment: Sequence[int]) -> dict[str, list[str]]:
    """Return a mapping, key to layers, that ``rankslice build`` takes as it is.

    Ranks stand in the order in which a frame reaches them. Layers that follow each other in the
    model become a range ``first..last``.

    Args:
        problem: made of a graph.
        assignment: (layers,) index of each layer's device.

    Raises:
        RankSliceError: the problem has no graph.
    """
    if problem.graph is None:
        raise RankSliceError(Mistake("mapping", "the problem was made without a model"))
    where = _with_followers(problem.graph, dict(zip(problem.layers, assignment, strict=True)))
    mapping: dict[str, list[str]] = {problem.devices[device].key: [] for device in assignment}
    for device, names in _runs(where):
        mapping[problem.devices[device].key] += _as_text(names)
    return mapping


_NOWHERE = -1
"""Device of a dequantiser: it stands in no key, and no range may have it."""


def _with_followers(graph: Graph, device_of: dict[str, int]) -> list[tuple[str, int]]:
    """Return all layers of a graph with their devices; those that nobody needs follow others."""
    constant, copied = constant_layers(graph), copied_layers(graph, ())
    found = []
    last = next(iter(device_of.values()))
    for layer in graph.layers:
        if layer.name in constant:  # may be in a range or not
            continue
        if layer.name not in copied:
            last = int(device_of.get(layer.name, last))
        found.append((layer.name, _NOWHERE if layer.name in copied else last))
    return found


def _runs(where: Iterable[tuple[str, int]]) -> Iterator[tuple[int, list[str]]]:
    """Yield devices with names of layers that follow each other in the model."""
    for device, group in itertools.groupby(where, key=lambda pair: pair[1]):
        if device != _NOWHERE:
            yield device, [name for name, _ in group]


def _as_text(names: list[str]) -> list[str]:
    """Return a range; single names where dots in them could be taken for one."""
    if len(names) < 2 or any(".." in name for name in (names[0], names[-1])):
        return names
    return [f"{names[0]}..{names[-1]}"]
