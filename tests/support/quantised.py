"""A small CNN, and what onnxruntime's tools make of it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from rankslice.backend.runtime.engines.onnxruntime_package import load_onnxruntime

load_onnxruntime()
quantization: Any = importlib.import_module("onnxruntime.quantization")

CNN = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1, 3, 16, 16] image) => (float[1, 10] scores)
{ [conv1] a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (image, w1, b1)
  [relu1] b = Relu(a)
  [conv2] c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (b, w2, b2)
  [add] d = Add(b, c)
  [relu2] e = Relu(d)
  [pool] f = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (e)
  [conv3] h = Conv <kernel_shape = [3, 3], strides = [2, 2]> (f, w3, b3)
  [flat] i = Flatten(h)
  [fc] scores = Gemm(i, w4, b4) }"""
SHAPES = {"w1": (8, 3, 3, 3), "w2": (8, 8, 3, 3), "w3": (16, 8, 3, 3), "w4": (144, 10)}
AVERAGING = CNN.replace("MaxPool", "AveragePool").replace("Flatten(h)", "Flatten(hs)")
AVERAGING = AVERAGING.replace("[flat]", "[sig] hs = Sigmoid(h) [flat]")
KINDS = ("qdq", "qoperator", "dynamic")


class Samples(quantization.CalibrationDataReader):
    """Random images that the quantiser looks at."""

    def __init__(self, count: int = 4) -> None:
        self._left = images(count)

    def get_next(self) -> dict[str, Any] | None:
        return next(self._left, None)


def images(count: int) -> Iterator[dict[str, Any]]:
    draw = np.random.default_rng(1)
    for _ in range(count):
        yield {"image": draw.standard_normal((1, 3, 16, 16), np.float32)}


def float_cnn(text: str = CNN) -> onnx.ModelProto:
    model = onnx.parser.parse_model(text)
    draw = np.random.default_rng(0)
    for name, shape in SHAPES.items():
        inner, outer = (shape[1:], shape[0]) if len(shape) == 4 else (shape[:1], shape[1])
        weight = draw.standard_normal(shape, np.float32) / np.float32(np.sqrt(np.prod(inner)))
        bias = draw.standard_normal(outer, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weight, name))
        model.graph.initializer.append(numpy_helper.from_array(bias, name.replace("w", "b")))
    return model


def half_cnn() -> onnx.ModelProto:
    """Return the network in float16."""
    model = float_cnn()
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor).astype(np.float16)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    return model


def quantised_cnn(kind: str, folder: Path) -> Path:
    """Write the network quantised; return the file.

    Args:
        kind: ``qdq`` (static, per channel), ``qoperator`` (static) or ``dynamic``.
        folder: where to write.
    """
    source, path = folder / "float.onnx", folder / f"{kind}.onnx"
    onnx.save(float_cnn(), source)
    if kind == "dynamic":
        unsigned = quantization.QuantType.QUInt8
        quantization.quantize_dynamic(source, path, weight_type=unsigned)
        return path
    form = quantization.QuantFormat.QDQ if kind == "qdq" else quantization.QuantFormat.QOperator
    # Weights of seven bits: with eight, onnxruntime's sums overflow on x86 processors without VNNI,
    # where layers that it merges then differ from those that it computes one by one.
    quantization.quantize_static(
        source,
        path,
        Samples(),
        quant_format=form,
        per_channel=kind == "qdq",
        reduce_range=True,
    )
    return path


def averaging_cnn(folder: Path, activations: str) -> Path:
    """Write a network with an average, its activations ``QInt8`` or ``QUInt8``; return the file."""
    source, path = folder / "averaging-float.onnx", folder / f"averaging-{activations}.onnx"
    onnx.save(float_cnn(AVERAGING), source)
    kind = getattr(quantization.QuantType, activations)
    quantization.quantize_static(source, path, Samples(), activation_type=kind, reduce_range=True)
    return path
