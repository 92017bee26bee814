"""Networks from exporters, and as onnxruntime optimises them, with every layer cut off."""

from __future__ import annotations

from pathlib import Path

import pytest
from slices import check_crossing, check_slices

from rankslice.backend.runtime.engines.onnxruntime_package import load_onnxruntime
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.frontend.formats.onnx.reader import read_onnx

onnxruntime = load_onnxruntime()

EXPORTS = Path(__file__).parents[2] / "models" / "exports"
SHAPES = {
    "bert": {"input_ids": (2, 16)},
    "gpt2": {"input_ids": (2, 16)},
    "vit": {"pixel_values": (2, 3, 32, 32)},
}
"""A batch of two, where its size is open."""


def shapes_of(export: str) -> dict[str, tuple[int, ...]]:
    return SHAPES.get(export.partition("-")[2], {})


def optimised(model: Path, path: Path) -> Path:
    """Write the model as onnxruntime changes it, with operators of its own; return the file."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return path


@pytest.mark.parametrize("model", sorted(EXPORTS.glob("*.onnx")), ids=lambda path: path.stem)
def test_an_export_with_an_open_batch_is_bit_equal_layer_by_layer(
    model: Path, tmp_path: Path
) -> None:
    shapes = shapes_of(model.stem)
    check_crossing(read_onnx(model, GivenSizes(shapes)), tmp_path, shapes)


@pytest.mark.parametrize("export", ["dynamo-bert", "torchscript-gpt2", "tf2onnx-cnn"])
def test_what_onnxruntime_makes_of_an_export_is_bit_equal_layer_by_layer(
    export: str, tmp_path: Path
) -> None:
    path = optimised(EXPORTS / f"{export}.onnx", tmp_path / "optimised.onnx")
    model = read_onnx(path, GivenSizes(shapes_of(export)))
    assert any(layer.op.startswith("com.microsoft.") for layer in model.graph.layers)
    check_slices(model, tmp_path)
