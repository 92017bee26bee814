"""Models that the zoo lacks: ResNet-101, and one of more than two gigabytes. Weights are noise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import published_networks
from onnx import TensorProto, helper


def resnet101(path: Path) -> Path:
    """Write ResNet-101 for images of [1, 3, 224, 224] (45 million parameters, 178 MB)."""
    onnx.save(published_networks.resnet101(), path)
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
