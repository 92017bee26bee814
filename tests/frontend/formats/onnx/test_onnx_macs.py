"""MACs by operator, by the textbook's formulas."""

from __future__ import annotations

import onnx
import pytest
from onnx_models import layer, read

from rankslice.frontend.formats.onnx.macs import onnx_macs

HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1, "mine" : 1]>\n'

CASES = {
    "a convolution": (
        "g (float[2, 6, 9, 9] x, float[8, 6, 3, 3] w) => (float[2, 8, 7, 7] y)"
        "{ [n] y = Conv(x, w) }",
        2 * 8 * 7 * 7 * 6 * 3 * 3,
    ),
    "a convolution in groups": (
        "g (float[1, 6, 9, 9] x, float[8, 3, 3, 3] w) => (float[1, 8, 7, 7] y)"
        "{ [n] y = Conv<group = 2>(x, w) }",
        8 * 7 * 7 * 3 * 3 * 3,
    ),
    "a depthwise convolution with stride": (
        "g (float[1, 6, 9, 9] x, float[6, 1, 3, 3] w) => (float[1, 6, 4, 4] y)"
        "{ [n] y = Conv<group = 6, strides = [2, 2]>(x, w) }",
        6 * 4 * 4 * 3 * 3,
    ),
    "a convolution of a sequence": (
        "g (float[1, 4, 10] x, float[5, 4, 3] w) => (float[1, 5, 8] y) { [n] y = Conv(x, w) }",
        5 * 8 * 4 * 3,
    ),
    "a transposed convolution in groups": (
        "g (float[1, 4, 5, 5] x, float[4, 3, 2, 2] w) => (float[1, 6, 10, 10] y)"
        "{ [n] y = ConvTranspose<group = 2, strides = [2, 2]>(x, w) }",
        4 * 5 * 5 * 3 * 2 * 2,
    ),
    "a quantised convolution": (
        "g (uint8[1, 3, 8, 8] x, float s, uint8 z, uint8[4, 3, 3, 3] w) => (uint8[1, 4, 6, 6] y)"
        "{ [n] y = QLinearConv(x, s, z, w, s, z, s, z) }",
        4 * 6 * 6 * 3 * 3 * 3,
    ),
    "an integer convolution": (
        "g (uint8[1, 3, 8, 8] x, uint8[4, 3, 3, 3] w) => (int32[1, 4, 6, 6] y)"
        "{ [n] y = ConvInteger(x, w) }",
        4 * 6 * 6 * 3 * 3 * 3,
    ),
    "a matrix product with a bias": (
        "g (float[2, 3] a, float[3, 5] b, float[5] c) => (float[2, 5] y){ [n] y = Gemm(a, b, c) }",
        2 * 3 * 5,
    ),
    "a product of transposed matrices": (
        "g (float[3, 2] a, float[5, 3] b) => (float[2, 5] y)"
        "{ [n] y = Gemm<transA = 1, transB = 1>(a, b) }",
        2 * 3 * 5,
    ),
    "a stack of matrix products": (
        "g (float[4, 1, 2, 3] a, float[7, 3, 5] b) => (float[4, 7, 2, 5] y)"
        "{ [n] y = MatMul(a, b) }",
        4 * 7 * 2 * 3 * 5,
    ),
    "a product of two vectors": (
        "g (float[6] a, float[6] b) => (float y) { [n] y = MatMul(a, b) }",
        6,
    ),
    "a square of a matrix": (
        "g (float[3, 3] a) => (float[3, 3] y) { [n] y = MatMul(a, a) }",
        27,
    ),
    "an integer matrix product": (
        "g (uint8[2, 3] a, uint8[3, 5] b) => (int32[2, 5] y) { [n] y = MatMulInteger(a, b) }",
        2 * 3 * 5,
    ),
    "a quantised matrix product": (
        "g (uint8[2, 3] a, float s, uint8 z, uint8[3, 5] b) => (uint8[2, 5] y)"
        "{ [n] y = QLinearMatMul(a, s, z, b, s, z, s, z) }",
        2 * 3 * 5,
    ),
    "an Einstein sum": (
        "g (float[2, 3, 4] a, float[2, 4, 5] b) => (float[2, 3, 5] y)"
        '{ [n] y = Einsum<equation = "bij, bjk -> bik">(a, b) }',
        2 * 3 * 4 * 5,
    ),
    "an Einstein sum with hidden indices that are stretched": (
        "g (float[7, 1, 3, 4] a, float[6, 4, 5] b) => (float[7, 6, 3, 5] y)"
        '{ [n] y = Einsum<equation = "...ij,...jk">(a, b) }',
        7 * 6 * 3 * 4 * 5,
    ),
    "an Einstein sum of one operand": (
        'g (float[2, 3] a) => (float[3, 2] y) { [n] y = Einsum<equation = "ij->ji">(a) }',
        0,
    ),
    "an LSTM in both directions": (
        "g (float[5, 2, 3] x, float[2, 16, 3] w, float[2, 16, 4] r) => (float[5, 2, 2, 4] y)"
        '{ [n] y = LSTM<hidden_size = 4, direction = "bidirectional">(x, w, r) }',
        5 * 2 * 2 * 4 * 4 * (3 + 4),
    ),
    "a GRU": (
        "g (float[5, 2, 3] x, float[1, 12, 3] w, float[1, 12, 4] r) => (float[5, 1, 2, 4] y)"
        "{ [n] y = GRU<hidden_size = 4>(x, w, r) }",
        5 * 2 * 3 * 4 * (3 + 4),
    ),
    "a simple recurrent layer": (
        "g (float[5, 2, 3] x, float[1, 4, 3] w, float[1, 4, 4] r) => (float[5, 1, 2, 4] y)"
        "{ [n] y = RNN<hidden_size = 4>(x, w, r) }",
        5 * 2 * 4 * (3 + 4),
    ),
    "onnxruntime's attention": (
        "g (float[2, 7, 8] x, float[8, 24] w, float[24] b) => (float[2, 7, 8] y)"
        "{ [n] y = com.microsoft.Attention<num_heads = 2>(x, w, b) }",
        2 * 7 * 8 * 24 + 2 * (2 * 7 * 7 * 8),
    ),
    "onnxruntime's matrix product of a transposed matrix": (
        "g (float[3, 2] a, float[3, 5] b) => (float[2, 5] y)"
        "{ [n] y = com.microsoft.FusedMatMul<transA = 1>(a, b) }",
        2 * 3 * 5,
    ),
    "an addition": (
        "g (float[2, 3] a) => (float[2, 3] y) { [n] y = Add(a, a) }",
        0,
    ),
    "pooling": (
        "g (float[1, 2, 4, 4] a) => (float[1, 2, 2, 2] y)"
        "{ [n] y = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(a) }",
        0,
    ),
    "an activation of onnxruntime": (
        "g (float[2, 3] a) => (float[2, 3] y) { [n] y = com.microsoft.Gelu(a) }",
        0,
    ),
    "an operator that nobody knows": (
        "g (float[2, 3] a) => (float[2, 3] y) { [n] y = mine.Mystery(a) }",
        None,
    ),
    "control flow": (
        "g (bool c, float[2] a) => (float[2] y)"
        "{ [n] y = If(c) <then_branch = t () => (float[2] p) { p = Neg(a) },"
        " else_branch = e () => (float[2] q) { q = Abs(a) }> }",
        None,
    ),
    "a result of unknown size": (
        "g (float[4] a, float[2, 3] b) => (float[n] y)"
        "{ i = NonZero(a) f = Cast<to = 1>(i) [n] y = MatMul(b, f) }",
        None,
    ),
    "an Einstein sum of three operands": (
        "g (float[2, 2] a) => (float[2, 2] y)"
        '{ [n] y = Einsum<equation = "ij,jk,kl->il">(a, a, a) }',
        None,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_layer_takes_as_many_macs_as_its_formula_says(case, tmp_path):
    text, expected = CASES[case]
    assert expected == onnx_macs(layer(read(tmp_path, HEAD + text), "n"))


def test_attention_counts_scores_and_weighted_values(tmp_path):
    text = (
        '<ir_version: 10, opset_import: ["" : 23]>'
        "g (float[1, 2, 5, 4] q, float[1, 2, 7, 4] k, float[1, 2, 7, 6] v)"
        " => (float[1, 2, 5, 6] y) { [n] y = Attention(q, k, v) }"
    )
    if onnx.defs.onnx_opset_version() < 23:
        pytest.skip(f"onnx {onnx.__version__} has no Attention")
    assert 2 * 5 * 7 * 4 + 2 * 5 * 7 * 6 == onnx_macs(layer(read(tmp_path, text), "n"))


@pytest.mark.parametrize("op", ["Conv", "Gemm", "MatMul", "LSTM", "QLinearConv", "Attention"])
def test_a_layer_without_its_operands_has_no_number(op, tmp_path):
    text = f"g (float x) => (float y) {{ [n] y = {op}(x) }}"
    assert None is onnx_macs(layer(read(tmp_path, HEAD + text), "n"))
