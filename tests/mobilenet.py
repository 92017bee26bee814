"""MobileNetV2 as an ONNX graph, of real size and with seeded weights."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

_BOTTLENECKS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, channels, repetitions and first stride: Table 2 of https://arxiv.org/abs/1801.04381."""


@dataclass
class _Network:
    nodes: list[NodeProto] = field(default_factory=list)
    weights: list[TensorProto] = field(default_factory=list)
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def add(self, op: str, name: str, *inputs: str, **settings: object) -> str:
        self.nodes.append(helper.make_node(op, inputs, [f"{name}_out"], name=name, **settings))
        return f"{name}_out"

    def weight(self, name: str, *shape: int) -> str:
        deviation = (2 / max(1, int(np.prod(shape[1:])))) ** 0.5
        values = self.random.standard_normal(shape, np.float32) * np.float32(deviation)
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def convolution(
        self, name: str, source: str, shape: tuple[int, int, int], stride: int = 1, group: int = 1
    ) -> str:
        """Add a convolution and its normalisation; ``shape``: inputs, outputs, side."""
        inputs, outputs, side = shape
        kernel = self.weight(f"{name}_w", outputs, inputs // group, side, side)
        padding = [side // 2] * 4
        settings = {"strides": [stride] * 2, "pads": padding, "group": group}
        made = self.add("Conv", name, source, kernel, **settings)
        for part, value in (("scale", 1), ("shift", 0), ("mean", 0), ("variance", 1)):
            values = np.full(outputs, value, np.float32)
            self.weights.append(numpy_helper.from_array(values, f"{name}_{part}"))
        moments = [f"{name}_{part}" for part in ("scale", "shift", "mean", "variance")]
        return self.add("BatchNormalization", f"{name}_norm", made, *moments)

    def relu6(self, name: str, source: str) -> str:
        return self.add("Clip", name, source, "zero", "six")

    def bottleneck(
        self, name: str, source: str, channels: tuple[int, int], expansion: int, stride: int
    ) -> str:
        inputs, outputs = channels
        hidden, inner = inputs * expansion, source
        if expansion > 1:
            inner = self.convolution(f"{name}_expand", source, (inputs, hidden, 1))
            inner = self.relu6(f"{name}_expand_relu", inner)
        shape = (hidden, hidden, 3)
        inner = self.convolution(f"{name}_depth", inner, shape, stride=stride, group=hidden)
        inner = self.relu6(f"{name}_depth_relu", inner)
        inner = self.convolution(f"{name}_project", inner, (hidden, outputs, 1))
        is_residual = stride == 1 and inputs == outputs
        return self.add("Add", f"{name}_add", source, inner) if is_residual else inner


def mobilenet_v2() -> onnx.ModelProto:
    """Return MobileNetV2 at width 1.0 for images of [1, 3, 224, 224] and 1000 classes."""
    network = _Network()
    for name, value in (("zero", 0), ("six", 6)):
        network.weights.append(numpy_helper.from_array(np.float32(value), name))
    last = network.convolution("stem", "image", (3, 32, 3), stride=2)
    last, channels = network.relu6("stem_relu", last), 32
    for block, (expansion, outputs, count, stride) in enumerate(_BOTTLENECKS):
        for number in range(count):
            last = network.bottleneck(
                f"block{block}_{number}",
                last,
                (channels, outputs),
                expansion,
                stride if number == 0 else 1,
            )
            channels = outputs
    last = network.relu6("head_relu", network.convolution("head", last, (channels, 1280, 1)))
    last = network.add("Flatten", "flatten", network.add("GlobalAveragePool", "pool", last))
    weights = (network.weight("classes_w", 1000, 1280), network.weight("classes_b", 1000))
    last = network.add("Gemm", "classes", last, *weights, transB=1)
    graph = helper.make_graph(
        network.nodes,
        "mobilenet_v2",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 224, 224])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, [1, 1000])],
        network.weights,
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)
