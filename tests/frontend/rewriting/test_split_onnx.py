"""Random ONNX networks with split layers, run part by part, against the unsliced ones."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import pytest
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx_models import save
from quantised import KINDS, quantised_cnn
from split_models import CLOSE, block, check_split

from rankslice.framework.errors import RankSliceError
from rankslice.framework.mapping import HALOS
from rankslice.framework.specs.assign import assign
from rankslice.framework.specs.read_mapping import mapping_of
from rankslice.frontend.formats import read_model


class Network:
    """Builds a network of images, layer by layer."""

    def __init__(self, draw, size):
        self._draw, self.nodes, self.weights = draw, [], []
        self.shapes = {"x": (1, 4, *size)}
        self._values = np.random.default_rng(draw(st.integers(0, 9)))

    def weight(self, *shape):
        name = f"w{len(self.weights)}"
        values = self._values.standard_normal(shape).astype(np.float32) / 3
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def add(self, op, inputs, shape, **attributes):
        name = f"t{len(self.nodes)}"
        made = helper.make_node(op, inputs, [name], f"n{len(self.nodes)}", **attributes)
        self.nodes.append(made)
        self.shapes[name] = shape
        return name

    def window(self, kernel, size, *, with_dilation=True):
        draw = self._draw
        stride, dilation = draw(st.sampled_from([1, 1, 2])), 1
        settings = {"strides": [stride] * 2}
        if with_dilation:
            dilation = draw(st.sampled_from([1, 1, 2]))
            settings["dilations"] = [dilation] * 2
        span = (kernel - 1) * dilation + 1
        padding = draw(st.sampled_from(["pads", "SAME_UPPER", "SAME_LOWER", "VALID"]))
        if padding.startswith("SAME"):
            settings["dilations"] = [1] * 2  # all that onnxruntime takes here
            if not with_dilation:
                del settings["dilations"]
            return {**settings, "auto_pad": padding}, [-(-n // stride) for n in size]
        pads = [0] * 4
        if padding == "VALID":
            settings["auto_pad"] = padding
        else:
            pads = [draw(st.integers(0, kernel - 1)) for _ in range(4)]
            settings["pads"] = pads
        sizes = [(n + pads[i] + pads[i + 2] - span) // stride + 1 for i, n in enumerate(size)]
        return settings, sizes

    def conv(self, x):
        _, channels, *size = self.shapes[x]
        draw = self._draw
        kernel = draw(st.sampled_from([1, 3]))
        group = draw(st.sampled_from([g for g in (1, 2, channels) if channels % g == 0]))
        outputs = group * draw(st.sampled_from([1, 2, 4]))
        window, sizes = self.window(kernel, size)
        if min(sizes) < 2:
            return x
        weights = self.weight(outputs, channels // group, kernel, kernel)
        inputs = [x, weights] + [self.weight(outputs)] * draw(st.booleans())
        return self.add("Conv", inputs, (1, outputs, *sizes), group=group, **window)

    def pool(self, x):
        _, channels, *size = self.shapes[x]
        draw = self._draw
        op = draw(st.sampled_from(["MaxPool", "AveragePool"]))
        if draw(st.booleans()):
            settings, sizes = (
                {"strides": [2, 2], "ceil_mode": 1},
                [-(-(n - 3) // 2) + 1 for n in size],
            )
        else:
            settings, sizes = self.window(3, size, with_dilation=False)
            if op == "AveragePool":
                settings["count_include_pad"] = draw(st.integers(0, 1))
        if min(*sizes, *size) < 3:
            return x
        return self.add(op, [x], (1, channels, *sizes), kernel_shape=[3, 3], **settings)

    def residual(self, x):
        shape = self.shapes[x]
        kept = self.add("Conv", [x, self.weight(shape[1], shape[1], 3, 3)], shape, pads=[1] * 4)
        return self.add("Add", [self.add("Relu", [kept], shape), x], shape)

    def concat(self, x):
        shape = self.shapes[x]
        grown = self.add("Conv", [x, self.weight(3, shape[1], 1, 1)], (1, 3, *shape[2:]))
        return self.add("Concat", [x, grown], (1, shape[1] + 3, *shape[2:]), axis=1)

    def divide(self, x):
        shape = self.shapes[x]
        axis = self._draw(st.integers(1, 3))
        half = (*shape[:axis], shape[axis] // 2, *shape[axis + 1 :])
        if shape[axis] % 2:
            return x
        names = [f"t{len(self.nodes)}", f"t{len(self.nodes)}b"]
        made = helper.make_node("Split", [x], names, f"n{len(self.nodes)}", axis=axis)
        self.nodes.append(made)
        self.shapes |= dict.fromkeys(names, half)
        changed = self.add("Relu", [names[self._draw(st.integers(0, 1))]], half)
        operands = self._draw(st.permutations([names[0], changed]))
        return self.add("Concat", operands, shape, axis=axis)

    def gate(self, x):
        shape = self.shapes[x]
        mean = self.add("GlobalAveragePool", [x], (*shape[:2], 1, 1))
        gate = self.add("Sigmoid", [mean], (*shape[:2], 1, 1))
        return self.add("Mul", [x, gate], shape)

    def grow(self, x):
        shape = self.shapes[x]
        made = (*shape[:2], shape[2] + 2, shape[3] + 2)
        pads = numpy_helper.from_array(np.array([0, 0, 1, 1] * 2), f"p{len(self.nodes)}")
        self.weights.append(pads)
        return self.add("Pad", [x, pads.name], made)

    def save(self, path, out, extra=()):
        outputs = [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, self.shapes[n])
            for n in (out, *extra)
        ]
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shapes["x"])]
        graph = helper.make_graph(self.nodes, "g", inputs, outputs, self.weights)
        opsets = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


@st.composite
def split_networks(draw):
    size = draw(st.tuples(st.integers(12, 17), st.integers(12, 17)))
    network = Network(draw, size)
    x = "x"
    kinds = ["conv", "conv", "pool", "residual", "concat", "gate", "grow", "divide"]
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=2, max_size=6)):
        x = getattr(network, kind)(x)
    if draw(st.booleans()):
        shape = network.shapes[x]
        x = network.add("Flatten", [x], (1, int(np.prod(shape))))
        x = network.add("Gemm", [x, network.weight(network.shapes[x][1], 8)], (1, 8))
    names = [node.name for node in network.nodes]
    blocks = []
    begin = draw(st.integers(0, max(0, len(names) - 2)))
    while begin < len(names) and len(blocks) < 3:
        end = draw(st.integers(begin + 1, len(names)))
        count = draw(st.integers(2, 4))
        entries = draw(st.permutations(range(4)))[:count]
        parts = [(entry, draw(st.sampled_from([1, 1, 2, 3]))) for entry in entries]
        by = draw(st.sampled_from(["rows", "columns", "outputs", "inputs"]))
        halo = draw(st.sampled_from(["recompute", "exchange"]))
        blocks.append(block(names[begin:end], by, parts, halo, f"mapping.json: {len(blocks)}[0]"))
        begin = end + draw(st.integers(0, 1))
    entry_of = {name: draw(st.integers(0, 3)) for name in names}
    more = draw(st.sets(st.sampled_from([n.output[0] for n in network.nodes]), max_size=2))
    return network, x, sorted(more - {x}), blocks, entry_of


@settings(max_examples=20)
@given(split_networks())
def test_a_random_network_with_split_layers_computes_what_it_computes_whole(drawn):
    network, out, extra, blocks, entry_of = drawn
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        if not network.nodes:
            return
        network.save(path, out, extra)
        try:
            check_split(path, blocks, Path(folder) / "out", entry_of, 4)
        except RankSliceError as error:
            if "cannot be split by" not in str(error):
                raise


def transformer(path, *, fused, heads=4, width=16, tokens=6, normed_first=False):
    """Write one layer of an encoder: attention, residuals, norms and a GELU."""
    values = np.random.default_rng(0)
    weights = {}

    def weight(name, *shape):
        weights[name] = numpy_helper.from_array(
            values.standard_normal(shape).astype(np.float32) / 2, name
        )
        return name

    def const(name, *numbers, dtype=np.int64):
        weights[name] = numpy_helper.from_array(np.array(numbers, dtype), name)
        return name

    nodes = []

    def node(op, inputs, name, **attributes):
        nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    size = width // heads
    x = "x"
    if normed_first:
        x = node("LayerNormalization", ["x", weight("g0", width)], "first", axis=-1)
    if fused == "Split":
        made = node("MatMul", [x, weight("wqkv", width, 3 * width)], "qkv")
        made = node("Reshape", [made, const("s", 1, tokens, 3 * heads, size)], "qkv4")
        parts = [f"{one}_made" for one in "qkv"]
        nodes.append(helper.make_node("Split", [made], parts, "parted", axis=2))
    elif fused:
        made = node("MatMul", [x, weight("wqkv", width, 3 * width)], "qkv")
        shape = const("s", 1, tokens, 3, heads, size)
        made = node("Reshape", [made, shape], "qkv5")
        for number, one in enumerate("qkv"):
            index = f"i{one}"
            weights[index] = numpy_helper.from_array(np.array(number, np.int64), index)
            node("Gather", [made, index], f"{one}_made", axis=2)
    else:
        shape = const("s", 1, tokens, heads, size)
        for one in "qkv":
            flat = node("MatMul", [x, weight(f"w{one}", width, width)], f"{one}_flat")
            flat = node("Add", [flat, weight(f"b{one}", width)], f"{one}_biased")
            node("Reshape", [flat, shape], f"{one}_made")
    q = node("Transpose", ["q_made"], "q", perm=[0, 2, 1, 3])
    k = node("Transpose", ["k_made"], "k", perm=[0, 2, 3, 1])
    v = node("Transpose", ["v_made"], "v", perm=[0, 2, 1, 3])
    scores = node("MatMul", [q, k], "scores")
    scaled = node("Div", [scores, const("root", 2, dtype=np.float32)], "scaled")
    probabilities = node("Softmax", [scaled], "probabilities", axis=-1)
    context = node("MatMul", [probabilities, v], "context")
    turned = node("Transpose", [context], "turned", perm=[0, 2, 1, 3])
    joined = node("Reshape", [turned, const("s2", 1, tokens, width)], "joined")
    out = node("MatMul", [joined, weight("wo", width, width)], "out")
    added = node("Add", [out, "x"], "added")
    normed = node(
        "LayerNormalization", [added, weight("g", width), weight("b", width)], "normed", axis=-1
    )
    wide = node("MatMul", [normed, weight("w1", width, 4 * width)], "wide")
    biased = node("Add", [wide, weight("b1", 4 * width)], "biased")
    erf = node("Erf", [biased], "erf")
    gelu = node("Mul", [biased, erf], "gelu")
    narrow = node("MatMul", [gelu, weight("w2", 4 * width, width)], "narrow")
    node("Add", [narrow, normed], "y")
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, tokens, width])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, tokens, width])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(weights.values()))
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return [one.name for one in nodes]


def spans(names, first, last):
    return names[names.index(first) : names.index(last) + 1]


THREE = ((0, 1), (1, 1), (2, 2))


def test_attention_is_split_by_heads_with_no_layer_whole(tmp_path):
    names = transformer(tmp_path / "model.onnx", fused="")
    attention = block(spans(names, "q_flat", "out"), "heads", THREE)
    cut, split = check_split(tmp_path / "model.onnx", [attention], tmp_path / "out")
    assert not split.warnings
    shares = [
        {w.part.box for layer in s.layers for w in layer.weights if w.part and w.part.name == "wq"}
        for s in cut.segments
    ]
    assert {box for share in shares for box in share} == {
        ((0, 16), (0, 4)),
        ((0, 16), (4, 8)),
        ((0, 16), (8, 16)),
    }


@pytest.mark.parametrize("by", ["outputs", "rows", "inputs"])
@pytest.mark.parametrize("fused", ["", "Gather", "Split"])
def test_a_transformer_is_split_by_tokens_outputs_and_inputs(fused, by, tmp_path):
    names = transformer(tmp_path / "model.onnx", fused=fused)
    _, split = check_split(tmp_path / "model.onnx", [block(names, by, THREE)], tmp_path / "out")
    assert by != "rows" or not split.warnings


@pytest.mark.parametrize(
    ("fused", "first"), [("Gather", "qkv5"), ("Split", "qkv"), ("Split", "parted")]
)
def test_heads_of_a_fused_product_are_split_from_where_they_are_apart(fused, first, tmp_path):
    names = transformer(tmp_path / "model.onnx", fused=fused)
    attention = block(spans(names, first, "out"), "heads", THREE)
    _, split = check_split(tmp_path / "model.onnx", [attention], tmp_path / "out")
    parts = {layer.origin for layer in split.graph.layers if layer.making}
    assert {"q", "scores", "context", "out"} <= parts


def test_a_feed_forward_by_inputs_of_its_second_product_keeps_its_first_by_outputs(tmp_path):
    names = transformer(tmp_path / "model.onnx", fused="")
    blocks = [
        block(spans(names, "wide", "gelu"), "outputs", THREE),
        block(["narrow"], "inputs", THREE, where="mapping.json: 0[1]"),
    ]
    cut, _ = check_split(tmp_path / "model.onnx", blocks, tmp_path / "out")
    rank_of = {tensor.name: one.rank for one in cut.segments for tensor in one.outputs}
    crossing = [t.name for s in cut.segments for t in s.inputs if rank_of.get(t.name) != s.rank]
    assert not [name for name in crossing if name.startswith("gelu")]


def test_a_part_has_only_the_weights_that_it_needs(tmp_path):
    path = _product(tmp_path)
    cut, _ = check_split(path, [block(["fc6"], "outputs")], tmp_path / "out", count=2)
    sizes = [(tmp_path / f"out/{n}.onnx").stat().st_size for n in range(len(cut.segments))]
    assert max(sizes) < 0.51 * path.stat().st_size


def _product(folder):
    path = folder / "model.onnx"
    values = np.random.default_rng(0).standard_normal((512, 1024)).astype(np.float32)
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], "fc6", transB=1)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1024])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 512])],
        [numpy_helper.from_array(values, "w"), numpy_helper.from_array(values[:, 0].copy(), "b")],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def test_heads_of_a_block_that_begins_with_a_normalisation_are_split_from_the_products_on(tmp_path):
    names = transformer(tmp_path / "model.onnx", fused="", normed_first=True)
    attention = block(spans(names, "first", "out"), "heads", THREE)
    _, split = check_split(tmp_path / "model.onnx", [attention], tmp_path / "out")
    assert [layer.name for layer in split.graph.layers if not layer.making][:2] == [
        "first",
        "added",
    ]


SQUARED = """<ir_version: 8, opset_import: ["": 17]>
g (float[1, 8, 8] x) => (float[1, 8, 8] y)
{
    [first] a = Relu (x)
    [square] b = MatMul (a, a)
    [last] y = Sigmoid (b)
}"""


@pytest.mark.parametrize("halo", ["recompute", "exchange"])
@pytest.mark.parametrize("by", ["rows", "outputs"])
def test_a_product_of_a_tensor_with_itself_reads_a_part_and_all_of_it(by, halo, tmp_path):
    path = save(tmp_path, SQUARED)
    blocks = [block(["first", "square", "last"], by, THREE, halo)]
    _, split = check_split(path, blocks, tmp_path / "out")
    assert not split.warnings


GATED = """<ir_version: 8, opset_import: ["": 17]>
g (float[1, 4, 8, 6] x) => (float[1, 4, 8, 6] y)
{
    [first] a = Relu (x)
    [mean] b = GlobalAveragePool (a)
    [gate] c = Sigmoid (b)
    [gated] d = Mul (a, c)
    [last] y = Sigmoid (d)
}"""


@pytest.mark.parametrize("halo", ["recompute", "exchange"])
def test_rows_are_split_again_where_the_gate_of_an_image_is_read(halo, tmp_path):
    path = save(tmp_path, GATED)
    blocks = [block(["first", "mean", "gate", "gated", "last"], "rows", THREE, halo)]
    _, split = check_split(path, blocks, tmp_path / "out")
    (warning,) = split.warnings
    assert "'mean', 'gate' are not split" in warning


DROPPED = """<ir_version: 8, opset_import: ["": 17]>
g (float[1, 4, 8, 6] x) => (float[1, 4, 8, 6] y)
{
    [first] a = Relu (x)
    [drop] b, mask = Dropout (a)
    [last] y = Sigmoid (b)
}"""


def test_a_layer_with_a_result_that_nobody_reads_is_split(tmp_path):
    path = save(tmp_path, DROPPED)
    _, split = check_split(path, [block(["first", "drop", "last"], "rows")], tmp_path / "out")
    assert not split.warnings


def test_outputs_are_split_again_after_a_layer_that_needs_all_channels(tmp_path):
    names = transformer(tmp_path / "model.onnx", fused="")
    blocks = [block(names, "outputs", THREE)]
    _, split = check_split(tmp_path / "model.onnx", blocks, tmp_path / "out")
    assert {"wide", "narrow"} <= {layer.origin for layer in split.graph.layers}
    assert "normed" in {layer.name for layer in split.graph.layers}


SHUFFLE = """<ir_version: 8, opset_import: ["": 17]>
g (float[1, 8, 12, 10] x) => (float[1, 8, 12, 10] y)
<int64[5] s = {1, 2, 4, 12, 10}, int64[4] t = {1, 8, 12, 10}> {
    [first] a = Relu (x)
    [apart] b = Reshape (a, s)
    [turn] c = Transpose <perm = [0, 2, 1, 3, 4]> (b)
    [back] d = Reshape (c, t)
    [last] y = Sigmoid (d)
}"""


@pytest.mark.parametrize("by", ["rows", "columns", "outputs"])
def test_a_shuffle_of_channels_is_split_or_run_whole_by_name(by, tmp_path):
    path = save(tmp_path, SHUFFLE)
    names = ["first", "apart", "turn", "back", "last"]
    _, split = check_split(path, [block(names, by)], tmp_path / "out")
    assert all("not split by" in warning for warning in split.warnings)


QUANTISED = ["conv1", "relu1", "conv2", "add", "relu2", "pool", "conv3", "flat", "fc"]


@pytest.fixture(scope="module")
def quantised(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quantised")
    return {kind: quantised_cnn(kind, folder) for kind in KINDS}


@pytest.mark.parametrize(
    ("by", "halo"),
    [
        *(("rows", halo) for halo in HALOS),
        *(("columns", halo) for halo in HALOS),
        ("outputs", "recompute"),
        ("inputs", "recompute"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_quantised_network_is_split_with_its_quantisers_to_the_bit(
    quantised, kind, halo, by, tmp_path
):
    graph = read_model(quantised[kind]).graph
    kept = [x.name for x in graph.layers if x.op not in ("QuantizeLinear", "DequantizeLinear")]
    item = {"layers": kept, "by": by, "halo": halo}
    mapping = mapping_of({"a_cpu0": [item], "b_cpu0": [{**item, "share": 2}], "c_cpu0": [item]})
    assignment = assign(mapping, graph)
    exact = 0 if kind != "dynamic" and by != "inputs" else CLOSE
    cut, _ = check_split(
        quantised[kind], assignment.blocks, tmp_path / "out", count=3, tolerance=exact
    )
    split_convolutions = {layer.origin for one in cut.segments for layer in one.layers}
    sums_integers = kind == "qoperator" and by == "inputs"
    assert sums_integers or len(split_convolutions & {"conv1_quant", "conv1"}) or kind == "dynamic"


@pytest.mark.parametrize("halo", ["recompute", "exchange"])
def test_parts_of_a_quantised_network_exchange_integers_if_at_all(quantised, halo, tmp_path):
    names = [layer.name for layer in read_model(quantised["qdq"]).graph.layers]
    rows = block(spans(names, "image_QuantizeLinear", "h_QuantizeLinear"), "rows", THREE, halo)
    cut, _ = check_split(quantised["qdq"], [rows], tmp_path / "out", tolerance=0)
    rank_of = {tensor.name: one.rank for one in cut.segments for tensor in one.outputs}
    crossing = [t for s in cut.segments for t in s.inputs if rank_of.get(t.name, s.rank) != s.rank]
    made = [tensor for tensor in crossing if not tensor.name.startswith("image[")]
    assert {tensor.dtype for tensor in made} == {"int8"}
    assert (len(cut.segments) <= 5) == (halo == "recompute")


def test_a_dynamic_quantiser_that_reads_a_split_tensor_runs_whole(quantised, tmp_path):
    graph = read_model(quantised["dynamic"]).graph
    names = [layer.name for layer in graph.layers]
    dynamic = {layer.name for layer in graph.layers if layer.op == "DynamicQuantizeLinear"}
    cut, _ = check_split(quantised["dynamic"], [block(names, "rows")], tmp_path / "out")
    assert dynamic <= {layer.name for one in cut.segments for layer in one.layers}
