"""Keras files as parts of a model of several files."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from command_line import rankslice, succeed
from keras_networks import saved

from rankslice.frontend.formats import read_model
from rankslice.frontend.formats.input_shapes import GivenSizes

PARTS = """
parts:
  backbone:
    keras: backbone.keras
    inputs: {image: image}
  head:
    onnx: head.onnx
    inputs: {features: backbone/conv2}
    layouts: {features: nhwc-to-nchw}
outputs:
  means: head/means
"""

HEAD = """
<ir_version: 8, opset_import: ["" : 17]>
head (float[1,6,N,N] features) => (float[1,6,1,1] means) {
  positive = Relu(features)
  means = GlobalAveragePool(positive)
}
"""


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    import keras

    keras.utils.set_random_seed(0)
    image = keras.Input((None, None, 1), name="image")
    value = keras.layers.Conv2D(8, 3, padding="same", activation="relu", name="conv1")(image)
    value = keras.layers.BatchNormalization()(value)
    value = keras.layers.Conv2D(6, 3, strides=2, name="conv2")(value)
    saved(keras.Model(image, value), tmp_path / "backbone.keras")
    head = onnx.parser.parse_model(HEAD)
    for node in head.graph.node:
        node.name = node.op_type
    onnx.save(head, tmp_path / "head.onnx")
    (tmp_path / "parts.yaml").write_text(PARTS)
    return tmp_path / "parts.yaml"


def test_a_keras_backbone_and_a_head_in_onnx_give_what_they_give_one_after_the_other(parts):
    mapping = parts.with_name("mapping.json")
    mapping.write_text(json.dumps({"local_cpu0": ["backbone"], "local_cpu1": ["head"]}))
    out = parts.with_name("out")
    sizes = ("--shape", "image=1,8,8,1")
    ended = succeed("build", parts, "--mapping", mapping, *sizes, "--share-cores", "--out", out)
    assert "backbone.keras is converted to .tflite: the layers are those of that file" in ended.err
    assert {".tflite", ".onnx"} == {path.suffix for path in (out / "submodels").iterdir()}
    ended = succeed("run", out, "--frames", "5", "--verify", "exact")
    assert "verify passed: 5 frames compared, bit-equal" in ended.out


def test_sizes_that_a_keras_part_leaves_open_stay_open_behind_it(parts):
    graph = read_model(parts, GivenSizes(at_most={"image": (1, 9, 9, 1)})).graph
    (features,) = [tensor for tensor in graph.tensors if tensor.name == "backbone/conv2"]
    assert ((1, 4, 4, 6), [False, True, True, False]) == (
        features.shape,
        [bool(symbol) for symbol in features.symbols],
    )


def test_a_mistake_in_a_keras_part_names_the_file_that_the_user_knows(parts):
    parts.write_text(PARTS.replace("backbone/conv2", "backbone/conv3"))
    sizes = ("--shape", "image=1,8,8,1")
    ended = rankslice("inspect", parts, *sizes)
    assert 1 == ended.code
    assert "backbone.keras has no output 'conv3'; did you mean 'conv2'?" in ended.err
    parts.with_name("backbone.keras").write_bytes(b"PK")
    ended = rankslice("inspect", parts, *sizes)
    assert 1 == ended.code
    assert "backbone.keras: is a damaged .keras archive" in ended.err
