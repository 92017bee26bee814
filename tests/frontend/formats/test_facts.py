"""What boards are told of sub-models, by their operators."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from tflite_models import model_file

from rankslice.backend.runtime.job import Facts
from rankslice.frontend.formats import read_model, submodel_files
from rankslice.frontend.formats.onnx.nodes import Operator
from rankslice.frontend.formats.onnx.reader import read_onnx
from rankslice.frontend.partition.partition import partition

HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.acme" : 1, "com.microsoft" : 1]>'

BRANCH = f"""{HEAD} g (float[1,8] x, bool c) => (float[1,8] y) {{
  y = If (c) <
    then_branch = t () => (float[1,8] a) {{ a = Bernoulli (x) }},
    else_branch = e () => (float[1,8] b) {{ b = Relu (x) }}
  >
}}"""

NOISY = """<ir_version: 8, opset_import: ["" : 17, "mine" : 1]>
  g (float[4] x) => (float[4] y) { y = mine.noisy (x) }
  <domain: "mine", opset_import: ["" : 17]>
  noisy (a) => (b) { b = RandomUniformLike (a) }"""


def facts_of(path: Path) -> Facts:
    """Return the facts of a model that one segment has as a whole."""
    model = read_model(path)
    (part,) = partition(model.graph, {layer.name: 0 for layer in model.graph.layers}).segments
    return submodel_files(model, part, name=path.name).facts


def onnx_file(folder: Path, text: str) -> Path:
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def test_operators_in_branches_are_found(tmp_path: Path) -> None:
    path = onnx_file(tmp_path, BRANCH)
    expected = {Operator("", "If", 1), Operator("", "Bernoulli", 1), Operator("", "Relu", 1)}
    (found,) = read_onnx(path).operators.values()
    assert expected == found
    assert Facts("it draws random numbers", control_flow="If") == facts_of(path)


def test_functions_of_the_file_count_as_what_is_in_them(tmp_path: Path) -> None:
    path = onnx_file(tmp_path, NOISY)
    (found,) = read_onnx(path).operators.values()
    assert {Operator("", "RandomUniformLike", 1)} == found
    assert Facts("it draws random numbers") == facts_of(path)


@pytest.mark.parametrize(
    ("layers", "facts"),
    [
        ("y = Dropout (x)", Facts()),
        ("y = Dropout (x, ratio, train)", Facts("it draws random numbers")),
        ("y = Bernoulli (x)", Facts("it draws random numbers")),
        ("y = com.microsoft.BiasDropout (x, x)", Facts("it draws random numbers")),
        ("y = com.acme.Odd (x)", Facts("it has operators of com.acme, which may keep something")),
        ("y = Div (x, x)", Facts()),
        ("i = Cast <to = 7> (x) j = Div (i, i) y = Cast <to = 1> (j)", Facts(divides=True)),
    ],
)
def test_what_an_onnx_model_may_keep_or_divide(tmp_path: Path, layers: str, facts: Facts) -> None:
    text = f"{HEAD} g (float[4] x) => (float[4] y) <float ratio = {{0.5}}, bool train = {{1}}>"
    assert facts == facts_of(onnx_file(tmp_path, f"{text} {{ {layers} }}"))


@pytest.mark.parametrize(
    ("name", "keeps", "operators"),
    [
        ("cnn_float32", "", 13),
        ("control_flow", "", 7),
        ("variable", "it keeps variables", 10),
        ("hash_table", "it keeps hash tables", 7),
        ("variable_tensor", "it keeps variables", 3),
        ("custom_in_between", "it has custom operators, which may keep something", 3),
    ],
)
def test_what_a_tflite_model_may_keep(name: str, keeps: str, operators: int) -> None:
    assert Facts(keeps, operators=operators) == facts_of(model_file(name))
