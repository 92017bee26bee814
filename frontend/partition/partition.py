"""Which layers run together: each rank's layers as segments that never wait for each other.

A segment runs from its first layer to its last once its inputs are there. So the segments may
not depend on each other in a cycle: it is not enough that each is convex, for two convex ones
can still wait for each other. :mod:`rankslice.frontend.partition.segments` finds as few as it can.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.graph import Graph, Layer, Tensor
from rankslice.framework.quantisers import copied_layers
from rankslice.framework.wording import listed, quoted
from rankslice.frontend.partition.bonds import between_items, bond_mistakes, bonded, bound_items
from rankslice.frontend.partition.crossing import crossing_fault, remedy
from rankslice.frontend.partition.segments import BUDGET, fewest_blocks


@dataclass(frozen=True, slots=True)
class PartitionSegment:
    """Layers of one rank that run together, and what they exchange with the others."""

    layers: tuple[Layer, ...]
    """What it runs, in the graph's order: its own layers and copies of others."""
    inputs: tuple[Tensor, ...]
    """Model inputs and outputs of other segments that it reads, by first use. One that reads
    nothing is given the smallest model input: that is how it knows of a frame."""
    outputs: tuple[Tensor, ...]
    """What other segments read, of whatever rank, and model outputs, in the layers' order; then
    weights that are model outputs, if it is the one that gives them out."""
    copies: tuple[str, ...] = ()
    """Names of those of its layers that other segments may have as well: constant ones, and
    dequantisers."""
    rank: int = 0
    index: int = 0
    """Number within the rank, from 0, in the order in which a frame passes them."""

    def reads_from_elsewhere(self) -> Iterator[tuple[Layer, Tensor]]:
        inputs = {tensor.name for tensor in self.inputs}
        for layer in self.layers:
            for tensor in layer.inputs:
                if tensor.name in inputs:
                    yield layer, tensor


@dataclass(frozen=True, slots=True)
class Partition:
    """A model cut into segments."""

    graph: Graph
    segments: tuple[PartitionSegment, ...]
    """In a topological order of the segment graph: by level, then rank, then index, where the
    level counts segments and hops between ranks on the longest way to a segment. Of a rank's
    segments of one level, that with the longest way behind it comes first."""
    minimal: bool

    def layers_of(self, rank: int) -> Iterator[Layer]:
        for segment in self.segments:
            if segment.rank == rank:
                yield from segment.layers


def whole_segment(graph: Graph) -> PartitionSegment:
    """Return all layers as one segment; outputs that are inputs are not its outputs."""
    brought = {tensor.name for tensor in graph.inputs}
    outputs = tuple(tensor for tensor in graph.outputs if tensor.name not in brought)
    return PartitionSegment(graph.layers, graph.inputs, outputs)


def used_layers(graph: Graph) -> frozenset[str]:
    """Return the names of the layers on which some model output depends.

    A layer that sets what another one reads, a variable say, is used if that one is.
    """
    used = _read_by(graph, frozenset())
    while not (effects := bonded(used, graph.bonds)) <= used:
        used = _read_by(graph, effects)
    return used


def _read_by(graph: Graph, effects: frozenset[str]) -> frozenset[str]:
    wanted = {tensor.name for tensor in graph.outputs}
    used: set[str] = set()
    for layer in reversed(graph.layers):
        if layer.name in effects or any(tensor.name in wanted for tensor in layer.outputs):
            used.add(layer.name)
            wanted |= {tensor.name for tensor in layer.inputs}
    return frozenset(used)


