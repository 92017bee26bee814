from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tflite_models import NAMES, edited, model_file

from rankslice.framework.errors import RankSliceError
from rankslice.framework.graph import constant_layers
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.frontend.formats.tflite.reader import read_tflite
from rankslice.frontend.formats.tflite.wire import Table, packed
from rankslice.frontend.partition.partition import partition, used_layers

RESHAPE = 22  # number of the builtin operator


def graph(name):
    return read_tflite(model_file(name)).graph


def layer(name, layer_name):
    return next(item for item in graph(name).layers if item.name == layer_name)


def refused(path: Path, shapes: dict[str, tuple[int, ...]] | None = None) -> str:
    with pytest.raises(RankSliceError) as caught:
        read_tflite(path, GivenSizes(shapes or {}))
    return str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_every_layer_reads_what_is_brought_or_made_before(name):
    found = graph(name)
    known = {tensor.name for tensor in found.inputs}
    for item in found.layers:
        assert {tensor.name for tensor in item.inputs} <= known
        known |= {tensor.name for tensor in item.outputs}
    assert {tensor.name for tensor in found.outputs} <= known
    assert "tflite" == found.format


def test_layers_are_named_by_operator_and_position():
    names = [item.name for item in graph("cnn_float32").layers]
    assert "CONV_2D_0" == names[0]
    assert "ADD_3" == names[3]
    assert "SOFTMAX_12" == names[12]


def test_a_custom_operator_has_its_own_name():
    assert ["RELU_0", "Vendor.Special_1", "RELU_2"] == [
        item.name for item in graph("custom_in_between").layers
    ]


def test_inputs_and_outputs_have_types_and_shapes():
    found = graph("cnn_int8")
    assert ("int8", (1, 16, 16, 3)) == (found.inputs[0].dtype, found.inputs[0].shape)
    assert ("int8", (1, 5)) == (found.outputs[0].dtype, found.outputs[0].shape)


def test_inputs_and_outputs_keep_the_order_of_the_file():
    assert ["serving_default_y:0", "serving_default_x:0"] == [
        tensor.name for tensor in graph("many_outputs").inputs
    ]


def test_a_weight_refers_to_its_bytes_in_the_file():
    convolution = layer("cnn_float32", "CONV_2D_0")
    weight = convolution.operands[1]
    assert ("float32", (8, 3, 3, 3), 864) == (weight.dtype, weight.shape, weight.data.length)
    content = model_file("cnn_float32").read_bytes()
    same = layer("outside", "CONV_2D_0").operands[1].data
    assert (
        content[weight.data.offset : weight.data.offset + 864]
        == model_file("outside").read_bytes()[same.offset : same.offset + 864]
    )


def test_an_optional_input_that_is_left_out_is_none():
    svdf = layer("variable_tensor", "SVDF_1")
    assert None is svdf.operands[3]
    assert ["rectified"] == [tensor.name for tensor in svdf.inputs]


def test_settings_are_numbers_by_name():
    settings = layer("cnn_float32", "CONV_2D_0").settings
    assert (2, 2) == (settings["stride_w"], settings["stride_h"])


def test_layers_that_only_unpack_float16_weights_are_constant():
    found = graph("cnn_float16")
    assert {item.name for item in found.layers if item.op == "DEQUANTIZE"} == constant_layers(found)


def test_work_memory_that_nobody_makes_counts_as_weights():
    operator = layer("ethos_u", "ethos-u_0")
    assert ["image"] == [tensor.name for tensor in operator.inputs]
    assert {"_split_1_scratch": 0, "_split_1_flash": 2604}.items() <= {
        weight.name: weight.nbytes for weight in operator.weights
    }.items()


def test_weights_of_bodies_belong_to_the_layer_that_runs_them():
    branches, loop = layer("control_flow", "IF_3"), layer("control_flow", "WHILE_4")
    assert (4, 4) in [weight.shape for weight in branches.weights]
    assert (4, 4) in [weight.shape for weight in loop.weights]


def test_names_that_are_empty_or_shared_get_the_tensors_number():
    names = [tensor.name for item in graph("same_names").layers for tensor in item.outputs]
    assert len(names) == len(set(names))
    assert {"same_20", "tensor_21"} <= set(names)


