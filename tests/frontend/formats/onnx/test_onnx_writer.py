from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import LIGHT_MODELS, borders, random_inputs, run, save, session, write_segment
from slices import check_slices

from rankslice.framework.errors import RankSliceError
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.frontend.formats.onnx.reader import OnnxModel, read_onnx
from rankslice.frontend.formats.onnx.writer import onnx_submodel
from rankslice.frontend.partition.partition import PartitionSegment

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
BRANCHED = (
    HEAD
    + """g (float[2, 3] x) => (float[3, 2] y, float[1, 3] low)
    <float[3] w = {1.0, 2.0, 3.0}, int64[2] shape = {3, 2}>
    { [relu] r = Relu(x)
      [add] a = Add(r, w)
      [scale] s = Mul(a, w)
      [reshape] y = Reshape(s, shape)
      [split] low, rest = Split<axis = 0>(a) }"""
)


def equal_in_pieces(
    model: OnnxModel, folder: Path, limit: int = 1_000_000_000, whole: Path | None = None
) -> None:
    """Run the model layer by layer, each from its own file; expect the numbers of the whole."""
    inputs = random_inputs(model.graph.inputs)
    expected = run(whole or model.path, inputs)
    values = dict(inputs)
    for index, layer in enumerate(model.graph.layers):
        path = write_segment(model, [layer], folder / f"{index}.onnx", limit)
        onnx.checker.check_model(path, full_check=True)
        read, _ = borders(model, [layer])
        values |= run(path, {tensor.name: values[tensor.name] for tensor in read})
    for name, value in expected.items():
        np.testing.assert_array_equal(value, values[name], strict=True)


def test_a_model_split_into_single_layers_computes_the_same_bits(tmp_path):
    equal_in_pieces(read_onnx(save(tmp_path, BRANCHED)), tmp_path)


def test_all_layers_in_one_segment_compute_the_same_bits(tmp_path):
    model = read_onnx(save(tmp_path, BRANCHED))
    path = write_segment(model, model.graph.layers, tmp_path / "whole.onnx")
    inputs = random_inputs(model.graph.inputs)
    found = run(path, inputs)
    for name, value in run(model.path, inputs).items():
        np.testing.assert_array_equal(value, found[name], strict=True)


@pytest.mark.parametrize("path", LIGHT_MODELS, ids=lambda path: path.stem)
def test_every_layer_of_a_zoo_network_makes_a_valid_file(tmp_path, path):
    model = read_onnx(path)
    for index, layer in enumerate(model.graph.layers):
        if layer.op != "ConstantOfShape" or index < 3:
            written = write_segment(model, [layer], tmp_path / f"{index}.onnx")
            onnx.checker.check_model(written)


def test_squeezenet_split_into_single_layers_computes_the_same_bits(tmp_path):
    path = next(path for path in LIGHT_MODELS if "squeezenet" in path.name)
    equal_in_pieces(read_onnx(path), tmp_path)


def test_weights_are_inputs_too_where_the_format_version_demands_it(tmp_path):
    text = """<ir_version: 3, opset_import: ["" : 9]>
        g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1.0, 2.0}> { y = Add(x, w) }"""
    model = read_onnx(save(tmp_path, text))
    path = write_segment(model, model.graph.layers, tmp_path / "part.onnx")
    onnx.checker.check_model(path, full_check=True)
    assert ["x", "w"] == [value.name for value in onnx.load(path).graph.input]
    assert ["x"] == [value.name for value in session(path).get_inputs()]


def test_weights_are_no_inputs_in_later_format_versions(tmp_path):
    text = (
        HEAD
        + "g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1.0, 2.0}> { y = Add(x, w) }"
    )
    model = read_onnx(save(tmp_path, text))
    path = write_segment(model, model.graph.layers, tmp_path / "part.onnx")
    assert ["x"] == [value.name for value in onnx.load(path).graph.input]


def test_a_sub_model_has_only_the_weights_of_its_layers(tmp_path):
    model = read_onnx(save(tmp_path, BRANCHED))
    layers = [layer for layer in model.graph.layers if layer.name in ("add", "scale")]
    path = write_segment(model, layers, tmp_path / "part.onnx")
    assert ["w"] == [tensor.name for tensor in onnx.load(path).graph.initializer]


def test_records_are_copied_byte_by_byte(tmp_path):
    model = read_onnx(save(tmp_path, BRANCHED))
    path = write_segment(model, model.graph.layers, tmp_path / "whole.onnx")
    content, original = path.read_bytes(), model.path.read_bytes()
    records = [layer.record for layer in model.graph.layers]
    records += [weight.record for weight in model.graph.weights]
    for record in records:
        assert original[record.offset : record.offset + record.length] in content