def partition(
    graph: Graph,
    rank_of: Mapping[str, int],
    *,
    group_of: Mapping[str, object] = MappingProxyType({}),
    budget: int = BUDGET,
) -> Partition:
    """Return the model cut into as few segments as can be found, of one rank each.

    Constant layers are copied into every segment that needs them, whatever ``rank_of`` says, and
    so are dequantisers that have no rank in it.
    Layers that no model output depends on are left out: their results reach nobody, and an
    engine refuses a sub-model without outputs. The same arguments give the same answer on any
    machine.

    Args:
        rank_of: The rank of each layer; constant and unused ones may be missing, and dequantisers
            that make no model output.
        group_of: The group of each layer, ``None`` for those that are missing. Layers of different
            groups are never in one segment, even if they have one rank; nor are those of different
            parts of the model.
        budget: Number of states that the exact search may expand before it gives way to a
            heuristic one.

    Raises:
        RankSliceError: Nothing is left to run, a model output is not one of its tensors, layers
            that cannot be apart are on several ranks or in several groups, a layer needs a copy of
            one of another group, or the size of a tensor that enters, leaves
            or crosses between segments is not known, zero, or more than 2^31 - 1 bytes. All
            mistakes at once.
    """
    raise_mistakes(_output_mistakes(graph))
    maker = SegmentMaker(graph, rank_of)
    layers = maker.layers
    if not layers:
        raise RankSliceError(Mistake(graph.name, "the model has no layers to run"))
    grouping = Grouping(maker)
    mistakes = (
        *bond_mistakes(graph, layers, grouping.items, rank_of),
        *_group_mistakes(maker, grouping, group_of),
    )
    raise_mistakes(mistakes)
    positions, is_minimal = grouping.blocks(
        [rank_of[layer.name] for layer in layers],
        budget,
        groups=[(layer.part, group_of.get(layer.name)) for layer in layers] if group_of else (),
    )
    count: Counter[int] = Counter()
    segments: list[PartitionSegment] = []
    for block in positions:
        rank = rank_of[layers[block[0]].name]
        made = maker.segment([layers[position] for position in block])
        segments.append(replace(made, rank=rank, index=count[rank]))
        count[rank] += 1
    _give_out_weights(graph, segments)
    raise_mistakes(_tensor_mistakes(graph, segments))
    return Partition(graph, tuple(segments), is_minimal)


class SegmentMaker:
    """Makes segments of layers, each with the copies that it needs."""

    def __init__(self, graph: Graph, placed: Collection[str] = ()) -> None:
        """Find the layers that get a rank: those that an output needs, and that are not copied.

        Args:
            placed: layers that have a rank; dequantisers among these are not copied.
        """
        copies = copied_layers(graph, placed)
        kept = used_layers(graph) - copies
        self.graph = graph
        self.layers = tuple(layer for layer in graph.layers if layer.name in kept)
        """Those that get a rank, in the graph's order."""
        self.copied = tuple(layer for layer in graph.layers if layer.name in copies)
        """Those that are copied to their readers."""
        self.reads: dict[str, tuple[Tensor, ...]] = {}
        """What layers, or the copies that they need, read from others, by the layer's name."""
        self.copies_for: dict[str, frozenset[str]] = {}
        """Names of the copies that a layer needs, by its own."""
        self._given = {tensor.name for tensor in graph.outputs}
        self._position = {layer.name: number for number, layer in enumerate(graph.layers)}
        self._readers: dict[str, set[str]] = defaultdict(set)
        behind: dict[str, tuple[tuple[Tensor, ...], frozenset[str]]] = {}
        for layer in (*self.copied, *self.layers):
            sources = [behind.get(read.name, ((read,), frozenset())) for read in layer.inputs]
            tensors = {tensor.name: tensor for reads, _ in sources for tensor in reads}
            needed = frozenset().union(*(names for _, names in sources))
            if layer.name in copies:
                seen = (*tensors.values(),), needed | {layer.name}
                behind |= {tensor.name: seen for tensor in layer.outputs}
            else:
                self.reads[layer.name], self.copies_for[layer.name] = (*tensors.values(),), needed
                for name in tensors:
                    self._readers[name].add(layer.name)

    def segment(self, block: Sequence[Layer]) -> PartitionSegment:
        """Return the segment of some layers; one that reads nothing gets a model input."""
        names = {layer.name for layer in block}
        made = {tensor.name: tensor for layer in block for tensor in layer.outputs}
        read = (tensor for layer in block for tensor in self.reads[layer.name])
        inputs = {tensor.name: tensor for tensor in read if tensor.name not in made}
        copies = {name for layer in block for name in self.copies_for[layer.name]}
        positions = sorted(self._position[name] for name in names | copies)
        layers = tuple(self.graph.layers[position] for position in positions)
        smallest = min(self.graph.inputs, key=lambda tensor: tensor.nbytes or math.inf)
        return PartitionSegment(
            layers,
            tuple(inputs.values()) or (smallest,),
            tuple(
                tensor
                for name, tensor in made.items()
                if name in self._given or self._readers.get(name, names) - names
            ),
            tuple(layer.name for layer in layers if layer.name not in names),
        )


