"""The plan of a partition on its accelerators: files, channels, levels."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypeAlias

from rankslice.backend.runtime.job import ALL, Turns
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.files.names import safe_file_name
from rankslice.framework.graph import Layer, Tensor
from rankslice.framework.mapping import Placement
from rankslice.framework.plan import Channel, ModelInfo, Plan, Segment
from rankslice.framework.wording import quoted
from rankslice.frontend.partition.partition import Partition, PartitionSegment


def make_plan(
    model: ModelInfo,
    partition: Partition,
    placements: Sequence[Placement],
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
    ranks that take turns there is a channel if some frames are handled by both. Channels are
    numbered from 1, model inputs first, then in the order of segments, their outputs and the
    destinations.

    A model input that no segment reads stays in the plan's model and tensors, but in no channel.

    Args:
        model: What to say of the model; its inputs and outputs are the graph's.
        partition: The segments; their ranks are positions in ``placements``.
        placements: Where the ranks run, by rank.
        source_rank: Where frames enter, if not at the first layer's rank.
        sink_rank: Where results leave, if not at the last layer's rank.
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
    levels, last = _levels(partition, placements, source, sink)
    return Plan(
        model=model,
        ranks=tuple(placements),
        tensors=_tensors(partition),
        segments=tuple(
            _segment(segment, level, placements[segment.rank], model.format)
            for segment, level in zip(partition.segments, levels, strict=True)
        ),
        channels=tuple(_channels(partition, placements, source, sink)),
        source=source,
        sink=sink,
        path_length=last - 1,
        minimal=partition.minimal,
    )


def _idle_ranks(
    partition: Partition, placements: Sequence[Placement], idle: Collection[int]
) -> Iterator[Mistake]:
    """Yield the ranks for which nothing is left to run."""
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
    """Return the rank of the last layer that makes a model output."""
    outputs = _names(partition.graph.outputs)
    makers = (
        rank
        for layer, rank in reversed(_ranked_layers(partition))
        if not outputs.isdisjoint(_names(layer.outputs))
    )
    return next(makers)


def _names(tensors: Iterable[Tensor]) -> set[str]:
    return {tensor.name for tensor in tensors}


def _levels(
    partition: Partition, placements: Sequence[Placement], source: int, sink: int
) -> tuple[list[int], int]:
    """Return the level of each segment, and the sink's."""
    made: _Made = {tensor.name: [(source, ALL, 0)] for tensor in partition.graph.inputs}
    levels = []
    for segment in partition.segments:
        rank, turns = segment.rank, placements[segment.rank].turns
        level = _before(rank, turns, segment.inputs, made) + turns.levels
        for tensor in segment.outputs:
            made.setdefault(tensor.name, []).append((rank, turns, level))
        levels.append(level)
    return levels, 1 + _before(sink, ALL, partition.graph.outputs, made)


_Made: TypeAlias = dict[str, list[tuple[int, Turns, int]]]
"""By tensor: the ranks that make it, in which frames, and at which level."""


def _before(rank: int, turns: Turns, inputs: Iterable[Tensor], made: _Made) -> int:
    """Return the highest level of what comes in; a hop between ranks counts."""
    found = (
        level + (maker != rank)
        for tensor in inputs
        for maker, other, level in made[tensor.name]
        if turns.shared_with(other)
    )
    return max(found, default=0)


def _tensors(partition: Partition) -> tuple[Tensor, ...]:
    """Return the model's inputs and all that segments take in or give out, once each."""
    exchanged = (
        tensor for segment in partition.segments for tensor in (*segment.inputs, *segment.outputs)
    )
    return tuple({t.name: t for t in (*partition.graph.inputs, *exchanged)}.values())


def submodel_file(key: str, index: int, suffix: str) -> str:
    """Return the path of a segment's sub-model in a build folder."""
    return f"submodels/{safe_file_name(key)}.{index}.{suffix}"


def _segment(segment: PartitionSegment, level: int, place: Placement, suffix: str) -> Segment:
    """Return a segment as the plan describes it."""
    return Segment(
        rank=segment.rank,
        index=segment.index,
        file=submodel_file(place.key, segment.index, suffix),
        layers=tuple(layer.name for layer in segment.layers),
        inputs=tuple(tensor.name for tensor in segment.inputs),
        outputs=tuple(tensor.name for tensor in segment.outputs),
        level=level,
        levels=place.turns.levels,
    )


def _channels(
    partition: Partition, placements: Sequence[Placement], source: int, sink: int
) -> Iterator[Channel]:
    """Yield a channel for each tensor and each pair of ranks that make it and need it."""
    needing = {name: {sink: ALL} for name in _names(partition.graph.outputs)}
    for segment in partition.segments:
        for tensor in segment.inputs:
            found = needing.setdefault(tensor.name, {})
            found.setdefault(segment.rank, placements[segment.rank].turns)
    made = [(tensor, source, ALL) for tensor in partition.graph.inputs]
    made += [
        (tensor, s.rank, placements[s.rank].turns)
        for s in partition.segments
        for tensor in s.outputs
    ]
    number = 0
    for tensor, origin, turns in made:
        for destination, needed in sorted(needing.get(tensor.name, {}).items()):
            if destination != origin and turns.shared_with(needed):
                number += 1
                yield Channel(number, tensor.name, origin, destination)
