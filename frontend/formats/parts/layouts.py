"""Changes of layout between parts: layers that one of both sides gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rankslice.framework.graph import Graph, Layer, Tensor, Transpose, unique_name
from rankslice.frontend.formats import format_of
from rankslice.frontend.formats.model_format import Model
from rankslice.frontend.rewriting.made_layers import made_layer
from rankslice.frontend.rewriting.regions import inverse

MAKERS = ("onnx",)
"""Formats of parts that can get such a layer."""


def permuted(tensor: Tensor, permutation: Sequence[int], name: str = "") -> Tensor:
    """Return a tensor with its axes in another order; no permutation: as it is."""
    if not permutation or tensor.shape is None:
        return replace(tensor, name=name or tensor.name)
    shape = tuple(tensor.shape[axis] for axis in permutation)
    symbols = tuple(tensor.symbols[axis] for axis in permutation) if tensor.symbols else ()
    return replace(tensor, name=name or tensor.name, shape=shape, symbols=symbols)


def with_permuted_inputs(
    model: Model, permutations: Mapping[str, Sequence[int]]
) -> tuple[Model, dict[str, str]]:
    """Return a model whose inputs have other layouts, and their new names by the old ones."""
    graph, names = model.graph, model.graph.names
    brought: dict[str, Tensor] = {}
    made: list[Layer] = []
    for tensor in graph.inputs:
        if permutation := permutations.get(tensor.name):
            name = unique_name(f"{tensor.name} before its layout changes", names)
            brought[tensor.name] = permuted(tensor, inverse(permutation), name)
            made.append(_transpose(brought[tensor.name], tensor, tensor, permutation, names))
    inputs = tuple(brought.get(tensor.name, tensor) for tensor in graph.inputs)
    graph = replace(graph, inputs=inputs, layers=(*made, *graph.layers))
    return _with_graph(model, graph), {old: new.name for old, new in brought.items()}


def with_permuted_output(
    model: Model, name: str, permutation: Sequence[int]
) -> tuple[Model, Tensor]:
    """Return a model with one more output, which has another layout than one that it has."""
    graph, names = model.graph, model.graph.names
    source = next(tensor for tensor in graph.outputs if tensor.name == name)
    result = permuted(source, permutation, unique_name(f"{name} in another layout", names))
    layers = (*graph.layers, _transpose(source, result, source, permutation, names))
    graph = replace(graph, layers=layers, outputs=(*graph.outputs, result))
    return _with_graph(model, graph), result


def _transpose(
    source: Tensor, result: Tensor, changed: Tensor, permutation: Sequence[int], names: set[str]
) -> Layer:
    name = unique_name(f"layout of {changed.name}", names)
    return made_layer(name, "", [source], result, Transpose(tuple(permutation)))


def _with_graph(model: Model, graph: Graph) -> Model:
    with_made_layers = format_of(graph).with_made_layers
    assert with_made_layers
    changed: Model = with_made_layers(model, graph)
    return changed
