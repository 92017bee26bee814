"""The plan of a partition on its accelerators: who runs, receives and sends what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rankslice.backend.runtime.job import (
    ALL,
    Facts,
    Job,
    Rank,
    Receive,
    Segment,
    Send,
    Tensor,
    Turns,
)
from rankslice.framework.engines import other_engine
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.files.file_names import safe_file_name
from rankslice.framework.graph import Crop, Layer, PartOf, Renamed, Tensor as GraphTensor
from rankslice.framework.plan import MadeLayer, ModelInfo, Plan, SegmentLayers
from rankslice.framework.wording import quoted
from rankslice.frontend.partition.partition import Partition
from rankslice.frontend.rewriting.boxes import text_of


def make_plan(
    model: ModelInfo,
    partition: Partition,
    placements: Sequence[Rank],
    *,
    source_rank: int | None = None,
    sink_rank: int | None = None,
    idle: Collection[int] = (),
) -> Plan:
    """Return the plan of a partition on the accelerators where its ranks run.

    Frames enter at the source, the rank of the first layer that reads a model input, and results
    leave at the sink, the rank of the last layer that makes a model output: the first rank, if
    several take turns. A tensor gets one channel to each other rank that needs it, straight from
    the rank that has it first; one that the sink both reads and gives out crosses once. Between
    ranks that take turns there is a channel if some frames are handled by both.

    A model input that no segment reads stays among the job's inputs, but is in no channel.

    Args:
        partition: The segments; their ranks are positions in ``placements``.
        idle: Ranks that need no segment.

    Raises:
        RankSliceError: A rank has no segment, or there is no rank ``source_rank``.
    """
    raise_mistakes(_idle_ranks(partition, placements, idle))
    source = _source(partition) if source_rank is None else source_rank
    if not 0 <= source < len(placements):
        found = f"there is no rank {source}"
        raise RankSliceError(Mistake("source", found, f"expected 0 to {len(placements) - 1}"))
    sink = _sink(partition) if sink_rank is None else sink_rank
    ranks = tuple(_with_work(partition, placements, source, sink, model.format))
    graph = partition.graph
    steps = {entry.name: (entry.scale, entry.zero_point) for entry in graph.quantised}
    inputs = tuple(replace(t.in_job(), quantisation=steps.get(t.name, ())) for t in graph.inputs)
    outputs = tuple(tensor.in_job() for tensor in graph.outputs)
    job = Job(model.name, 0, source, sink, inputs, _between(partition), outputs, ranks)
    layers = tuple(
        SegmentLayers(ranks[s.rank].runs[s.index].file, tuple(layer.name for layer in s.layers))
        for s in partition.segments
    )
    run = {layer.name for segment in partition.segments for layer in segment.layers}
    made = tuple(_made(layer) for layer in graph.layers if is_made(layer) and layer.name in run)
    return Plan(model, replace(job, window=job.path_length + 1), layers, partition.minimal, made)


def is_made(layer: Layer) -> bool:
    """Return whether the model has no such layer, under this name."""
    return layer.making is not None and (bool(layer.origin) or layer.making != Renamed())


def _made(layer: Layer) -> MadeLayer:
    kind, box, by, share = type(layer.making).__name__.lower(), "", "", 0.0
    if isinstance(layer.making, PartOf):
        kind, by, share = "part", layer.making.by, layer.making.share
        box = text_of(layer.making.box, layer.making.shape)
    elif isinstance(layer.making, Crop):
        box = text_of(layer.making.box, layer.inputs[0].shape or ())
    size = sum(weight.nbytes for weight in layer.weights)
    return MadeLayer(layer.name, layer.origin, kind, by, box, share, size)


def with_facts(plan: Plan, facts: Mapping[str, Facts]) -> Plan:
    """Return a plan whose segments have the facts of their sub-models; ``facts``: by file."""

    def with_their_facts(rank: Rank, segments: Iterable[Segment]) -> tuple[Segment, ...]:
        known = (replace(segment, facts=facts[segment.file]) for segment in segments)
        if rank.accelerator != "cpu" or "api" in dict(rank.options):
            return tuple(known)
        # How many operators are accelerated is not asked of CPUs.
        return tuple(
            replace(segment, facts=replace(segment.facts, operators=0)) for segment in known
        )

    return plan.with_ranks(
        [
            replace(
                rank,
                runs=with_their_facts(rank, rank.runs),
                surge=rank.surge
                and replace(rank.surge, runs=with_their_facts(rank, rank.surge.runs)),
            )
            for rank in plan.ranks
        ]
    )


def _idle_ranks(
    partition: Partition, placements: Sequence[Rank], idle: Collection[int]
) -> Iterator[Mistake]:
    busy = {segment.rank for segment in partition.segments}.union(idle)
    for placement in placements:
        if placement.rank not in busy:
            yield Mistake(
                f"rank {placement.rank}, key {quoted(placement.key)}",
                "none of its layers is needed: each is constant or leads to no model output",
                "give it other layers, or leave the key out",
            )


def _ranked_layers(partition: Partition) -> list[tuple[Layer, int]]:
    """Return the layers that a frame passes, in the graph's order, and their first ranks."""
    rank_of: dict[str, int] = {}
    for segment in partition.segments:
        for layer in segment.layers:
            if layer.name not in segment.copies:
                rank_of.setdefault(layer.name, segment.rank)
    return [
        (layer, rank_of[layer.name]) for layer in partition.graph.layers if layer.name in rank_of
    ]


