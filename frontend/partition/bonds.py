"""Layers that cannot be apart, as single items of the partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rankslice.framework.errors import Mistake
from rankslice.framework.graph import Bond, Graph, Layer
from rankslice.framework.wording import first_of, joined, listed, quoted
from rankslice.frontend.partition.order import dependency_order

_MAX_REASONS = 3


def bonded(used: frozenset[str], bonds: Sequence[Bond]) -> frozenset[str]:
    """Return the layers that are needed because they share something with one that is used."""
    needed = {layer for bond in bonds if not used.isdisjoint(bond.layers) for layer in bond.layers}
    return frozenset(needed)


def bound_items(
    layers: Sequence[Layer], bonds: Sequence[Bond], predecessors: Sequence[Sequence[int]]
) -> list[tuple[int, ...]]:
    """Return the positions of the layers, those together that have to be in one segment.

    Besides the layers of a bond these are the ones on a way from one of them to another, and
    those of other bonds with which they would wait for each other in a cycle. The items come in
    a topological order, each with its positions ascending.

    Args:
        layers: in a topological order.
        bonds: may name other layers too.
        predecessors: positions of the layers from which each layer reads.
    """
    position = {layer.name: number for number, layer in enumerate(layers)}
    edges: list[set[int]] = [set(before) for before in predecessors]
    for bond in bonds:
        members = [position[name] for name in bond.layers if name in position]
        for one, other in zip(members, [*members[1:], *members[:1]], strict=True):
            # Edges in both directions make the members one strongly connected component.
            edges[other].add(one)
    components = _components(edges)
    before, keys = between_items(components, predecessors), [items[0] for items in components]
    return [components[number] for number in dependency_order(before, keys)]


def _components(edges: Sequence[set[int]]) -> list[tuple[int, ...]]:
    """Return the strongly connected components.

    Tarjan, "Depth-first search and linear graph algorithms", SIAM J. Comput. 1972; not recursive.
    """
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    done: set[int] = set()
    components = []
    for root in range(len(edges)):
        if root in index:
            continue
        path = [(root, iter(sorted(edges[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        while path:
            item, following = path[-1]
            target = next(following, None)
            if target is None:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[item])
                if low[item] == index[item]:
                    first = stack.index(item)
                    components.append(tuple(sorted(stack[first:])))
                    done.update(stack[first:])
                    del stack[first:]
            elif target not in index:
                index[target] = low[target] = len(index)
                stack.append(target)
                path.append((target, iter(sorted(edges[target]))))
            elif target not in done:
                low[item] = min(low[item], index[target])
    return components


def between_items(
    items: Sequence[tuple[int, ...]], predecessors: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Return the numbers of the other items on which each item depends."""
    number = {position: index for index, item in enumerate(items) for position in item}
    return [
        sorted({number[p] for position in item for p in predecessors[position]} - {index})
        for index, item in enumerate(items)
    ]


def bond_mistakes(
    graph: Graph,
    layers: Sequence[Layer],
    items: Sequence[tuple[int, ...]],
    rank_of: Mapping[str, int],
) -> Iterator[Mistake]:
    for item in items:
        names = [layers[position].name for position in item]
        ranks = sorted({rank_of[name] for name in names})
        if len(ranks) < 2:
            continue
        reasons = [
            f"{listed(bond.layers)} {bond.reason}"
            for bond in graph.bonds
            if not set(bond.layers).isdisjoint(names)
        ]
        shown = joined(reasons)
        if len(reasons) > _MAX_REASONS:
            shown = ", ".join(first_of(reasons, _MAX_REASONS))
        owners = ", ".join(
            f"rank {rank}: {listed([name for name in names if rank_of[name] == rank])}"
            for rank in ranks
        )
        yield Mistake(
            f"{graph.name}: layers {quoted(names[0])} to {quoted(names[-1])}",
            f"cannot be on several ranks: {shown}",
            f"map them and those between to one key (now {owners})",
        )
