from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import LIGHT_MODELS, layer, read, save

from rankslice.framework.errors import RankSliceError
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.frontend.formats.onnx.reader import read_onnx

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'


def named(tensors):
    return tuple(tensor.name for tensor in tensors)


@pytest.mark.parametrize("path", LIGHT_MODELS, ids=lambda path: path.stem)
def test_a_zoo_network_is_read_with_the_shapes_of_what_its_layers_pass_on(path):
    proto = onnx.load(path)
    graph = read_onnx(path).graph
    read_somewhere = {tensor.name for layer in graph.layers for tensor in layer.inputs}
    assert len(proto.graph.node) == len(graph.layers)
    assert [value.name for value in proto.graph.output] == [t.name for t in graph.outputs]
    assert len(graph.inputs) == 1
    assert not [
        tensor
        for layer in graph.layers
        for tensor in layer.outputs
        if tensor.name in read_somewhere and tensor.shape is None
    ]


def test_a_small_model_becomes_layers_tensors_and_weights(tmp_path):
    text = """
        g (float[2, 3] x) => (float[2, 3] z)
        <float[3] bias = {1.0, 2.0, 3.0}>
        { [add] y = Add(x, bias)
          [relu] z = Relu(y) }
        """
    model = read(tmp_path, HEAD + text)
    graph = model.graph
    add, relu = graph.layers
    assert ("model.onnx", "onnx") == (graph.name, graph.format)
    assert ("add", "Add", ("x",), ("y",)) == (
        add.name,
        add.op,
        named(add.inputs),
        named(add.outputs),
    )
    assert ("float32", (2, 3)) == (relu.inputs[0].dtype, relu.inputs[0].shape)
    assert add.outputs[0] is relu.inputs[0]
    assert ("bias", "float32", (3,), 12) == (
        add.weights[0].name,
        add.weights[0].dtype,
        add.weights[0].shape,
        add.weights[0].nbytes,
    )
    assert () == relu.weights
    assert add.weights == graph.weights


def test_a_weight_refers_to_its_bytes_in_the_file(tmp_path):
    values = np.arange(1000, dtype=np.float32)
    path = save(tmp_path, HEAD + "g (float[1000] x) => (float[1000] y) { y = Add(x, w) }")
    proto = onnx.load(path)
    proto.graph.initializer.append(numpy_helper.from_array(values, "w"))
    onnx.save(proto, path)
    data = read_onnx(path).graph.weights[0].data
    assert values.tobytes() == path.read_bytes()[data.offset : data.offset + data.length]


@pytest.mark.parametrize(
    ("kind", "dtype", "plain"),
    [
        (TensorProto.FLOAT, "float32", True),
        (TensorProto.DOUBLE, "float64", True),
        (TensorProto.INT64, "int64", False),
        (TensorProto.BFLOAT16, "bfloat16", False),
        (TensorProto.FLOAT8E4M3FN, "float8e4m3fn", False),
        (TensorProto.INT4, "int4", False),
    ],
)
def test_weights_in_typed_fields_are_plain_bytes_only_if_stored_without_encoding(
    tmp_path, kind, dtype, plain
):
    node = helper.make_node("Identity", ["w"], ["y"])
    output = helper.make_tensor_value_info("y", kind, [600])
    weight = helper.make_tensor("w", kind, [600], [1] * 600)
    graph = helper.make_graph([node], "g", [], [output], [weight])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), path)
    found = read_onnx(path).graph.weights[0]
    assert (dtype, plain) == (found.dtype, found.data is not None)


def test_weights_that_the_file_lists_as_inputs_are_no_inputs(tmp_path):
    model = read(
        tmp_path,
        """<ir_version: 3, opset_import: ["" : 9]>
        g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1.0, 2.0}> { y = Add(x, w) }
        """,
    )
    assert ("x",) == named(model.graph.inputs)
    assert ("w",) == named(model.graph.weights)


def test_a_shared_weight_is_one_object(tmp_path):
    text = """g (float[2] x) => (float[2] z) <float[2] w = {1.0, 2.0}>
        { [a] y = Add(x, w)
          [b] z = Mul(y, w) }"""
    model = read(tmp_path, HEAD + text)
    first, second = model.graph.layers
    assert first.weights[0] is second.weights[0]
    assert 1 == len(model.graph.weights)


def test_a_layer_may_have_several_outputs_and_leave_optional_ones_out(tmp_path):
    text = """g (float[4] x) => (float[2] a, float[2] b, float[2] values)
        <int64[1] k = {2}>
        { [split] a, b = Split(x)
          [top] values, "" = TopK(x, k)
          [clip] unused = Clip(x, "", "") }"""
    model = read(tmp_path, HEAD + text)
    assert ("a", "b") == named(layer(model, "split").outputs)
    assert ("values",) == named(layer(model, "top").outputs)
    assert ("x",) == named(layer(model, "clip").inputs)


