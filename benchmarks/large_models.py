"""Models that the zoo lacks: ResNet-101, and one of more than two gigabytes. Weights are noise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

__all__ = ["gigabytes", "resnet101"]

_BLOCKS = (3, 4, 23, 3)
_WIDTHS = (64, 128, 256, 512)


class _ResNet:
    """Collects nodes and weights of a network of bottleneck blocks."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []
        self._random = np.random.default_rng(0)

    def add(self, op: str, name: str, *inputs: str, **settings: object) -> str:
        self.nodes.append(helper.make_node(op, inputs, [f"{name}_out"], name=name, **settings))
        return f"{name}_out"

    def weight(self, name: str, *shape: int) -> str:
        scale = np.float32((2 / max(1, int(np.prod(shape[1:])))) ** 0.5)
        values = scale * self._random.standard_normal(shape, np.float32)
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def convolution(
        self, name: str, source: str, inputs: int, outputs: int, side: int, stride: int = 1
    ) -> str:
        """Add a convolution with its bias, as exporters fold normalisation into it."""
        weights = (self.weight(f"{name}_w", outputs, inputs, side, side),)
        bias = self.weight(f"{name}_b", outputs)
        pads = [side // 2] * 4
        return self.add("Conv", name, source, *weights, bias, strides=[stride] * 2, pads=pads)

    def block(self, name: str, source: str, inputs: int, width: int, stride: int) -> str:
        """Add three convolutions and the connection around them."""
        inner = self.convolution(f"{name}_a", source, inputs, width, 1)
        inner = self.add("Relu", f"{name}_a_relu", inner)
        inner = self.convolution(f"{name}_b", inner, width, width, 3, stride)
        inner = self.add("Relu", f"{name}_b_relu", inner)
        inner = self.convolution(f"{name}_c", inner, width, 4 * width, 1)
        around = source
        if inputs != 4 * width:
            around = self.convolution(f"{name}_around", source, inputs, 4 * width, 1, stride)
        return self.add("Relu", f"{name}_relu", self.add("Add", f"{name}_add", inner, around))


def resnet101(path: Path) -> Path:
    """Write ResNet-101 for images of [1, 3, 224, 224] (45 million parameters, 178 MB).

    Source: https://arxiv.org/abs/1512.03385, Table 1, normalisation folded into the convolutions.
    """
    network = _ResNet()
    last = network.add("Relu", "stem_relu", network.convolution("stem", "image", 3, 64, 7, 2))
    pool = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    last, channels = network.add("MaxPool", "stem_pool", last, **pool), 64
    for stage, (count, width) in enumerate(zip(_BLOCKS, _WIDTHS, strict=True)):
        for number in range(count):
            stride = 2 if stage and not number else 1
            last = network.block(f"block{stage}_{number}", last, channels, width, stride)
            channels = 4 * width
    last = network.add("Flatten", "flatten", network.add("GlobalAveragePool", "mean", last))
    classes = network.weight("classes_w", channels, 1000), network.weight("classes_b", 1000)
    network.nodes.append(helper.make_node("Gemm", [last, *classes], ["scores"], name="classes"))
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 224, 224])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 1000])
    graph = helper.make_graph(network.nodes, "resnet101", [image], [scores], network.weights)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def gigabytes(path: Path, *, layers: int = 24, width: int = 4900) -> Path:
    """Write a chain of square matrix products, their weights in a file beside the model.

    By default 24 matrices of 96 MB: 2.3 GB. Both lie in ``path``'s folder.
    """
    names = ["x", *(f"t{number}" for number in range(layers - 1)), "y"]
    weights, nodes = [], []
    for number in range(layers):
        weights.append(_external(f"w{number}", width, path.with_suffix(".data").name, number))
        inputs = [names[number], f"w{number}"]
        nodes.append(helper.make_node("MatMul", inputs, [names[number + 1]], name=f"m{number}"))
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, width]) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "gigabytes", ends[:1], ends[1:], weights)
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    path.write_bytes(model.SerializeToString())
    with path.with_suffix(".data").open("wb") as file:
        for block in _noise(layers, 4 * width * width):
            file.write(block)
    return path


def _external(name: str, width: int, location: str, number: int) -> TensorProto:
    size = 4 * width * width
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[width, width])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", number * size), ("length", size)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def _noise(blocks: int, size: int) -> Iterator[memoryview]:
    values = np.random.default_rng(0).standard_normal(size // 4, np.float32)
    for _ in range(blocks):
        yield memoryview(values)
