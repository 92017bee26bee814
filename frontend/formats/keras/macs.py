"""How many multiplications with an addition a layer of Keras takes."""

from __future__ import annotations

import math
from collections.abc import Callable

from rankslice.framework.graph import Layer
from rankslice.frontend.formats.keras.allowed_classes import APPLICATION_LAYERS, LAYERS
from rankslice.frontend.formats.operand_shapes import (
    convolution,
    counted_macs,
    output_shape,
    recurrent,
    shape_of,
    transposed_convolution,
)

_NOT_COUNTED = """
    AdditiveAttention Attention Bidirectional ConvLSTM1D ConvLSTM2D ConvLSTM3D Dot EinsumDense
    GroupQueryAttention MelSpectrogram MultiHeadAttention RNN STFTSpectrogram
    SpectralNormalization TimeDistributed
"""
"""Layers with products that are not counted here, or with other layers in them."""
_FREE_OPERATIONS = """
    Absolute Cast Clip Divide Exp ExpandDims GetItem Max Mean Min Negative Pad Power Relu Relu6
    Rsqrt Sigmoid Silu Split Sqrt Square Squeeze Stack Sum Tanh Transpose TrueDivide Where
"""
_FREE = {*_FREE_OPERATIONS.split(), *APPLICATION_LAYERS, *LAYERS} - {*_NOT_COUNTED.split()}


def keras_macs(layer: Layer) -> int | None:
    """Return the MACs of a call of a layer.

    ``None`` for attention, layers that have others inside, and most operations that are no layers.
    """
    return counted_macs(layer, _COUNTS, is_free=layer.op in _FREE)


def _separable(layer: Layer) -> int:
    """Count the convolution of each channel, then the one that mixes them."""
    window, mixing = shape_of(layer, 1), shape_of(layer, 2)
    positions = math.prod(output_shape(layer)) // mixing[-1]
    return positions * (math.prod(window) + math.prod(mixing))


def _recurrent(layer: Layer) -> int:
    """Count both matrices, which may stand behind several inputs: the state, too."""
    first = len(layer.inputs)
    return recurrent((first, first + 1))(layer)


# Kernels are [*window, input channels per group, outputs]; of a transposed convolution
# [*window, outputs, inputs], and channel by channel [*window, inputs, multiplier].
_COUNTS: dict[str, Callable[[Layer], int]] = {
    **{f"Conv{axes}D": convolution(slice(0, -1)) for axes in (1, 2, 3)},
    **{f"Conv{axes}DTranspose": transposed_convolution(slice(0, -1)) for axes in (1, 2, 3)},
    **{f"DepthwiseConv{axes}D": convolution(slice(0, -2)) for axes in (1, 2)},
    **{f"SeparableConv{axes}D": _separable for axes in (1, 2)},
    "Dense": convolution(slice(0, 1)),
    **dict.fromkeys(("GRU", "LSTM", "SimpleRNN"), _recurrent),
}