def test_constant_nodes_are_layers_and_feed_shapes(tmp_path):
    text = """g (float[6] x) => (float[2, 3] y)
        { [shape] s = Constant <value = int64[2] {2, 3}> ()
          [reshape] y = Reshape(x, s) }"""
    model = read(tmp_path, HEAD + text)
    assert ("shape", "Constant", ()) == (
        model.graph.layers[0].name,
        model.graph.layers[0].op,
        model.graph.layers[0].inputs,
    )


def test_the_shape_of_a_large_constant_is_known_without_its_values(tmp_path):
    value = numpy_helper.from_array(np.ones((100, 100), np.float32))
    nodes = [
        helper.make_node("Constant", [], ["c"], name="c", value=value),
        helper.make_node("MatMul", ["x", "c"], ["h"], name="h"),
        helper.make_node("Relu", ["h"], ["y"], name="y"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 100])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x], [y])), path)
    assert (5, 100) == layer(read_onnx(path), "h").outputs[0].shape
    assert (5, 100) == read_onnx(path).graph.outputs[0].shape


def test_a_branch_reads_what_its_bodies_capture(tmp_path):
    text = """g (bool condition, float[2] x) => (float[2] y)
        <float[2] w = {1.0, 2.0}>
        { [pre] h = Relu(x)
          [branch] y = If (condition) <
            then_branch = t () => (float[2] a) { a = Add(h, w) },
            else_branch = e () => (float[2] b) { n = Neg(h)  b = Identity(n) }> }"""
    model = read(tmp_path, HEAD + text)
    branch = layer(model, "branch")
    assert ("condition", "h") == named(branch.inputs)
    assert ("w",) == named(branch.weights)


def test_unnamed_and_ambiguous_layers_get_their_place_in_the_file_as_a_number(tmp_path):
    text = """g (float[2] x) => (float[2] y)
        { a = Relu(x)
          [twin] b = Relu(a)
          [twin] c = Relu(b)
          [Relu_4] d = Relu(c)
          y = Relu(d) }"""
    model = read(tmp_path, HEAD + text)
    assert ["Relu_0", "twin_1", "twin_2", "Relu_4", "Relu_4_"] == [
        layer.name for layer in model.graph.layers
    ]


def test_layers_are_sorted_and_keep_the_file_order_where_they_can(tmp_path):
    text = """g (float[2] x) => (float[2] y)
        { [last] y = Add(b, c)
          [second] b = Relu(a)
          [third] c = Neg(a)
          [first] a = Relu(x) }"""
    model = read(tmp_path, HEAD + text)
    assert ["first", "second", "third", "last"] == [layer.name for layer in model.graph.layers]


def test_a_circle_is_a_mistake_that_names_its_layers(tmp_path):
    text = """g (float[2] x) => (float[2] y)
        { [one] a = Add(x, b)
          [two] b = Relu(a)
          [out] y = Relu(b) }"""
    with pytest.raises(RankSliceError, match=r"'two' -> 'one' -> 'two'|'one' -> 'two' -> 'one'"):
        read(tmp_path, HEAD + text)


def test_all_tensors_that_are_not_defined_once_are_named_together(tmp_path):
    text = """g (float[2] x) => (float[2] y, float[2] nowhere)
        { [one] a = Add(x, ghost)
          [two] a = Relu(x)
          [out] y = Relu(phantom) }"""
    with pytest.raises(RankSliceError) as caught:
        read(tmp_path, HEAD + text)
    message = str(caught.value)
    assert 4 == len(caught.value.mistakes)
    assert all(name in message for name in ("'ghost'", "'phantom'", "'a'", "'nowhere'"))


def test_an_output_can_be_an_input_or_a_weight_and_counts_once(tmp_path):
    text = """g (float[2] x) => (float[2] y, float[2] x, float[2] w, float[2] y)
        <float[2] w = {1.0, 2.0}> { y = Relu(x) }"""
    graph = read(tmp_path, HEAD + text).graph
    assert ("y", "x", "w") == named(graph.outputs)
    assert ("w",) == named(graph.weights)


def test_sizes_that_are_not_fixed_are_named_by_input_and_dimension(tmp_path):
    text = "g (float[N, 3] x, float[2, M] z) => (float[N, 3] y) { y = Relu(x) }"
    with pytest.raises(RankSliceError) as caught:
        read(tmp_path, HEAD + text)
    first, second = map(str, caught.value.mistakes)
    assert "input 'x': dimension 0 ('N') is not fixed" in first
    assert "input 'z': dimension 1 ('M') is not fixed" in second


