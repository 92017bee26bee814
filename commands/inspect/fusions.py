"""Which layers of a model file each node of an optimised graph stands for.

An optimiser keeps no account of what it does. But a tensor that is still there has its name, a
fused node is often called like one of those whose place it takes, and a node in onnxruntime's
blocked layout (NCHWc) like the tensor that it makes. So the graphs before and after a stage tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

_MOVERS = frozenset(
    {
        *("com.microsoft.nchwc.ReorderInput", "com.microsoft.nchwc.ReorderOutput"),
        *("MemcpyFromHost", "MemcpyToHost", "Cast", "Transpose"),
    }
)
"""Operators that engines add to bring a tensor to where, or into the form in which, it is read."""

_BLOCKED = "_nchwc"
_BLOCKED_KINDS = ("_bn", "_mul")
"""Endings of names in the blocked layout: the tensor's name is before them."""

_WITH_WEIGHTS = frozenset({"DequantizeLinear"})
"""Operators on weights that are absorbed, not computed once."""

KEPT, REPLACED, FUSED, SPLIT, ADDED = "kept", "replaced", "fused", "split", "added"
FOLDED, DROPPED, STORED = "folded", "dropped", "stored"


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a graph; or a layer, before the engine has seen it."""

    name: str
    """Empty if it has none."""
    op: str
    """With its domain where that is not ONNX's own."""
    inputs: tuple[str, ...]
    """Tensors and weights; omitted ones left out."""
    outputs: tuple[str, ...]
    digest: str
    """Of its attributes: equal for equal ones; empty if not known."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The graph after some optimisation."""

    level: str
    nodes: tuple[Node, ...]
    """In an order in which they can run."""
    weights: tuple[str, ...]
    """Names of the constants that it holds."""


@dataclass(frozen=True, slots=True)
class Group:
    """Layers of the file, and the nodes that stand for them in the graph that runs."""

    kind: str
    """``kept``; ``replaced`` by another operator; ``fused``; ``split``; ``added``: no layer's.
    Or, where there is no node: ``folded``, computed once when the model was loaded; ``stored``, a
    constant that was a layer; ``dropped``, as it changes nothing, or as another one gives the
    same."""
    before: tuple[int, ...]
    after: tuple[int, ...]


def groups_of(stages: Sequence[Stage]) -> tuple[Group, ...]:
    """Return what the nodes of the last stage stand for in the first one.

    Each node of either stage is in exactly one group. Groups with nodes come first, by these.
    """
    parts = _Parts()
    gone: dict[tuple[int, int], str] = {}
    for number, (before, after) in enumerate(pairwise(stages)):
        step = _Step(before, after)
        for index, new in step.owner.items():
            parts.join((number, index), (number + 1, new))
        gone |= {(number, index): reason for index, reason in step.why_gone().items()}
        for index, other in step.helpers.items():
            parts.join((number + 1, index), (number + 1, other))
    last = len(stages) - 1
    firsts, lasts, reasons = _Sides(), _Sides(), dict[tuple[int, int], str]()
    for index in range(len(stages[0].nodes)):
        firsts.setdefault(parts.find((0, index)), []).append(index)
    for index in range(len(stages[last].nodes)):
        lasts.setdefault(parts.find((last, index)), []).append(index)
    for place, reason in gone.items():
        reasons[parts.find(place)] = reason
    found = [
        Group(_kind(stages, firsts.get(part, []), nodes), tuple(firsts.get(part, [])), tuple(nodes))
        for part, nodes in lasts.items()
    ]
    found += [
        Group(reasons.get(part, DROPPED), tuple(layers), ())
        for part, layers in firsts.items()
        if part not in lasts
    ]
    return tuple(found)


_Sides = dict[tuple[int, int], list[int]]


class _Parts:
    """Nodes of all stages, as sets of those that belong together."""

    def __init__(self) -> None:
        self._parents: dict[tuple[int, int], tuple[int, int]] = {}

    def find(self, node: tuple[int, int]) -> tuple[int, int]:
        """Return the node that stands for the set of another."""
        while (parent := self._parents.get(node, node)) != node:
            self._parents[node] = self._parents.get(parent, parent)
            node = parent
        return node

    def join(self, one: tuple[int, int], other: tuple[int, int]) -> None:
        """Put two nodes, and all that belongs to them, into one set."""
        self._parents[self.find(one)] = self.find(other)


def _kind(stages: Sequence[Stage], before: Sequence[int], after: Sequence[int]) -> str:
    if not before:
        return ADDED
    if len(before) > 1:
        return FUSED
    if len(after) > 1:
        return SPLIT
    old, new = stages[0].nodes[before[0]], stages[-1].nodes[after[0]]
    return KEPT if old.op == new.op else REPLACED