class Grouping:
    """Groups a model's layers into segments, for one choice of ranks after the other."""

    def __init__(self, maker: SegmentMaker) -> None:
        """Work out what does not depend on the ranks."""
        made = _makers(maker.layers)
        self._predecessors = [
            [made[t.name] for t in maker.reads[layer.name] if t.name in made]
            for layer in maker.layers
        ]
        self._parts = [layer.part for layer in maker.layers]
        self.items = bound_items(maker.layers, maker.graph.bonds, self._predecessors)
        """Positions of layers that are in one segment whatever the ranks."""
        self._between = between_items(self.items, self._predecessors)

    def blocks(
        self, ranks: Sequence[int], budget: int = BUDGET, *, groups: Sequence[object] = ()
    ) -> tuple[list[tuple[int, ...]], bool]:
        """Return the positions of each segment's layers, and whether there can be no fewer.

        Segments come in a topological order, by level, then rank. Layers of an item have one rank
        and one group. ``groups``: of each layer; ``()``: its part of the model.
        """
        groups = groups or self._parts
        # The search groups layers by number. Those of one rank have neighbouring ones, in the
        # order in which the groups come first.
        number = {group: place for place, group in enumerate(dict.fromkeys(groups))}
        own = [number[group] for group in groups]
        sorts = sorted(set(zip(ranks, own, strict=True)))
        colour = {sort: place for place, sort in enumerate(sorts)}
        solution = fewest_blocks(
            [colour[ranks[item[0]], own[item[0]]] for item in self.items],
            self._between,
            budget=budget,
        )
        blocks = [
            tuple(sorted(position for item in block for position in self.items[item]))
            for block in solution.blocks
        ]
        return self._by_level(blocks, ranks), solution.minimal

    def _by_level(
        self, blocks: Sequence[tuple[int, ...]], ranks: Sequence[int]
    ) -> list[tuple[int, ...]]:
        """Return the blocks by level, rank and what follows; they come in a topological order, too.

        Of what a rank can start at once, that comes first which has the longest way behind it:
        other ranks wait for it.
        """
        made: dict[int, int] = {}
        sources: list[set[int]] = []
        levels: list[int] = []
        for number, block in enumerate(blocks):
            sources.append({made[p] for at in block for p in self._predecessors[at] if p in made})
            ways = (
                self._way(levels[source], ranks, blocks[source], block) for source in sources[-1]
            )
            levels.append(max(ways, default=1))
            made |= dict.fromkeys(block, number)
        behind = [0] * len(blocks)
        for number in reversed(range(len(blocks))):
            for source in sources[number]:
                way = self._way(behind[number], ranks, blocks[source], blocks[number])
                behind[source] = max(behind[source], way)
        order = sorted(
            range(len(blocks)), key=lambda n: (levels[n], ranks[blocks[n][0]], -behind[n])
        )
        return [blocks[number] for number in order]

    @staticmethod
    def _way(
        so_far: int, ranks: Sequence[int], source: tuple[int, ...], block: tuple[int, ...]
    ) -> int:
        """Return a number of segments and hops between ranks, with one more segment."""
        return so_far + 1 + (ranks[source[0]] != ranks[block[0]])


