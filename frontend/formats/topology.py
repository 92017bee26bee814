"""Layers in an order in which they can run."""

from __future__ import annotations

from collections.abc import Sequence

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.graph import Layer
from rankslice.framework.wording import quoted
from rankslice.frontend.partition.order import dependency_order


def topological_order(where: str, layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """Return the layers, each after those it reads from, else in the given order."""
    maker = {tensor.name: index for index, layer in enumerate(layers) for tensor in layer.outputs}
    sources = [
        {maker[tensor.name] for tensor in layer.inputs if tensor.name in maker} for layer in layers
    ]
    order = dependency_order(sources, range(len(layers)))
    if len(order) < len(layers):
        cycle = _cycle(sources, set(order))
        names = " -> ".join(quoted(layers[index].name) for index in cycle)
        found = f"the layers {names} depend on each other in a cycle"
        raise RankSliceError(Mistake(where, found, "expected each to read from earlier ones"))
    return tuple(layers[index] for index in order)


def _cycle(sources: Sequence[set[int]], done: set[int]) -> list[int]:
    index = min(set(range(len(sources))) - done)
    path: list[int] = []
    while index not in path:
        path.append(index)
        index = min(sources[index] - done)
    return [*reversed(path[path.index(index) :]), path[-1]]
