"""Small ONNX models for tests, and how to run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from rankslice.backend.runtime.engines.onnxruntime_package import load_onnxruntime
from rankslice.framework.graph import Layer, Tensor
from rankslice.frontend.formats.onnx.reader import OnnxModel, read_onnx
from rankslice.frontend.formats.onnx.writer import onnx_submodel
from rankslice.frontend.formats.pieces import write_submodel
from rankslice.frontend.partition.partition import PartitionSegment

onnxruntime = load_onnxruntime()

LIGHT_MODELS = sorted(Path(onnx.__file__).parent.glob("backend/test/data/light/*.onnx"))
"""Zoo networks of the onnx package; their weights are made by ConstantOfShape layers."""

Arrays = dict[str, NDArray[np.generic]]


def save(folder: Path, text: str, name: str = "model.onnx") -> Path:
    """Write the model that `onnx.parser` reads from the text."""
    path = folder / name
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def read(folder: Path, text: str) -> OnnxModel:
    return read_onnx(save(folder, text))


def layer(model: OnnxModel, name: str) -> Layer:
    return next(layer for layer in model.graph.layers if layer.name == name)


def borders(
    model: OnnxModel, layers: Sequence[Layer]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return what the layers read from others, and all they make that somebody may want."""
    made = {tensor.name: tensor for layer in layers for tensor in layer.outputs if tensor.dtype}
    read = {tensor.name: tensor for layer in layers for tensor in layer.inputs}
    return tuple(t for name, t in read.items() if name not in made), tuple(made.values())


def write_segment(
    model: OnnxModel, layers: Sequence[Layer], path: Path, limit: int = 1_000_000_000
) -> Path:
    """Write some layers of a model as a sub-model that gives out every tensor they make."""
    inputs, outputs = borders(model, layers)
    part = PartitionSegment(tuple(layers), inputs, outputs)
    write_submodel(onnx_submodel(model, part, path.name, limit=limit), path)
    return path


def session(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def run(path: Path, inputs: Mapping[str, NDArray[np.generic]]) -> Arrays:
    """Run a model unoptimised; return its outputs by name."""
    opened = session(path)
    names = [output.name for output in opened.get_outputs()]
    return dict(zip(names, opened.run(names, dict(inputs)), strict=True))


def random_inputs(tensors: Sequence[Tensor], seed: int = 0) -> Arrays:
    generator = np.random.default_rng(seed)
    return {
        tensor.name: generator.standard_normal(tensor.shape).astype(tensor.dtype)
        for tensor in tensors
    }
