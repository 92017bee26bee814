"""A small network of images: stages of convolutions, then fully connected layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

NETWORK = """
<ir_version: 8, opset_import: ["" : 17]>
network (float[1,{channels},{size},{size}] image) => (float[1,10] scores) {{
  c1 = Conv <pads = [1,1,1,1]> (image, w1)
  r1 = Relu (c1)
  c2 = Conv <pads = [1,1,1,1]> (r1, w2)
  r2 = Relu (c2)
  p2 = MaxPool <kernel_shape = [2,2], strides = [2,2]> (r2)
  c3 = Conv <pads = [1,1,1,1]> (p2, w3)
  r3 = Relu (c3)
  p3 = MaxPool <kernel_shape = [2,2], strides = [2,2]> (r3)
  flat = Flatten (p3)
  f4 = Gemm <transB = 1> (flat, w4)
  r4 = Relu (f4)
  scores = Gemm <transB = 1> (r4, w5)
}}
"""
LAYERS = ("c1", "r1", "c2", "r2", "p2", "c3", "r3", "p3", "flat", "f4", "r4", "scores")


def write_network(path: Path, size: int = 32, channels: int = 8, hidden: int = 2048) -> Path:
    """Write a network whose layers have the names of their results: :data:`LAYERS`."""
    model = onnx.parser.parse_model(NETWORK.format(size=size, channels=channels))
    random = np.random.default_rng(0)
    features = channels * (size // 4) ** 2
    shapes = [(channels, channels, 3, 3)] * 3 + [(hidden, features), (10, hidden)]
    for number, shape in enumerate(shapes, 1):
        values = random.standard_normal(shape).astype(np.float32) / np.sqrt(np.prod(shape[1:]))
        model.graph.initializer.append(numpy_helper.from_array(values, f"w{number}"))
    for node in model.graph.node:
        node.name = node.output[0]
    onnx.save(model, path)
    return path
