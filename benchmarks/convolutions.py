"""Two halves of equal work with one tensor between them, as ``.onnx`` and as ``.tflite``.

A small image becomes a tensor of some megabytes; two rows of convolutions of side 1 follow, which
keep its shape; the mean of each channel comes out. Weights are noise that keeps values of order 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

CHANNELS = 64
SIDE = 94
TENSOR_BYTES = 4 * CHANNELS * SIDE * SIDE
"""Of the tensor between the halves: 2.26 MB, 18.9 ms at 1 Gbit/s with TCP's headers."""


def halves(convolutions: int) -> tuple[list[str], list[str]]:
    """Return the names of the tensors that each half's layers make."""
    names = [f"t{number}" for number in range(2 * convolutions + 2)]
    return names[: convolutions + 1], [*names[convolutions + 1 : -1], "mean"]


def write_onnx(path: Path, convolutions: int) -> Path:
    """Write the model for onnxruntime; its layers are called like what they make."""
    first, second = halves(convolutions)
    names = ["image", *first, *second]
    nodes, weights = [], []
    for number, (before, after) in enumerate(itertools.pairwise(names[:-1])):
        kernel = _kernel(number).transpose(3, 2, 0, 1)
        weights.append(numpy_helper.from_array(np.ascontiguousarray(kernel), f"w{number}"))
        nodes.append(helper.make_node("Conv", [before, f"w{number}"], [after], name=after))
    nodes.append(helper.make_node("GlobalAveragePool", [names[-2]], ["mean"], name="mean"))
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, SIDE, SIDE])
    mean = helper.make_tensor_value_info("mean", TensorProto.FLOAT, [1, CHANNELS, 1, 1])
    graph = helper.make_graph(nodes, "halves", [image], [mean], weights)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def write_tflite(path: Path, convolutions: int) -> Path:
    """Write the model for LiteRT; its layers are found by the tensors that they make."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    first, second = halves(convolutions)
    names = ["image", *first, *second]
    buffers, tensors, operators = [schema.BufferT()], [], []

    def add(name: str, shape: tuple[int, ...], values: NDArray[np.float32] | None = None) -> int:
        """Add a tensor and return its number; one with values gets a buffer."""
        place = 0
        if values is not None:
            place = len(buffers)
            buffers.append(schema.BufferT(data=np.frombuffer(values.tobytes(), np.uint8)))
        kind = schema.TensorType.FLOAT32
        tensors.append(schema.TensorT(shape=list(shape), type=kind, buffer=place, name=name))
        return len(tensors) - 1

    image = last = add("image", (1, SIDE, SIDE, 1))
    for number, name in enumerate(names[1:-1]):
        kernel = np.ascontiguousarray(_kernel(number).transpose(3, 0, 1, 2))
        weights = add(f"w{number}", kernel.shape, kernel)
        bias = add(f"b{number}", (CHANNELS,), np.zeros(CHANNELS, np.float32))
        made = add(name, (1, SIDE, SIDE, CHANNELS))
        options = schema.Conv2DOptionsT(strideW=1, strideH=1, dilationWFactor=1, dilationHFactor=1)
        kind = schema.BuiltinOptions.Conv2DOptions
        operator = schema.OperatorT(0, [last, weights, bias], [made], kind, options)
        operators.append(operator)
        last = made
    mean = add("mean", (1, 1, 1, CHANNELS))
    pool = schema.Pool2DOptionsT(
        schema.Padding.VALID, strideW=1, strideH=1, filterWidth=SIDE, filterHeight=SIDE
    )
    kind = schema.BuiltinOptions.Pool2DOptions
    operators.append(schema.OperatorT(1, [last], [mean], kind, pool))
    codes = [
        schema.OperatorCodeT(deprecatedBuiltinCode=code, builtinCode=code, version=1)
        for code in (schema.BuiltinOperator.CONV_2D, schema.BuiltinOperator.AVERAGE_POOL_2D)
    ]
    graph = schema.SubGraphT(tensors, [image], [mean], operators, "halves")
    model = schema.ModelT(3, codes, [graph], "halves", buffers)
    builder = flatbuffers.Builder(1 << 20)
    builder.Finish(model.Pack(builder), b"TFL3")
    path.write_bytes(bytes(builder.Output()))
    return path


def _kernel(number: int) -> NDArray[np.float32]:
    """Return the weights of a convolution, [height, width, inputs, outputs]."""
    inputs = 1 if number == 0 else CHANNELS
    values = np.random.default_rng(number).standard_normal((1, 1, inputs, CHANNELS), np.float32)
    return values / np.float32(inputs**0.5)


WRITERS: dict[str, Callable[[Path, int], Path]] = {
    "onnxruntime": write_onnx,
    "litert": write_tflite,
}
"""Engine -> what writes the model for it, given the number of convolutions of each half."""
