"""What onnxruntime does not load is told when the model is read."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx_models import LIGHT_MODELS, save

from rankslice.frontend.formats.onnx.reader import read_onnx

HEAD = '<ir_version: 10, opset_import: ["" : 21, "my.ops" : 1]>'
CHAIN = "g (float[1, 1, 4, 4] x) => (float[A, B, C, D] y) { [one] h = Relu(x)  [two] y = NODE }"
LARGE = f"<float[64, 8] w = {{{', '.join('1' * 512)}}}>"


def warnings(folder: Path, text: str) -> tuple[str, ...]:
    return read_onnx(save(folder, text)).graph.warnings


@pytest.mark.parametrize(
    ("text", "layers", "reason"),
    [
        (
            f"{HEAD} g (bfloat16[4] x) => (bfloat16[4] y) {{ [one] h = Exp(x)  y = Identity(h) }}",
            "'one'",
            "Could not find an implementation for Exp(13) node with name 'one'",
        ),
        (f"{HEAD} {CHAIN.replace('NODE', 'my.ops.Twist(h)')}", "'two'", "my.ops:Twist(-1) is not"),
        (f"{HEAD} {CHAIN.replace('NODE', 'Twist(h)')}", "'two'", "No Op registered for Twist"),
        (
            f"{HEAD} {CHAIN.replace('NODE', 'MatMul(h, w)').replace('{', LARGE + '{', 1)}",
            "'two'",
            "Incompatible dimensions for matrix multiplication",
        ),
        (
            HEAD.replace("21", "9")
            + CHAIN.replace("NODE", "Upsample(h, s)").replace(
                "{", "<float[4] s = {1.0, 1.0, 0.5, 0.5}> {", 1
            ),
            "'two'",
            "Scale value should be greater than or equal to 1.",
        ),
        (f"{HEAD.replace('21', '99')} {CHAIN.replace('NODE', 'Neg(h)')}", "the model", "Opset 99"),
        (f"{HEAD.replace('10', '99')} {CHAIN.replace('NODE', 'Neg(h)')}", "the model", "version"),
    ],
)
def test_a_warning_names_the_layer_that_onnxruntime_refuses(
    tmp_path: Path, text: str, layers: str, reason: str
) -> None:
    (told,) = warnings(tmp_path, text)
    assert told.startswith(f"model.onnx: onnxruntime refuses {layers} on a CPU: ")
    assert reason in told
    assert not {"[ONNXRuntimeError]", "onnxruntime_src"} & {*told.split()}


@pytest.mark.parametrize("path", LIGHT_MODELS[:3], ids=lambda path: path.stem)
def test_networks_that_onnxruntime_runs_have_no_warning(path: Path) -> None:
    assert () == read_onnx(path).graph.warnings


def test_a_call_of_a_function_is_named(tmp_path: Path) -> None:
    text = f"""{HEAD} g (float[4] x) => (float[4] y) {{ [one] h = my.ops.Outer(x)  y = Neg(h) }}
    <domain: "my.ops", opset_import: ["" : 21, "no.ops" : 1]>
    Outer (v) => (u) {{ u = no.ops.Inner(v) }}"""
    (told,) = warnings(tmp_path, text)
    assert "onnxruntime refuses 'one' on a CPU" in told


def test_constants_in_branches_are_not_missed(tmp_path: Path) -> None:
    text = f"""{HEAD} g (bool c, float[512] x) => (float[512] y)
    {{ y = If (c) <then_branch = t () => (float[512] p) {{
        k = Constant <value = float[512] {{{", ".join("1" * 512)}}}> ()  p = Add(x, k) }},
        else_branch = e () => (float[512] q) {{ q = Neg(x) }}> }}"""
    path = save(tmp_path, text)
    onnx.checker.check_model(path)
    assert () == read_onnx(path).graph.warnings


def test_an_attribute_that_is_no_text_is_no_reason_to_print_anything(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = CHAIN.replace("NODE", 'Resize <mode = "odd"> (h, "", s)')
    path = save(tmp_path, HEAD + text.replace("{", "<float[4] s = {1.0, 1.0, 2.0, 2.0}> {", 1))
    proto = onnx.load(path)
    proto.graph.node[1].attribute[0].s = b"\xeb\xff"
    onnx.save(proto, path)
    assert read_onnx(path).graph.warnings
    assert ("", "") == capfd.readouterr()


def test_a_tensor_that_is_declared_with_an_unknown_type_does_not_hide_what_is_refused(
    tmp_path: Path,
) -> None:
    path = save(tmp_path, f"{HEAD} g (float[4] x) => (float[4] y) {{ [one] y = my.ops.Twist(x) }}")
    proto = onnx.load(path)
    proto.graph.output[0].type.tensor_type.elem_type = 99
    onnx.save(proto, path)
    (told,) = read_onnx(path).graph.warnings
    assert "Twist" in told
