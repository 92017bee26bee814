"""Types and shapes where the onnx package alone does not find them, and sizes left open."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import layer, read, save

from rankslice.framework.errors import RankSliceError
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.frontend.formats.onnx.reader import OnnxModel, read_onnx
from rankslice.frontend.partition.partition import partition

HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1, "local" : 1]>'


def shape(model: OnnxModel, name: str) -> tuple[int, ...] | None:
    return layer(model, name).outputs[0].shape


FOLLOWED = {
    "a shape computed from another is followed through all operators between": (
        """g (float[2, 6] x) => (float[A, B, C] y)
    <int64[1] none = {-1}, int64[1] one = {1}, int64[1] three = {3}>
    { shape = Shape(x)
      rank = Shape(shape)
      ones = ConstantOfShape <value = int64[1] {1}> (rank)
      negated = Mul(ones, none)
      is_none = Equal(shape, negated)
      chosen = Where(is_none, ones, shape)
      long = Concat <axis = 0> (three, chosen)
      [grow] h = Expand(x, long)
      again = Shape(h)
      first = Slice(again, one, three)
      rest = ReduceProd <keepdims = 1> (first)
      flat_shape = Concat <axis = 0> (three, rest)
      [flat] f = Reshape(h, flat_shape)
      [back] y = Reshape(f, again) }""",
        {"grow": (3, 2, 6), "flat": (3, 12), "back": (3, 2, 6)},
    ),
    "shapes are found in a file that is not sorted": (
        """g (float[2, 6] x) => (float[A, B] y) <int64[2] order = {1, 0}>
    { [last] y = Relu(h)
      [change] h = Reshape(r, turned)
      turned = Gather(shape, order)
      shape = Shape(r)
      r = Neg(x) }""",
        {"change": (6, 2), "last": (6, 2)},
    ),
    "a range has as many elements as its values tell": (
        """g (float[5, 2] x) => (int64[N] y) <int64 zero = {0}, int64 step = {2}>
    { shape = Shape(x)
      length = Gather <axis = 0> (shape, zero)
      [range] y = Range(zero, length, step) }""",
        {"range": (3,)},
    ),
    "part of a shape is followed": (
        """g (float[5, 2, 7] x) => (float[N, M] y)
    { last = Shape <start = -2> (x)
      [new] y = ConstantOfShape(last) }""",
        {"new": (2, 7)},
    ),
    "operators that only an engine knows get its shapes": (
        """g (float[2, 3] x, float[3, 4] w, float[4] b) => (float[N, M] y)
    { [multiply] h = com.microsoft.FusedMatMul(x, w)
      [curve] k = com.microsoft.BiasGelu(h, b)
      rows = Shape <end = 1> (k)
      negative = Neg(rows)
      all = Mul(negative, negative)
      [flat] y = Reshape(k, all) }""",
        {"multiply": (2, 4), "curve": (2, 4)},
    ),
    "a scalar of an operator that only an engine knows is told from an unknown shape": (
        """g (float x, float[1] z) => (float y)
    { [scalar] h = com.microsoft.QuickGelu(x)
      open = Squeeze(z)
      y = Add(h, open) }""",
        {"scalar": ()},
    ),
    "shapes are followed into functions that call functions with attributes": (
        """g (float[2, 6] x) => (float[N, M] y)
    { [outer] h = local.Outer <width = [4, 3]> (x)
      [relu] y = Relu(h) }
    <domain: "local", opset_import: ["" : 17, "local" : 1]>
    Outer <width> (v) => (u) { t = local.Inner <to: ints = @width> (v)  u = Neg(t) }
    <domain: "local", opset_import: ["" : 17]>
    Inner <to> (v) => (u) { s = Constant <value_ints: ints = @to> ()  u = Reshape(v, s) }""",
        {"outer": (4, 3), "relu": (4, 3)},
    ),
    "shapes are followed into the branches of a condition": (
        """g (bool c, float[2, 6] x) => (float[N, M] y) <int64[2] order = {1, 0}>
    { shape = Shape(x)
      turned = Gather(shape, order)
      [branch] h = If (c) <
        then_branch = t () => (float[A, B] p) { p = Reshape(x, turned) },
        else_branch = e () => (float[C, D] q) { n = Neg(x)  q = Reshape(n, turned) }>
      y = Relu(h) }""",
        {"branch": (6, 2)},
    ),
}


@pytest.mark.parametrize(("text", "shapes"), FOLLOWED.values(), ids=FOLLOWED.keys())
def test_shapes_are_followed(tmp_path: Path, text: str, shapes: dict[str, tuple[int, ...]]) -> None:
    model = read(tmp_path, HEAD + text)
    assert shapes == {name: shape(model, name) for name in shapes}
    assert {"float32", "int64"} >= {layer(model, name).outputs[0].dtype for name in shapes}


def printed_in_4_gib(program: str, path: Path) -> str:
    """Return what a program prints that has so much memory, and the path as its argument."""
    limit = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
"""
    done = subprocess.run(
        [sys.executable, "-c", limit + program, path],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    return done.stdout


def test_values_of_many_elements_are_not_computed(tmp_path: Path):
    text = """g (float[1] x) => (float[N] y) <int64[1] length = {1000000000000}>
        { [huge] h = ConstantOfShape(length)
          [twice] d = Add(h, h)
          [sum] s = ReduceSum <keepdims = 0> (d)
          [reach] i = NonZero(h)
          y = Add(x, s) }"""
    program = """
from rankslice.frontend.formats.onnx.reader import read_onnx
print(read_onnx(Path(sys.argv[1])).graph.layers[1].outputs[0].shape)
"""
    path = save(tmp_path, HEAD + text)
    assert "(1000000000000,)\n" == printed_in_4_gib(program, path)


def test_huge_bounds_take_no_memory():
    path = Path(__file__).parents[3] / "models/exports/open_sizes/torchscript-bert.onnx"
    program = """
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.frontend.formats.onnx.reader import read_onnx
sizes = GivenSizes(at_most={"batch": (4,), "sequence": (240_000_000,)})
print(read_onnx(Path(sys.argv[1]), sizes).graph.outputs[0].shape)
"""
    assert "(4, 240000000, 32)\n" == printed_in_4_gib(program, path)


def test_an_operator_that_nobody_knows_has_no_shape(tmp_path: Path):
    model = read(
        tmp_path,
        HEAD.replace("]>", ', "my.ops" : 1]>')
        + """g (float[2] x) => (float[2] y)
        { [custom] h = my.ops.Twist(x)
          [other] y = my.ops.Twist(h) }""",
    )
    assert None is shape(model, "custom")
    with pytest.raises(RankSliceError) as caught:
        partition(model.graph, {"custom": 0, "other": 1})
    assert (
        "model.onnx: tensor 'h', made by layer 'custom' and read by layer 'other':"
        " it is not a tensor of a known element type: the model cannot be cut here;"
        " map layers 'custom' and 'other', and those between, to one key,"
        " or state its type and shape in the model file if they are fixed"
    ) == str(caught.value)


def test_a_shape_that_depends_on_the_values_is_told_at_a_cut(tmp_path: Path):
    text = """g (float[4] x) => (float[4] y)
        { [find] i = Cast <to = 7> (x)  [take] t = Expand(x, i)
          [sum] s = ReduceSum <keepdims = 0> (t)  [add] y = Add(x, s) }"""
    model = read(tmp_path, HEAD + text)
    with pytest.raises(
        RankSliceError,
        match=r"'t', .* its sizes have no known bound.* 'take' and 'sum', .* --at-most t=100,4",
    ):
        partition(model.graph, {"find": 0, "take": 0, "sum": 1, "add": 1})


def functions(*bodies: str) -> str:
    """Return a model that calls the first of the functions F0, F1, ..."""
    head = '<domain: "local", opset_import: ["" : 17, "local" : 1]>'
    written = (f"{head} F{n} (v) => (u) {{ {body} }}" for n, body in enumerate(bodies))
    graph = "g (float[2] x) => (float[2] y) { [call] h = local.F0(x)  [relu] y = Relu(h) }"
    return "\n".join((HEAD + graph, *written))


def test_functions_that_call_each_other_in_a_circle_are_named(tmp_path: Path):
    text = functions("u = local.F1(v)", "u = local.F2(v)", "u = local.F1(v)")
    with pytest.raises(
        RankSliceError, match=r"in a cycle: 'F(1' -> 'F2' -> 'F1|2' -> 'F1' -> 'F2)'"
    ):
        read(tmp_path, text)


def test_functions_whose_calls_double_at_each_step_are_refused_at_once(tmp_path: Path):
    doubling = [f"t = local.F{n + 1}(v)  u = local.F{n + 1}(t)" for n in range(60)]
    with pytest.raises(RankSliceError, match="more than 50000 calls of functions"):
        read(tmp_path, functions(*doubling, "u = Relu(v)"))


def test_functions_that_are_called_through_many_others_are_read(tmp_path: Path):
    chain = [f"u = local.F{n + 1}(v)" for n in range(300)]
    assert (2,) == shape(read(tmp_path, functions(*chain, "u = Relu(v)")), "relu")


LOOP = (
    HEAD
    + """g (float[2] x) => (float[N] y, float[M, K] all) <int64 times = {3}, bool go = {1}>
    { [loop] last, all = Loop (times, go, x) <
        body = b (int64 i, bool keep, float[V] v) => (bool k, float[W] n, float[O] out) {
          k = Identity(keep)  n = Neg(v)  out = Exp(v) }>
      [post] y = Neg(last) }"""
)


def test_what_a_loop_carries_keeps_its_shape_if_a_pass_keeps_it(tmp_path: Path):
    model = read(tmp_path, LOOP)
    assert ((2,), (2,)) == (shape(model, "loop"), shape(model, "post"))


def test_what_a_loop_makes_longer_has_no_shape(tmp_path: Path):
    model = read(tmp_path, LOOP.replace("n = Neg(v)", "n = Concat <axis = 0> (v, v)"))
    assert None is shape(model, "loop")


@pytest.mark.parametrize("inputs", ["times, go", "times, go, x, x", 'times, go, ""', "times"])
def test_a_loop_with_the_wrong_inputs_has_no_shapes(tmp_path: Path, inputs: str):
    model = read(tmp_path, LOOP.replace("(times, go, x)", f"({inputs})"))
    assert None is shape(model, "loop")


def test_a_loop_without_a_body_has_no_shapes(tmp_path: Path):
    path = save(tmp_path, LOOP)
    proto = onnx.load(path)
    del proto.graph.node[0].attribute[:]
    onnx.save(proto, path)
    assert None is shape(read_onnx(path), "loop")


def test_a_size_that_inputs_share_needs_to_be_given_once(tmp_path: Path):
    path = save(
        tmp_path,
        HEAD + "g (float[N, 3] x, float[N, M] z) => (float[N, M] y) { y = MatMul(x, z) }",
    )
    graph = read_onnx(path, GivenSizes({"z": (3, 5)})).graph
    assert [(3, 3), (3, 5)] == [tensor.shape for tensor in graph.inputs]


@pytest.mark.parametrize("number", [{"points": (8,)}, {"points": (1, 8, 2)}])
def test_one_number_for_a_size_with_the_name_of_an_input_is_that_size(
    tmp_path: Path, number: dict[str, tuple[int, ...]]
):
    text = "g (float[1, points, 2] points, float[points] z) => (float[points] y) { y = Relu(z) }"
    path = save(tmp_path, HEAD + text)
    for sizes in (GivenSizes(number), GivenSizes(at_most=number)):
        assert [(1, 8, 2), (8,)] == [tensor.shape for tensor in read_onnx(path, sizes).graph.inputs]


def test_sizes_that_contradict_each_other_are_named(tmp_path: Path):
    path = save(tmp_path, HEAD + "g (float[N, 3] x, float[N] z) => (float[N, 3] y) { y = Relu(x) }")
    with pytest.raises(RankSliceError, match=r"'z': dimension 0 \('N'\) is 5, and 4 elsewhere"):
        read_onnx(path, GivenSizes({"x": (4, 3), "z": (5,)}))


def test_open_sizes_are_told_with_an_option_that_can_be_copied(tmp_path: Path):
    path = save(tmp_path, HEAD + "g (float[N, 3, W] x) => (float[N, 3, W] y) { y = Relu(x) }")
    with pytest.raises(RankSliceError) as caught:
        read_onnx(path)
    assert (
        f"{path}: input 'x': dimensions 0 ('N') and 2 ('W') are not fixed;"
        " give all its sizes, for example: --shape x=1,3,1, or the largest ones of"
        " any frame: --at-most x=64,3,64"
    ) == str(caught.value)


def test_a_name_that_a_shell_would_split_is_quoted_in_the_example(tmp_path: Path):
    value = helper.make_tensor_value_info("my x", TensorProto.FLOAT, [None, 3])
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Relu", ["my x"], ["y"])], "g", [value], [output])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph), path)
    with pytest.raises(RankSliceError, match="--shape 'my x=1,3'"):
        read_onnx(path)


def test_an_input_without_any_shape_is_told_how_to_give_it(tmp_path: Path):
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [value], [output])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph), path)
    with pytest.raises(RankSliceError, match=r"has no declared shape; .* --shape x=1,3,224,224"):
        read_onnx(path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"y": (1, 4)}, "tensor 'y': all its sizes are fixed: [1, 8]; leave it out"),
        ({"i": (3, 8)}, "tensor 'i': does not fit the sizes [3, 8]; it has [2, ?]"),
        ({"i": (2, 8, 1)}, "tensor 'i': does not fit the sizes [2, 8, 1]; it has [2, ?]"),
    ],
)
def test_bounds_of_fixed_sizes_are_refused(
    tmp_path: Path, given: dict[str, tuple[int, ...]], message: str
) -> None:
    text = """g (float[1, 8] x) => (int64[2, n] z) <float[8] w = {1, 2, 3, 4, 5, 6, 7, 8}>
        { y = Mul(x, w)  i = NonZero(y)  z = Neg(i) }"""
    path = save(tmp_path, HEAD + text)
    with pytest.raises(RankSliceError) as caught:
        read_onnx(path, GivenSizes(at_most=given))
    assert f"{path}: {message}" == str(caught.value)
    sizes = GivenSizes(at_most={"i": (2, 5), "y": (1, 8)})  # the latter is true
    assert (2, 5) == layer(read_onnx(path, sizes), "Neg_2").outputs[0].shape


