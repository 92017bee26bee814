from __future__ import annotations

import json
import re
from pathlib import Path
from unittest.mock import Mock

import pytest
from litert_engines import needs_litert
from open_tflite_models import text_model
from tflite_models import edited, model_file

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.frontend.formats.tflite.reader import read_tflite
from rankslice.frontend.formats.tflite.wire import Table, packed
from rankslice.session import internals
from rankslice.session.building.build import Build, BuildOptions, build

PLATFORM = "boards:\n  pi: {cores: 0-3}\n  jetson: {cores: 0-3}\n"


def built(
    model: str | Path,
    mapping: dict[str, list[str]],
    folder: Path,
    out: str = "out",
    platform: str = PLATFORM,
    **at_most: tuple[int, ...],
) -> Build:
    (folder / "mapping.json").write_text(json.dumps(mapping))
    (folder / "platform.yaml").write_text(platform)
    path = model if isinstance(model, Path) else model_file(model)
    options = BuildOptions(sizes=GivenSizes(at_most=at_most))
    return build(path, folder / "mapping.json", folder / "platform.yaml", folder / out, options)


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


CONTROL = {"pi_cpu0": ["FULLY_CONNECTED_0..GREATER_2"], "jetson_cpu1": ["IF_3..MUL_6"]}


def test_sub_models_have_the_models_format(tmp_path):
    made = built("control_flow", CONTROL, tmp_path)
    assert "tflite" == made.plan.model.format
    assert ["submodels/pi_cpu0.0.tflite", "submodels/jetson_cpu1.0.tflite"] == [
        segment.file for segment in made.plan.segments
    ]


def test_sub_models_have_the_inputs_and_outputs_of_the_plan(tmp_path):
    made = built("control_flow", CONTROL, tmp_path)
    for segment in made.plan.segments:
        graph = read_tflite(made.folder / segment.file).graph
        assert segment.inputs == tuple(tensor.name for tensor in graph.inputs)
        assert segment.outputs == tuple(tensor.name for tensor in graph.outputs)


def test_ranks_get_the_engine_that_runs_the_format(tmp_path):
    made = built("control_flow", CONTROL, tmp_path)
    assert ["litert", "litert"] == [rank.engine for rank in made.plan.ranks]
    assert "ai-edge-litert" in (made.folder / "packages/pi/requirements.txt").read_text()


def test_a_mapping_can_name_layers_by_their_tensors(tmp_path):
    mapping = {"pi_cpu0": ["MatMul2", "Sum..Greater"], "jetson_cpu1": ["cond..PartitionedCall:0"]}
    made = built("control_flow", mapping, tmp_path)
    assert ("FULLY_CONNECTED_0", "SUM_1", "GREATER_2") == made.plan.segments[0].layers


def test_layers_that_unpack_weights_need_no_place_in_a_mapping(tmp_path):
    layers = read_tflite(model_file("cnn_float16")).graph.layers
    named = [layer.name for layer in layers if layer.op != "DEQUANTIZE"]
    mapping = {"pi_cpu0": named[::2], "jetson_cpu1": named[1::2]}
    made = built("cnn_float16", mapping, tmp_path)
    copies = [name for segment in made.plan.segments for name in segment.layers]
    assert "DEQUANTIZE_0" in copies


def test_building_twice_gives_the_same_bytes(tmp_path):
    first, second = (built("cnn_int8", MIXED, tmp_path, out) for out in ("one", "two"))
    assert contents(first.folder) == contents(second.folder)


MIXED = {
    "pi_cpu0": ["CONV_2D_0", "CONV_2D_2..MAX_POOL_2D_4", "SOFTMAX_13"],
    "jetson_cpu1": ["DEPTHWISE_CONV_2D_1", "CONV_2D_5..FULLY_CONNECTED_12"],
}


def test_a_mapping_that_parts_a_variable_is_refused_and_leaves_nothing(tmp_path):
    mapping = {"pi_cpu0": ["CALL_ONCE_0..MUL_8"], "jetson_cpu1": ["ASSIGN_VARIABLE_9"]}
    with pytest.raises(RankSliceError, match="cannot be on several ranks"):
        built("variable", mapping, tmp_path)
    assert not (tmp_path / "out").exists()


def with_flex(folder: Path) -> Path:
    """Write a model with an operator of TensorFlow itself and return its path."""

    def renamed(root: Table) -> Table:
        codes = [
            code.changed({"custom_code": b"FlexErf"}) if code.text("custom_code") else code
            for code in root.tables("operator_codes")
        ]
        return root.changed({"operator_codes": tuple(codes)})

    return edited("custom_in_between", folder, whole=renamed)


FLEX = {"pi_cpu0": ["RELU_0", "FlexErf_1"], "pi_cpu1": ["RELU_2"]}


