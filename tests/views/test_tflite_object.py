"""What ``inspect --object`` tells of the tables of a ``.tflite`` file."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from command_line import rankslice
from open_tflite_models import detection_model
from tflite_models import NAMES, edited, model_file

from rankslice.frontend.formats.tflite.object import read_object
from rankslice.frontend.formats.tflite.wire import packed
from rankslice.views.tflite_object import object_to_json


def entry(name: str) -> dict[str, Any]:
    return read_object(model_file(name))


def shown(model: Path) -> str:
    ended = rankslice("inspect", model, "--object")
    assert (0, "") == (ended.code, ended.err)
    return ended.out


def test_operator_codes_have_their_names_and_versions():
    assert {
        "operator": "CONV_2D",
        "deprecated_builtin_code": "CONV_2D",
        "custom_code": "",
        "version": 3,
        "builtin_code": "CONV_2D",
    } == INT8["operator_codes"][0]


def test_a_custom_operator_has_its_own_name_and_the_bytes_of_its_options():
    model = entry("ethos_u")
    (custom, _), operator = model["operator_codes"], model["subgraphs"][0]["operators"][0]
    assert ("ethos-u", "CUSTOM") == (custom["operator"], custom["builtin_code"])
    options = operator["custom_options"]
    assert ("ethos-u", 3, "010401") == (operator["operator"], options["bytes"], options["hex"])
    assert "builtin_options" not in operator


def test_settings_of_a_custom_operator_that_are_a_flexbuffer_have_names(tmp_path):
    model = detection_model(tmp_path)
    (_, operator) = read_object(model)["subgraphs"][0]["operators"]
    flexbuffer = operator["custom_options"]["flexbuffer"]
    assert (5, False, 5.0) == tuple(
        flexbuffer[name] for name in ("max_detections", "use_regular_nms", "w_scale")
    )
    assert "max_detections=5" in shown(model)
    assert "flexbuffer" not in entry("ethos_u")["subgraphs"][0]["operators"][0]["custom_options"]


def test_settings_have_names_and_the_schemas_defaults():
    operator = INT8["subgraphs"][0]["operators"][0]
    assert "Conv2DOptions" == operator["builtin_options_type"]
    assert {
        "padding": "SAME",
        "stride_w": 2,
        "stride_h": 2,
        "fused_activation_function": "RELU6",
        "dilation_w_factor": 1,
        "dilation_h_factor": 1,
        "quantized_bias_type": "float32",
    } == operator["builtin_options"]


def test_a_tensor_has_its_type_shape_and_quantisation():
    whole, sliced = (INT8["subgraphs"][0]["tensors"][number] for number in (0, 6))
    assert ("int8", [1, 16, 16, 3], False) == (whole["type"], whole["shape"], whole["is_variable"])
    assert (1, [5]) == (len(whole["quantization"]["scale"]), whole["quantization"]["zero_point"])
    quantised = sliced["quantization"]
    assert (8, 3) == (len(quantised["scale"]), quantised["quantized_dimension"])


def test_the_content_of_a_buffer_stands_where_it_is_said_to():
    content = model_file("cnn_int8").read_bytes()
    data = INT8["buffers"][2]["data"]
    assert ({"offset", "bytes"}, 8) == (data.keys(), data["bytes"])
    assert (1, 256) == struct.unpack("<2i", content[data["offset"] : data["offset"] + 8])
    assert "data" not in INT8["buffers"][0]


def test_an_open_size_stands_in_the_signature():
    tensor = entry("open_batch")["subgraphs"][0]["tensors"][0]
    assert (1, -1) == (tensor["shape"][0], tensor["shape_signature"][0])


def test_bodies_of_control_flow_are_subgraphs():
    model = entry("control_flow")
    assert len(model["subgraphs"]) > 1
    operators = model["subgraphs"][0]["operators"]
    loop = next(item for item in operators if item["operator"] == "WHILE")
    assert "body_subgraph_index" in loop["builtin_options"]


def test_tables_in_tables_are_read():
    tensors = entry("sparse")["subgraphs"][0]["tensors"]
    sparsity = next(tensor["sparsity"] for tensor in tensors if "sparsity" in tensor)
    assert sparsity["dim_metadata"]


def test_signatures_name_tensors_and_metadata_have_buffers():
    (signature,) = INT8["signature_defs"]
    assert ("serving_default", [{"name": "keras_tensor", "tensor_index": 0}]) == (
        signature["signature_key"],
        signature["inputs"],
    )
    names = [item["name"] for item in INT8["metadata"]]
    assert ["min_runtime_version", "CONVERSION_METADATA"] == names


@pytest.mark.parametrize("name", NAMES)
def test_the_json_has_every_table_of_a_model(name):
    record = object_to_json(model_file(name), entry(name))
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert ("rankslice-object", 2, 3) == (
        record["format"],
        record["version"],
        record["model"]["version"],
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_model_is_shown(name):
    assert "operator_codes" in shown(model_file(name))


def test_a_long_list_is_cut_short_on_the_terminal_and_whole_in_the_json(tmp_path):
    def widen(main: Any) -> Any:
        first, *others = main.tables("tensors")
        sizes = {"shape": packed("int", *[1] * 40)}
        return main.changed({"tensors": (first.changed(sizes), *others, *[first] * 200)})

    model = edited("custom_in_between", tmp_path, widen)
    assert "... and 105 more rows; --json FILE has all" in shown(model)
    assert 40 == len(read_object(model)["subgraphs"][0]["tensors"][0]["shape"])


def test_a_name_in_the_file_cannot_steer_the_terminal(tmp_path):
    model = edited(
        "custom_in_between",
        tmp_path,
        whole=lambda root: root.changed({"description": b"[red]\x1b[2J"}),
    )
    assert "[red]\\x1b[2J" in shown(model)


def test_a_model_of_another_version_that_cannot_be_sliced_is_shown(tmp_path):
    model = edited(
        "custom_in_between",
        tmp_path,
        whole=lambda root: root.changed({"version": packed("uint", 2)}),
    )
    assert ", version=2," in shown(model)


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
