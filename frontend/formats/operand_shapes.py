"""Shapes of what a layer reads and makes, and the operations that are counted by them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from rankslice.framework.graph import Layer


class UnknownSizeError(Exception):
    """A size is not known."""


def shape_of(layer: Layer, operand: int) -> tuple[int, ...]:
    """Return the shape of an operand, or raise :class:`UnknownSizeError`."""
    tensor = layer.operands[operand] if operand < len(layer.operands) else None
    if tensor is None or tensor.shape is None:
        raise UnknownSizeError
    return tensor.shape


def output_shape(layer: Layer) -> tuple[int, ...]:
    """Return the shape of what a layer makes first, or raise :class:`UnknownSizeError`."""
    shape = layer.outputs[0].shape if layer.outputs else None
    if shape is None:
        raise UnknownSizeError
    return shape


def matrix_product(transposed: str = "") -> Callable[[Layer], int]:
    """Count a product of stacks of matrices: each output value takes a row of the first.

    ``transposed``: the setting that says whether the first are transposed.
    """

    def count(layer: Layer) -> int:
        inner = -2 if layer.settings.get(transposed) else -1
        return math.prod(output_shape(layer)) * shape_of(layer, 0)[inner]

    return count


def convolution(window: slice, kernel: int = 1) -> Callable[[Layer], int]:
    """Count a convolution: each output value takes these dimensions of the kernel."""
    return lambda layer: math.prod(output_shape(layer)) * math.prod(shape_of(layer, kernel)[window])


def transposed_convolution(window: slice, data: int = 0) -> Callable[[Layer], int]:
    """Count each input value with these dimensions of the kernel: all but its input channels.

    ``data``: the operand that is the input; the kernel is operand 1.
    """
    return lambda layer: math.prod(shape_of(layer, data)) * math.prod(shape_of(layer, 1)[window])


def recurrent(matrices: Iterable[int]) -> Callable[[Layer], int]:
    """Count the matrices among the operands once for each step of each sequence.

    ``matrices``: their positions; those that are omitted take nothing.
    """
    positions = tuple(matrices)

    def count(layer: Layer) -> int:
        present = [n for n in positions if layer.operands[n : n + 1] not in ((), (None,))]
        if not present:
            raise UnknownSizeError
        steps = math.prod(shape_of(layer, 0)[:-1])
        return steps * sum(math.prod(shape_of(layer, position)) for position in present)

    return count


def counted_macs(
    layer: Layer, counts: Mapping[str, Callable[[Layer], int]], *, is_free: bool
) -> int | None:
    """Return the multiply-accumulate operations (MACs) that a layer takes for one frame.

    Convolutions, matrix products, recurrent layers and attention count, whatever their element
    types; products with the zeros of a padding count too. Every other operator counts 0: adding,
    scaling, normalising, pooling, activation. Additions of a bias count nothing. The result is
    ``None`` where the number is not known.

    Args:
        layer: of any format.
        counts: by operator, what counts its products.
        is_free: whether the layer has none if its operator is not in ``counts``.
    """
    count = counts.get(layer.op)
    if count is None:
        return 0 if is_free else None
    try:
        return count(layer)
    except (UnknownSizeError, IndexError):
        return None