def _source(partition: Partition) -> int:
    """Return the rank of the first layer that reads a model input; lacking one, of the first."""
    ranked = _ranked_layers(partition)
    inputs = _names(partition.graph.inputs)
    readers = (rank for layer, rank in ranked if not inputs.isdisjoint(_names(layer.inputs)))
    return next(readers, ranked[0][1])


def _sink(partition: Partition) -> int:
    outputs = _names(partition.graph.outputs)
    makers = (
        rank
        for layer, rank in reversed(_ranked_layers(partition))
        if not outputs.isdisjoint(_names(layer.outputs))
    )
    return next(makers)


def _names(tensors: Iterable[GraphTensor]) -> set[str]:
    return {tensor.name for tensor in tensors}


def _between(partition: Partition) -> tuple[Tensor, ...]:
    """Return the other tensors that segments exchange, once each."""
    ends = _names((*partition.graph.inputs, *partition.graph.outputs))
    exchanged = (
        tensor for segment in partition.segments for tensor in (*segment.inputs, *segment.outputs)
    )
    between = {tensor.name: tensor.in_job() for tensor in exchanged if tensor.name not in ends}
    return tuple(between.values())


def submodel_file(key: str, index: int, suffix: str) -> str:
    return f"submodels/{safe_file_name(key)}.{index}.{suffix}"


def _with_work(
    partition: Partition, placements: Sequence[Rank], source: int, sink: int, suffix: str
) -> Iterator[Rank]:
    receives: dict[int, list[Receive]] = defaultdict(list)
    runs: dict[int, list[Segment]] = defaultdict(list)
    sends: dict[int, list[Send]] = defaultdict(list)
    for tensor, origin, destination in _channels(partition, placements, source, sink):
        receives[destination].append(Receive(tensor, origin))
        sends[origin].append(Send(tensor, destination))
    for segment in partition.segments:
        inputs, outputs = (
            tuple(tensor.name for tensor in side) for side in (segment.inputs, segment.outputs)
        )
        rank, part = placements[segment.rank], segment.layers[0].part
        own = part.format if part else suffix
        file = submodel_file(rank.key, segment.index, own)
        engine = other_engine(rank.engine, own) if part else ""
        runs[segment.rank].append(Segment(file, inputs, outputs, engine=engine))
    for number, rank in enumerate(placements):
        yield replace(
            rank,
            receives=tuple(receives[number]),
            runs=tuple(runs[number]),
            sends=tuple(sends[number]),
        )


def _channels(
    partition: Partition, placements: Sequence[Rank], source: int, sink: int
) -> Iterator[tuple[str, int, int]]:
    """Yield each tensor with each pair of ranks that make it and need it: a channel each."""
    needing: dict[str, dict[int, Turns]] = {
        name: {sink: ALL} for name in _names(partition.graph.outputs)
    }
    for segment in partition.segments:
        for tensor in segment.inputs:
            ranks = needing.setdefault(tensor.name, {})
            ranks.setdefault(segment.rank, placements[segment.rank].turns)
    made = [(tensor, source, ALL) for tensor in partition.graph.inputs]
    made += [
        (tensor, s.rank, placements[s.rank].turns)
        for s in partition.segments
        for tensor in s.outputs
    ]
    for tensor, origin, turns in made:
        for destination, needed in sorted(needing.get(tensor.name, {}).items()):
            if destination != origin and turns.shared_with(needed):
                yield tensor.name, origin, destination