def test_operator_sets_functions_and_captured_tensors_are_kept(tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        g (bool condition, float[2] x) => (float[2] y) <float[2] w = {1.0, 2.0}>
        { [twice] h = local.Twice(x)
          [branch] y = If (condition) <
            then_branch = t () => (float[2] a) { a = Add(h, w) },
            else_branch = e () => (float[2] b) { b = Neg(h) }> }
        <domain: "local", opset_import: ["" : 17]>
        Twice (v) => (u) { u = Add(v, v) }"""
    model = read_onnx(save(tmp_path, text))
    paths = [
        write_segment(model, [layer], tmp_path / f"{layer.name}.onnx")
        for layer in model.graph.layers
    ]
    x = np.array([1, 2], np.float32)
    doubled = run(paths[0], {"x": x})["h"]
    added = run(paths[1], {"h": doubled, "condition": np.array(True)})["y"]
    np.testing.assert_array_equal(np.array([3, 6], np.float32), added, strict=True)


def linear_model(path: Path, **options: object) -> OnnxModel:
    """Save and read a model with weights of 4 KB, 16 KB and 8 bytes."""
    generator = np.random.default_rng(0)
    first, second = (generator.standard_normal((n, 64)).astype(np.float32) for n in (16, 64))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [64])
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "first"], ["a"], name="one"),
            helper.make_node("MatMul", ["a", "second"], ["b"], name="two"),
            helper.make_node("Reshape", ["b", "shape"], ["y"], name="flat"),
        ],
        "g",
        [x],
        [y],
        [
            numpy_helper.from_array(first, "first"),
            numpy_helper.from_array(second, "second"),
            numpy_helper.from_array(np.array([64]), "shape"),
        ],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(proto, path, **options)
    return read_onnx(path)


def test_a_long_sub_model_keeps_its_weights_in_a_second_file(tmp_path):
    model = linear_model(tmp_path / "model.onnx")
    equal_in_pieces(model, tmp_path, limit=3000)
    path = write_segment(model, model.graph.layers, tmp_path / "whole.onnx", limit=3000)
    assert path.stat().st_size < 1000
    offsets = [
        int(entry.value)
        for tensor in onnx.load(path, load_external_data=False).graph.initializer
        for entry in tensor.external_data
        if entry.key == "offset"
    ]
    assert [0, 4096] == offsets


def test_weights_outside_of_the_model_stay_outside_of_sub_models(tmp_path):
    whole = linear_model(tmp_path / "whole.onnx").path  # engines do not know the form below
    model = linear_model(
        tmp_path / "model.onnx", save_as_external_data=True, location="w.bin", size_threshold=0
    )
    (tmp_path / "parts").mkdir()
    equal_in_pieces(model, tmp_path / "parts", whole=whole)
    assert ["0.onnx.data", "1.onnx.data"] == sorted(
        path.name for path in (tmp_path / "parts").glob("*.data")
    )


def test_the_same_content_comes_out_twice(tmp_path):
    model = read_onnx(save(tmp_path, BRANCHED))
    first = write_segment(model, model.graph.layers, tmp_path / "first.onnx")
    second = write_segment(read_onnx(model.path), model.graph.layers, tmp_path / "second.onnx")
    assert first.read_bytes() == second.read_bytes()


def test_a_tensor_of_unknown_type_cannot_cross(tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 17, "my.ops" : 1]>
        g (float[2] x) => (float[2] y)
        { [custom] h = my.ops.Twist(x)
          [other] y = my.ops.Twist(h) }"""
    model = read_onnx(save(tmp_path, text))
    custom = model.graph.layers[0]
    with pytest.raises(RankSliceError, match="tensor 'h': its element type is unknown"):
        onnx_submodel(
            model, PartitionSegment((custom,), custom.inputs, custom.outputs), "part.onnx"
        )


TWO_RATES = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
g (float[1, N] x, int64 rate) => (float[1, 2] y) <int64 low = {8000}, float[3, 2] short =
  {1, 2, 3, 4, 5, 6}, float[4, 2] long = {1, 2, 3, 4, 5, 6, 7, 8}>
{ [first] r = Relu(x)  [ask] is_low = Equal(rate, low)
  [choose] i = CHOOSE
  [last] y = Neg(i) }"""
BRANCHES = """If (is_low) <then_branch = t () => (float[A, B] p) { p = MatMul(r, short) },
    else_branch = e () => (float[C, D] q) { q = MatMul(r, long) }>"""
IN_A_FUNCTION = """
<domain: "local", opset_import: ["" : 17]> Choose (is_low, r, short, long) => (i) { i = IF }
"""


@pytest.mark.parametrize("by", ["branches", "a function"])
def test_a_branch_for_other_sizes_is_no_fault_of_a_sub_model(tmp_path: Path, by: str) -> None:
    text = TWO_RATES.replace("CHOOSE", BRANCHES)
    if by == "a function":
        call = "local.Choose(is_low, r, short, long)"
        text = TWO_RATES.replace("CHOOSE", call) + IN_A_FUNCTION.replace("IF", BRANCHES)
    given = GivenSizes({"N": (4,)}, {"i": (1, 2)})
    model = read_onnx(save(tmp_path, text), given)
    brought = {
        "x": np.array([[1, -2, 3, 4]], np.float32),
        "rate": np.array(16000),
    }
    check_slices(model, tmp_path, inputs=brought)


def test_a_sub_model_with_branches_for_its_own_sizes_declares_these(tmp_path: Path) -> None:
    text = TWO_RATES.replace("CHOOSE", BRANCHES.replace("short", "long"))
    model = read_onnx(save(tmp_path, text), GivenSizes({"N": (4,)}))
    written = write_segment(model, [model.graph.layers[2]], tmp_path / "part.onnx")
    sizes = {
        value.name: value.type.tensor_type.shape.dim for value in onnx.load(written).graph.input
    }
    assert [1, 4] == [dim.dim_value for dim in sizes["r"]]
