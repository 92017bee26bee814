"""Sizes follow from inputs and operators, whatever the file declares and the onnx package knows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_models import read, run, save

from rankslice.framework.errors import RankSliceError
from rankslice.framework.graph import Graph, Tensor
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.frontend.formats.onnx.reader import read_onnx

HEAD = '<ir_version: 9, opset_import: ["" : 18, "ai.onnx.ml" : 3]>'


def sizes(path: Path, given: GivenSizes | None = None) -> dict[str, object]:
    graph = read_onnx(path, given or GivenSizes()).graph
    return {tensor.name: tensor.shape for layer in graph.layers for tensor in layer.outputs}


STALE = (
    HEAD
    + """g (float[BATCH, 6] x) => (float[OUTPUT] y) <float[1, 6] a, float[6, 2] w = {VALUES}>
    { a = Relu(x)  b = MatMul(a, w)  [back] y = Reshape <allowzero = 0> (b, to) }"""
).replace("w = {VALUES}", f"w = {{{', '.join('1' * 12)}}}, int64[2] to = {{2, -1}}")


@pytest.mark.parametrize(
    ("batch", "output", "given"),
    [
        ("4", "1, 2", {}),
        ("N", "1, 2", {"N": (4,)}),
        ("4", "8", {}),
        ("4", "N, M, K", {}),
    ],
)
def test_sizes_of_an_earlier_batch_do_not_count(
    tmp_path: Path, batch: str, output: str, given: dict[str, tuple[int, ...]]
):
    path = save(tmp_path, STALE.replace("BATCH", batch).replace("OUTPUT", output))
    assert {"a": (4, 6), "b": (4, 2), "y": (2, 4)} == sizes(path, GivenSizes(given))


def test_a_warning_names_what_is_declared_with_other_sizes(tmp_path: Path):
    model = read(tmp_path, STALE.replace("BATCH", "4").replace("OUTPUT", "1, 2"))
    message = (
        "model.onnx: tensor 'a' is declared as float32[1, 6], but the model's inputs and layers"
        " make it float32[4, 6], and 1 more: what is declared is ignored"
    )
    assert (message,) == model.graph.warnings


def test_a_warning_names_what_is_declared_with_another_type(tmp_path: Path):
    text = "g (float[4] x) => (double[N] y) { y = Relu(x) }"
    (message,) = read(tmp_path, HEAD + text).graph.warnings
    assert (
        "'y' is declared as float64, but the model's inputs and layers make it float32[4]"
        in message
    )


@pytest.mark.parametrize("output", ["2, 4", "N, 4", "N, M"])
def test_declared_sizes_that_are_true_or_open_warn_of_nothing(tmp_path: Path, output: str):
    text = STALE.replace("BATCH", "4").replace("OUTPUT", output).replace("float[1, 6] a, ", "")
    assert () == read(tmp_path, text).graph.warnings


def test_a_declaration_decides_where_nothing_follows(tmp_path: Path):
    text = "g (float[1] x) => (float[5] y) { c = Cast <to = 7> (x)  y = Expand(x, c) }"
    assert (5,) == sizes(save(tmp_path, HEAD + text))["y"]


def test_a_declaration_that_is_known_to_be_wrong_decides_nothing(tmp_path: Path):
    text = """g (float[4, 3] x) => (int64[3, 9] y)
        { c = NonZero(x)  y = Neg(c) }"""  # two rows, one for each axis
    model = read(tmp_path, HEAD + text)
    (tensor,) = model.graph.outputs
    assert ((2, 12), ("", "?")) == (tensor.shape, tensor.symbols)


FEW = "float[3, 6] x"
TREE = (
    "nodes_treeids = [0, 0, 0], nodes_nodeids = [0, 1, 2], nodes_featureids = [1, 0, 0],"
    ' nodes_values = [0.5, 0.0, 0.0], nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF"],'
    " nodes_truenodeids = [1, 0, 0], nodes_falsenodeids = [2, 0, 0],"
)
LEAVES = "{0}_treeids = [0, 0], {0}_nodeids = [1, 2], {0}_ids = [0, 1], {0}_weights = [1.0, 2.0]"
SVM = "coefficients = [1.0, -1.0], support_vectors = [{}], kernel_params = [0.5, 0.0, 3.0]"
VECTORS = ", ".join(["0.5"] * 12)


@pytest.mark.parametrize(
    ("inputs", "node"),
    [
        ("float[1, 4, 6, 6] x, float[2] s, float[2] b", "GroupNormalization <num_groups = 2>"),
        ("float[1, 4, 6, 6] x", "MeanVarianceNormalization"),
        (FEW, "ai.onnx.ml.Scaler <offset = [0.5], scale = [2.0]>"),
        (FEW, "ai.onnx.ml.Normalizer"),
        (FEW, "ai.onnx.ml.Imputer <imputed_value_floats = [1.0], replaced_value_float = 0.0>"),
        (FEW, f"ai.onnx.ml.LinearRegressor <targets = 2, coefficients = [{VECTORS}]>"),
        (
            FEW,
            f"ai.onnx.ml.TreeEnsembleRegressor <n_targets = 2, {TREE} {LEAVES.format('target')}>",
        ),
        (
            FEW,
            "ai.onnx.ml.TreeEnsembleClassifier"
            f" <classlabels_int64s = [7, 8], {TREE} {LEAVES.format('class')}>",
        ),
        (
            FEW,
            'ai.onnx.ml.SVMRegressor <kernel_type = "RBF", n_supports = 2, rho = [0.1],'
            f" {SVM.format(VECTORS)}>",
        ),
        ("float[1, 6] x, int64[2] at", "ai.onnx.ml.ArrayFeatureExtractor"),
    ],
)
def test_operators_about_which_the_onnx_package_tells_nothing_have_their_sizes(
    tmp_path: Path, inputs: str, node: str
):
    names = [
        declared.split()[-1]
        for declared in inputs.split(", ")
        if "]" in declared and " " in declared
    ]
    outputs = "t, h" if "Classifier" in node else "h"
    text = f"g ({inputs}) => (float[] y) {{ {outputs} = {node} ({', '.join(names)})  y = Neg(h) }}"
    path = save(tmp_path, HEAD + text)
    proto = onnx.load(path)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs.split(", "))
    onnx.save(proto, path)
    brought = {
        tensor.name: np.ones(tensor.shape or (), tensor.dtype)
        for tensor in read_onnx(path).graph.inputs
    }
    made = {name: array.shape for name, array in run(path, brought).items()}
    assert made == sizes(path)


STFT = """g (float[1, 128, 1] x) => (float[A, B, C, D] y)
    <int64 step = {8}, int64 length = {16}, float[16] w = {WINDOW}>
    { r = Neg(x)  s = NODE  [after] y = Exp(s) }""".replace("WINDOW", ", ".join("1" * 16))


@pytest.mark.parametrize(
    ("node", "bins"),
    [
        ('STFT(r, step, "", length)', 9),
        ("STFT(r, step, w)", 9),
        ("STFT <onesided = 1> (r, step, w, length)", 9),
        ("STFT <onesided = 0> (r, step, w, length)", 16),
    ],
)
def test_a_short_time_fourier_transform_is_one_sided_unless_it_says_otherwise(
    tmp_path: Path, node: str, bins: int
):
    path = save(tmp_path, HEAD + STFT.replace("NODE", node))
    found = sizes(path)
    assert ((1, 15, bins, 2),) * 2 == (found["s"], found["y"])
    assert found["y"] == run(path, {"x": np.ones((1, 128, 1), np.float32)})["y"].shape


def test_a_short_time_fourier_transform_in_a_branch_is_one_sided_too(tmp_path: Path):
    text = STFT.replace("g (float", "g (bool c, float").replace(
        "NODE",
        "If (c) < then_branch = t () => (float[A, B, C, D] p) { p = STFT(r, step, w) },"
        " else_branch = e () => (float[E, F, G, H] q) { f = STFT(r, step, w)  q = Neg(f) }>",
    )
    assert (1, 15, 9, 2) == sizes(save(tmp_path, HEAD + text))["s"]


def test_a_short_time_fourier_transform_of_any_length_is_bounded(tmp_path: Path):
    path = save(tmp_path, HEAD + STFT.replace("128", "L").replace("NODE", "STFT(r, step, w)"))
    graph = read_onnx(path, GivenSizes(at_most={"L": (128,)})).graph
    made = {tensor.name: tensor for layer in graph.layers for tensor in layer.outputs}
    assert ((1, 15, 9, 2), ("", "?", "", "")) == (made["s"].shape, made["s"].symbols)


PEAK = """<ir_version: 8, opset_import: ["" : 17]> g (float[h, 4] x) => (float[] y)
    <int64[1] zero = {0}, int64 middle = {MIDDLE}, int64 four = {4}, int64 sixty = {60},
     int64 one = {1}, int64[1] columns = {4}>
    { s = Shape(x)  h = Gather(s, zero)  d = Sub(h, middle)  q = Mul(d, d)  f = Mul(q, four)
      m = Sub(sixty, f)  n = Max(m, one)  to = Concat <axis = 0> (n, columns)
      mean = ReduceMean <keepdims = 1> (x)  t = Expand(mean, to)  y = ReduceSum <keepdims = 0> (t)
    }"""
"""t has most rows, 60, where x has as many as MIDDLE, and one row for most sizes."""


def peak(folder: Path, middle: int, bounds: dict[str, tuple[int, ...]]) -> tuple[Graph, Tensor]:
    path = save(folder, PEAK.replace("MIDDLE", str(middle)))
    graph = read_onnx(path, GivenSizes(at_most=bounds)).graph
    return graph, next(t for layer in graph.layers for t in layer.outputs if t.name == "t")


@pytest.mark.parametrize("middle", [1, 5, 11, 15, 16])
def test_a_small_model_is_tried_with_all_sizes_of_an_input(tmp_path: Path, middle: int) -> None:
    graph, tensor = peak(tmp_path, middle, {"h": (16,)})
    assert ((60, 4), ("?", ""), ()) == (tensor.shape, tensor.symbols, graph.warnings)


def test_a_bound_of_which_the_tries_are_not_sure_is_told(tmp_path: Path) -> None:
    graph, tensor = peak(tmp_path, 311, {"h": (1000,)})
    message = (
        "model.onnx: tensor 't' is not largest for the largest inputs; of those tried it is at most"
        " [44, 4], and a frame with more ends the job (--at-most t=44,4 sets the bound)"
    )
    assert ((44, 4), (message,)) == (tensor.shape, graph.warnings)


@pytest.mark.parametrize(("middle", "given"), [(311, 60), (311, 8), (5, 80), (402, 60)])
def test_a_bound_that_is_given_decides(tmp_path: Path, middle: int, given: int) -> None:
    graph, tensor = peak(tmp_path, middle, {"h": (1000,), "t": (given, 4)})
    assert ((given, 4), ("?", ""), ()) == (tensor.shape, tensor.symbols, graph.warnings)


def test_a_bound_below_a_size_that_all_tries_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RankSliceError, match=r"does not fit the sizes \[60, 3\]; it has \[\?, 4\]"):
        peak(tmp_path, 5, {"h": (16,), "t": (60, 3)})
