"""Segments for each of several ranks that take turns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rankslice.framework.errors import Mistake, raise_mistakes
from rankslice.framework.graph import Graph, Layer
from rankslice.framework.wording import quoted
from rankslice.frontend.partition.partition import Partition


def in_turns(cut: Partition, ranks: Sequence[Sequence[int]]) -> Partition:
    """Return a partition in which each rank has segments of its own.

    Args:
        cut: the rank of its segments is the number of their entry in the mapping.
        ranks: by entry: those that handle its frames in turn, or a single one.
    """
    raise_mistakes(_kept(cut, ranks))
    return replace(
        cut,
        segments=tuple(
            replace(segment, rank=rank) for segment in cut.segments for rank in ranks[segment.rank]
        ),
    )


def _kept(cut: Partition, ranks: Sequence[Sequence[int]]) -> Iterator[Mistake]:
    layers = (
        layer
        for segment in cut.segments
        if len(ranks[segment.rank]) > 1
        for layer in segment.layers
    )
    return kept(cut.graph, layers, "ranks that take turns", "map it to a key of one rank")


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
