"""Contiguous layers of a model as sub-models: what they hold, read and give out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from rankslice.framework.graph import Graph, Layer, Tensor
from rankslice.framework.quantisers import copied_layers
from rankslice.framework.wording import quoted
from rankslice.frontend.partition.partition import (
    crossing_fault,
    layer_reads,
    smallest,
    used_layers,
)


@dataclass(frozen=True, slots=True)
class SpanSegment:
    """What a rank runs that has these layers and no others."""

    layers: tuple[Layer, ...]
    """In the graph's order, with the copies that they need."""
    inputs: tuple[Tensor, ...]
    """By first use."""
    outputs: tuple[Tensor, ...]
    """In the layers' order."""


class SpanSegments:
    """The segments that contiguous layers of a model make, as :func:`partition` would make them.

    Layers are counted as exploration does: those that are copied to their readers, and those that
    no output needs, are left out.
    """

    def __init__(self, graph: Graph) -> None:
        copied = copied_layers(graph, ())
        used = used_layers(graph)
        self.layers = tuple(
            layer for layer in graph.layers if layer.name in used and layer.name not in copied
        )
        """Those that spans count, in a topological order."""
        self._graph = graph
        self._copies = [layer for layer in graph.layers if layer.name in copied]
        self._reads = layer_reads(self.layers, self._copies)
        self._order = {layer.name: number for number, layer in enumerate(graph.layers)}
        self._number = {layer.name: number for number, layer in enumerate(self.layers)}
        self._last_reader = self._last_readers()
        self._behind = self._copies_behind()
        self._bonds = [
            sorted(self._number[name] for name in bond.layers if name in self._number)
            for bond in graph.bonds
        ]

    def _last_readers(self) -> dict[str, int]:
        """Return the number of the last layer that reads each tensor; after all for outputs."""
        found: dict[str, int] = {}
        for number, layer in enumerate(self.layers):
            for tensor in self._reads[layer.name]:
                found[tensor.name] = number
        return {**found, **{tensor.name: len(self.layers) for tensor in self._graph.outputs}}

    def _copies_behind(self) -> dict[str, frozenset[str]]:
        makers: dict[str, frozenset[str]] = defaultdict(frozenset)
        found = {}
        for layer in (*self._copies, *self.layers):
            needed = frozenset().union(*(makers[tensor.name] for tensor in layer.inputs))
            found[layer.name] = needed
            if layer.name not in self._number:
                for tensor in layer.outputs:
                    makers[tensor.name] = needed | {layer.name}
        return found

    def segment(self, first: int, last: int) -> SpanSegment:
        block = self.layers[first : last + 1]
        own = {tensor.name for layer in block for tensor in layer.outputs}
        inputs = {
            tensor.name: tensor
            for layer in block
            for tensor in self._reads[layer.name]
            if tensor.name not in own
        }
        names = frozenset().union(*(self._behind[layer.name] for layer in block))
        copies = [layer for layer in self._copies if layer.name in names]
        made = (tensor for layer in block for tensor in layer.outputs)
        return SpanSegment(
            tuple(sorted((*block, *copies), key=lambda layer: self._order[layer.name])),
            tuple(inputs.values()) or (smallest(self._graph.inputs),),
            tuple(tensor for tensor in made if self._last_reader.get(tensor.name, -1) > last),
        )

    def fault(self, first: int, last: int) -> str:
        for bond in self._bonds:
            if bond and _separates(first, last, bond):
                names = " and ".join(quoted(self.layers[n].name) for n in (bond[0], bond[-1]))
                return f"layers {names} cannot be apart"
        segment = self.segment(first, last)
        for tensor in (*segment.inputs, *segment.outputs):
            if found := crossing_fault(tensor):
                return f"tensor {quoted(tensor.name)} cannot be sent: {found}"
        return ""


def _separates(first: int, last: int, bond: Sequence[int]) -> bool:
    inside = sum(first <= number <= last for number in bond)
    return 0 < inside < len(bond)
