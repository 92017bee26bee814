"""The layers of a graph that get a device, and what they read."""

from __future__ import annotations

from collections.abc import Sequence

from rankslice.framework.graph import Graph, Layer
from rankslice.framework.quantisers import copied_layers
from rankslice.frontend.partition.partition import Reads, layer_reads, used_layers


def explored_layers(graph: Graph) -> tuple[Layer, ...]:
    """Return the layers to which exploration gives a device, in the graph's order.

    Left out are layers that are copied to their readers (see
    :func:`rankslice.framework.quantisers.copied_layers`), and those that no output needs.
    """
    kept = used_layers(graph) - copied_layers(graph, ())
    return tuple(layer for layer in graph.layers if layer.name in kept)


def reads_of(graph: Graph, layers: Sequence[Layer]) -> Reads:
    """Return what layers read of others, copied layers seen through."""
    return layer_reads(layers, copies_in(graph))


def copies_in(graph: Graph) -> list[Layer]:
    """Return the layers that are copied to their readers."""
    copies = copied_layers(graph, ())
    return [layer for layer in graph.layers if layer.name in copies]
