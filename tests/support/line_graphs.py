"""Graphs written as lines, for tests that need no model file."""

from dataclasses import replace
from pathlib import Path

from rankslice.framework.graph import ByteRange, Graph, Layer, Tensor


def line_graph(text: str, outputs: str, inputs: str = "x") -> Graph:
    """Return the graph of lines ``name: inputs -> outputs``; ``name!`` draws random numbers."""
    record = ByteRange(Path("model.onnx"), 0, 0)
    layers = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, tensors = line.partition(":")
        ins, _, outs = tensors.partition("->")
        layers.append(
            Layer(
                name.rstrip("!"), "Op", _tensors(ins), _tensors(outs), (), record, "!" not in name
            )
        )
    return Graph("model.onnx", "onnx", tuple(layers), _tensors(inputs), _tensors(outputs), ())


def opened(graph: Graph, *names: str, size: str = "n") -> Graph:
    """Return a graph in which the second size of some tensors is open; its bound is as before."""

    def of(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(
            replace(tensor, symbols=("", size)) if tensor.name in names else tensor
            for tensor in tensors
        )

    layers = (
        replace(each, inputs=of(each.inputs), outputs=of(each.outputs)) for each in graph.layers
    )
    return replace(graph, layers=tuple(layers), inputs=of(graph.inputs), outputs=of(graph.outputs))


def _tensors(names: str) -> tuple[Tensor, ...]:
    return tuple(Tensor(name, "float32", (1, 4)) for name in names.split())