def test_they_are_refused_once_though_ranks_take_turns(tmp_path):
    mapping = {"pi_cpu0|jetson_cpu0": FLEX["pi_cpu0"], "pi_cpu1": FLEX["pi_cpu1"]}
    with pytest.raises(RankSliceError) as caught:
        built(with_flex(tmp_path), mapping, tmp_path)
    (told,) = caught.value.mistakes
    assert "layer 'FlexErf_1': needs TensorFlow's own operators" in str(told)


def test_a_delegate_library_may_have_operators_of_tensorflow_itself(tmp_path):
    platform = "boards:\n  pi: {cores: 0-3, npu: {engine: litert, delegate: libflex.so}}\n"
    mapping = {"pi_npu": FLEX["pi_cpu0"], "pi_cpu1": FLEX["pi_cpu1"]}
    assert 2 == len(built(with_flex(tmp_path), mapping, tmp_path, platform=platform).plan.segments)


def of_vendor(unit: str) -> dict[str, list[str]]:
    return {unit: ["RELU_0", "Vendor.Special_1"], "pi_cpu1": ["RELU_2"]}


@needs_litert
def test_a_custom_operator_that_litert_lacks_is_refused_with_its_reason(tmp_path):
    with pytest.raises(RankSliceError) as caught:
        built("custom_in_between", of_vendor("pi_cpu0"), tmp_path)
    (mistake,) = caught.value.mistakes
    assert re.search(
        r"custom_in_between.tflite: rank 0 \(pi_cpu0\): 'RELU_0', 'Vendor.Special_1': needs the"
        r" custom operator Vendor.Special, which ai-edge-litert \S+ does not have; map its layer",
        str(mistake),
    )
    assert not (tmp_path / "out").exists()


@needs_litert
def test_a_version_of_an_operator_that_litert_lacks_is_refused_with_its_reason(tmp_path):
    def newer(root: Table) -> Table:
        first, *others = root.tables("operator_codes")
        code = first.changed({"version": packed("int", 99)})
        return root.changed({"operator_codes": (code, *others)})

    mapping = {"pi_cpu0": [MIXED["pi_cpu0"][0]], "pi_cpu1": ["DEPTHWISE_CONV_2D_1..SOFTMAX_13"]}
    with pytest.raises(RankSliceError, match="needs CONV_2D version 99, which ai-edge-litert"):
        built(edited("cnn_int8", tmp_path, whole=newer), mapping, tmp_path)


def test_accelerators_may_have_custom_operators_that_litert_lacks(tmp_path):
    for npu in ("delegate: libvendor.so", "options: {vendor: openvino}"):
        platform = f"boards:\n  pi: {{cores: 0-3, npu: {{engine: litert, {npu}}}}}\n"
        made = built("custom_in_between", of_vendor("pi_npu"), tmp_path, npu[:6], platform)
        assert 2 == len(made.plan.segments)


def test_without_litert_custom_operators_are_left_to_the_board(tmp_path, monkeypatch):
    missing = RankSliceError(Mistake("", "none is installed", "pip install 'rankslice[litert]'"))
    monkeypatch.setattr(internals, "_ask", Mock(side_effect=missing))
    assert 2 == len(built("custom_in_between", of_vendor("pi_cpu0"), tmp_path).plan.segments)


def test_litert_is_not_asked_about_models_that_it_surely_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(internals, "_ask", Mock(side_effect=AssertionError))
    built("cnn_int8", MIXED, tmp_path)


TEXT = {"pi_cpu0": ["GATHER_0..BATCH_MATMUL_2"], "pi_npu": ["SOFTMAX_3..FULLY_CONNECTED_5"]}


def test_the_plan_has_the_bounds_of_open_sizes(tmp_path):
    mapping = {"pi_cpu0": TEXT["pi_cpu0"], "pi_cpu1": TEXT["pi_npu"]}
    made = built(text_model(tmp_path), mapping, tmp_path, tokens=(4, 30))
    found = {
        tensor.name: (tensor.shape, tensor.symbols) for tensor in made.plan.job.tensors.values()
    }
    assert ((4, 30), ("tokens.0", "tokens.1")) == found["tokens"]
    assert ((4, 30, 30), ("?", "?", "?")) == found["similarity"]


@pytest.mark.parametrize(
    ("npu", "used"),
    [
        ("delegate: libnpu.so", "the delegate libnpu.so"),
        ("options: {vendor: openvino}", "the npu"),
    ],
)
def test_accelerators_take_fixed_sizes_only(npu, used, tmp_path):
    platform = f"boards:\n  pi: {{cores: 0-3, npu: {{engine: litert, {npu}}}}}\n"
    with pytest.raises(RankSliceError) as caught:
        built(text_model(tmp_path), TEXT, tmp_path, platform=platform, tokens=(4, 30))
    assert (
        f"text.tflite: rank 1 (pi_npu): {used} of LiteRT takes fixed sizes only, but those of"
        " 'similarity', 'hidden', 'scores' may change from frame to frame; map these layers to a"
        " CPU, or fix the sizes with --shape"
    ) in str(caught.value)
    assert not (tmp_path / "out").exists()
