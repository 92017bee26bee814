"""Shapes of what a layer reads and makes, for those who cannot do without."""

from __future__ import annotations

from rankslice.framework.graph import Layer


class UnknownSizeError(Exception):
    """A size is not known."""


def shape_of(layer: Layer, operand: int) -> tuple[int, ...]:
    """Return the shape of an operand by its position.

    Raises:
        UnknownSizeError: it is omitted, or its shape is not known.
    """
    given = layer.operands[operand] if operand < len(layer.operands) else None
    if given is None or given.shape is None:
        raise UnknownSizeError
    return given.shape


def output_shape(layer: Layer) -> tuple[int, ...]:
    """Return the shape of what a layer makes first.

    Raises:
        UnknownSizeError: it makes nothing, or the shape is not known.
    """
    shape = layer.outputs[0].shape if layer.outputs else None
    if shape is None:
        raise UnknownSizeError
    return shape
