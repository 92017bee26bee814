"""Random ONNX networks with split layers, run part by part, against the unsliced ones."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, helper, numpy_helper
from split_models import block, check_split

from rankslice.framework.errors import RankSliceError


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
    kinds = ["conv", "conv", "pool", "residual", "concat", "gate", "grow"]
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
