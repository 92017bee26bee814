"""What forms say of operators, compared with onnxruntime on the operands that they cut."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import pytest
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, helper
from onnx_models import run

from rankslice.framework.graph import PartOf, Tensor
from rankslice.frontend.formats.onnx.forms import onnx_forms
from rankslice.frontend.formats.onnx.making import with_made_layers
from rankslice.frontend.formats.onnx.reader import read_onnx
from rankslice.frontend.formats.onnx.writer import onnx_submodel
from rankslice.frontend.formats.pieces import write_submodel
from rankslice.frontend.partition.partition import PartitionSegment
from rankslice.frontend.rewriting.boxes import contains, sizes, whole, with_ends, within

F, U8, I8, I32, I64 = (
    TensorProto.FLOAT,
    TensorProto.UINT8,
    TensorProto.INT8,
    TensorProto.INT32,
    TensorProto.INT64,
)
IMAGE = [2, 4, 7, 6]


def case(op, inputs, result, constants=(), opset=17, kind=F, domain="", **settings):
    """One node: shapes of what frames bring, by position; constants by position."""
    return op, inputs, result, dict(constants), opset, kind, domain, settings


def ints(*values):
    return np.array(values, np.int64)


def floats(*shape):
    return np.random.default_rng(1).uniform(0.5, 1.5, shape).astype(np.float32)


def codes(*shape, dtype=np.uint8):
    return np.random.default_rng(2).integers(1, 100, shape).astype(dtype)


SCALE, ZERO = np.float32(0.05), np.uint8(7)
CONV = (4, 4, 3, 3)
CASES = {
    "Relu": case("Relu", {0: IMAGE}, IMAGE),
    "Add broadcast": case("Add", {0: IMAGE}, IMAGE, {1: floats(4, 1, 1)}),
    "Add behind": case("Add", {0: [4, 1, 6]}, IMAGE, {1: floats(*IMAGE)}),
    "PRelu": case("PRelu", {0: IMAGE}, IMAGE, {1: floats(4, 1, 1)}),
    "Clip 13": case("Clip", {0: IMAGE}, IMAGE, {1: np.float32(0), 2: np.float32(1)}),
    "Clip 6": case("Clip", {0: IMAGE}, IMAGE, opset=9, min=0.0, max=1.0),
    "Cast": case("Cast", {0: IMAGE}, IMAGE, to=I32, kind=(F, I32)),
    "LRN": case("LRN", {0: IMAGE}, IMAGE, size=3),
    "BatchNormalization": case(
        "BatchNormalization", {0: IMAGE}, IMAGE, {n: floats(4) for n in range(1, 5)}
    ),
    "InstanceNormalization": case(
        "InstanceNormalization", {0: IMAGE}, IMAGE, {1: floats(4), 2: floats(4)}
    ),
    "LayerNormalization": case(
        "LayerNormalization", {0: IMAGE}, IMAGE, {1: floats(7, 6), 2: floats(7, 6)}, axis=2
    ),
    "Softmax 13": case("Softmax", {0: IMAGE}, IMAGE, axis=1),
    "Softmax 13 default": case("Softmax", {0: IMAGE}, IMAGE),
    "Softmax 11": case("Softmax", {0: IMAGE}, IMAGE, opset=11, axis=2),
    "Softmax 11 default": case("Softmax", {0: IMAGE}, IMAGE, opset=11),
    "LogSoftmax 11": case("LogSoftmax", {0: IMAGE}, IMAGE, opset=11, axis=2),
    "Conv": case("Conv", {0: IMAGE}, IMAGE, {1: floats(*CONV), 2: floats(4)}, pads=[1] * 4),
    "Conv strides": case(
        "Conv",
        {0: IMAGE},
        [2, 4, 4, 2],
        {1: floats(*CONV)},
        pads=[1, 0, 1, 1],
        strides=[2, 2],
        dilations=[1, 2],
    ),
    "Conv groups": case(
        "Conv", {0: IMAGE}, [2, 4, 5, 4], {1: floats(4, 2, 3, 3), 2: floats(4)}, group=2
    ),
    "Conv depthwise": case("Conv", {0: IMAGE}, [2, 8, 5, 4], {1: floats(8, 1, 3, 3)}, group=4),
    **{
        f"Conv {pad}": case(
            "Conv", {0: IMAGE}, [2, 4, 4, 3], {1: floats(*CONV)}, auto_pad=pad, strides=[2, 2]
        )
        for pad in ("SAME_UPPER", "SAME_LOWER")
    },
    "Conv VALID": case("Conv", {0: IMAGE}, [2, 4, 5, 4], {1: floats(*CONV)}, auto_pad="VALID"),
    "Conv 1d": case("Conv", {0: [2, 4, 9]}, [2, 3, 9], {1: floats(3, 4, 3)}, pads=[1, 1]),
    "ConvTranspose": case(
        "ConvTranspose",
        {0: IMAGE},
        [2, 5, 14, 12],
        {1: floats(4, 5, 2, 2), 2: floats(5)},
        strides=[2, 2],
    ),
    "ConvInteger": case(
        "ConvInteger",
        {0: IMAGE},
        [2, 5, 5, 4],
        {1: codes(5, 4, 3, 3), 2: ZERO},
        kind=(U8, I32),
    ),
    "QLinearConv": case(
        "QLinearConv",
        {0: IMAGE},
        [2, 5, 7, 6],
        {
            1: SCALE,
            2: ZERO,
            3: codes(5, 4, 3, 3, dtype=np.int8),
            4: floats(5),
            5: np.zeros(5, np.int8),
            6: np.float32(40),
            7: ZERO,
            8: codes(5, dtype=np.int32),
        },
        kind=(U8, U8),
        pads=[1] * 4,
    ),
    "MaxPool": case(
        "MaxPool", {0: IMAGE}, [2, 4, 4, 3], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1
    ),
    "MaxPool overlapping": case(
        "MaxPool",
        {0: IMAGE},
        [2, 4, 4, 3],
        kernel_shape=[3, 3],
        strides=[2, 2],
        ceil_mode=1,
        pads=[1, 1, 0, 0],
    ),
    "AveragePool": case("AveragePool", {0: IMAGE}, [2, 4, 7, 6], kernel_shape=[3, 3], pads=[1] * 4),
    "AveragePool pads": case(
        "AveragePool", {0: IMAGE}, IMAGE, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1
    ),
    "AveragePool ceil": case(
        "AveragePool", {0: IMAGE}, [2, 4, 3, 3], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1
    ),
    "LpPool": case("LpPool", {0: IMAGE}, [2, 4, 5, 4], kernel_shape=[3, 3]),
    "GlobalAveragePool": case("GlobalAveragePool", {0: IMAGE}, [2, 4, 1, 1]),
    "GlobalMaxPool": case("GlobalMaxPool", {0: IMAGE}, [2, 4, 1, 1]),
    "GlobalLpPool": case("GlobalLpPool", {0: IMAGE}, [2, 4, 1, 1]),
    **{
        f"Gemm bias {list(shape)}": case(
            "Gemm", {0: [5, 6]}, [5, 4], {1: floats(6, 4), 2: floats(*shape)}, alpha=0.5, beta=2.0
        )
        for shape in ((1,), (4,), (1, 4), (5, 1), (5, 4))
    },
    "Gemm turned": case(
        "Gemm", {0: [6, 5]}, [5, 4], {1: floats(4, 6), 2: floats(4)}, transA=1, transB=1
    ),
    "MatMul": case("MatMul", {0: [2, 3, 5, 6]}, [2, 3, 5, 4], {1: floats(6, 4)}),
    "MatMul of a batch": case("MatMul", {0: [5, 6]}, [3, 5, 4], {1: floats(3, 6, 4)}),
    "MatMul of results": case("MatMul", {0: [2, 3, 5, 6], 1: [2, 3, 6, 4]}, [2, 3, 5, 4]),
    "MatMulInteger": case(
        "MatMulInteger", {0: [5, 6]}, [5, 4], {1: codes(6, 4), 2: ZERO, 3: codes(4)}, kind=(U8, I32)
    ),
    "QLinearMatMul": case(
        "QLinearMatMul",
        {0: [5, 6]},
        [5, 4],
        {1: SCALE, 2: ZERO, 3: codes(6, 4), 4: floats(4), 5: codes(4), 6: SCALE, 7: ZERO},
        kind=(U8, U8),
    ),
    "Concat": case("Concat", {0: IMAGE, 1: IMAGE, 2: [2, 3, 7, 6]}, [2, 11, 7, 6], axis=1),
    "QuantizeLinear": case(
        "QuantizeLinear", {0: IMAGE}, IMAGE, {1: floats(4), 2: codes(4)}, kind=(F, U8)
    ),
    "DequantizeLinear": case(
        "DequantizeLinear", {0: IMAGE}, IMAGE, {1: floats(6), 2: codes(6)}, kind=(U8, F), axis=-1
    ),
    "ReduceMean": case("ReduceMean", {0: IMAGE}, [2, 4, 1, 1], axes=[2, -1]),
    "ReduceMean 18": case("ReduceMean", {0: IMAGE}, [2, 7, 6], {1: ints(1)}, opset=18, keepdims=0),
    "ReduceSum": case("ReduceSum", {0: IMAGE}, [2, 1, 7, 6], {1: ints(1)}),
    "ReduceL2": case("ReduceL2", {0: IMAGE}, [2, 4, 7], axes=[3], keepdims=0),
    "ArgMax": case("ArgMax", {0: IMAGE}, [2, 1, 7, 6], axis=1, kind=(F, I64)),
    "Reshape": case("Reshape", {0: [2, 12, 6]}, [2, 3, 4, 6], {1: ints(0, 3, -1, 6)}),
    "Flatten": case("Flatten", {0: IMAGE}, [8, 42], axis=2),
    "Squeeze": case("Squeeze", {0: [2, 1, 6]}, [2, 6], {1: ints(1)}),
    "Squeeze 11": case("Squeeze", {0: [2, 1, 6]}, [2, 6], opset=11, axes=[1]),
    "Squeeze all": case("Squeeze", {0: [2, 1, 6]}, [2, 6]),
    "Unsqueeze": case("Unsqueeze", {0: [4, 6]}, [4, 1, 6], {1: ints(1)}),
    "Unsqueeze 11": case("Unsqueeze", {0: [4, 6]}, [4, 1, 6], opset=11, axes=[1]),
    "Transpose": case("Transpose", {0: IMAGE}, [2, 6, 4, 7], perm=[0, 3, 1, 2]),
    "Gather": case(
        "Gather", {0: [3, 8, 5]}, [3, 2, 4, 5], {1: ints(*range(8)).reshape(2, 4)}, axis=1
    ),
    "Gather scalar": case("Gather", {0: [3, 8, 5]}, [3, 5], {1: np.array(-1)}, axis=1),
    "Gather rows": case("Gather", {0: [3, 8, 5]}, [2, 8, 5], {1: ints(0, -1)}),
    "Expand": case("Expand", {0: [4, 1, 6]}, IMAGE, {1: ints(*IMAGE)}),
    "Tile": case("Tile", {0: IMAGE}, [2, 8, 7, 6], {1: ints(1, 2, 1, 1)}),
    "Slice": case(
        "Slice",
        {0: IMAGE},
        [2, 2, 7, 3],
        {1: ints(1, -6), 2: ints(3, 99), 3: ints(1, 3), 4: ints(1, 2)},
    ),
    "Slice 9": case(
        "Slice", {0: IMAGE}, [2, 2, 7, 5], opset=9, starts=[1, 1], ends=[3, 99], axes=[1, 3]
    ),
    "Slice backwards": case(
        "Slice", {0: IMAGE}, IMAGE, {1: ints(-1), 2: ints(-99), 3: ints(1), 4: ints(-1)}
    ),
    "Pad": case("Pad", {0: IMAGE}, [2, 4, 10, 8], {1: ints(0, 0, 1, 1, 0, 0, 2, 1)}),
    "Pad value": case(
        "Pad", {0: IMAGE}, [2, 4, 10, 8], {1: ints(0, 0, 1, 1, 0, 0, 2, 1), 2: np.float32(3)}
    ),
    "Pad axes": case(
        "Pad",
        {0: IMAGE},
        [2, 4, 10, 8],
        {1: ints(1, 1, 2, 1), 2: np.float32(3), 3: ints(2, -1)},
        opset=18,
    ),
    "Pad 10": case("Pad", {0: IMAGE}, [2, 4, 10, 8], opset=10, pads=[0, 0, 1, 1, 0, 0, 2, 1]),
    "Pad reflect": case(
        "Pad", {0: IMAGE}, [2, 4, 9, 6], {1: ints(0, 0, 1, 0, 0, 0, 1, 0)}, mode="reflect"
    ),
    "Resize nearest": case(
        "Resize",
        {0: IMAGE},
        [2, 4, 14, 18],
        {2: np.float32([1, 1, 2, 3])},
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    ),
    "Resize nearest default": case(
        "Resize", {0: IMAGE}, [2, 4, 14, 18], {2: np.float32([1, 1, 2, 3])}
    ),
    "Resize sizes": case(
        "Resize",
        {0: IMAGE},
        [2, 4, 14, 18],
        {3: ints(2, 4, 14, 18)},
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    ),
    "Resize linear": case(
        "Resize", {0: IMAGE}, [2, 4, 14, 18], {2: np.float32([1, 1, 2, 3])}, mode="linear"
    ),
    "Resize linear asymmetric": case(
        "Resize",
        {0: IMAGE},
        [2, 4, 14, 18],
        {3: ints(2, 4, 14, 18)},
        mode="linear",
        coordinate_transformation_mode="asymmetric",
    ),
    "Resize corners": case(
        "Resize",
        {0: IMAGE},
        [2, 4, 14, 18],
        {2: np.float32([1, 1, 2, 3])},
        mode="linear",
        coordinate_transformation_mode="align_corners",
    ),
    "Upsample": case(
        "Upsample", {0: IMAGE}, [2, 4, 14, 12], {1: np.float32([1, 1, 2, 2])}, opset=9
    ),
    "Upsample 7": case(
        "Upsample", {0: IMAGE}, [2, 4, 14, 12], opset=7, scales=[1.0, 1.0, 2.0, 2.0]
    ),
    "DepthToSpace": case("DepthToSpace", {0: IMAGE}, [2, 1, 14, 12], blocksize=2),
    "DepthToSpace CRD": case("DepthToSpace", {0: IMAGE}, [2, 1, 14, 12], blocksize=2, mode="CRD"),
    "SpaceToDepth": case("SpaceToDepth", {0: [2, 3, 6, 8]}, [2, 12, 3, 4], blocksize=2),
    **{
        f"QLinear{op}": case(
            f"QLinear{op}",
            {0: IMAGE, 3: IMAGE},
            IMAGE,
            {1: SCALE, 2: ZERO, 4: SCALE, 5: ZERO, 6: np.float32(0.1), 7: ZERO},
            kind=(U8, U8),
            domain="com.microsoft",
        )
        for op in ("Add", "Mul")
    },
    "QLinearSigmoid": case(
        "QLinearSigmoid",
        {0: IMAGE},
        IMAGE,
        {1: SCALE, 2: ZERO, 3: np.float32(0.004), 4: ZERO},
        kind=(U8, U8),
        domain="com.microsoft",
    ),
    "QLinearAveragePool": case(
        "QLinearAveragePool",
        {0: IMAGE},
        [2, 4, 6, 5],
        {1: SCALE, 2: ZERO, 3: SCALE, 4: ZERO},
        kind=(U8, U8),
        domain="com.microsoft",
        kernel_shape=[2, 2],
    ),
    "QLinearGlobalAveragePool": case(
        "QLinearGlobalAveragePool",
        {0: IMAGE},
        [2, 4, 1, 1],
        {1: SCALE, 2: ZERO, 3: SCALE, 4: ZERO},
        kind=(U8, U8),
        domain="com.microsoft",
        channels_last=0,
    ),
    "QLinearConcat": case(
        "QLinearConcat",
        {2: IMAGE, 5: IMAGE},
        [2, 8, 7, 6],
        {0: SCALE, 1: ZERO, 3: SCALE, 4: ZERO, 6: np.float32(0.1), 7: ZERO},
        kind=(U8, U8),
        domain="com.microsoft",
        axis=1,
    ),
}
WHOLE = {"Squeeze all", "Slice backwards", "Pad reflect", "Resize corners", "QLinearAveragePool"}
"""What cannot be split; onnxruntime rounds means of integers by where they lie in memory."""
MIXED = {
    "LRN": [1],
    "InstanceNormalization": [2, 3],
    "LayerNormalization": [2, 3],
    "Softmax 13": [1],
    "Softmax 13 default": [3],
    "Softmax 11": [2, 3],
    "Softmax 11 default": [1, 2, 3],
    "LogSoftmax 11": [2, 3],
    "ConvTranspose": [2, 3],
    "Reshape": [2],
    "Flatten": [1],
    "Expand": [0, 2],
    "Tile": [1],
    "DepthToSpace CRD": [1],
    "SpaceToDepth": [1],
}
"""Axes of the result that a form cannot split."""
GROUPED = ("Conv groups", "Conv depthwise")
SUMMED = ("Conv", "QLinearConv", "Gemm", "MatMul", "QLinearMatMul")


def write(made, path):
    op, inputs, result, constants, opset, kind, domain, attributes = made
    kinds = kind if isinstance(kind, tuple) else (kind, kind)
    count = 1 + max((*inputs, *constants))
    names = [f"x{n}" if n in inputs else f"w{n}" if n in constants else "" for n in range(count)]
    node = helper.make_node(op, names, ["y"], "layer", domain=domain, **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(f"x{n}", kinds[0], s) for n, s in inputs.items()],
        [helper.make_tensor_value_info("y", kinds[1], result)],
        [onnx.numpy_helper.from_array(np.asarray(v), f"w{n}") for n, v in constants.items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


def part_layer(layer, plan):
    """Return a layer that makes a part, its operands cut, and what was cut to bring them."""
    cuts = {}
    operands = []
    dropped = dict(plan.changes).get("without", ())
    for number, operand in enumerate(layer.operands):
        if operand is None or number in dropped:
            operands.append(None)
            continue
        box = plan.operands.get(number, whole(operand.shape))
        cut = Tensor(f"{operand.name} cut", operand.dtype, sizes(box))
        cuts[cut.name] = (operand.name, tuple(slice(*ends) for ends in box))
        operands.append(cut)
    result = replace(layer.outputs[0], name="part", shape=sizes(plan.region))
    inputs = tuple(one for one in operands if one)
    return replace(
        layer,
        name="part of layer",
        inputs=inputs,
        outputs=(result,),
        weights=(),
        operands=tuple(operands),
        making=PartOf(plan.changes, plan.region),
    ), cuts


def values_of_part(model, layer, plan, values, folder):
    made, cuts = part_layer(layer, plan)
    graph = replace(model.graph, layers=(made,), inputs=made.inputs, outputs=made.outputs)
    written = with_made_layers(model, graph)
    held = written.graph.layers[0]
    given = {name: np.array(values[of][at], order="C") for name, (of, at) in cuts.items()}
    segment = PartitionSegment((held,), held.inputs, held.outputs)
    path = folder / "part.onnx"
    write_submodel(onnx_submodel(written, segment, path.name), path)
    return run(path, given)["part"]


def prepared(made, folder):
    path = folder / "model.onnx"
    write(made, path)
    model = read_onnx(path)
    generator = np.random.default_rng(0)
    values = {f"w{n}": np.asarray(value) for n, value in made[3].items()}
    for tensor in model.graph.inputs:
        is_float = tensor.dtype.startswith("float")
        drawn = (
            generator.standard_normal(tensor.shape)
            if is_float
            else generator.integers(0, 120, tensor.shape)
        )
        values[tensor.name] = drawn.astype(tensor.dtype)
    expected = run(path, {tensor.name: values[tensor.name] for tensor in model.graph.inputs})["y"]
    layer = model.graph.layers[0]
    assert expected.shape == layer.outputs[0].shape
    return model, layer, values, expected


def assert_equal(made, expected, span):
    """Compare a part with that of the whole result, of whose range floats may differ a little."""
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(made, expected, rtol=0, atol=1e-5 * span)
    else:
        np.testing.assert_array_equal(made, expected, strict=True)


@st.composite
def boxes(draw, shape):
    box = []
    for size in shape:
        begin = draw(st.integers(0, size - 1))
        box.append((begin, draw(st.integers(begin + 1, size))))
    return tuple(box)


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=12)
@given(data=st.data())
def test_a_part_has_the_values_of_the_whole_at_its_place(name, data):
    with TemporaryDirectory() as folder:
        model, layer, values, expected = prepared(CASES[name], Path(folder))
        form = onnx_forms(model)(layer)
        assert (form is None) == (name in WHOLE)
        if form is None:
            return
        axis = data.draw(st.sampled_from(range(expected.ndim)))
        some = data.draw(boxes(expected.shape))
        one_axis = list(whole(expected.shape))
        one_axis[axis] = some[axis]
        box = data.draw(st.sampled_from([tuple(one_axis), some]))
        plan = form.part(layer, box)
        if plan is None:
            return
        assert contains(plan.usable, box)
        assert contains(plan.region, plan.usable)
        part = values_of_part(model, layer, plan, values, Path(folder))
        assert part.shape == sizes(plan.region)
        inside = tuple(slice(*ends) for ends in within(plan.usable, plan.region))
        there = expected[tuple(slice(*ends) for ends in plan.usable)]
        assert_equal(part[inside], there, np.ptp(expected))


@pytest.mark.parametrize("name", sorted({*CASES} - WHOLE))
def test_a_form_splits_all_axes_but_those_that_it_mixes(name, tmp_path):
    model, layer, _, expected = prepared(CASES[name], tmp_path)
    form = onnx_forms(model)(layer)
    split = set()
    for axis, size in enumerate(expected.shape):
        halves = [(0, size // 2), (size // 2, size)] if size > 1 else [(0, 1)]
        boxes = [with_ends(whole(expected.shape), axis, ends) for ends in halves]
        plans = [form.part(layer, box) for box in boxes]
        if all(plan and plan.usable[axis] != (0, size) for plan in plans):
            split.add(axis)
    long = {axis for axis, size in enumerate(expected.shape) if size > 1}
    assert split == long - {*MIXED.get(name, ())}


@pytest.mark.parametrize("name", CASES)
def test_partial_sums_add_up(name, tmp_path):
    model, layer, values, expected = prepared(CASES[name], tmp_path)
    form = onnx_forms(model)(layer)
    contracted = form.contracted(layer) if form else None
    assert (contracted is not None) == (name.startswith(SUMMED) and name not in GROUPED)
    if contracted is None:
        return
    size = layer.operands[contracted[0]].shape[contracted[1]]
    plans = [form.summand(layer, *ends) for ends in ((0, 1), (1, 3), (3, size))]
    if None in plans:
        assert layer.outputs[0].dtype in ("uint8", "int8")
        return
    total = sum(values_of_part(model, layer, plan, values, tmp_path) for plan in plans)
    assert_equal(total, expected, np.ptp(expected))
