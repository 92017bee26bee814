"""ResNet-101 and MobileNetV2, which the zoo lacks, as ONNX graphs of real size.

Their weights are seeded noise, scaled so that values neither grow nor fade from layer to layer.
Images are float32 of [1, 3, 224, 224], answers have 1000 classes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

_CLASSES = 1000

_BLOCKS = (3, 4, 23, 3)
_WIDTHS = (64, 128, 256, 512)
"""Of ResNet-101's stages: Table 1 of https://arxiv.org/abs/1512.03385."""

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


def resnet101() -> ModelProto:
    """Return ResNet-101, normalisation folded into its convolutions: 45 million parameters.

    Source: https://arxiv.org/abs/1512.03385.
    """
    builder = _GraphBuilder()
    last = builder.convolution("stem", "image", 3, 64, 7, stride=2, bias=True)
    pool = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    last = builder.add("MaxPool", "stem_pool", builder.add("Relu", "stem_relu", last), **pool)
    channels = 64
    for stage, (count, width) in enumerate(zip(_BLOCKS, _WIDTHS, strict=True)):
        for number in range(count):
            stride = 2 if stage and not number else 1
            last = _residual(builder, f"block{stage}_{number}", last, channels, width, stride)
            channels = 4 * width
    return builder.classifier("resnet101", last, channels)


def mobilenet_v2() -> ModelProto:
    """Return MobileNetV2 at width 1.0: 3.5 million parameters.

    Source: https://arxiv.org/abs/1801.04381.
    """
    builder = _GraphBuilder()
    builder.constant("zero", np.float32(0))
    builder.constant("six", np.float32(6))
    last, channels = _convolved(builder, "stem", "image", 3, 32, 3, stride=2), 32
    for block, (expansion, outputs, count, first_stride) in enumerate(_BOTTLENECKS):
        for number in range(count):
            stride = 1 if number else first_stride
            name = f"block{block}_{number}"
            last = _inverted(builder, name, last, (channels, outputs), expansion, stride)
            channels = outputs
    last = _convolved(builder, "head", last, channels, 1280, 1)
    return builder.classifier("mobilenet_v2", last, 1280)


@dataclass
class _GraphBuilder:
    """Collects nodes and weights."""

    nodes: list[NodeProto] = field(default_factory=list)
    weights: list[TensorProto] = field(default_factory=list)
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def add(self, op: str, name: str, *inputs: str, **settings: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [f"{name}_out"], name=name, **settings))
        return f"{name}_out"

    def constant(self, name: str, values: ArrayLike) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def weight(self, name: str, *shape: int) -> str:
        deviation = np.float32((2 / max(1, int(np.prod(shape[1:])))) ** 0.5)
        return self.constant(name, deviation * self.random.standard_normal(shape, np.float32))

    def convolution(
        self,
        name: str,
        source: str,
        inputs: int,
        outputs: int,
        side: int,
        *,
        stride: int = 1,
        group: int = 1,
        bias: bool = False,
    ) -> str:
        """Add a convolution that keeps the image's size, but for its stride."""
        weights = [self.weight(f"{name}_w", outputs, inputs // group, side, side)]
        weights += [self.weight(f"{name}_b", outputs)] if bias else []
        settings = {"strides": [stride] * 2, "pads": [side // 2] * 4, "group": group}
        return self.add("Conv", name, source, *weights, **settings)

    def normalisation(self, name: str, source: str, channels: int) -> str:
        values = {"scale": 1, "shift": 0, "mean": 0, "variance": 1}
        moments = [
            self.constant(f"{name}_{part}", np.full(channels, value, np.float32))
            for part, value in values.items()
        ]
        return self.add("BatchNormalization", f"{name}_norm", source, *moments)

    def classifier(self, name: str, last: str, channels: int) -> ModelProto:
        """Add the mean over all positions and the classes; return the model."""
        last = self.add("Flatten", "flatten", self.add("GlobalAveragePool", "pool", last))
        weights = self.weight("classes_w", _CLASSES, channels), self.weight("classes_b", _CLASSES)
        last = self.add("Gemm", "classes", last, *weights, transB=1)
        image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 224, 224])
        scores = helper.make_tensor_value_info(last, TensorProto.FLOAT, [1, _CLASSES])
        graph = helper.make_graph(self.nodes, name, [image], [scores], self.weights)
        opsets = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _residual(
    builder: _GraphBuilder, name: str, source: str, inputs: int, width: int, stride: int
) -> str:
    """Add three convolutions and the connection around them."""
    inner = builder.convolution(f"{name}_a", source, inputs, width, 1, bias=True)
    inner = builder.add("Relu", f"{name}_a_relu", inner)
    inner = builder.convolution(f"{name}_b", inner, width, width, 3, stride=stride, bias=True)
    inner = builder.add("Relu", f"{name}_b_relu", inner)
    inner = builder.convolution(f"{name}_c", inner, width, 4 * width, 1, bias=True)
    around = source
    if inputs != 4 * width:
        around = builder.convolution(
            f"{name}_around", source, inputs, 4 * width, 1, stride=stride, bias=True
        )
    return builder.add("Relu", f"{name}_relu", builder.add("Add", f"{name}_add", inner, around))


def _convolved(
    builder: _GraphBuilder,
    name: str,
    source: str,
    inputs: int,
    outputs: int,
    side: int,
    *,
    stride: int = 1,
    group: int = 1,
) -> str:
    """Add a convolution, its normalisation, and a Relu that ends at six."""
    made = builder.convolution(name, source, inputs, outputs, side, stride=stride, group=group)
    made = builder.normalisation(name, made, outputs)
    return builder.add("Clip", f"{name}_relu", made, "zero", "six")


def _inverted(
    builder: _GraphBuilder,
    name: str,
    source: str,
    channels: tuple[int, int],
    expansion: int,
    stride: int,
) -> str:
    """Add a block that is wide inside and narrow at its ends."""
    inputs, outputs = channels
    hidden, inner = inputs * expansion, source
    if expansion > 1:
        inner = _convolved(builder, f"{name}_expand", source, inputs, hidden, 1)
    inner = _convolved(
        builder, f"{name}_depth", inner, hidden, hidden, 3, stride=stride, group=hidden
    )
    inner = builder.convolution(f"{name}_project", inner, hidden, outputs, 1)
    inner = builder.normalisation(f"{name}_project", inner, outputs)
    has_way_around = stride == 1 and inputs == outputs
    return builder.add("Add", f"{name}_add", source, inner) if has_way_around else inner
