"""Normalisations that become part of the layer before them when a Keras model is converted.

The converter merges a ``BatchNormalization`` into the weights of a convolution or a dense layer,
if nothing else reads what that makes. So the unsliced model has no operator for it. Were the two
in different sub-models, the weights would be rounded differently, and so would all that follows:
not less precisely, but the results would not be those of the unsliced model. So a normalisation
goes where its layer goes. Its result crosses the cut instead of what it reads, and is as large.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from rankslice.framework.graph import Bond, Graph, Layer
from rankslice.framework.wording import listed
from rankslice.frontend.formats.model_format import Arrangement
from rankslice.frontend.partition.partition import Partition, used_layers


def merged_normalisations(graph: Graph) -> dict[str, str]:
    used = used_layers(graph)
    readers = Counter(
        tensor.name for layer in graph.layers if layer.name in used for tensor in layer.inputs
    )
    output_names = {tensor.name for tensor in graph.outputs}
    maker = {
        tensor.name: layer
        for layer in graph.layers
        if _takes_factors(layer)
        for tensor in layer.outputs
        if readers[tensor.name] == 1 and tensor.name not in output_names
    }
    return {
        layer.name: maker[layer.inputs[0].name].name
        for layer in graph.layers
        if layer.op == "BatchNormalization" and layer.name in used
        if layer.inputs[0].name in maker
    }


def _takes_factors(layer: Layer) -> bool:
    """Return whether factors of a layer's result could as well be factors of its weights."""
    has_weights = "Conv" in layer.op or layer.op == "Dense"
    return has_weights and layer.settings.get("activation", "linear") == "linear"


def merge_normalisations(graph: Graph, rank_of: Mapping[str, int]) -> Arrangement:
    """Return normalisations on the ranks of the layers into which they are merged.

    The graph gets a bond for each normalisation that is on the rank of its layer. A rank that has
    nothing else to run keeps its normalisations.
    """
    merged = merged_normalisations(graph)
    others = used_layers(graph) - merged.keys()
    busy = {rank_of[name] for name in others if name in rank_of}
    ranks = dict(rank_of)
    ranks |= {name: rank_of[layer] for name, layer in merged.items() if rank_of[name] in busy}
    bonds = tuple(
        Bond((layer, name), "become one operator")
        for name, layer in merged.items()
        if ranks[layer] == ranks[name]
    )
    moved = tuple(name for name in merged if ranks[name] != rank_of[name])
    warning = (
        "normalisations are merged into the weights of the layers before them, and run on their"
        f" ranks, not on those of the mapping: {listed(moved)}"
    )
    bound = replace(graph, bonds=(*graph.bonds, *bonds))
    return Arrangement(bound, ranks, (warning,) if moved else ())


def split_warnings(cut: Partition) -> Iterator[str]:
    segment_of = {
        layer.name: number for number, part in enumerate(cut.segments) for layer in part.layers
    }
    split = [
        name
        for name, layer in merged_normalisations(cut.graph).items()
        if segment_of[name] != segment_of[layer]
    ]
    if split:
        yield (
            f"cuts separate {listed(split)} from the layers before, into whose weights they would"
            " be merged: results differ slightly, and take a little longer"
        )