class _Step:
    """What one stage has made of the one before it."""

    def __init__(self, before: Stage, after: Stage) -> None:
        self._old, self._new = before.nodes, after.nodes
        self._maker = _makers(before.nodes)
        self._new_maker = _makers(after.nodes)
        self._weights = frozenset(after.weights)
        self._constant = _constant(before)
        self.owner: dict[int, int] = {}
        """Old node -> the new one that stands for it."""
        self._claim(self._by_outputs())
        named = frozenset(self.owner.values())
        self._claim(self._by_layout())
        self._claim(self._by_names())
        self._go_down(frozenset(self.owner.values()) - named)
        self._go_up()
        self._release()
        self.helpers = dict(self._helpers())
        """New node that stands for nothing by itself -> the one that reads its result."""

    def why_gone(self) -> dict[int, str]:
        """Return the old nodes for which there is no new one, and why."""
        readers: dict[str, list[int]] = {}
        for index, node in enumerate(self._old):
            for name in node.inputs:
                readers.setdefault(name, []).append(index)
        reasons: dict[int, str] = {}
        for index in reversed(range(len(self._old))):
            node = self._old[index]
            if index not in self.owner:
                # Sizes that turned out to be fixed are folded up to the last one that is read.
                read_by = {reader for name in node.outputs for reader in readers.get(name, [])}
                is_folded = (
                    index in self._constant
                    or not self._weights.isdisjoint(node.outputs)
                    or (bool(read_by) and all(reasons.get(each) == FOLDED for each in read_by))
                )
                constant = STORED if node.op == "Constant" else FOLDED
                reasons[index] = constant if is_folded else DROPPED
        return reasons

    def _claim(self, found: Iterable[tuple[int, int]]) -> None:
        for old, new in found:
            self.owner.setdefault(old, new)

    def _by_outputs(self) -> Iterator[tuple[int, int]]:
        """Yield old nodes whose results are still there, with those that make them now."""
        for index, node in enumerate(self._new):
            for name in node.outputs:
                if name in self._maker:
                    old = self._maker[name]
                    maker = self._source(index, self._old[old].op)
                    if maker is not None:
                        yield old, maker

    def _source(self, index: int, op: str) -> int | None:
        """Return the node whose result a chain of added movers hands on; ``None``: an input's."""
        while (node := self._new[index]).op in _MOVERS and node.op != op:
            origin = self._new_maker.get(node.inputs[0]) if node.inputs else None
            if origin is None or origin >= index:
                return None
            index = origin
        return index

    def _by_layout(self) -> Iterator[tuple[int, int]]:
        for index, node in enumerate(self._new):
            if node.name.endswith(_BLOCKED):
                name = node.name.removesuffix(_BLOCKED)
                for ending in ("", *_BLOCKED_KINDS):
                    if name.endswith(ending) and name.removesuffix(ending) in self._maker:
                        yield self._maker[name.removesuffix(ending)], index

    def _by_names(self) -> Iterator[tuple[int, int]]:
        old = _by_name(self._old)
        for name, index in _by_name(self._new).items():
            if name in old:
                yield old[name], index

    def _go_down(self, nameless: frozenset[int]) -> None:
        """Give what has vanished to the node before it, if nothing is known of that one's result.

        Args:
            nameless: new nodes of which no result has the name of an old one.
        """
        for index, node in enumerate(self._old):
            if index in self.owner or self._lasts(node):
                continue
            makers = [self._maker[name] for name in node.inputs if name in self._maker]
            owners = [self.owner[maker] for maker in makers if maker in self.owner]
            if owners and max(owners) in nameless:
                self.owner[index] = max(owners)

    def _go_up(self) -> None:
        """Give what has vanished to the node that reads, or read, its result."""
        waiting = sorted(self.owner)
        while waiting:
            index = waiting.pop()
            for name in self._old[index].inputs:
                maker = self._maker.get(name)
                if maker is None or maker in self.owner or self._lasts(self._old[maker]):
                    continue
                if maker in self._constant and self._old[maker].op not in _WITH_WEIGHTS:
                    continue
                self.owner[maker] = self.owner[index]
                waiting.append(maker)

    def _lasts(self, node: Node) -> bool:
        """Whether a result of an old node is still there, computed or as a weight."""
        return any(name in self._new_maker or name in self._weights for name in node.outputs)

    def _release(self) -> None:
        """Let go of what a node stands for only in appearance, as it is one of them unchanged."""
        owned: dict[int, list[int]] = {}
        for index, new in self.owner.items():
            owned.setdefault(new, []).append(index)
        for new, indices in owned.items():
            same = [index for index in indices if self._is_same(self._old[index], self._new[new])]
            if len(indices) > 1 and len(same) == 1:
                for index in {*indices} - {*same}:
                    del self.owner[index]

    def _is_same(self, old: Node, new: Node) -> bool:
        if not old.digest or (old.op, old.digest) != (new.op, new.digest):
            return False
        kept = [name for name in old.inputs if name in self._weights]
        return len(old.inputs) == len(new.inputs) and kept == [
            name for name in new.inputs if name in self._weights
        ]

    def _helpers(self) -> Iterator[tuple[int, int]]:
        owners = frozenset(self.owner.values())
        readers: dict[str, int] = {}
        for index, node in enumerate(self._new):
            for name in node.inputs:
                readers.setdefault(name, index)
        for index, node in enumerate(self._new):
            if index not in owners and node.op not in _MOVERS:
                read = [readers[name] for name in node.outputs if name in readers]
                yield from ((index, reader) for reader in read[:1])


def _makers(nodes: Sequence[Node]) -> Mapping[str, int]:
    return {name: index for index, node in enumerate(nodes) for name in node.outputs}


def _by_name(nodes: Sequence[Node]) -> Mapping[str, int]:
    """Return the nodes whose names no other has."""
    counts = Counter(node.name for node in nodes)
    return {n.name: index for index, n in enumerate(nodes) if n.name and counts[n.name] == 1}


def _constant(stage: Stage) -> frozenset[int]:
    """Return the nodes that read nothing but weights and each other."""
    known = set(stage.weights)
    found = set()
    for index, node in enumerate(stage.nodes):
        if (node.inputs and known.issuperset(node.inputs)) or node.op == "Constant":
            found.add(index)
            known.update(node.outputs)
    return frozenset(found)