def test_sizes_can_be_given(tmp_path):
    path = save(tmp_path, HEAD + "g (float[N, 3] x) => (float[N, 3] y) { y = Relu(x) }")
    graph = read_onnx(path, GivenSizes({"x": (4, 3)})).graph
    assert (4, 3) == graph.inputs[0].shape
    assert (4, 3) == graph.outputs[0].shape


@pytest.mark.parametrize("shapes", [{"x": (4, 5)}, {"x": (4,)}, {"xx": (4, 3)}])
def test_given_sizes_must_fit(tmp_path, shapes):
    path = save(tmp_path, HEAD + "g (float[N, 3] x) => (float[N, 3] y) { y = Relu(x) }")
    with pytest.raises(RankSliceError, match=r"input 'xx?'"):
        read_onnx(path, GivenSizes(shapes))


def test_shapes_that_data_decide_have_a_bound(tmp_path):
    model = read(
        tmp_path,
        HEAD
        + "g (float[4] x) => (int64[1, N] y) { [find] i = NonZero(x)  [copy] y = Identity(i) }",
    )
    (found,) = layer(model, "find").outputs
    assert ((1, 4), ("", "?")) == (found.shape, found.symbols)


def test_an_operator_of_another_domain_carries_it_and_takes_the_declared_shape(tmp_path):
    model = read(
        tmp_path,
        """<ir_version: 8, opset_import: ["" : 17, "my.ops" : 1]>
        g (float[2] x) => (float[2] y) <float[2] h>
        { [custom] h = my.ops.Twist(x)
          [relu] y = Relu(h) }""",
    )
    assert ("my.ops.Twist", (2,)) == (
        layer(model, "custom").op,
        layer(model, "custom").outputs[0].shape,
    )


def test_random_generators_are_not_deterministic_nor_is_what_calls_them(tmp_path):
    model = read(
        tmp_path,
        """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        g (float[2] x) => (float[2] y)
        { [plain] a = Relu(x)
          [noise] n = RandomNormalLike(a)
          [called] m = local.Noisy(n)
          [add] y = Add(n, m) }
        <domain: "local", opset_import: ["" : 17]>
        Noisy (v) => (w) { u = RandomUniformLike(v)  w = Relu(u) }
        """,
    )
    assert {"plain": True, "noise": False, "called": False, "add": True} == {
        layer.name: layer.deterministic for layer in model.graph.layers
    }


def test_a_file_that_is_missing_or_a_folder_is_told_in_one_line(tmp_path):
    with pytest.raises(RankSliceError, match="no such file"):
        read_onnx(tmp_path / "missing.onnx")
    with pytest.raises(RankSliceError, match="is a folder"):
        read_onnx(tmp_path)


def test_a_weight_of_the_wrong_length_is_a_mistake(tmp_path):
    path = save(tmp_path, HEAD + "g (float[4] x) => (float[4] y) { y = Add(x, w) }")
    proto = onnx.load(path)
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], raw_data=bytes(12))
    proto.graph.initializer.append(weight)
    onnx.save(proto, path)
    with pytest.raises(RankSliceError, match=r"weight 'w': holds 12 bytes; .* need 16"):
        read_onnx(path)


def test_graphs_written_in_two_parts_are_merged(tmp_path):
    text = (
        HEAD
        + """g (float[2] x) => (float[2] y)
        { [one] a = Relu(x)
          [two] y = Neg(a) }"""
    )
    proto = onnx.parser.parse_model(text)
    second = onnx.ModelProto()
    second.graph.node.append(proto.graph.node[1])
    del proto.graph.node[1]
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString() + second.SerializeToString())
    assert ["one", "two"] == [layer.name for layer in read_onnx(path).graph.layers]


def external(path: Path, **entries: str) -> Path:
    """Write a model whose weight of four numbers is said to lie elsewhere."""
    proto = onnx.parser.parse_model(HEAD + "g (float[4] x) => (float[4] y) { y = Add(x, w) }")
    weight = TensorProto(
        name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL
    )
    for key, value in entries.items():
        weight.external_data.add(key=key, value=value)
    proto.graph.initializer.append(weight)
    path.write_bytes(proto.SerializeToString())
    return path


def test_external_data_are_references_into_their_own_file(tmp_path):
    (tmp_path / "w.bin").write_bytes(bytes(24))
    path = external(tmp_path / "model.onnx", location="w.bin", offset="8")
    data = read_onnx(path).graph.weights[0].data
    assert (tmp_path / "w.bin", 8, 16) == (data.path, data.offset, data.length)


@pytest.mark.parametrize(
    "location",
    ["../w.bin", "/etc/hostname", "", "link.bin", "a/../../w.bin", "w\0.bin", "x" * 9999],
)
def test_external_data_must_lie_inside_the_model_folder(tmp_path, location):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(16))
    (folder / "link.bin").symlink_to(tmp_path / "w.bin")
    path = external(folder / "model.onnx", location=location)
    with pytest.raises(RankSliceError, match="weight 'w'"):
        read_onnx(path)


