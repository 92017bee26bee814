"""Tensors that cross between boards as fewer bits: converted where they are made, and back where
they are read.

Conversions are layers like any others, so engines compute them, and the runtime does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from rankslice.framework.graph import (
    Convert,
    Graph,
    Layer,
    Renamed,
    Scales,
    Tensor,
    fixed_tensors,
)
from rankslice.framework.mapping import Assignment
from rankslice.framework.plan import Plan
from rankslice.framework.platform import WIRES, Wire
from rankslice.framework.quantisers import copied_layers
from rankslice.framework.wording import quoted
from rankslice.frontend.rewriting.made_layers import GraphRewriting, Place, Rewritten

_INPUTS = ("inputs of other boards",)
_OUTPUTS = ("outputs of other boards",)


@dataclass(frozen=True, slots=True)
class Wires:
    """What crosses between boards as which type, before anything is converted."""

    of: Mapping[tuple[str, int], Wire]
    """By tensor, and entry of the mapping that reads it: the sink's reads outputs, too."""
    source: int
    """Entry where frames enter."""
    sink: int
    warnings: tuple[str, ...] = ()

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
    warnings = (f"tensor {quoted(n)} is sent as float32: {why}" for n, why in raw.items())
    return Wires(of, source, sink, tuple(warnings))


@dataclass(frozen=True, slots=True)
class Sent:
    """A tensor of the model that is sent as another one."""

    tensor: Tensor
    sent: Tensor
    scales: Scales | None


class Conversions(GraphRewriting):
    """The graph with conversions, each where it belongs.

    A layer on another board reads what comes out of the way back, under another name. A model
    output that is converted is made under another name: its own is that of what the sink gets.
    """

    def __init__(
        self,
        graph: Graph,
        assignment: Assignment,
        group_of: Mapping[str, object],
        wires: Wires,
        scales: Mapping[str, Scales],
    ) -> None:
        """``scales``: of tensors that are sent as integers, by name."""
        super().__init__(graph, assignment, group_of)
        self._wires, self._scales = wires, scales
        self._copied = copied_layers(graph, self.entry_of)
        self._renamed: dict[str, Tensor] = {}
        """What model outputs are called before they are converted."""
        self.sent: list[Sent] = []

    def result(self) -> Rewritten:
        wires = self._wires
        converted = [t for t in self.graph.outputs if (t.name, wires.sink) in wires.of]
        for tensor in converted:
            name = self.unique(f"{tensor.name} before it is sent")
            self._renamed[tensor.name] = replace(tensor, name=name)
        for layer in self.graph.layers:
            entry = None if layer.name in self._copied else self.entry_of.get(layer.name)
            seen = {tensor.name: self._view(tensor, entry) for tensor in layer.inputs}
            self.append(_renamed(layer, seen, self._renamed))
        for tensor in converted:
            kind = wires.of[tensor.name, wires.sink]
            self._restore(tensor, kind, tensor, Place(wires.sink, _OUTPUTS))
        return self.rewritten(wires.warnings)

    def _view(self, tensor: Tensor, entry: int | None) -> Tensor:
        """Return what a layer of an entry reads instead of a tensor."""
        kind = None if entry is None else self._wires.of.get((tensor.name, entry))
        if kind is not None:
            key = ("restored", tensor.name, kind)
            if key not in self.made:
                name = self.unique(f"{tensor.name} from {kind}")
                self.made[key] = self._restore(tensor, kind, replace(tensor, name=name), None)
            return self.made[key]
        maker = self.makers.get(tensor.name)
        if entry is not None and maker is not None and maker.name in self._copied:
            return self._copy(maker, tensor, entry)
        return self._renamed.get(tensor.name, tensor)

    def _copy(self, layer: Layer, tensor: Tensor, entry: int) -> Tensor:
        """Return what a copied layer makes for an entry that reads what comes from others."""
        seen = {read.name: self._view(read, entry) for read in layer.inputs}
        if seen == {read.name: self._view(read, None) for read in layer.inputs}:
            return tensor
        key = ("copy", layer.name, *(new.name for new in seen.values()))
        if (*key, tensor.name) not in self.made:
            results = {
                made.name: replace(made, name=self.unique(f"{made.name} from other boards"))
                for made in layer.outputs
            }
            self.made |= {(*key, name): made for name, made in results.items()}
            copy = _renamed(layer, seen, results)
            name = self.unique(f"{layer.name} from other boards")
            origin = layer.origin or layer.name
            self.append(replace(copy, name=name, origin=origin, is_copied=True))
        return self.made[(*key, tensor.name)]

    def _restore(self, tensor: Tensor, kind: Wire, result: Tensor, place: Place | None) -> Tensor:
        """Append the way back from a type."""
        sent = self._converted(tensor, kind)
        making = Convert(self._scales_of(tensor, kind))
        return self.make(f"restore {result.name}", tensor, [sent], result, making, place)

    def _scales_of(self, tensor: Tensor, kind: Wire) -> Scales | None:
        return self._scales.get(tensor.name, Scales()) if kind == "int8" else None

    def _converted(self, tensor: Tensor, kind: Wire) -> Tensor:
        key = ("converted", tensor.name, kind)
        if key not in self.made:
            sent = replace(tensor, name=self.unique(f"{tensor.name} as {kind}"), dtype=kind)
            scales = self._scales_of(tensor, kind)
            maker = self.makers.get(tensor.name)
            place = Place(self._wires.source, _INPUTS)
            if maker:
                place = Place(self.entry_of[maker.name], self.group_of.get(maker.name))
            source = [self._renamed.get(tensor.name, tensor)]
            name = f"convert {sent.name}"
            self.made[key] = self.make(name, tensor, source, sent, Convert(scales), place)
            self.sent.append(Sent(tensor, sent, scales))
        return self.made[key]


def _renamed(layer: Layer, seen: Mapping[str, Tensor], made: Mapping[str, Tensor]) -> Layer:
    """Return a layer that reads and makes tensors of other names, by their own."""
    other = layer.with_tensors(lambda t: seen.get(t.name, t), lambda t: made.get(t.name, t))
    return layer if other == layer else replace(other, making=layer.making or Renamed())
