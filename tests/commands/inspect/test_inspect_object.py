"""What ``inspect --object`` tells of the tables of a ``.tflite`` file."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from command_line import rankslice
from tflite_models import NAMES, edited, model_file

from rankslice.commands.inspect.object_to_json import object_to_json
from rankslice.frontend.formats.tflite.object import ModelObject, read_object
from rankslice.frontend.formats.tflite.wire import packed


def entry(name: str) -> ModelObject:
    return read_object(model_file(name))


def shown(model: Path) -> str:
    ended = rankslice("inspect", model, "--object")
    assert (0, "") == (ended.code, ended.err)
    return ended.out


def test_operator_codes_have_their_versions_and_uses():
    codes = [(code.name, code.number, code.version, code.uses) for code in INT8.operator_codes]
    assert [("CONV_2D", 3, 3, 3), ("DEPTHWISE_CONV_2D", 4, 3, 1)] == codes[:2]


def test_a_custom_operator_has_its_own_name():
    (custom, _) = entry("ethos_u").operator_codes
    assert ("CUSTOM", 32, "ethos-u") == (custom.name, custom.number, custom.custom_code)


def test_a_custom_operators_settings_are_measured_only():
    operator = entry("ethos_u").subgraphs[0].operators[0]
    assert ("ethos-u", 3, "") == (
        operator.name,
        operator.custom_options_bytes,
        operator.options_type,
    )


def test_settings_have_names_and_the_schemas_defaults():
    options = INT8.subgraphs[0].operators[0].options
    assert {
        "padding": "SAME",
        "stride_w": 2,
        "stride_h": 2,
        "fused_activation_function": "RELU6",
        "dilation_w_factor": 1,
        "dilation_h_factor": 1,
        "quantized_bias_type": "float32",
    } == options


def test_scales_lie_along_an_axis_or_hold_for_the_whole_tensor():
    tensors = INT8.subgraphs[0].tensors
    whole, sliced = tensors[0].quantisation, tensors[6].quantisation
    assert whole is not None
    assert sliced is not None
    assert (1, (5,), None) == (len(whole.scale), whole.zero_point, whole.axis)
    assert (8, 3) == (len(sliced.scale), sliced.axis)


def test_a_float_tensor_has_no_quantisation():
    assert all(tensor.quantisation is None for tensor in entry("same_names").subgraphs[0].tensors)


def test_a_buffer_tells_who_uses_it():
    buffer = INT8.buffers[8]
    assert (32, ("0.7", "0.8", "0.9", "0.10")) == (buffer.bytes, buffer.users)


def test_the_content_of_a_buffer_stands_where_it_is_said_to():
    content = model_file("cnn_int8").read_bytes()
    offset = INT8.buffers[2].offset
    assert offset is not None
    assert (1, 256) == struct.unpack("<2i", content[offset : offset + 8])


def test_an_open_size_stands_in_the_signature():
    tensor = entry("open_batch").subgraphs[0].tensors[0]
    assert tensor.shape_signature is not None
    assert (1, -1) == (tensor.shape[0], tensor.shape_signature[0])


def test_bodies_of_control_flow_are_subgraphs():
    model = entry("control_flow")
    assert len(model.subgraphs) > 1
    loop = next(item for item in model.subgraphs[0].operators if item.name == "WHILE")
    assert "body_subgraph_index" in loop.options


def test_signatures_name_tensors_and_metadata_have_buffers():
    (signature,) = INT8.signatures
    assert ("serving_default", {"keras_tensor": 0}) == (signature.key, signature.inputs)
    assert ["min_runtime_version", "CONVERSION_METADATA"] == [item.name for item in INT8.metadata]


@pytest.mark.parametrize("name", NAMES)
def test_the_json_has_every_table_of_a_model(name):
    record = object_to_json(entry(name))
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert ("rankslice-object", 1, 3) == tuple(
        record[key] for key in ("format", "version", "schema_version")
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_model_is_shown(name):
    assert "operator codes" in shown(model_file(name))


def test_a_long_list_is_cut_short_on_the_terminal_and_whole_in_the_json(tmp_path):
    def widen(main: Any) -> Any:
        first, *others = main.tables("tensors")
        sizes = {"shape": packed("i", *[1] * 40)}
        return main.changed({"tensors": (first.changed(sizes), *others, *[first] * 200)})

    model = edited("custom_in_between", tmp_path, widen)
    assert "... and 105 more rows; --json FILE has all" in shown(model)
    assert 40 == len(read_object(model).subgraphs[0].tensors[0].shape)


def test_a_name_in_the_file_cannot_steer_the_terminal(tmp_path):
    model = edited(
        "custom_in_between",
        tmp_path,
        whole=lambda root: root.changed({"description": b"[red]\x1b[2J"}),
    )
    assert "[red]\\x1b[2J" in shown(model)


def test_a_model_of_another_version_that_cannot_be_sliced_is_shown(tmp_path):
    model = edited(
        "custom_in_between", tmp_path, whole=lambda root: root.changed({"version": packed("I", 2)})
    )
    assert "schema version 2" in shown(model)


def test_a_file_of_another_kind_is_refused(tmp_path):
    model = tmp_path / "model.tflite"
    model.write_bytes(b"\x08\x07\x12\x04more than eight bytes")
    ended = rankslice("inspect", model, "--object")
    assert (1, "") == (ended.code, ended.out)
    assert "expected a .tflite model file" in ended.err


@pytest.mark.parametrize(
    ("option", "suffix", "takes"),
    [
        *(("--object", suffix, ".tflite files") for suffix in (".onnx", ".KERAS", ".h5")),
        *(("--internals", suffix, ".tflite and .onnx files") for suffix in (".KERAS", ".h5")),
    ],
)
def test_a_model_of_another_format_is_refused_by_its_suffix(tmp_path, option, suffix, takes):
    model = tmp_path / f"model{suffix}"
    ended = rankslice("inspect", model, option)
    assert (1, "") == (ended.code, ended.out)
    expected = f"{model}: has the suffix '{suffix.lower()}'; {option} takes {takes}"
    assert expected in ended.err


INT8 = entry("cnn_int8")
