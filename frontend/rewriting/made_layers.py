"""Layers that no model file has, among those of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rankslice.framework.graph import Graph, Layer, Making, Tensor, unique_name
from rankslice.framework.mapping import Assignment


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A graph with made layers, and where they go."""

    graph: Graph
    assignment: Assignment
    group_of: Mapping[str, object]
    """Layers of different groups are in different segments."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a layer runs."""

    entry: int
    """Of the mapping."""
    group: object
    """As in :attr:`Rewritten.group_of`."""


class GraphRewriting:
    """Puts the layers of a new graph together, in a topological order."""

    def __init__(
        self, graph: Graph, assignment: Assignment, group_of: Mapping[str, object]
    ) -> None:
        self.graph = graph
        self.makers = {tensor.name: layer for layer in graph.layers for tensor in layer.outputs}
        """Layers of the graph that is rewritten, by what they make."""
        self.entry_of = dict(assignment.entry_of)
        self.group_of = dict(group_of)
        self.made: dict[tuple[object, ...], Tensor] = {}
        """Results of made layers, by what they are."""
        self._count = len(assignment.layers)
        self._layers: list[Layer] = []
        self._names = graph.names
        self._origins = {name: layer.origin or layer.name for name, layer in self.makers.items()}
        """By tensor: the model's layer that makes it, or whose part does."""

    def unique(self, name: str) -> str:
        return unique_name(name, self._names)

    def append(self, layer: Layer, place: Place | None = None) -> None:
        """Append a layer; without a place it is where it was, or is copied to its readers."""
        self._layers.append(layer)
        for tensor in layer.outputs:
            self._origins.setdefault(tensor.name, layer.origin)
        if place is not None:
            self.entry_of[layer.name] = place.entry
            self.group_of[layer.name] = place.group

    def make(
        self,
        name: str,
        tensor: Tensor,
        sources: Sequence[Tensor],
        result: Tensor,
        making: Making,
        place: Place | None,
    ) -> Tensor:
        """Append a made layer; return its result.

        Args:
            tensor: which it changes, or puts together.
            place: ``None``: it is copied to its readers.
        """
        origin, is_copied = self._origins.get(tensor.name, ""), place is None
        layer = made_layer(self.unique(name), origin, sources, result, making, is_copied=is_copied)
        self.append(layer, place)
        return result

    def rewritten(self, warnings: Iterable[str]) -> Rewritten:
        layers: list[list[str]] = [[] for _ in range(self._count)]
        for layer in self._layers:
            if layer.name in self.entry_of:
                layers[self.entry_of[layer.name]].append(layer.name)
        outputs = {tensor.name for tensor in self.graph.outputs}
        weights = [weight for layer in self._layers for weight in layer.weights]
        weights += [weight for weight in self.graph.weights if weight.name in outputs]
        unique = {weight.name: weight for weight in weights}
        graph = replace(self.graph, layers=tuple(self._layers), weights=tuple(unique.values()))
        assignment = Assignment(tuple(map(tuple, layers)))
        return Rewritten(graph, assignment, self.group_of, tuple(warnings))


def made_layer(
    name: str,
    origin: str,
    sources: Sequence[Tensor],
    result: Tensor,
    making: Making,
    *,
    is_copied: bool = False,
) -> Layer:
    """Return a layer that no model file has.

    Args:
        origin: name of the layer that makes the tensor which it changes.
    """
    return Layer(
        name=name,
        op=type(making).__name__,
        inputs=tuple(dict.fromkeys(sources)),
        outputs=(result,),
        weights=(),
        record=b"",
        operands=tuple(sources),
        origin=origin,
        making=making,
        is_copied=is_copied,
    )
