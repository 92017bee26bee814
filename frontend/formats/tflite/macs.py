"""How many multiplications with an addition a TensorFlow Lite operator takes."""

from __future__ import annotations

from collections.abc import Callable

from rankslice.framework.graph import Layer
from rankslice.frontend.formats.operand_shapes import (
    convolution,
    counted_macs,
    matrix_product,
    recurrent,
    transposed_convolution,
)
from rankslice.frontend.formats.tflite.schema import OPERATORS

_NOT_COUNTED = """
    BIDIRECTIONAL_SEQUENCE_LSTM BIDIRECTIONAL_SEQUENCE_RNN CALL CALL_ONCE CONCAT_EMBEDDINGS
    CUSTOM DELEGATE IF LSH_PROJECTION RFFT2D SVDF PLACEHOLDER_FOR_GREATER_OP_CODES WHILE
"""
"""Operators with bodies, and those whose products are not counted here."""
_FREE = {name for name in OPERATORS if not name.startswith("STABLEHLO_")} - {*_NOT_COUNTED.split()}
_LSTM_MATRICES = (*range(1, 9), 16)
"""Operands of an LSTM that are matrices: four for what comes in, four for the state, and the
projection. Some are omitted."""


def tflite_macs(layer: Layer) -> int | None:
    """Return a layer's MACs; ``None`` for custom and StableHLO operators, and control flow."""
    return counted_macs(layer, _COUNTS, is_free=layer.op in _FREE)


# The kernel of a transposed convolution has the input channels last.
_COUNTS: dict[str, Callable[[Layer], int]] = {
    "CONV_2D": convolution(slice(1, None)),  # [outputs, height, width, inputs per group]
    "CONV_3D": convolution(slice(0, -1)),  # [depth, height, width, inputs, outputs]
    "DEPTHWISE_CONV_2D": convolution(slice(1, 3)),  # [1, height, width, outputs]
    "TRANSPOSE_CONV": transposed_convolution(slice(0, -1), 2),
    "CONV_3D_TRANSPOSE": transposed_convolution(slice(0, -1), 2),
    "FULLY_CONNECTED": convolution(slice(1, None)),  # [outputs, inputs]
    "BATCH_MATMUL": matrix_product("adj_x"),
    "LSTM": recurrent(_LSTM_MATRICES),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": recurrent(_LSTM_MATRICES),
    "RNN": recurrent((1, 2)),
    "UNIDIRECTIONAL_SEQUENCE_RNN": recurrent((1, 2)),
}