def _group_mistakes(
    maker: SegmentMaker, grouping: Grouping, group_of: Mapping[str, object]
) -> Iterator[Mistake]:
    """Yield what would put layers of several groups into one segment."""
    if not group_of and not any(layer.part for layer in maker.layers):
        return
    where = maker.graph.name
    for item in grouping.items:
        layers = [maker.layers[position] for position in item]
        if len({(layer.part, group_of.get(layer.name)) for layer in layers}) > 1:
            names = [layer.name for layer in layers]
            yield Mistake(f"{where}: layers {listed(names)}", "cannot be apart, but must not mix")
    part_of = {layer.name: layer.part for layer in maker.graph.layers}
    for layer in maker.layers:
        for copy in sorted(maker.copies_for[layer.name]):
            is_of_another = copy in group_of and group_of[copy] != group_of.get(layer.name)
            if is_of_another or part_of[copy] != layer.part:
                found = f"would be copied to layer {quoted(layer.name)}, but they must not mix"
                hint = "a dequantiser is not copied if the mapping has it"
                yield Mistake(f"{where}: layer {quoted(copy)}", found, hint)


def _makers(layers: Iterable[Layer]) -> dict[str, int]:
    return {t.name: position for position, layer in enumerate(layers) for t in layer.outputs}


def _give_out_weights(graph: Graph, segments: list[PartitionSegment]) -> None:
    """Let the last segment that makes a model output give out the weights that are outputs, too."""
    stored = {weight.name for weight in graph.weights}
    passed_on = tuple(tensor for tensor in graph.outputs if tensor.name in stored)
    given = {tensor.name for tensor in graph.outputs}
    makers = [n for n, s in enumerate(segments) if any(t.name in given for t in s.outputs)]
    last = max(makers, default=0)
    segments[last] = replace(segments[last], outputs=(*segments[last].outputs, *passed_on))


def _output_mistakes(graph: Graph) -> Iterator[Mistake]:
    stored = {weight.name for weight in graph.weights}
    known = {*stored, *_makers(graph.layers), *(tensor.name for tensor in graph.inputs)}
    if not graph.inputs:
        yield Mistake(graph.name, "the model has no inputs", "a frame must bring something")
    if not graph.outputs:
        yield Mistake(graph.name, "the model has no outputs")
    for tensor in graph.outputs:
        where = f"{graph.name}: output {quoted(tensor.name)}"
        if tensor.name not in known:
            yield Mistake(where, "no layer produces it", "expected a tensor of the model")
        elif tensor.name in stored and (fault := crossing_fault(tensor)):
            yield Mistake(where, fault)


def _tensor_mistakes(graph: Graph, segments: Sequence[PartitionSegment]) -> Iterator[Mistake]:
    """Yield a mistake for each tensor that the runtime could not hand over."""
    maker = {tensor.name: layer for layer in graph.layers for tensor in layer.outputs}
    for tensor in graph.inputs:
        if fault := crossing_fault(tensor):
            hint = remedy([tensor]) if tensor.is_open else ""
            yield Mistake(f"{graph.name}: input {quoted(tensor.name)}", fault, hint)
    readers: dict[str, list[Layer]] = defaultdict(list)
    for segment in segments:
        for layer, tensor in segment.reads_from_elsewhere():
            readers[tensor.name].append(layer)
    position = {layer.name: number for number, layer in enumerate(graph.layers)}
    spans = []
    for segment in segments:
        for tensor in filter(crossing_fault, segment.outputs):
            first = maker[tensor.name]
            if tensor.name in readers:
                last = max(readers[tensor.name], key=lambda layer: position[layer.name])
                spans.append(_Span(position[first.name], position[last.name], (tensor,)))
            else:
                made = f"tensor {quoted(tensor.name)}, made by layer {quoted(first.name)}"
                found = f"{crossing_fault(tensor)}: it cannot be a model output"
                yield Mistake(f"{graph.name}: {made}", found, remedy([tensor]))
    yield from (_span_mistake(graph, span) for span in _joined(spans))


@dataclass(frozen=True, slots=True)
class _Span:
    """Layers that have to be on one rank, as tensors between them cannot be handed over."""

    first: int
    last: int
    tensors: tuple[Tensor, ...]


