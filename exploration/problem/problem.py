"""The mapping problem: layers and their costs, devices to run them on, links between boards.

All of exploration works on a :class:`Problem`: plain arrays that need neither a model file nor a
board. It also keeps the sources of its figures, which
:mod:`rankslice.exploration.cost.cost_model` reports.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.problem.devices import Device, Kind, Team, teams_of_kinds
from rankslice.exploration.problem.runtime_costs import NO_OVERHEADS, Overheads
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.graph import Graph, Layer, constant_layers
from rankslice.framework.quantisers import copied_layers
from rankslice.frontend.partition.partition import Grouping, SegmentMaker

MODEL_INPUT = -1


@dataclass(frozen=True, slots=True)
class BoardCosts:
    """Memory and power of a board, as far as they are known."""

    name: str
    memory_bytes: int | None = None
    idle_w: float | None = None
    busy_w: float | None = None
    """Power of the board with all accelerators busy, in watts."""
    is_idle_measured: bool = False
    """Whether ``idle_w`` was measured by a sensor; if not, it is from the platform file."""


@dataclass(frozen=True, slots=True)
class LayerTensor:
    """A tensor that may have to cross a cut."""

    name: str
    producer: int
    """Index of the layer that makes it; -1: a model input."""
    nbytes: float
    """Mean size of its messages; inf for one that cannot leave its segment, so that no cut may
    separate its readers from its producer."""
    readers: tuple[int, ...]
    """Indices of the layers that read it, ascending."""
    is_output: bool
    """Whether it is an output of the model, and so goes to the sink."""
    most_bytes: float | None = None
    """Size of a slot, if that is another: with open sizes it has room for the largest ones."""
    is_convertible: bool = False
    """Whether links may carry it as another type than float32."""
    is_bound: bool = False
    """Whether its sizes are open and none are known but the largest: these are counted."""


@dataclass(frozen=True, slots=True)
class SharedWeight:
    """A constant that several layers read: a device holds it once."""

    nbytes: int
    readers: tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """Layers, devices for them, and what everything costs."""

    layers: tuple[str, ...]
    """Topological order. Left out are constant layers and dequantisers, which are copied to their
    readers, and layers that no output needs."""
    devices: tuple[Device, ...]
    """An assignment gives each layer the number of its device; further numbers are those of
    :attr:`teams`."""
    boards: tuple[BoardCosts, ...]
    times_s: NDArray[np.float64]
    """(kinds, layers): estimate for each layer, in seconds; inf where a kind cannot run it."""
    spans_s: NDArray[np.float64]
    """(kinds, layers, layers): times of contiguous layers, by the first and the last of them, in
    seconds; what engines merge is counted."""
    weight_bytes: NDArray[np.int64]
    """(layers,): size of what each layer holds, weights that it shares with others included."""
    tensors: tuple[LayerTensor, ...]
    """Model inputs first, then in the order of their producers; left out is what layers make and
    nobody reads, unless it is a model output."""
    bandwidth_bytes_s: NDArray[np.float64]
    """(boards, boards): from and to. inf: not known, or inside one board."""
    latency_s: NDArray[np.float64]
    """(boards, boards)"""
    wire_share: NDArray[np.float64] = field(default_factory=lambda: np.ones((1, 1)))
    """(boards, boards), or (1, 1) for all: how much of the bytes of a float32 tensor crosses; 1:
    it is not converted."""
    between_frames_s: float = 0.0
    """Time between frames that come by the clock: boards idle so long; 0: they come as fast as they
    are taken."""
    teams: tuple[Team, ...] = ()
    """Devices that may take turns, numbered behind the devices."""
    kinds: tuple[Kind, ...] = ()
    """The kind of each row of the time table; empty if not known."""
    shared_weights: tuple[SharedWeight, ...] = ()
    together: tuple[tuple[int, ...], ...] = ()
    """Layers that must share a device, as groups of indices."""
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
    graph: Graph | None = None
    """The model, if there is one; its partition defines the segments."""
    times_source: str = "given times"
    platform: str = "platform"
    link_sources: tuple[tuple[str, ...], ...] = ()
    """(boards, boards): where bandwidth and latency are from."""

    @cached_property
    def device_kinds(self) -> NDArray[np.int64]:
        return np.array([device.kind for device in self.devices], np.int64)

    @cached_property
    def device_boards(self) -> NDArray[np.int64]:
        return np.array([device.board for device in self.devices], np.int64)

    @cached_property
    def is_on_board(self) -> NDArray[np.float64]:
        """(devices, boards): 1 where a device is on a board."""
        return np.eye(len(self.boards))[self.device_boards]

    @cached_property
    def span_tables(self) -> NDArray[np.float64]:
        """(kinds, layers, layers): what all spans take in a pipeline, in seconds."""
        return np.asarray(self.spans_s + self.overheads.slice_s)

    @cached_property
    def numbered(self) -> tuple[Team, ...]:
        """What numbers in an assignment stand for: each device alone, then the teams."""
        return (*(Team((device,)) for device in range(len(self.devices))), *self.teams)

    @cached_property
    def is_member(self) -> NDArray[np.int64]:
        """(numbers, devices): 1 where a device has the layers of a number in an assignment."""
        table = np.zeros((len(self.numbered), len(self.devices)), np.int64)
        for number, team in enumerate(self.numbered):
            table[number, list(team.devices)] = 1
        return table

    def key_of(self, number: int) -> str:
        """Return the mapping's key for a number in an assignment."""
        return self.numbered[number].key([device.key for device in self.devices])

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
    def home_layers(self) -> NDArray[np.int64]:
        """(tensors,): the layer from whose device each comes: its maker, or where frames enter."""
        producers = np.array([tensor.producer for tensor in self.tensors], np.int64)
        return np.where(producers == MODEL_INPUT, self.source_layer, producers)

    @cached_property
    def is_input(self) -> NDArray[np.bool_]:
        return np.array([tensor.producer == MODEL_INPUT for tensor in self.tensors], bool)

    @cached_property
    def is_output(self) -> NDArray[np.bool_]:
        return np.array([tensor.is_output for tensor in self.tensors], bool)

    @cached_property
    def tensor_bytes(self) -> NDArray[np.float64]:
        """(tensors,): mean size of messages; infinite for one that cannot leave its segment."""
        return np.array([tensor.nbytes for tensor in self.tensors], np.float64)

    @cached_property
    def wire_shares(self) -> NDArray[np.float64]:
        return np.broadcast_to(self.wire_share, (len(self.boards),) * 2)

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """What :attr:`wire_shares` has, once each, ascending."""
        return np.unique(self.wire_shares)

    @cached_property
    def is_convertible(self) -> NDArray[np.bool_]:
        return np.array([tensor.is_convertible for tensor in self.tensors], bool)

    @cached_property
    def crossing_shares(self) -> NDArray[np.float64]:
        """(shares, tensors): how much of each tensor crosses links of :attr:`shares`."""
        return np.where(self.is_convertible, self.shares[:, np.newaxis], 1.0)

    @cached_property
    def slot_bytes(self) -> NDArray[np.float64]:
        """(tensors,): the size of a slot; 0 for one that cannot leave its segment."""
        sizes = (t.nbytes if t.most_bytes is None else t.most_bytes for t in self.tensors)
        return np.array([size if isfinite(size) else 0.0 for size in sizes])

    @cached_property
    def grouping(self) -> Grouping | None:
        """Groups layers into segments; ``None`` without a model."""
        if self.graph is None:
            return None
        return Grouping(SegmentMaker(self.graph))

    @property
    def has_energy(self) -> bool:
        """Whether the energy of each board is known, measured or modelled."""
        return bool(np.isfinite(self.active_w).all()) and all(
            board.idle_w is not None for board in self.boards
        )

    @cached_property
    def is_power_measured(self) -> NDArray[np.bool_]:
        """(devices,): whether a sensor tells what a device draws; if not, the platform file may."""
        if not len(self.measured_w):
            return np.zeros(len(self.devices), bool)
        return np.isfinite(self.measured_w[self.device_kinds])

    @cached_property
    def active_w(self) -> NDArray[np.float64]:
        """(devices,): power above idle while a device computes, in watts; NaN if not known."""
        idle_w = np.array([board.idle_w for board in self.boards], np.float64)  # None: NaN
        busy_w = np.array([board.busy_w for board in self.boards], np.float64)
        shares = np.array([device.power_share for device in self.devices])
        watts = (busy_w - idle_w)[self.device_boards] * shares
        measured = self.measured_w[self.device_kinds] if len(self.measured_w) else watts
        return np.where(self.is_power_measured, measured, watts)


