"""Element types and options that accelerators take, checked at build."""

from __future__ import annotations

from pathlib import Path

import pytest

import rankslice
from rankslice.framework.errors import RankSliceError

MODELS = Path(__file__).parents[3] / "models"
PLATFORM = """
boards:
  edge:
    cores: 0-1
    npu: {engine: litert, delegate: libnpu.so, types: [int8, uint8]%s}
"""


def build(folder: Path, model: str, layers: str, rest: str, fallback: str = "") -> list[str]:
    """Build with some layers on the NPU, and return the warnings."""
    (folder / "boards.yaml").write_text(PLATFORM % fallback)
    mapping = {"edge_npu": [layers], "edge_cpu0": [rest]}
    built = rankslice.build(MODELS / model, mapping, folder / "boards.yaml", out=folder / "out")
    return [*built.warnings]


def test_a_float_model_on_an_npu_for_integers_is_refused_with_its_layers(tmp_path: Path) -> None:
    with pytest.raises(RankSliceError) as caught:
        build(tmp_path, "digits.tflite", "CONV_2D_0..CONV_2D_1", "MAX_POOL_2D_2..SOFTMAX_10")
    assert (
        "rank 0 (edge_npu): the npu takes int8 and uint8, and 'CONV_2D_0', 'CONV_2D_1' make"
        " float32; quantise the model, or map these layers to a CPU"
    ) == str(caught.value)
    assert not (tmp_path / "out").exists()


def test_with_a_fallback_it_is_warned_of(tmp_path: Path) -> None:
    layers = "CONV_2D_0..CONV_2D_1", "MAX_POOL_2D_2..SOFTMAX_10"
    (warning,) = build(tmp_path, "digits.tflite", *layers, ", allow_fallback: true")
    assert warning.endswith("make float32: they run on the CPU")


def test_an_integer_model_is_taken(tmp_path: Path) -> None:
    layers = "QUANTIZE_0..FULLY_CONNECTED_10", "SOFTMAX_11..DEQUANTIZE_12"
    assert [] == build(tmp_path, "digits-int8.tflite", *layers)


def test_an_unknown_type_is_named(tmp_path: Path) -> None:
    (tmp_path / "boards.yaml").write_text(PLATFORM.replace("uint8", "int3") % "")
    with pytest.raises(RankSliceError, match="'int3' is no element type; known are float32,"):
        rankslice.build(MODELS / "digits.tflite", cuts=(3,), platform=tmp_path / "boards.yaml")


def test_an_option_that_the_engine_lacks_is_refused_at_build(tmp_path: Path) -> None:
    (tmp_path / "boards.yaml").write_text(
        "boards: {edge: {cores: 0-1, cpu: {engine: onnxruntime, options: {inter_op_threads: 2}}}}"
    )
    mapping = {"edge_cpu0-1": ["conv1..softmax"]}
    with pytest.raises(RankSliceError) as caught:
        rankslice.build(MODELS / "digits.onnx", mapping, tmp_path / "boards.yaml")
    assert (
        "boards.yaml: edge_cpu0-1: onnxruntime: the session has no option 'inter_op_threads';"
        " did you mean 'inter_op_num_threads'?"
    ) in str(caught.value)