def test_sizes_left_open_are_those_that_the_file_gives():
    found = graph("open_batch")
    assert (1, 8, 8, 1) == found.inputs[0].shape
    assert [(1, 144)] == [tensor.shape for item in found.layers[4:5] for tensor in item.outputs]


def test_sizes_inside_the_model_are_not_taken_for_open_ones_of_the_batch():
    shapes = {item.name: item.outputs[0].shape for item in graph("open_dense").layers}
    assert [(16, 8), (16, 16), (1, 4, 4, 16)] == [
        shapes[name] for name in ("RESHAPE_8", "FULLY_CONNECTED_9", "RESHAPE_10")
    ]


def test_sizes_that_are_followed_need_no_engine(monkeypatch):
    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)
    assert (16, 8) == layer("open_dense", "RESHAPE_8").outputs[0].shape
    assert None is layer("open_segments", "RELU_5").outputs[0].shape


def test_sizes_that_cannot_be_followed_are_asked_of_the_engine():
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra: litert)")
    assert (4, 4) == layer("open_segments", "RELU_5").outputs[0].shape


def test_what_no_engine_can_run_is_left_open(tmp_path):
    def custom(root):
        codes = [
            code.changed({"builtin_code": packed("int", 32), "deprecated_builtin_code": b"\x20"})
            if code.number("builtin_code") == RESHAPE
            else code
            for code in root.tables("operator_codes")
        ]
        return root.changed({"operator_codes": tuple(codes)})

    found = read_tflite(edited("open_dense", tmp_path, whole=custom)).graph
    shapes = {item.name: item.outputs[0].shape for item in found.layers}
    assert ((1, 4, 4, 8), None) == (shapes["CONV_2D_0"], shapes["CUSTOM_10"])


def test_a_shape_that_values_decide_is_unknown():
    assert (None,) == tuple(t.shape for t in layer("hash_table", "HASHTABLE_FIND_2").outputs)


def test_a_shape_that_the_file_fixes_cannot_be_changed():
    name = "serving_default_keras_tensor:0"
    message = refused(model_file("cnn_float32"), {name: (2, 16, 16, 3)})
    expected = "does not fit the shape (2, 16, 16, 3); it is declared as [1, 16, 16, 3]"
    assert f"input '{name}': {expected}" in message


def test_a_shape_for_an_unknown_input_is_refused():
    assert "input 'x1': the model has no such input" in refused(model_file("ethos_u"), {"x1": (1,)})


def test_layers_that_use_the_same_variable_are_bound():
    bound = [(bond.layers, bond.reason) for bond in graph("variable").bonds]
    assert (("CALL_ONCE_0", "VAR_HANDLE_1"), "share the variable 'total'") in bound
    used = used_layers(graph("variable"))
    assert {"CALL_ONCE_0", "ASSIGN_VARIABLE_9"} <= used


def test_layers_that_share_a_variable_cannot_be_on_several_ranks():
    found = graph("variable")
    ranks = {item.name: int(item.name == "ASSIGN_VARIABLE_9") for item in found.layers}
    with pytest.raises(RankSliceError) as caught:
        partition(found, ranks)
    assert "'VAR_HANDLE_1', 'READ_VARIABLE_2', 'ASSIGN_VARIABLE_9' share the resource" in str(
        caught.value
    )
    assert "rank 1: 'ASSIGN_VARIABLE_9'" in str(caught.value)


def test_a_resource_cannot_cross_a_cut_even_alone():
    found = graph("hash_table")
    ranks = {item.name: int(item.name == "RESHAPE_3") for item in found.layers}
    with pytest.raises(RankSliceError, match="its sizes have no known bound"):
        partition(found, ranks)


def test_no_layer_with_a_variable_is_constant():
    assert layer("variable", "VAR_HANDLE_1").deterministic is False
    assert layer("variable_tensor", "SVDF_1").deterministic is False
    assert layer("custom_in_between", "Vendor.Special_1").deterministic is False


