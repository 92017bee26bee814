"""Layers, and other numbered things, each after those on which it depends."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.graph import Layer
from rankslice.framework.wording import quoted


def dependency_order(before: Sequence[Collection[int]], keys: Sequence[int]) -> list[int]:
    """Return the numbers in a topological order, without those that depend on a cycle.

    Args:
        before: for each number those that come before it, each once.
        keys: of the numbers that could come next, the one with the smallest key does.
    """
    after: list[list[int]] = [[] for _ in before]
    for number, sources in enumerate(before):
        for source in sources:
            after[source].append(number)
    missing = [len(sources) for sources in before]
    ready = [(keys[number], number) for number, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        _, number = heapq.heappop(ready)
        order.append(number)
        for reader in after[number]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, (keys[reader], reader))
    return order


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