def explored_layers(graph: Graph) -> tuple[Layer, ...]:
    """Return the layers to which exploration gives a device, in the graph's order.

    Left out are layers that are copied to their readers (see
    :func:`rankslice.framework.quantisers.copied_layers`), and those that no output needs.
    """
    return SegmentMaker(graph).layers


def with_turns(problem: Problem, most_turns: int) -> Problem:
    """Return a problem in which devices of one kind may take turns; each of them once at a time."""
    return replace(problem, teams=teams_of_kinds(problem.device_kinds.tolist(), most_turns))


def mapping_of(problem: Problem, assignment: Sequence[int]) -> dict[str, list[str]]:
    """Return a mapping, key to layers, that ``rankslice build`` takes as it is.

    Keys stand in the order in which a frame reaches them; that of devices in turn names all of
    them: ``edge02_gpu*3|edge03_cpu0-3``. Layers that follow each other in the model become a range
    ``first..last``.

    Raises:
        RankSliceError: the problem has no graph.
    """
    if problem.graph is None:
        raise RankSliceError(Mistake("mapping", "the problem was made without a model"))
    return {problem.key_of(n): texts for n, texts in layer_texts(problem, assignment).items()}


def layer_texts(problem: Problem, numbers: Sequence[int]) -> dict[int, list[str]]:
    """Return the layers that have a number, for each number, as texts for a mapping file.

    Args:
        numbers: (layers,); layers that the problem leaves out are put beside their neighbours.
    """
    assert problem.graph is not None
    where = _with_followers(problem.graph, dict(zip(problem.layers, numbers, strict=True)))
    texts: dict[int, list[str]] = {int(number): [] for number in numbers}
    for number, names in _runs(where):
        texts[number] += _as_text(names)
    return texts


_NOWHERE = -1
"""Device of a dequantiser: it stands in no key, and no range may have it."""


def _with_followers(graph: Graph, device_of: dict[str, int]) -> list[tuple[str, int]]:
    """Return all layers of a graph with their devices; unused layers follow their neighbours."""
    constant, copied = constant_layers(graph), copied_layers(graph, ())
    placed = []
    last = next(iter(device_of.values()))
    for layer in graph.layers:
        if layer.name in constant:  # may be in a range or not
            continue
        if layer.name not in copied:
            last = int(device_of.get(layer.name, last))
        placed.append((layer.name, _NOWHERE if layer.name in copied else last))
    return placed


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
