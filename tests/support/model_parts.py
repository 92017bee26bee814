"""A digit classifier in two files: an int8 backbone for LiteRT, and a head in ONNX."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from rankslice.frontend.formats import read_model, submodel_files
from rankslice.frontend.formats.pieces import write_submodel
from rankslice.frontend.partition.partition import SpanSegments

INT8_DIGITS = Path(__file__).parents[2] / "models" / "digits-int8.tflite"

FEATURES = "flatten_1/Reshape"
"""What the backbone makes: int8 [1, 192]."""

PARTS = f"""
parts:
  backbone:
    tflite: backbone.tflite
    inputs: {{image: image}}
  head:
    onnx: head.onnx
    inputs: {{features: backbone/{FEATURES}}}
outputs:
  probabilities: head/probabilities
"""

HEAD = """
<ir_version: 8, opset_import: ["" : 17]>
head (int8[1,192] features) => (float[1,10] probabilities)
  <float scale = {0.05}, int8 zero = {-128}> {
  real = DequantizeLinear(features, scale, zero)
  scores = MatMul(real, weight)
  probabilities = Softmax(scores)
}
"""


def write_parts(folder: Path, text: str = PARTS, head: str = HEAD) -> Path:
    """Write the two files and a parts file into a folder; return the parts file."""
    digits = read_model(INT8_DIGITS)
    backbone = SpanSegments(digits.graph).segment(0, 9)
    path = folder / "backbone.tflite"
    write_submodel(submodel_files(digits, backbone, name=path.name), path)
    write_head(folder / "head.onnx", head)
    (folder / "parts.yaml").write_text(text)
    return folder / "parts.yaml"


def write_head(path: Path, text: str = HEAD) -> None:
    model = onnx.parser.parse_model(text)
    for node in model.graph.node:
        node.name = node.op_type
    weight = np.random.default_rng(0).normal(size=(192, 10)).astype(np.float32) / 10
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "weight"))
    onnx.save(model, path)


def write_mapping(folder: Path, mapping: Mapping[str, Sequence[str]]) -> Path:
    (folder / "mapping.json").write_text(json.dumps(mapping))
    return folder / "mapping.json"
