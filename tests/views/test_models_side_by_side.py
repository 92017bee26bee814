"""``inspect A --against B``: figures of two models, and where they differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import rankslice
from litert_engines import needs_litert

MODELS = Path(__file__).parents[2] / "models"
PAIR = MODELS / "digits-int8.tflite", MODELS / "digits.tflite"


def compared(first: Path, other: Path, *options: str) -> dict[str, tuple[list[Any], bool]]:
    ended = rankslice("inspect", first, "--against", other, "--json", "-", *options)
    assert (0, "") == (ended.code, ended.err)
    record = json.loads(ended.out)
    assert ("rankslice-comparison", [str(first), str(other)]) == (
        record["format"],
        record["models"],
    )
    return {row["name"]: (row["values"], row["differs"]) for row in record["figures"]}


def test_models_of_two_formats_have_one_table():
    figures = compared(MODELS / "digits.onnx", MODELS / "digits.tflite")
    assert (["onnx", "tflite"], True) == figures["format"]
    assert False is figures["MACs"][1]
    assert ([5, None], True) == figures["layers: Conv"]
    inputs = ["image 1x1x8x8 float32", "image 1x8x8x1 float32"]
    assert (inputs, True) == figures["input 0"]


def test_the_terminal_marks_what_differs():
    ended = rankslice("inspect", PAIR[0], "--against", PAIR[1])
    lines = {line.split("  ")[0].strip(): line.split() for line in ended.out.splitlines()}
    assert ["layers", "13", "11", "differs"] == lines["layers"]
    assert ["MACs", "864", "k", "864", "k"] == lines["MACs"]


@needs_litert
def test_what_engines_made_of_both_is_compared_too():
    figures = compared(*PAIR, "--internals")
    assert ([2, 1], True) == figures["partitions"]
    assert ([13, 11], True) == figures["nodes, file"]
    assert all(value > 0 for value in figures["time of the nodes, us"][0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--against", PAIR[1], "--object"), "--object"),
        (("--against", "nothing.onnx"), "nothing.onnx: "),
    ],
)
def test_what_cannot_be_compared_is_refused(options, message):
    ended = rankslice("inspect", PAIR[0], *options)
    assert ended.code
    assert message in ended.err


def test_a_build_folder_is_refused(tmp_path):
    assert 0 == rankslice("build", PAIR[0], "--cuts", "3", "--out", tmp_path / "out").code
    ended = rankslice("inspect", PAIR[1], "--against", tmp_path / "out")
    assert 1 == ended.code
    assert ended.err.endswith("is a build folder; give models\n")