def _joined(spans: Iterable[_Span]) -> list[_Span]:
    disjoint: list[_Span] = []
    for span in sorted(spans, key=lambda span: (span.first, span.last)):
        if disjoint and span.first <= disjoint[-1].last:
            before = disjoint.pop()
            tensors = (*before.tensors, *span.tensors)
            span = _Span(before.first, max(before.last, span.last), tensors)
        disjoint.append(span)
    return disjoint


def _span_mistake(graph: Graph, span: _Span) -> Mistake:
    first, last = (quoted(graph.layers[number].name) for number in (span.first, span.last))
    tensor = span.tensors[0]
    if len(span.tensors) == 1:
        where = f"tensor {quoted(tensor.name)}, made by layer {first} and read by layer {last}"
        found = f"{crossing_fault(tensor)}: the model cannot be cut here"
        layers = f"layers {first} and {last}, and those between,"
    else:
        where = f"layers {first} to {last}"
        names = listed([one.name for one in span.tensors])
        why = f"the first because {crossing_fault(tensor)}"
        found = f"tensors between them cannot be sent ({names}), {why}"
        layers = "them and those between"
    hint = f", or {text}" if (text := remedy(span.tensors)) else ""
    return Mistake(f"{graph.name}: {where}", found, f"map {layers} to one key{hint}")


class SpanSegments:
    """The segments that contiguous layers of a model make, as :func:`partition` would make them.

    Layers are counted as exploration does: those that are copied to their readers, and those that
    no output needs, are left out.
    """

    def __init__(self, graph: Graph) -> None:
        self._maker = SegmentMaker(graph)
        self.layers = self._maker.layers
        """Those that spans count, in a topological order."""
        number = {layer.name: number for number, layer in enumerate(self.layers)}
        self._bonds = [
            sorted(number[name] for name in bond.layers if name in number) for bond in graph.bonds
        ]

    def segment(self, first: int, last: int) -> PartitionSegment:
        return self._maker.segment(self.layers[first : last + 1])

    def pieces(self, first: int, last: int) -> tuple[tuple[int, int], ...]:
        """Return the spans, each of layers of one part of the model, of which a span consists."""
        groups = itertools.groupby(range(first, last + 1), lambda n: self.layers[n].part)
        numbers = [[*group] for _, group in groups]
        return tuple((group[0], group[-1]) for group in numbers)

    def fault(self, first: int, last: int) -> str:
        if len(self.pieces(first, last)) > 1:
            names = " and ".join(quoted(self.layers[n].name) for n in (first, last))
            return f"layers {names} are of different model files"
        for bond in self._bonds:
            if 0 < sum(first <= number <= last for number in bond) < len(bond):
                names = " and ".join(quoted(self.layers[n].name) for n in (bond[0], bond[-1]))
                return f"layers {names} cannot be apart"
        segment = self.segment(first, last)
        for tensor in (*segment.inputs, *segment.outputs):
            if fault := crossing_fault(tensor):
                return f"tensor {quoted(tensor.name)} cannot be sent: {fault}"
        return ""


def in_turns(cut: Partition, ranks: Sequence[Sequence[int]]) -> Partition:
    """Return a partition in which each rank has segments of its own.

    Args:
        cut: the rank of its segments is the number of their entry in the mapping.
        ranks: by entry: those that handle its frames in turn, or a single one.
    """
    shared = (s for s in cut.segments if len(ranks[s.rank]) > 1)
    layers = (layer for segment in shared for layer in segment.layers)
    hint = "map it to a key of one rank"
    raise_mistakes(kept(cut.graph, layers, "ranks that take turns", hint))
    return replace(
        cut,
        segments=tuple(
            replace(segment, rank=rank) for segment in cut.segments for rank in ranks[segment.rank]
        ),
    )


def kept(graph: Graph, layers: Iterable[Layer], where: str, hint: str) -> Iterator[Mistake]:
    """Yield the layers that take something along from frame to frame.

    ``where``: what shares nothing of it; ``hint``: what to do.
    """
    for layer in layers:
        if layer.lasting:
            yield Mistake(
                f"{graph.name}: layer {quoted(layer.name)}",
                f"it keeps {layer.lasting[0]} from frame to frame, and {where} share no state",
                hint,
            )
