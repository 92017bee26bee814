"""Which cuts part layers of a quantised model that an engine would compute as one.

onnxruntime makes one integer operator of dequantisers, the layer that reads them, and the quantiser
behind it. What is in another segment it cannot merge, and then rounds where the unsliced model does
not, or not where that does.
"""

from __future__ import annotations

from collections.abc import Iterator

from rankslice.framework.graph import Layer
from rankslice.framework.quantisers import is_dequantiser, is_quantiser
from rankslice.framework.wording import listed
from rankslice.frontend.partition.partition import Partition, PartitionSegment

_AVERAGES = frozenset({"AveragePool", "GlobalAveragePool"})
"""Layers that round otherwise as integers."""


def quantised_cut_warnings(cut: Partition) -> Iterator[str]:
    """Warn of cuts where engines merge less, and so round otherwise than in the unsliced model."""
    if parted := parted_groups(cut):
        yield (
            f"cuts separate {listed(parted)} from the layers with which onnxruntime fuses them:"
            " results can differ from the unsliced model's by some quantisation steps; omit these"
            " layers from the mapping (they then follow the others), or cut elsewhere"
        )
    if averages := parted_signed_averages(cut):
        yield (
            f"int8 values cross cuts next to {listed(averages)}: on x86, onnxruntime computes such"
            " a layer as integers only without a cut next to it, so results can differ by some"
            " quantisation steps; cut elsewhere, or quantise activations to uint8"
        )


def parted_groups(cut: Partition) -> tuple[str, ...]:
    """Return the names of quantisers that are apart from the layer whose result they take, and of
    dequantisers that are apart from one that reads them.
    """
    maker = {t.name: layer for layer in cut.graph.layers for t in layer.outputs}
    names = {
        name
        for segment in cut.segments
        for layer, tensor in segment.reads_from_elsewhere()
        if (made := maker.get(tensor.name))
        for name in _parted(made, layer)
    }
    return tuple(layer.name for layer in cut.graph.layers if layer.name in names)


def _parted(made: Layer, reader: Layer) -> Iterator[str]:
    if is_dequantiser(made) and not is_dequantiser(reader):
        yield made.name
    elif is_quantiser(reader) and not is_dequantiser(reader) and not is_quantiser(made):
        yield reader.name


def parted_signed_averages(cut: Partition) -> tuple[str, ...]:
    """Return the names of averages of signed 8-bit integers at a cut.

    On processors of the x86 family onnxruntime computes them as integers only if it can make the
    integers unsigned, which takes a quantiser and its dequantiser on either side in one segment.
    """
    # What enters or leaves the unsliced model has no partner there either.
    ends = {tensor.name for tensor in (*cut.graph.inputs, *cut.graph.outputs)}
    names = {
        layer.name
        for segment in cut.segments
        for layer in segment.layers
        if layer.op in _AVERAGES and _is_at_a_cut(layer, segment, ends)
    }
    return tuple(layer.name for layer in cut.graph.layers if layer.name in names)


def _is_at_a_cut(layer: Layer, segment: PartitionSegment, ends: set[str]) -> bool:
    before = {t.name for t in layer.inputs}
    after = {t.name for t in layer.outputs}
    brought = {t.name for t in segment.inputs} - ends
    sent = {t.name for t in segment.outputs} - ends
    return any(
        tensor.dtype == "int8" and tensor.name in crossing
        for other in segment.layers
        if is_quantiser(other)
        for near, far, own, crossing in (
            (before, other.inputs, other.outputs, brought),
            (after, other.outputs, other.inputs, sent),
        )
        if any(t.name in near for t in own)
        for tensor in far
    )