@pytest.mark.parametrize(
    ("given", "message"),
    [((80, 4), "[80, 4]; it has [?]"), ((5, 5, 5), "[5, 5, 5]; it has [?]")],
)
def test_a_bound_of_another_number_of_dimensions_is_refused(
    tmp_path: Path, given: tuple[int, ...], message: str
) -> None:
    path = save(tmp_path, HEAD + "g (float[8] x, int64[1] n) => (float[m] y) { y = Tile(x, n) }")
    with pytest.raises(RankSliceError) as caught:
        read_onnx(path, GivenSizes(at_most={"y": given}))
    assert f"{path}: tensor 'y': does not fit the sizes {message}" == str(caught.value)
    assert (80,) == read_onnx(path, GivenSizes(at_most={"y": (80,)})).graph.outputs[0].shape


def test_a_bound_is_compared_with_the_sizes_that_are_known(tmp_path: Path) -> None:
    text = """g (float[8] x, int64[1] n) => (float[m, 4] y) <int64[2] rows = {-1, 4}>
        { t = Tile(x, n)  y = Reshape(t, rows) }"""
    path = save(tmp_path, HEAD + text)
    with pytest.raises(RankSliceError, match=r"does not fit the sizes \[9, 5\]; it has \[\?, 4\]"):
        read_onnx(path, GivenSizes(at_most={"y": (9, 5)}))
    assert (9, 4) == read_onnx(path, GivenSizes(at_most={"y": (9, 4)})).graph.outputs[0].shape


