"""Layers that only change how numbers are written, and where they go if a mapping leaves them out.

A quantised model has many of them, made by the tool that quantised it; a mapping that was written
for the layers that compute should not have to name them. A dequantiser serves those that read its
result, so it is copied to each of them; a quantiser serves the layer whose result it takes. So
what crosses a cut is the quantised tensor, and engines find the patterns that they can merge.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from rankslice.framework.graph import Graph, Layer, constant_layers

_QUANTISERS = frozenset(
    {"QuantizeLinear", "DynamicQuantizeLinear", "com.microsoft.QuantizeLinear", "QUANTIZE"}
)
_DEQUANTISERS = frozenset({"DequantizeLinear", "com.microsoft.DequantizeLinear", "DEQUANTIZE"})


def is_quantiser(layer: Layer) -> bool:
    return layer.op in _QUANTISERS or layer.op in _DEQUANTISERS


def is_dequantiser(layer: Layer) -> bool:
    return layer.op in _DEQUANTISERS


def copied_layers(graph: Graph, placed: Collection[str]) -> frozenset[str]:
    """Return the names of the layers that each segment that reads from them has as its own.

    These are the constant layers, and of those that have no rank and make no model output the
    dequantisers and the made ones that are for copying. What another part of the model reads
    stays in its own.
    """
    outputs = {tensor.name for tensor in graph.outputs}
    if any(layer.part for layer in graph.layers):
        part_of = {tensor.name: layer.part for layer in graph.layers for tensor in layer.outputs}
        outputs |= {
            tensor.name
            for layer in graph.layers
            for tensor in layer.inputs
            if part_of.get(tensor.name, layer.part) != layer.part
        }
    fixed = {*placed, *(name for bond in graph.bonds for name in bond.layers)}
    others = {
        layer.name
        for layer in graph.layers
        if layer.op in _DEQUANTISERS or layer.is_copied
        if layer.name not in fixed
        if outputs.isdisjoint(tensor.name for tensor in layer.outputs)
    }
    return constant_layers(graph) | others


def quantiser_ranks(graph: Graph, rank_of: Mapping[str, int]) -> dict[str, int]:
    """Return the ranks of the quantisers and dequantisers that ``rank_of`` leaves out.

    It is the rank of the layer from which the quantised data come; where that is a model input,
    the rank of the first layer to which they go. Those that are copied have none, nor have those
    between layers that have none.
    """
    copied = copied_layers(graph, rank_of)
    ranks = dict(_from_both_ends(graph, rank_of))
    return {name: rank for name, rank in ranks.items() if name not in copied}


def _from_both_ends(graph: Graph, rank_of: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    left_out = [x for x in graph.layers if is_quantiser(x) and x.name not in rank_of]
    maker = {tensor.name: layer.name for layer in graph.layers for tensor in layer.outputs}
    readers: dict[str, list[str]] = {}
    for layer in graph.layers:
        for tensor in layer.inputs:
            readers.setdefault(tensor.name, []).append(layer.name)
    above, below = dict(rank_of), dict(rank_of)
    for layer in left_out:
        sources = [maker[tensor.name] for tensor in layer.inputs if tensor.name in maker]
        _inherit(layer.name, sources, above)
    for layer in reversed(left_out):
        _inherit(layer.name, [r for t in layer.outputs for r in readers.get(t.name, [])], below)
    for layer in left_out:
        for ranks in (below, above):
            if layer.name in ranks:
                yield layer.name, ranks[layer.name]


def _inherit(name: str, others: Collection[str], ranks: dict[str, int]) -> None:
    known = [ranks[other] for other in others if other in ranks]
    if known:
        ranks[name] = known[0]
