"""The numbers by which people name layers."""

from __future__ import annotations

from rankslice.framework.graph import Graph


def layer_numbers(graph: Graph) -> dict[str, int]:
    """Return the number by which ``--cuts`` knows each layer: from 1, in the graph's order.

    In a Keras model with one input, not nested, this is the index in ``model.layers``, where the
    input layer is 0.
    """
    return {layer.name: number for number, layer in enumerate(graph.layers, 1)}