def test_a_tensor_that_is_made_twice_is_refused(tmp_path):
    def twice(main):
        operators = main.tables("operators")
        again = operators[1].changed({"outputs": operators[0].values["outputs"]})
        return main.changed({"operators": (operators[0], again, *operators[2:])})

    assert "is made twice" in refused(edited("cnn_int8", tmp_path, twice))


def test_operators_that_are_not_in_the_order_of_execution_are_refused(tmp_path):
    def backwards(main):
        return main.changed({"operators": main.tables("operators")[::-1]})

    assert "which a later layer makes" in refused(edited("cnn_int8", tmp_path, backwards))


def test_numbers_that_stand_for_nothing_are_refused(tmp_path):
    def astray(main):
        return main.changed({"outputs": packed("tensor", 999)})

    message = refused(edited("cnn_int8", tmp_path, astray))
    assert "subgraph 0: SubGraph.outputs names tensor 999, which cannot be" in message


def test_a_weight_of_another_length_than_its_shape_is_refused(tmp_path):
    def longer(main):
        tensors = list(main.tables("tensors"))
        number = next(
            n for n, tensor in enumerate(tensors) if tensor.numbers("shape") == (8, 3, 3, 3)
        )
        tensors[number] = tensors[number].changed({"shape": packed("int", 9, 3, 3, 3)})
        return main.changed({"tensors": tuple(tensors)})

    assert "holds 864 bytes; its type and shape need 972" in refused(
        edited("cnn_float32", tmp_path, longer)
    )


def test_an_output_that_is_listed_twice_is_given_out_once(tmp_path):
    def doubled(main):
        return main.changed({"outputs": packed("tensor", *main.numbers("outputs") * 2)})

    found = read_tflite(edited("cnn_int8", tmp_path, doubled)).graph
    assert 1 == len(found.outputs)


def test_an_input_can_be_an_output_too(tmp_path):
    def passed_on(main):
        both = (*main.numbers("outputs"), *main.numbers("inputs"))
        return main.changed({"outputs": packed("tensor", *both)})

    found = read_tflite(edited("cnn_int8", tmp_path, passed_on)).graph
    assert found.inputs[0] is found.outputs[1]


def test_a_model_that_is_compiled_for_one_accelerator_is_refused(tmp_path):
    def compiled(root):
        codes = root.tables("operator_codes")
        dispatch = codes[0].changed({"custom_code": b"DISPATCH_OP"})
        return root.changed({"operator_codes": (dispatch, *codes[1:])})

    path = edited("ethos_u", tmp_path, whole=compiled)
    assert "it holds code for one accelerator, so it cannot be cut" in refused(path)


@pytest.mark.parametrize(("is_open", "shape"), [(True, (1, 2)), (False, None)])
def test_what_a_custom_operator_leaves_open_is_known_if_the_inputs_are_open(
    is_open, shape, tmp_path
):
    def with_signatures(main):
        open_sizes = {"answer": (-1, 2), "image": (-1 if is_open else 1, 24, 24, 1)}
        tensors = (
            table.changed({"shape_signature": packed("int", *open_sizes[name])})
            if (name := table.text("name")) in open_sizes
            else table
            for table in main.tables("tensors")
        )
        return main.changed({"tensors": tuple(tensors)})

    found = read_tflite(edited("ethos_u", tmp_path, with_signatures)).graph
    assert shape == found.layers[0].outputs[0].shape


def test_weights_in_other_files_are_refused(tmp_path):
    def external(root):
        group = Table("ExternalBufferGroup", {"name": b"weights.bin"})
        buffer = Table("ExternalBuffer", {"id": packed("uint", 1), "length": packed("ulong", 9)})
        return root.changed({"external_buffer_groups": (group,), "external_buffers": (buffer,)})

    path = edited("cnn_int8", tmp_path, whole=external)
    assert "its weights lie in other files: 'weights.bin'" in refused(path)


def test_weights_compressed_for_microcontrollers_are_refused(tmp_path):
    def compressed(root):
        return root.changed({"metadata": (Table("Metadata", {"name": b"COMPRESSION_METADATA"}),)})

    message = refused(edited("cnn_int8", tmp_path, whole=compressed))
    assert "its weights are compressed for TensorFlow Lite Micro, so it cannot be cut" in message
