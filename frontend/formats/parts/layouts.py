"""Changes of layout between parts: layers that one of both sides gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rankslice.framework.graph import Graph, Layer, Tensor, Transpose
from rankslice.frontend.formats import format_of
from rankslice.frontend.formats.model_format import Model
from rankslice.frontend.rewriting.split import made_layer

MAKERS = ("onnx",)
"""Formats of parts that can get such a layer."""


def permuted(tensor: Tensor, permutation: Sequence[int], name: str = "") -> Tensor:
    """Return a tensor with its axes in another order; no permutation: as it is."""
    if not permutation or tensor.shape is None:
        return replace(tensor, name=name or tensor.name)
    shape = tuple(tensor.shape[axis] for axis in permutation)
    symbols = tuple(tensor.symbols[axis] for axis in permutation) if tensor.symbols else ()
    return replace(tensor, name=name or tensor.name, shape=shape, symbols=symbols)


def inverse(permutation: Sequence[int]) -> tuple[int, ...]:
    return tuple(permutation.index(axis) for axis in range(len(permutation)))


def with_permuted_inputs(
    model: Model, permutations: Mapping[str, Sequence[int]]
) -> tuple[Model, dict[str, str]]:
    """Return a model whose inputs have other layouts, and their new names by the old ones."""
    renamed: dict[str, str] = {}
    inputs: list[Tensor] = []
    made: list[Layer] = []
    for tensor in model.graph.inputs:
        permutation = permutations.get(tensor.name, ())
        if permutation:
            renamed[tensor.name] = _unused(model, f"{tensor.name} before its layout changes")
            brought = permuted(tensor, inverse(permutation), renamed[tensor.name])
            name = _unused(model, f"layout of {tensor.name}")
            made.append(_transpose(name, brought, tensor, permutation))
            inputs.append(brought)
        else:
            inputs.append(tensor)
    graph = replace(model.graph, inputs=tuple(inputs), layers=(*made, *model.graph.layers))
    return _with_graph(model, graph), renamed


def with_permuted_output(
    model: Model, name: str, permutation: Sequence[int]
) -> tuple[Model, Tensor]:
    """Return a model with one more output, which has another layout than one that it has."""
    graph = model.graph
    source = next(tensor for tensor in graph.outputs if tensor.name == name)
    result = permuted(source, permutation, _unused(model, f"{name} in another layout"))
    made = _transpose(_unused(model, f"layout of {name}"), source, result, permutation)
    layers = (*graph.layers, made)
    graph = replace(graph, layers=layers, outputs=(*graph.outputs, result))
    return _with_graph(model, graph), result


def _with_graph(model: Model, graph: Graph) -> Model:
    with_made_layers = format_of(graph).with_made_layers
    assert with_made_layers
    changed: Model = with_made_layers(model, graph)
    return changed


def _transpose(name: str, source: Tensor, result: Tensor, permutation: Sequence[int]) -> Layer:
    return made_layer(name, "", [source], result, Transpose(tuple(permutation)))


def _unused(model: Model, name: str) -> str:
    graph = model.graph
    taken = {layer.name for layer in graph.layers}
    taken |= {tensor.name for layer in graph.layers for tensor in (*layer.inputs, *layer.outputs)}
    while name in taken:
        name += "'"
    return name
