"""How many multiplications with an addition a layer of Keras takes."""

from __future__ import annotations

import math
from collections.abc import Callable

from rankslice.framework.graph import Layer, Weight
from rankslice.frontend.formats.keras.allowed_classes import APPLICATION_LAYERS, LAYERS
from rankslice.frontend.formats.operand_shapes import (
    UnknownSizeError,
    counted_macs,
    output_shape,
    shape_of,
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


def _weight(layer: Layer, name: str) -> Weight:
    for weight in layer.weights:
        if weight.name.rstrip("'").rpartition("/")[2] == name:
            return weight
    raise UnknownSizeError


def _convolution(layer: Layer) -> int:
    """Count a convolution; the kernel is [*window, input channels per group, outputs]."""
    return math.prod(output_shape(layer)) * math.prod(_weight(layer, "kernel").shape[:-1])


def _depthwise(layer: Layer) -> int:
    """Count a convolution channel by channel; the kernel is [*window, inputs, multiplier]."""
    return math.prod(output_shape(layer)) * math.prod(_weight(layer, "kernel").shape[:-2])


def _transposed(layer: Layer) -> int:
    """Count each input value with all of the kernel [*window, outputs, inputs] for its channel."""
    return math.prod(shape_of(layer, 0)) * math.prod(_weight(layer, "kernel").shape[:-1])


def _separable(layer: Layer) -> int:
    """Count the convolution of each channel, then the one that mixes them."""
    window = _weight(layer, "depthwise_kernel").shape
    mixing = _weight(layer, "pointwise_kernel").shape
    positions = math.prod(output_shape(layer)) // mixing[-1]
    return positions * (math.prod(window) + math.prod(mixing))


def _dense(layer: Layer) -> int:
    return math.prod(output_shape(layer)) * _weight(layer, "kernel").shape[0]


def _recurrent(layer: Layer) -> int:
    """Count both matrices once for each step of each sequence."""
    kernels = (_weight(layer, "kernel"), _weight(layer, "recurrent_kernel"))
    steps = math.prod(shape_of(layer, 0)[:-1])
    return steps * sum(math.prod(kernel.shape) for kernel in kernels)


_COUNTS: dict[str, Callable[[Layer], int]] = {
    **{f"Conv{dimensions}D": _convolution for dimensions in (1, 2, 3)},
    **{f"Conv{dimensions}DTranspose": _transposed for dimensions in (1, 2, 3)},
    **{f"DepthwiseConv{dimensions}D": _depthwise for dimensions in (1, 2)},
    **{f"SeparableConv{dimensions}D": _separable for dimensions in (1, 2)},
    "Dense": _dense,
    "GRU": _recurrent,
    "LSTM": _recurrent,
    "SimpleRNN": _recurrent,
}
