"""How many multiplications with an addition an ONNX operator takes."""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx.defs

from rankslice.framework.graph import Layer
from rankslice.frontend.formats.operand_shapes import (
    UnknownSizeError,
    convolution,
    counted_macs,
    matrix_product,
    output_shape,
    recurrent,
    shape_of,
    transposed_convolution,
)

_WITH_BODIES = frozenset({"If", "Loop", "Scan", "SequenceMap"})
_FREE_OPERATORS = """
    BiasAdd BiasDropout BiasGelu BiasSoftmax BiasSplitGelu DequantizeLinear
    EmbedLayerNormalization FastGelu Gelu GemmaRotaryEmbedding GroupNorm Pad QLinearAdd
    QLinearAveragePool QLinearConcat QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul
    QLinearSigmoid QLinearSoftmax QuantizeLinear QuickGelu RotaryEmbedding SkipGroupNorm
    SkipLayerNormalization SkipSimplifiedLayerNormalization SimplifiedLayerNormalization Unique
"""
_WITHOUT_PRODUCTS = {f"com.microsoft.{name}" for name in _FREE_OPERATORS.split()}
"""Operators of onnxruntime that neither convolve nor multiply matrices."""


def onnx_macs(layer: Layer) -> int | None:
    """Return a layer's MACs.

    ``None`` where a size is missing, or the operator is none of ONNX's or onnxruntime's, or has a
    body (``If``, ``Loop``).
    """
    is_known = "." not in layer.op and onnx.defs.has(layer.op) and layer.op not in _WITH_BODIES
    return counted_macs(layer, _COUNTS, is_free=is_known or layer.op in _WITHOUT_PRODUCTS)


def _gemm(layer: Layer) -> int:
    """Count a product of two matrices, transposed or not: [M, K] by [K, N]."""
    return math.prod(shape_of(layer, 0)) * output_shape(layer)[-1]


def _einsum(layer: Layer) -> int:
    """Count one product for each combination of all indices; one operand is only rearranged.

    With three or more operands the number depends on the order in which the engine takes them.
    """
    equation = layer.settings.get("equation")
    if len(layer.operands) == 1:
        return 0
    if not isinstance(equation, str) or len(layer.operands) > 2:
        raise UnknownSizeError
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    if len(terms) != len(layer.operands):
        raise UnknownSizeError
    sizes: dict[str, int] = {}
    for operand, term in enumerate(terms):
        for index, size in _indices(term, shape_of(layer, operand)):
            sizes[index] = max(size, sizes.get(index, 1))
    return math.prod(sizes.values())


def _indices(term: str, shape: tuple[int, ...]) -> list[tuple[str, int]]:
    """Return an operand's indices with their sizes; those of ``...`` are numbered from the end."""
    before, dots, after = term.partition("...")
    hidden = len(shape) - len(before) - len(after)
    if hidden < 0 or (hidden and not dots):
        raise UnknownSizeError
    between = [f"...{axis}" for axis in range(hidden, 0, -1)]
    return list(zip([*before, *between, *after], shape, strict=True))


def _attention(layer: Layer) -> int:
    """Count queries times keys, and weights times values.

    Queries, keys and values are [batch, heads, length, size] or [batch, length, heads * size];
    the past keys are [batch, heads, length, size].
    """
    keys = shape_of(layer, 1)
    length = keys[-2]
    if len(layer.operands) > 4 and layer.operands[4] is not None:
        length += shape_of(layer, 4)[-2]
    return (math.prod(shape_of(layer, 0)) + math.prod(output_shape(layer))) * length


def _packed_attention(layer: Layer) -> int:
    """Count onnxruntime's Attention: the projection to queries, keys and values, and what follows.

    The input is [batch, length, size], the weights are [size, queries + keys + values] and the
    past is [2, batch, heads, length, size].
    """
    batch, length, size = shape_of(layer, 0)[:3]
    projected = shape_of(layer, 1)[-1]
    value_size = output_shape(layer)[-1]
    seen = length
    if len(layer.operands) > 4 and layer.operands[4] is not None:
        seen += shape_of(layer, 4)[-2]
    query_size = (projected - value_size) // 2
    return batch * length * (size * projected + seen * (query_size + value_size))


_GROUP = slice(1, None)
"""Of a kernel [output channels, input channels per group, *window]: what an output value takes. If
transposed, the kernel has input and output channels the other way round."""

_COUNTS: dict[str, Callable[[Layer], int]] = {
    "Conv": convolution(_GROUP),
    "ConvInteger": convolution(_GROUP),
    "DeformConv": convolution(_GROUP),
    "QLinearConv": convolution(_GROUP, 3),
    "ConvTranspose": transposed_convolution(_GROUP),
    "Gemm": _gemm,
    "MatMul": matrix_product(),
    "MatMulInteger": matrix_product(),
    "QLinearMatMul": matrix_product(),
    "Einsum": _einsum,
    "LSTM": recurrent((1, 2)),
    "GRU": recurrent((1, 2)),
    "RNN": recurrent((1, 2)),
    "Attention": _attention,
    "com.microsoft.Attention": _packed_attention,
    "com.microsoft.DynamicQuantizeMatMul": matrix_product(),
    "com.microsoft.FusedConv": convolution(_GROUP),
    "com.microsoft.FusedGemm": _gemm,
    "com.microsoft.FusedMatMul": matrix_product("transA"),
    "com.microsoft.MatMulIntegerToFloat": matrix_product(),
    "com.microsoft.MatMulNBits": matrix_product(),
    "com.microsoft.QGemm": _gemm,
    "com.microsoft.QLinearConv": convolution(_GROUP, 3),
}
