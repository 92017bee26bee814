"""What each layer of a model costs: arithmetic, weights, results."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from rankslice.framework.graph import Graph, Layer, Tensor, Weight, constant_layers
from rankslice.frontend.onnx_macs import onnx_macs

__all__ = ["LayerCost", "held_by", "layer_costs", "parameters_of", "total_size"]

_NEVER_LEARNED = frozenset({"int64", "bool"})
"""Element types of shapes, axes, indices and masks."""


@dataclass(frozen=True, slots=True)
class LayerCost:
    """What one layer costs for one frame, and what it holds."""

    layer: str
    """Its name."""
    macs: int | None
    """Multiply-accumulate operations; ``None`` if not known. See
    :func:`rankslice.frontend.onnx_macs.onnx_macs` for what counts."""
    parameters: int
    """Numbers in the weights it reads. Single numbers (limits, exponents) and those of type int64
    or bool (shapes, indices) are none."""
    moments: int
    """Those of the parameters that are means and variances of a BatchNormalization: not trained,
    and left out of many published counts."""
    weight_bytes: int
    """Size of the weights it reads, of whatever type."""
    new_parameters: int
    """Parameters that no layer before it reads; over all layers they sum up to the model's."""
    new_weight_bytes: int
    """Size of the weights that no layer before it reads."""
    output_bytes: int | None
    """Size of what it makes; ``None`` if that is not known beforehand."""


def layer_costs(graph: Graph) -> tuple[LayerCost, ...]:
    """Return what each layer costs, in the graph's order.

    Layers that give the same for every frame (see
    :func:`rankslice.framework.graph.constant_layers`) take no arithmetic per frame. What a
    ``Constant`` makes is counted as its weight.
    """
    constant = constant_layers(graph)
    seen: set[str] = set()
    costs = []
    for layer in graph.layers:
        held = held_by(layer)
        new = [item for item in held if item.name not in seen]
        seen |= {item.name for item in held}
        costs.append(
            LayerCost(
                layer=layer.name,
                macs=0 if layer.name in constant else onnx_macs(layer),
                parameters=sum(map(parameters_of, held)),
                moments=sum(map(parameters_of, _moments(layer))),
                weight_bytes=sum(item.nbytes or 0 for item in held),
                new_parameters=sum(map(parameters_of, new)),
                new_weight_bytes=sum(item.nbytes or 0 for item in new),
                output_bytes=total_size(layer.outputs),
            )
        )
    return tuple(costs)


def held_by(layer: Layer) -> tuple[Weight | Tensor, ...]:
    """Return what a layer brings along: its weights, and a constant's value."""
    return (*layer.weights, *(layer.outputs if layer.op == "Constant" else ()))


def parameters_of(held: Weight | Tensor) -> int:
    """Return how many parameters a weight, or a constant's value, has."""
    if not held.shape or held.dtype in _NEVER_LEARNED:
        return 0
    return math.prod(held.shape)


def total_size(tensors: Iterable[Tensor]) -> int | None:
    """Return the size of tensors in bytes; ``None`` if that of one is not known."""
    total = 0
    for tensor in tensors:
        if tensor.nbytes is None:
            return None
        total += tensor.nbytes
    return total


def _moments(layer: Layer) -> list[Weight]:
    """Return the mean and the variance of a BatchNormalization."""
    if layer.op != "BatchNormalization":
        return []
    return [item for item in layer.operands[3:5] if isinstance(item, Weight)]
