"""What each layer of a model costs: arithmetic, weights, results."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from rankslice.framework.graph import Graph, Layer, PartOf, Tensor, Weight, constant_layers
from rankslice.frontend.formats import format_of

_SHAPES_AND_BIASES = frozenset({"int32", "int64"})
"""Element types of shapes, axes and indices, and of the biases of quantised products."""


@dataclass(frozen=True, slots=True)
class LayerCost:
    """What one layer costs for one frame, and what it holds."""

    layer: str
    macs: int | None
    """Multiply-accumulate operations; ``None`` if not known. See
    :func:`rankslice.frontend.formats.operand_shapes.counted_macs` for what counts."""
    parameters: int
    """Numbers in the weights it reads. Single numbers (limits, exponents) and truth values are
    none, nor are 32- and 64-bit integers (shapes, indices) unless it takes products."""
    moments: int
    """Those of the parameters that are means and variances of a BatchNormalization: not trained,
    and left out of many published counts."""
    weight_bytes: int
    new_parameters: int
    """Parameters that no layer before it reads; over all layers they sum up to the model's."""
    new_weight_bytes: int
    """Size of the weights that no layer before it reads."""
    output_bytes: int | None
    """Size of what it makes; ``None`` if that is not known beforehand."""


def layer_costs(graph: Graph) -> tuple[LayerCost, ...]:
    """Return the costs of all layers, in the graph's order.

    Layers that give the same for every frame (see
    :func:`rankslice.framework.graph.constant_layers`) take no arithmetic per frame. What a
    ``Constant`` makes is counted as its weight.
    """
    macs_of = format_of(graph).macs
    constant = constant_layers(graph)
    seen: set[str] = set()
    costs = []
    for layer in graph.layers:
        cuts_or_joins = layer.making is not None and not isinstance(layer.making, PartOf)
        macs = 0 if layer.name in constant or cuts_or_joins else macs_of(layer)
        parameters = parameters_of(layer, macs)
        size = {item.name: item.nbytes or 0 for item in held_by(layer)}
        is_normalisation = layer.op == "BatchNormalization"
        moments = layer.operands[3:5] if is_normalisation else ()
        costs.append(
            LayerCost(
                layer=layer.name,
                macs=macs,
                parameters=sum(parameters.values()),
                moments=sum(_count(item) for item in moments if isinstance(item, Weight)),
                weight_bytes=sum(size.values()),
                new_parameters=sum(parameters[name] for name in size if name not in seen),
                new_weight_bytes=sum(size[name] for name in size if name not in seen),
                output_bytes=total_size(layer.outputs),
            )
        )
        seen |= set(size)
    return tuple(costs)


def held_by(layer: Layer) -> tuple[Weight | Tensor, ...]:
    """Return the weights of a layer, and the value of a ``Constant``."""
    return (*layer.weights, *(layer.outputs if layer.op == "Constant" else ()))


def parameters_of(layer: Layer, macs: int | None) -> dict[str, int]:
    """Count the parameters in each weight of a layer, by name.

    Without products (``macs``), long integers are no bias but a shape or indices.
    """
    return {
        item.name: 0 if item.dtype in _SHAPES_AND_BIASES and not macs else _count(item)
        for item in held_by(layer)
    }


def _count(held: Weight | Tensor) -> int:
    if not held.shape or held.dtype == "bool":
        return 0
    return math.prod(held.shape)


def total_size(tensors: Iterable[Tensor]) -> int | None:
    total = 0
    for tensor in tensors:
        if tensor.nbytes is None:
            return None
        total += tensor.nbytes
    return total
