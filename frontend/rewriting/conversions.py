"""Tensors that cross between boards as fewer bits: converted where they are made, and back where
they are read.

Conversions are layers like any others, so engines compute them, and the runtime does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rankslice.framework.graph import (
    Convert,
    Graph,
    Layer,
    Making,
    Renamed,
    Scales,
    Tensor,
)
from rankslice.framework.mapping import Assignment
from rankslice.framework.plan import Plan
from rankslice.framework.platform import WIRES, Wire
from rankslice.framework.quantisers import copied_layers
from rankslice.framework.wording import quoted
from rankslice.frontend.rewriting.split import Rewritten, made_layer

_INPUTS = ("inputs of other boards",)
_OUTPUTS = ("outputs of other boards",)


@dataclass(frozen=True, slots=True)
class Wires:
    """What crosses between boards as which type, before anything is converted."""

    of: Mapping[tuple[str, int], Wire]
    """By tensor, and entry of the mapping that reads it."""
    outputs: Mapping[str, Wire]
    """By model output, for the sink."""
    source: int
    """Entry where frames enter."""
    sink: int
    warnings: tuple[str, ...] = ()

    @property
    def tensors(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.of)

    def kinds(self, tensor: str) -> frozenset[Wire]:
        return frozenset(kind for (name, _), kind in self.of.items() if name == tensor)


def find_wires(
    graph: Graph, plan: Plan, entries: Sequence[int], wire: Callable[[str, str], Wire]
) -> Wires:
    """Return which channels of a plan are to carry other types.

    If ranks take turns, and some of them are on other boards, all of them get the same type, the
    smallest one of their links: so a frame's results do not depend on which rank handles it.

    Args:
        entries: by rank, the entry of the mapping.
        wire: the type between two boards.
    """
    ranks, job = plan.ranks, plan.job
    source, sink = entries[job.source], entries[job.sink]
    inputs, outputs = ({t.name for t in side} for side in (graph.inputs, graph.outputs))
    fixed = fixed_tensors(graph)
    of: dict[tuple[str, int], Wire] = {}
    raw: dict[str, str] = {}
    for channel in plan.channels:
        name, entry = channel.tensor, entries[channel.destination]
        one, other = (ranks[end].board for end in (channel.source, channel.destination))
        kind = wire(one, other) if one != other else "none"
        if kind == "none" or job.tensors[name].dtype != "float32":
            continue
        is_result = name in outputs and channel.destination == job.sink
        if name in fixed:
            raw[name] = f"layer {quoted(fixed[name])} has it in a body of control flow"
        elif name in inputs and (name in outputs or entries.count(source) > 1):
            raw[name] = "the ranks where frames enter take turns"
            if name in outputs:
                raw[name] = "it is an input and an output of the model"
        elif is_result and entries.count(sink) > 1:
            raw[name] = "the ranks where results come out take turns"
        else:
            of[name, entry] = max(of.get((name, entry), kind), kind, key=WIRES.index)
    of = {key: kind for key, kind in of.items() if key[0] not in raw}
    results = {name: of[name, sink] for name in outputs if (name, sink) in of}
    warnings = (f"tensor {quoted(n)} is sent as float32: {why}" for n, why in raw.items())
    return Wires(of, results, source, sink, tuple(warnings))


def fixed_tensors(graph: Graph) -> dict[str, str]:
    """Return tensors whose names are in records that are not rewritten, and their layers."""
    names: dict[str, str] = {}
    for layer in graph.layers:
        operands = {operand.name for operand in layer.operands if operand}
        read = {tensor.name for tensor in layer.inputs} | {one.name for one in layer.weights}
        if not read <= operands:
            names |= {tensor.name: layer.name for tensor in (*layer.inputs, *layer.outputs)}
    return names


@dataclass(frozen=True, slots=True)
class Sent:
    """A tensor of the model that is sent as another one."""

    tensor: Tensor
    sent: Tensor
    scales: Scales | None


@dataclass(frozen=True, slots=True)
class Wired:
    graph: Rewritten
    sent: tuple[Sent, ...]


def with_conversions(
    graph: Graph,
    assignment: Assignment,
    group_of: Mapping[str, object],
    wires: Wires,
    scales: Mapping[str, Scales],
) -> Wired:
    """Return the graph with conversions, each where it belongs.

    A layer on another board reads what comes out of the way back, under another name. A model
    output that is converted is made under another name: its own is that of what the sink gets.

    Args:
        scales: of tensors that are sent as integers, by name.
    """
    placed = assignment.entry_of
    work = _Conversions(graph, placed, group_of, wires, scales, copied_layers(graph, placed))
    return work.result(assignment)


@dataclass
class _Conversions:
    graph: Graph
    entry_of: Mapping[str, int]
    group_of: Mapping[str, object]
    wires: Wires
    scales: Mapping[str, Scales]
    copied: frozenset[str]
    _layers: list[Layer] = field(default_factory=list)
    _entries: dict[str, int] = field(default_factory=dict)
    """Of made layers that have one, by name."""
    _groups: dict[str, object] = field(default_factory=dict)
    _makers: dict[str, Layer] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)
    _made: dict[tuple[object, ...], Tensor] = field(default_factory=dict)
    """Results of made layers, by what they are."""
    _renamed: dict[str, Tensor] = field(default_factory=dict)
    """What model outputs are called before they are converted."""
    _sent: list[Sent] = field(default_factory=list)

    def result(self, assignment: Assignment) -> Wired:
        graph = self.graph
        self._makers = {tensor.name: layer for layer in graph.layers for tensor in layer.outputs}
        self._names = {layer.name for layer in graph.layers} | {*self._makers}
        self._names |= {tensor.name for tensor in graph.inputs}
        self._names |= {weight.name for weight in graph.weights}
        for tensor in graph.outputs:
            if tensor.name in self.wires.outputs:
                name = self._unique(f"{tensor.name} before it is sent")
                self._renamed[tensor.name] = replace(tensor, name=name)
        for layer in graph.layers:
            entry = None if layer.name in self.copied else self.entry_of.get(layer.name)
            seen = {tensor.name: self._view(tensor, entry) for tensor in layer.inputs}
            self._layers.append(_renamed(layer, seen, self._renamed))
        for tensor in graph.outputs:
            if tensor.name in self.wires.outputs:
                self._restore(tensor, self.wires.outputs[tensor.name], tensor, self.wires.sink)
        layers: list[list[str]] = [[] for _ in assignment.layers]
        of_entry = [{*names} for names in assignment.layers]
        for name, entry in self._entries.items():
            of_entry[entry].add(name)
        for layer in self._layers:
            for names, wanted in zip(layers, of_entry, strict=True):
                if layer.name in wanted:
                    names.append(layer.name)
        rewritten = Rewritten(
            replace(graph, layers=tuple(self._layers)),
            Assignment(tuple(map(tuple, layers))),
            {**self.group_of, **self._groups},
            self.wires.warnings,
        )
        return Wired(rewritten, tuple(self._sent))

    def _unique(self, name: str) -> str:
        while name in self._names:
            name += "'"
        self._names.add(name)
        return name

    def _view(self, tensor: Tensor, entry: int | None) -> Tensor:
        """Return what a layer of an entry reads instead of a tensor."""
        kind = None if entry is None else self.wires.of.get((tensor.name, entry))
        if kind is not None:
            key = ("restored", tensor.name, kind)
            if key not in self._made:
                name = self._unique(f"{tensor.name} from {kind}")
                self._made[key] = self._restore(tensor, kind, replace(tensor, name=name))
            return self._made[key]
        maker = self._makers.get(tensor.name)
        if entry is not None and maker is not None and maker.name in self.copied:
            return self._copy(maker, tensor, entry)
        return self._renamed.get(tensor.name, tensor)

    def _copy(self, layer: Layer, tensor: Tensor, entry: int) -> Tensor:
        """Return what a copied layer makes for an entry that reads what comes from others."""
        seen = {read.name: self._view(read, entry) for read in layer.inputs}
        if seen == {read.name: self._view(read, None) for read in layer.inputs}:
            return tensor
        key = ("copy", layer.name, *(new.name for new in seen.values()))
        if (*key, tensor.name) not in self._made:
            results = {
                made.name: replace(made, name=self._unique(f"{made.name} from other boards"))
                for made in layer.outputs
            }
            self._made |= {(*key, name): made for name, made in results.items()}
            copy = _renamed(layer, seen, results)
            name = self._unique(f"{layer.name} from other boards")
            origin = layer.origin or layer.name
            self._layers.append(replace(copy, name=name, origin=origin, is_copied=True))
        return self._made[(*key, tensor.name)]

    def _restore(
        self, tensor: Tensor, kind: Wire, result: Tensor, entry: int | None = None
    ) -> Tensor:
        """Append the way back from a type; without an entry it is copied to its readers."""
        sent = self._converted(tensor, kind)
        scales = self._scales_of(tensor, kind)
        name = f"restore {result.name}"
        self._add(name, tensor, sent, result, Convert(scales), entry, _OUTPUTS)
        return result

    def _scales_of(self, tensor: Tensor, kind: Wire) -> Scales | None:
        return self.scales.get(tensor.name, Scales()) if kind == "int8" else None

    def _converted(self, tensor: Tensor, kind: Wire) -> Tensor:
        key = ("converted", tensor.name, kind)
        if key not in self._made:
            name = self._unique(f"{tensor.name} as {kind}")
            sent = replace(tensor, name=name, dtype=kind)
            scales = self._scales_of(tensor, kind)
            maker = self._makers.get(tensor.name)
            entry = self.entry_of[maker.name] if maker else self.wires.source
            group = self.group_of.get(maker.name) if maker else _INPUTS
            source = self._renamed.get(tensor.name, tensor)
            self._add(f"convert {name}", tensor, source, sent, Convert(scales), entry, group)
            self._made[key] = sent
            self._sent.append(Sent(tensor, sent, scales))
        return self._made[key]

    def _add(
        self,
        name: str,
        tensor: Tensor,
        source: Tensor,
        result: Tensor,
        making: Making,
        entry: int | None,
        group: object,
    ) -> None:
        maker = self._makers.get(tensor.name)
        origin = (maker.origin or maker.name) if maker else ""
        layer = made_layer(
            self._unique(name), origin, [source], result, making, is_copied=entry is None
        )
        self._layers.append(layer)
        if entry is not None:
            self._entries[layer.name] = entry
            if group is not None:
                self._groups[layer.name] = group


def _renamed(layer: Layer, seen: Mapping[str, Tensor], made: Mapping[str, Tensor]) -> Layer:
    """Return a layer that reads and makes tensors of other names, by their own."""

    def renamed(tensors: Sequence[Tensor], names: Mapping[str, Tensor]) -> Iterator[Tensor]:
        return (names.get(tensor.name, tensor) for tensor in tensors)

    inputs, outputs = tuple(renamed(layer.inputs, seen)), tuple(renamed(layer.outputs, made))
    if (inputs, outputs) == (layer.inputs, layer.outputs):
        return layer
    operands = tuple(
        seen.get(operand.name, operand) if isinstance(operand, Tensor) else operand
        for operand in layer.operands
    )
    making = layer.making or Renamed()
    return replace(layer, inputs=inputs, outputs=outputs, operands=operands, making=making)
