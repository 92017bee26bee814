"""What occurs in ONNX files besides plain float32 layers, each cut and compared bit by bit."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import layer, read, run, save
from slices import check_slices, in_turn, random_values, run_sliced, run_whole

from rankslice.frontend.formats.onnx.reader import OnnxModel, read_onnx
from rankslice.frontend.formats.onnx.writer import onnx_submodel
from rankslice.frontend.formats.pieces import pieces_length, write_submodel
from rankslice.frontend.partition.partition import Partition, PartitionSegment, partition

HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1, "local" : 1]>'


def crossing(cut: Partition) -> dict[str, str]:
    """Return the type of each tensor that segments hand on, by its name."""
    return {tensor.name: tensor.dtype for s in cut.segments for tensor in s.outputs}


def write_part(model: OnnxModel, names: list[str], folder: Path) -> Path:
    """Write the sub-model of the layers with these names, in which each gives out its result."""
    layers = tuple(layer(model, name) for name in names)
    outputs = tuple(tensor for item in layers for tensor in item.outputs)
    made = {tensor.name for tensor in outputs}
    inputs = {t.name: t for item in layers for t in item.inputs if t.name not in made}
    part = PartitionSegment(layers, tuple(inputs.values()), outputs)
    write_submodel(onnx_submodel(model, part, "part.onnx"), folder / "part.onnx")
    return folder / "part.onnx"


def written(model: OnnxModel, names: list[str], folder: Path) -> onnx.ModelProto:
    return onnx.load(write_part(model, names, folder))


# Weights, and how they are listed


def test_weights_may_be_listed_as_inputs_some_or_none(tmp_path: Path) -> None:
    text = """<ir_version: 4, opset_import: ["" : 9]>
        g (float[2] x, float[2] v) => (float[2] y)
        <float[2] v = {1.0, 2.0}, float[2] w = {3.0, 4.0}> { h = Add(x, v)  y = Mul(h, w) }"""
    check_slices(read(tmp_path, text), tmp_path)


def test_before_format_version_4_all_weights_are_listed_as_inputs(tmp_path: Path) -> None:
    text = """<ir_version: 3, opset_import: ["" : 8]>
        g (float[2] x, float[2] v, float[2] w) => (float[2] y)
        <float[2] v = {1.0, 2.0}, float[2] w = {3.0, 4.0}> { h = Add(x, v)  y = Mul(h, w) }"""
    check_slices(read(tmp_path, text), tmp_path)


def test_sparse_weights_go_with_their_layer(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(
        HEAD + "g (float[2, 6] x) => (float[2, 2] y) { h = Relu(x)  y = MatMul(h, w) }"
    )
    values = numpy_helper.from_array(np.array([1.5, -2.5], np.float32), "w")
    indices = numpy_helper.from_array(np.array([1, 8]), "w indices")
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [6, 2]))
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    cut = check_slices(read_onnx(path), tmp_path)
    assert {"h": "float32", "y": "float32"} == crossing(cut)


# Names


def test_layers_with_the_same_name_or_none_are_told_apart(tmp_path: Path) -> None:
    text = """g (float[2] x) => (float[2] y)
        { [twin] a = Relu(x)  [twin] b = Neg(a)  c = Exp(b)  y = Sqrt(c) }"""
    model = read(tmp_path, HEAD + text)
    assert ["twin_0", "twin_1", "Exp_2", "Sqrt_3"] == [layer.name for layer in model.graph.layers]
    (tmp_path / "told apart").mkdir()
    expected = read(tmp_path / "told apart", HEAD + text.replace("twin] b", "other] b"))
    x = random_values(model.graph)
    found = run_sliced(model, partition(model.graph, in_turn(model.graph)), tmp_path, x)
    assert (
        run_whole(expected, x)["y"].tobytes() == found["y"].tobytes()
    )  # onnxruntime forbids twins


# Model inputs and outputs


def test_an_output_may_be_read_by_layers_too(tmp_path: Path) -> None:
    text = "g (float[2] x) => (float[2] h, float[2] y) { h = Exp(x)  y = Neg(h) }"
    check_slices(read(tmp_path, HEAD + text), tmp_path)


def test_inputs_weights_and_tensors_listed_twice_may_be_outputs(tmp_path: Path) -> None:
    text = """g (float[2] x) => (float[2] x, float[2] y, float[3] w, float[2] y)
        <float[3] w = {1.0, 2.0, 3.0}> { h = Exp(x)  y = Neg(h) }"""
    cut = check_slices(read(tmp_path, HEAD + text), tmp_path)
    assert {"h": "float32", "y": "float32", "w": "float32"} == crossing(cut)


def test_optional_inputs_and_outputs_may_be_left_out(tmp_path: Path) -> None:
    text = """g (float[2, 1, 1] x) => (float[1, 1, 1] y)
        <float top = {0.5}, float[1, 4, 1] w = {0.5, 1.0, -1.0, 2.0},
         float[1, 4, 1] r = {0.1, 0.2, 0.3, 0.4}, float[1, 1, 1] start = {0.5}>
        { [clip] h = Clip(x, "", top)
          [drop] d, "" = Dropout(h)
          [cell] "", "", c = LSTM <hidden_size = 1> (d, w, r, "", "", start)
          [out] y = Neg(c) }"""
    check_slices(read(tmp_path, HEAD + text), tmp_path)


def test_a_layer_with_two_outputs_feeds_two_ranks(tmp_path: Path) -> None:
    text = """g (float[1, 4] x) => (float[1, 2] y)
        { [split] a, b = Split <axis = 1> (x)  [left] c = Exp(a)  [right] d = Neg(b)
          [join] y = Add(c, d) }"""
    cut = check_slices(
        read(tmp_path, HEAD + text), tmp_path, {"split": 0, "left": 0, "right": 1, "join": 1}
    )
    assert {"b", "c", "y"} == set(crossing(cut))


def test_a_constant_is_copied_to_both_sides_of_a_cut(tmp_path: Path) -> None:
    text = """g (float[2] x) => (float[2] y)
        { k = Constant <value = float[2] {1.5, 2.5}> ()  double = Add(k, k)
          [first] h = Mul(x, double)  [second] y = Add(h, double) }"""
    cut = check_slices(read(tmp_path, HEAD + text), tmp_path, {"first": 0, "second": 1})
    assert {"h": "float32", "y": "float32"} == crossing(cut)


# Types


@pytest.mark.parametrize(
    ("dtype", "element"),
    [
        ("float16", TensorProto.FLOAT16),
        ("bfloat16", TensorProto.BFLOAT16),
        ("float64", TensorProto.DOUBLE),
        ("int8", TensorProto.INT8),
        ("uint8", TensorProto.UINT8),
        ("int32", TensorProto.INT32),
        ("int64", TensorProto.INT64),
        ("bool", TensorProto.BOOL),
    ],
)
def test_tensors_of_any_fixed_type_cross(tmp_path: Path, dtype: str, element: int) -> None:
    word = {"float64": "double"}.get(dtype, dtype)
    text = f"""g (float[2, 3] x) => (float[2, 3] y, {word}[3, 2] t)
        {{ [scale] s = Mul(x, x)
           [narrow] n = Cast <to = {element}> (s)
           [turn] t = Transpose(n)
           [back] b = Transpose(t)
           [wide] y = Cast <to = 1> (b) }}"""
    cut = check_slices(read(tmp_path, HEAD + text), tmp_path)
    assert {"s": "float32", "n": dtype, "t": dtype, "b": dtype, "y": "float32"} == crossing(cut)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int64", "uint8", "bool"])
def test_model_inputs_of_any_fixed_type_are_fed(tmp_path: Path, dtype: str) -> None:
    text = f"""g ({dtype}[2, 3] x) => ({dtype}[2, 3] y)
        {{ [turn] t = Transpose(x)  [back] y = Transpose(t) }}"""
    check_slices(read(tmp_path, HEAD + text), tmp_path)


# Control flow


def test_bodies_read_what_they_capture_even_through_bodies_within_bodies(tmp_path: Path) -> None:
    text = """g (float[2] x) => (float[2] y) <float[2] w = {1.0, 2.0}, float zero = {0.0}>
        { [pre] h = Exp(x)
          k = Constant <value = float[2] {5.0, 6.0}> ()
          [sum] total = ReduceSum <keepdims = 0> (x)
          [test] positive = Greater(total, zero)
          [branch] b = If (positive) <
            then_branch = t () => (float[2] p) {
              p = If (positive) <
                then_branch = tt () => (float[2] pp) { pa = Add(h, w)  pp = Mul(pa, k) },
                else_branch = te () => (float[2] pq) { pq = Identity(k) }> },
            else_branch = e () => (float[2] q) { q = Sub(h, k) }>
          [post] y = Neg(b) }"""
    model = read(tmp_path, HEAD + text)
    branch = layer(model, "branch")
    assert {"positive", "h", "k"} == {tensor.name for tensor in branch.inputs}
    assert {"w"} == {weight.name for weight in branch.weights}
    for value in (3.0, -3.0):
        check_slices(model, tmp_path, inputs={"x": np.full(2, value, np.float32)})


def test_a_branch_may_give_out_what_it_captures_unchanged(tmp_path: Path) -> None:
    text = """g (bool c, float[2] x) => (float[2] y)
        { [pre] h = Exp(x)
          [branch] b = If (c) <
            then_branch = t () => (float[2] p) { p = Identity(h) },
            else_branch = e () => (float[2] q) { q = Neg(h) }>
          [post] y = Neg(b) }"""
    check_slices(read(tmp_path, HEAD + text), tmp_path)


def test_a_loop_is_one_layer(tmp_path: Path) -> None:
    text = """g (float[2] x) => (float[2] y, float[3, 2] all)
        <int64 times = {3}, bool go = {1}, float[2] w = {1.5, 2.0}>
        { [pre] h = Exp(x)
          [start] s = Neg(x)
          [loop] last, all = Loop (times, go, s) <
            body = b (int64 i, bool keep, float[2] v) => (bool k, float[2] n, float[2] out) {
              k = Identity(keep)  m = Mul(v, w)  n = Add(m, h)  out = Neg(n) }>
          [post] y = Neg(last) }"""
    model = read(tmp_path, HEAD + text)
    assert {"s", "h"} == {tensor.name for tensor in layer(model, "loop").inputs}
    check_slices(model, tmp_path)


def test_a_scan_is_one_layer(tmp_path: Path) -> None:
    text = """g (float[3, 2] x) => (float[2] y, float[3, 2] all) <float[2] zeros = {0.0, 0.0}>
        { [pre] h = Exp(x)
          [bias] b = ReduceMax <keepdims = 0, axes = [0]> (x)
          [scan] last, all = Scan <num_scan_inputs = 1> (zeros, h) <
            body = s (float[2] state, float[2] row) => (float[2] next, float[2] out) {
              next = Add(state, row)  out = Mul(next, b) }>
          [post] y = Neg(last) }"""
    text = text.replace(
        "Scan <num_scan_inputs = 1> (zeros, h) <", "Scan (zeros, h) <\n num_scan_inputs = 1,"
    )
    check_slices(read(tmp_path, HEAD + text), tmp_path)


# Local functions

CALLS = (
    (
        HEAD
        + """g (float[2] x) => (float[2] y)
    { [outer] a = local.Outer <slope: float = 0.25> (x)
      [plain] b = Neg(a)
      [other] c = local.Other(b)
      [within] y = If (yes) <
        then_branch = t () => (float[2] p) { p = local.Other(c) },
        else_branch = e () => (float[2] q) { q = local.Unused2(c) }> }
    <domain: "local", opset_import: ["" : 17, "local" : 1]>
    Outer <slope> (v) => (u) { t = local.Inner <alpha: float = @slope> (v)  u = Exp(t) }
    <domain: "local", opset_import: ["" : 17]>
    Inner <alpha> (v) => (u) { u = LeakyRelu <alpha: float = @alpha> (v) }
    <domain: "local", opset_import: ["" : 17]>
    Other (v) => (u) { u = Add(v, v) }
    <domain: "local", opset_import: ["" : 17]>
    Unused (v) => (u) { u = Add(v, v) }
    <domain: "local", opset_import: ["" : 17]>
    Unused2 (v) => (u) { u = Mul(v, v) }"""
    )
    .replace("{ [outer]", "<bool yes = {1}> { [outer]")
    .replace("=> (float[2] y)\n    <", "=> (float[2] y) <")
)


def test_a_call_of_a_local_function_is_one_layer(tmp_path: Path) -> None:
    cut = check_slices(read(tmp_path, CALLS), tmp_path)
    assert ["outer", "plain", "other", "within"] == [s.layers[0].name for s in cut.segments]


@pytest.mark.parametrize(
    ("layers", "functions"),
    [
        (["outer"], ["Outer", "Inner"]),
        (["plain"], []),
        (["other"], ["Other"]),
        (["within"], ["Other", "Unused2"]),
        (["plain", "outer", "other"], ["Outer", "Inner", "Other"]),
    ],
)
def test_a_sub_model_has_the_functions_that_it_needs(
    tmp_path: Path, layers: list[str], functions: list[str]
) -> None:
    part = written(read(tmp_path, CALLS), layers, tmp_path)
    assert functions == [function.name for function in part.functions]


# Operators of other domains


def test_operators_of_the_engines_own_domain_are_cut_like_others(tmp_path: Path) -> None:
    text = """g (float[2, 4] x) => (float[2, 4] y)
        <float[4, 4] w = {1.0, 2.0, 0.5, 0.25, -1.0, 2.0, 1.0, 0.5,
                          0.1, 0.2, 0.3, 0.4, -0.5, 0.5, -0.5, 0.5},
         float[4] b = {1.0, 2.0, 3.0, 4.0}>
        { [multiply] h = com.microsoft.FusedMatMul <alpha = 0.5> (x, w)
          [curve] c = com.microsoft.BiasGelu(h, b)
          [quick] y = com.microsoft.QuickGelu(c) }"""
    check_slices(read(tmp_path, HEAD + text), tmp_path)


# What is said about a model


def test_descriptions_and_metadata_are_kept_and_training_information_is_not(tmp_path: Path) -> None:
    text = "g (float[2] x) => (float[2] y) { [one] h = Exp(x)  [two] y = Neg(h) }"
    path = save(tmp_path, HEAD + text)
    proto = onnx.load(path)
    proto.doc_string, proto.graph.doc_string = "of the model", "of the graph"
    proto.graph.node[0].doc_string = "of the layer"
    for record in (proto, proto.graph, proto.graph.node[0]):
        record.metadata_props.add(key="author", value="somebody")
    training = proto.training_info.add()
    training.initialization.CopyFrom(proto.graph)
    onnx.save(proto, path)
    part = written(read_onnx(path), ["one"], tmp_path)
    assert ("of the model", "of the graph", "of the layer") == (
        part.doc_string,
        part.graph.doc_string,
        part.graph.node[0].doc_string,
    )
    for record in (part, part.graph, part.graph.node[0]):
        assert ["somebody"] == [item.value for item in record.metadata_props]
    assert [] == list(part.training_info)


def test_all_operator_sets_are_kept(tmp_path: Path) -> None:
    text = "g (float[2] x) => (float[2] y) { [one] h = Exp(x)  [two] y = Neg(h) }"
    part = written(read(tmp_path, HEAD + text), ["one"], tmp_path)
    assert {"": 17, "com.microsoft": 1, "local": 1} == {
        item.domain: item.version for item in part.opset_import
    }


# Tensors outside of the file


def test_values_may_lie_in_several_files_at_any_offset(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(
        HEAD
        + """g (float[512] x) => (float[512] y)
        { a = Add(x, u)  b = Mul(a, v)  c = Add(b, w)  d = Mul(c, v)  y = Sub(d, long) }"""
    )
    generator = np.random.default_rng(0)
    (tmp_path / "deep").mkdir()
    files = {"first.bin": bytearray(b"?" * 3), "deep/second.bin": bytearray()}
    whole = onnx.ModelProto()
    whole.CopyFrom(proto)
    arrays = {name: generator.random(512, np.float32) for name in "uvw"}
    arrays["long"] = generator.random(512, np.float32)
    for (name, array), location in zip(arrays.items(), [*files, *files], strict=True):
        whole.graph.initializer.append(numpy_helper.from_array(array, name))
        tensor = proto.graph.initializer.add()
        tensor.CopyFrom(whole.graph.initializer[-1])
        content = files[location]
        entries = {"location": location, "offset": len(content), "length": array.nbytes}
        content += array.tobytes()
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=str(value))
    for location, content in files.items():
        (tmp_path / location).write_bytes(content)
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    (tmp_path / "parts").mkdir()
    check_slices(read_onnx(path), tmp_path / "parts")


def test_constants_in_layers_bodies_and_functions_may_lie_in_other_files(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(
        HEAD
        + """g (bool c, float[4] x) => (float[4] y)
        { k = Constant()
          [add] a = Add(x, k)
          [branch] b = If (c) <
            then_branch = t () => (float[4] p) { p = Add(a, w) },
            else_branch = e () => (float[4] q) { q = Sub(a, w) }>
          [call] f = local.Scale(b)
          [again] y = local.Scale(f) }
        <domain: "local", opset_import: ["" : 17]>
        Scale (v) => (u) { s = Constant()  u = Mul(v, s) }"""
    )
    np.arange(12, dtype=np.float32).tofile(tmp_path / "values.bin")

    def outside(name: str, place: int) -> TensorProto:
        tensor = TensorProto(name=name, data_type=1, dims=[4], data_location=TensorProto.EXTERNAL)
        for key, value in {"location": "values.bin", "offset": place, "length": 16}.items():
            tensor.external_data.add(key=key, value=str(value))
        return tensor

    constant, _, branch = proto.graph.node[:3]
    constant.attribute.append(helper.make_attribute("value", outside("", 0)))
    for attribute in branch.attribute:
        attribute.g.initializer.append(outside("w", 16))
    scale = proto.functions[0].node[0]
    scale.attribute.append(helper.make_attribute("value", outside("", 32)))
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    (tmp_path / "parts").mkdir()
    check_slices(read_onnx(path), tmp_path / "parts")


def test_values_that_weights_share_in_a_file_are_written_once(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(
        HEAD + "g (float[512] x) => (float[512] y) { [one] a = Add(x, u)  [two] y = Mul(a, v) }"
    )
    np.arange(512, dtype=np.float32).tofile(tmp_path / "values.bin")
    for name in "uv":
        tensor = proto.graph.initializer.add(name=name, data_type=1, dims=[512], data_location=1)
        tensor.external_data.add(key="location", value="values.bin")
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    (tmp_path / "parts").mkdir()
    check_slices(read_onnx(path), tmp_path / "parts", {"one": 0, "two": 0})
    assert 2048 == (tmp_path / "parts" / "segment 0.onnx.data").stat().st_size


GIGABYTE = 1 << 30


def large_model(folder: Path) -> OnnxModel:
    """Write a model with 7 GB of zeros in two files that take no room, each over 2 GB."""
    sizes = {"first.bin": 3 * GIGABYTE + 4, "second.bin": 4 * GIGABYTE}
    proto = onnx.parser.parse_model(
        HEAD
        + """g (int64[1] x) => (float[1, 256] y)
        { [one] a = Gather(u, x)  [two] b = Gather(v, x)  [sum] s = Add(a, b)
          [three] c = Gather(w, x)  [out] y = Add(s, c) }"""
    )
    places = {
        "u": ("first.bin", GIGABYTE + 4, 2 * GIGABYTE),
        "v": ("second.bin", 4096, GIGABYTE),
        "w": ("second.bin", GIGABYTE + 8192, 5 * GIGABYTE // 2),
    }
    for name, (location, offset, length) in places.items():
        tensor = proto.graph.initializer.add(
            name=name, data_type=1, dims=[length // 1024, 256], data_location=1
        )
        for key, value in {"location": location, "offset": offset, "length": length}.items():
            tensor.external_data.add(key=key, value=str(value))
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    for location, size in sizes.items():
        with (folder / location).open("wb") as file:
            file.truncate(size)
        for name, (place, offset, length) in places.items():
            if place == location:
                with (folder / location).open("r+b") as file:
                    file.seek(offset + length - 1024)
                    file.write(np.full(256, ord(name), np.float32).tobytes())
    return read_onnx(path)


def test_weights_of_gigabytes_in_several_files_are_planned_as_byte_ranges(tmp_path: Path) -> None:
    model = large_model(tmp_path)
    cut = partition(model.graph, {"one": 0, "two": 1, "sum": 1, "three": 0, "out": 0})
    pieces = [
        onnx_submodel(model, segment, f"{number}.onnx")
        for number, segment in enumerate(cut.segments)
    ]
    lengths = [pieces_length(files.data or ()) for files in pieces]
    assert [9 * GIGABYTE // 2, GIGABYTE] == [lengths[0] + sum(lengths[2:]), lengths[1]]
    assert all(pieces_length(files.model) < 1000 for files in pieces)


@pytest.mark.slow
def test_a_model_of_gigabytes_in_several_files_gives_the_values_at_their_ends(
    tmp_path: Path,
) -> None:
    model = large_model(tmp_path)
    (tmp_path / "parts").mkdir()
    rows = {w.name: w.shape[0] for w in model.graph.weights}
    expected = {"a": ("u", ["one"]), "b": ("v", ["two"]), "c": ("w", ["three"])}
    try:
        for output, (weight, layers) in expected.items():
            part = write_part(model, layers, tmp_path / "parts")
            end = np.array([rows[weight] - 1])
            assert {float(ord(weight))} == set(run(part, {"x": end})[output].ravel())
    finally:
        shutil.rmtree(tmp_path / "parts")  # 5.5 GB