def cached(folder: Path, location: str = "model.data") -> Path:
    """Return a model as caches of downloads hold it: it and its data are links."""
    blobs, snapshot = folder / "blobs", folder / "snapshots" / "0a1b" / "onnx"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    external(blobs / "1111", location=location)
    (blobs / "2222").write_bytes(bytes(16))
    (folder / "w.bin").write_bytes(bytes(16))
    (snapshot / "model.onnx").symlink_to("../../../blobs/1111")
    (snapshot / "model.data").symlink_to("../../../blobs/2222")
    (snapshot / "link.bin").symlink_to("../../../w.bin")
    return snapshot / "model.onnx"


def test_model_and_external_data_may_be_links_into_one_folder(tmp_path):
    path = cached(tmp_path)
    data = read_onnx(path).graph.weights[0].data
    assert (path.with_name("model.data"), 0, 16) == (data.path, data.offset, data.length)


@pytest.mark.parametrize("location", ["link.bin", "../../../blobs/2222", "../../../w.bin"])
def test_external_data_must_not_lead_out_of_the_folders_of_a_linked_model(tmp_path, location):
    with pytest.raises(RankSliceError, match="expected a file inside the model's folder"):
        read_onnx(cached(tmp_path, location))


def test_a_location_may_lead_out_of_a_folder_inside_the_model_folder(tmp_path):
    (tmp_path / "w.bin").write_bytes(bytes(16))
    path = external(tmp_path / "model.onnx", location="sub/../w.bin")
    assert tmp_path / "w.bin" == read_onnx(path).graph.weights[0].data.path


@pytest.mark.parametrize(
    "entries",
    [
        {"location": "missing.bin"},
        {"location": "w.bin", "offset": "1"},
        {"location": "w.bin", "offset": "-1"},
        {"location": "w.bin", "offset": "9" * 19},
        {"location": "w.bin", "offset": "x" * 5000},
        {"location": "w.bin", "length": "8"},
    ],
    ids=str,
)
def test_external_data_must_be_there_in_full(tmp_path, entries):
    (tmp_path / "w.bin").write_bytes(bytes(16))
    with pytest.raises(RankSliceError, match="weight 'w'"):
        read_onnx(external(tmp_path / "model.onnx", **entries))


def test_small_external_weights_still_feed_shapes(tmp_path):
    path = save(
        tmp_path,
        HEAD
        + """g (float[6] x) => (float[A, B] y) <int64[2] s = {2, 3}>
        { [reshape] h = Reshape(x, s)
          [relu] y = Relu(h) }""",
    )
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert (2, 3) == layer(read_onnx(path), "reshape").outputs[0].shape


def test_a_constant_of_a_layer_in_a_file_that_is_missing_is_told_with_the_layer(tmp_path):
    proto = onnx.parser.parse_model(
        HEAD + "g (float[1] x) => (float[1] y) { [c] c = Constant()  y = Add(x, c) }"
    )
    value = TensorProto(data_type=1, dims=[1], data_location=TensorProto.EXTERNAL)
    value.external_data.add(key="location", value="w.bin")
    proto.graph.node[0].attribute.append(helper.make_attribute("value", value))
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(RankSliceError, match=r"layer 'c': constant: no file 'w.bin' beside"):
        read_onnx(path)


SETTINGS = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2, 3] x) => (float[2, 3] y) <float w = {1.0}>
    { [clip] y = Clip(x, , w)
      [slow] z = Conv<group = 1, strides = [2, 2], auto_pad = "VALID", eps = 0.5>(x, w) }"""


def test_a_layer_tells_its_operands_by_position_and_which_are_omitted(tmp_path):
    model = read(tmp_path, SETTINGS)
    names = [item and item.name for item in layer(model, "clip").operands]
    assert ["x", None, "w"] == names


def test_a_layer_has_the_settings_that_are_numbers_lists_and_text(tmp_path):
    found = layer(read(tmp_path, SETTINGS), "slow").settings
    assert {"group": 1, "strides": (2, 2), "auto_pad": "VALID", "eps": 0.5} == found


def test_settings_that_are_tensors_long_lists_or_no_text_are_left_out(tmp_path):
    model = onnx.parser.parse_model(SETTINGS)
    node = model.graph.node[1]
    del node.attribute[:]
    node.attribute.extend(
        [
            onnx.helper.make_attribute("tensor", onnx.numpy_helper.from_array(np.zeros(3))),
            onnx.helper.make_attribute("long", [1] * 1000),
            onnx.helper.make_attribute("bytes", b"\xff"),
            onnx.helper.make_attribute("kept", 1),
        ]
    )
    onnx.save(model, tmp_path / "m.onnx")
    assert {"kept": 1} == layer(read_onnx(tmp_path / "m.onnx"), "slow").settings
