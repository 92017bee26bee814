"""Graphs written as lines, for tests that need no model file."""

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


def _tensors(names: str) -> tuple[Tensor, ...]:
    return tuple(Tensor(name, "float32", (1, 4)) for name in names.split())