def test_a_value_that_is_no_tensor_has_its_kind(tmp_path: Path) -> None:
    text = """g (float[4, 8] x) => (float[4, 8] y)
        { s = SplitToSequence <axis = 0> (x)  o = Optional(x)  y = OptionalGetElement(o) }"""
    graph = read_onnx(save(tmp_path, HEAD + text)).graph
    made = {tensor.name: tensor for layer in graph.layers for tensor in layer.outputs}
    assert ("sequence", "optional") == (made["s"].dtype, made["o"].dtype)


@pytest.mark.parametrize("node", ["TopK <axis = 7> (x, k)", "Unique <axis = 7> (x)"])
def test_an_axis_that_is_not_there_makes_a_shape_unknown(tmp_path: Path, node: str) -> None:
    text = "g (float[4] x, int64[1] k) => (float[n] y) { [odd] h = NODE  y = Neg(h) }"
    assert None is shape(read(tmp_path, HEAD + text.replace("NODE", node)), "odd")


EXPANDED = """g (float[s] x) => (float y)
    { [whole] i = Cast <to = 7> (x)  [grow] t = Expand(x, i)
      [sum] y = ReduceSum <keepdims = 0> (t) }"""


def test_a_tensor_without_a_bound_keeps_its_type_where_inputs_are_open(tmp_path: Path) -> None:
    path = save(tmp_path, HEAD + EXPANDED)
    (grown,) = layer(read_onnx(path, GivenSizes(at_most={"x": (4,)})), "grow").outputs
    assert ("float32", None) == (grown.dtype, grown.shape)


@pytest.mark.parametrize("bound", [2, 3, 4, 7, 8, 9, 33])
def test_sizes_that_small_frames_do_not_show_are_not_called_fixed(
    tmp_path: Path, bound: int
) -> None:
    path = save(tmp_path, HEAD + EXPANDED)
    sizes = GivenSizes(at_most={"x": (bound,), "t": (40,) * bound})
    (grown,) = layer(read_onnx(path, sizes), "grow").outputs
    assert ("?",) * bound == grown.symbols


def test_the_best_of_none_is_none(tmp_path: Path) -> None:
    text = """g (float[6] x) => (int64[n, 1] y) <int64[1] zero = {0}, int64[1] one = {1}>
        { [find] i = NonZero(x)  [turn] t = Transpose(i)  [best] y = Slice(t, zero, one, zero) }"""
    (best,) = layer(read(tmp_path, HEAD + text), "best").outputs
    assert ((1, 1), ("?", "")) == (best.shape, best.symbols)
