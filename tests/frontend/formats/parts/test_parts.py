from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from model_parts import FEATURES, HEAD, PARTS, write_head, write_mapping, write_parts
from onnx_models import run, save

from rankslice.framework.errors import RankSliceError
from rankslice.framework.files.hashing import file_sha256
from rankslice.frontend.formats import model_sha256, read_model
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.frontend.formats.parts.reader import read_parts
from rankslice.frontend.partition.partition import partition
from rankslice.session.build_folder import built_model, read_plan
from rankslice.session.building.build import build


def messages(path: Path, sizes: GivenSizes | None = None) -> list[str]:
    with pytest.raises(RankSliceError) as raised:
        read_model(path, sizes or GivenSizes())
    return [str(mistake) for mistake in raised.value.mistakes]


def of_text(folder: Path, *changes: tuple[str, str]) -> list[str]:
    text = PARTS
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return messages(write_parts(folder, text))


def test_parts_make_one_graph_whose_names_begin_with_the_parts(tmp_path):
    graph = read_model(write_parts(tmp_path)).graph
    assert ("backbone/QUANTIZE_0", "head/Softmax") == (graph.layers[0].name, graph.layers[-1].name)
    assert [("image", (1, 8, 8, 1))] == [(t.name, t.shape) for t in graph.inputs]
    assert [("probabilities", (1, 10))] == [(t.name, t.shape) for t in graph.outputs]
    assert {"tflite", "onnx"} == {layer.part.format for layer in graph.layers}
    (joint,) = (layer for layer in graph.layers if layer.op == "DequantizeLinear")
    assert [f"backbone/{FEATURES}"] == [tensor.name for tensor in joint.inputs]


def test_layers_of_two_parts_on_one_rank_are_two_segments(tmp_path):
    graph = read_model(write_parts(tmp_path)).graph
    cut = partition(graph, {layer.name: 0 for layer in graph.layers})
    assert ["backbone", "head"] == [segment.layers[0].part.name for segment in cut.segments]


def test_an_open_size_of_a_part_is_that_of_what_feeds_it(tmp_path):
    path = write_parts(tmp_path, head=HEAD.replace("int8[1,192]", "int8[N,192]"))
    assert (1, 10) == read_model(path).graph.outputs[0].shape


def test_an_output_that_no_part_makes_is_named_where_it_would_fix_an_open_size(tmp_path):
    text = PARTS.replace(f"backbone/{FEATURES}", "backbone/flat")
    path = write_parts(tmp_path, text, HEAD.replace("int8[1,192]", "int8[N,192]"))
    (message,) = messages(path)
    assert "backbone.tflite has no output 'flat'" in message


def test_a_dequantiser_whose_result_another_part_reads_is_not_copied(tmp_path):
    first = HEAD.replace("scores = MatMul(real, weight)\n  probabilities = Softmax(scores)", "")
    write_head(
        tmp_path / "real.onnx", first.replace("probabilities", "real").replace(",10", ",192")
    )
    rest = HEAD.replace("int8[1,192] features", "float[1,192] real").replace(
        "real = DequantizeLinear(features, scale, zero)", ""
    )
    text = PARTS.replace(f"features: backbone/{FEATURES}", "real: middle/real").replace(
        "  head:",
        f"  middle: {{onnx: real.onnx, inputs: {{features: backbone/{FEATURES}}}}}\n  head:",
    )
    graph = read_model(write_parts(tmp_path, text, rest)).graph
    ranks = {layer.name: 0 for layer in graph.layers}
    ranks.pop("middle/DequantizeLinear")
    with pytest.raises(KeyError):
        partition(graph, ranks)
    assert 3 == len(partition(graph, {**ranks, "middle/DequantizeLinear": 0}).segments)


def test_the_digest_is_of_the_parts_file_and_all_that_it_names(tmp_path):
    path = write_parts(tmp_path)
    digests = [file_sha256(tmp_path / n) for n in ("parts.yaml", "backbone.tflite", "head.onnx")]
    assert hashlib.sha256("\n".join(digests).encode()).hexdigest() == model_sha256(path)


def test_equal_parts_are_built_to_equal_bytes_with_an_engine_for_each_segment(tmp_path):
    path = write_parts(tmp_path)
    mapping = write_mapping(tmp_path, {"local_cpu0": ["backbone", "head"]})
    folders = [build(path, mapping, "local", tmp_path / name).folder for name in ("one", "two")]
    once, again = (
        {
            file.relative_to(folder): file.read_bytes()
            for file in folder.rglob("*")
            if file.is_file()
        }
        for folder in folders
    )
    assert once == again
    (rank,) = read_plan(folders[0]).ranks
    assert ("litert", "onnxruntime") == rank.engines
    assert ["", "onnxruntime"] == [segment.engine for segment in rank.runs]
    wanted = (folders[0] / "packages" / "local" / "requirements.txt").read_text()
    assert "ai-edge-litert" in wanted
    assert "onnxruntime" in wanted


def test_a_rank_runs_the_engine_of_its_part(tmp_path):
    path = write_parts(tmp_path)
    mapping = write_mapping(tmp_path, {"local_cpu0": ["backbone"], "local_cpu1": ["head"]})
    plan = build(path, mapping, "local", tmp_path / "out").plan
    assert ["litert", "onnxruntime"] == [rank.engine for rank in plan.ranks]
    assert ["tflite", "onnx"] == [s.file.rpartition(".")[2] for s in plan.segments]


def test_a_gpu_is_refused_parts_of_both_formats(tmp_path):
    (tmp_path / "boards.yaml").write_text("boards: {edge: {cores: 1, gpu: {engine: litert}}}")
    path = write_parts(tmp_path)
    mapping = write_mapping(tmp_path, {"edge_gpu": ["backbone", "head"]})
    with pytest.raises(RankSliceError, match=r"'litert' of the gpu runs no \.onnx sub-models"):
        build(path, mapping, str(tmp_path / "boards.yaml"), tmp_path / "out")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "onnx: head.onnx",
            "onxx: head.onnx",
            "parts.head: unknown key 'onxx'; did you mean 'onnx'",
        ),
        ("onnx: head.onnx", "onnx: ../head.onnx", "leads out of the folder"),
        ("onnx: head.onnx", "onnx: /tmp/head.onnx", "leads out of the folder"),
        ("onnx: head.onnx", "onnx: head.tflite", "found 'head.tflite'"),
        (
            "    onnx: head.onnx\n",
            "",
            "parts.head: names no model file; expected onnx, tflite or keras",
        ),
        ("onnx: head.onnx", "keras: head.onnx", "a file in the folder of the parts file, such as"),
        (
            "tflite: backbone.tflite",
            "tflite: backbone.tflite\n    keras: backbone.keras",
            "names a Keras file and the .tflite file that it would be converted to; leave one",
        ),
        ("backbone/", "backbnoe/", "no part 'backbnoe'; did you mean 'backbone'?"),
        (f"backbone/{FEATURES}", "backbone/flat", "backbone.tflite has no output 'flat'"),
        ("head/probabilities", "head/scores", "head.onnx has no output 'scores'"),
        ("head/probabilities", "probabilities", "expected part/tensor: head/boxes"),
        (
            f"backbone/{FEATURES}",
            "head/probabilities",
            "'head' -> 'head' feed each other in a cycle",
        ),
    ],
)
def test_a_mistake_in_a_parts_file_is_named_with_its_place(tmp_path, old, new, expected):
    (message,) = of_text(tmp_path, (old, new))
    assert message.startswith(("parts.yaml: ", str(tmp_path)))
    assert expected in message


def test_all_mistakes_are_named_at_once(tmp_path):
    found = of_text(tmp_path, ("{image: image}", "{imag: image}"), ("head/prob", "heat/prob"))
    assert [
        "parts.yaml: outputs.probabilities: there is no part 'heat'; did you mean 'head'?"
    ] == found
    found = of_text(tmp_path, ("{image: image}", "{imag: image}"))
    assert [
        "parts.yaml: parts.backbone.inputs: backbone.tflite has no input 'imag'; did you mean"
        " 'image'?",
        "parts.yaml: parts.backbone.inputs: nothing feeds the input 'image' of backbone.tflite;"
        " give an output of a part, or a name of your own",
    ] == found


@pytest.mark.parametrize("declared", ["int8[1,96]", "uint8[1,192]", "int8[192]"])
def test_a_joint_of_other_types_or_shapes_names_both_sides(tmp_path, declared):
    path = write_parts(tmp_path, head=HEAD.replace("int8[1,192] features", f"{declared} features"))
    kind, _, sizes = declared.rstrip("]").partition("[")
    shown = f"{kind} [{sizes.replace(',', ', ')}]"
    assert [
        f"parts.yaml: parts.head.inputs.features: '{FEATURES}' of backbone.tflite is"
        f" int8 [1, 192], but 'features' of head.onnx is {shown}; expected the same"
    ] == messages(path)


def test_a_link_out_of_the_folder_is_not_followed(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    path = write_parts(folder)
    (folder / "head.onnx").rename(tmp_path / "head.onnx")
    (folder / "head.onnx").symlink_to(tmp_path / "head.onnx")
    (message,) = messages(path)
    assert "'head.onnx' is a link to a file outside of the folder of parts.yaml" in message


IMAGES = """
<ir_version: 8, opset_import: ["" : 17]>
images (float[1,2,3,4] x) => (float[1,2,3,4] y) { y = Relu(x) }
"""

LAYOUTS = """
parts:
  first: {onnx: first.onnx, inputs: {x: image}, layouts: {x: nhwc-to-nchw}}
  second: {onnx: second.onnx, inputs: {x: first/y}, layouts: {x: nchw-to-nhwc}}
outputs: {result: second/y}
"""


def test_a_part_in_onnx_gets_a_layer_that_changes_the_layout(tmp_path):
    save(tmp_path, IMAGES, "first.onnx")
    save(tmp_path, IMAGES.replace("2,3,4", "3,4,2"), "second.onnx")
    (tmp_path / "parts.yaml").write_text(LAYOUTS)
    graph = read_model(tmp_path / "parts.yaml").graph
    assert [(1, 3, 4, 2)] == [tensor.shape for tensor in graph.inputs]
    assert ["Transpose", "Relu"] * 2 == [layer.op for layer in graph.layers]
    mapping = write_mapping(tmp_path, {"local_cpu0": ["first"], "local_cpu1": ["second"]})
    folder = build(tmp_path / "parts.yaml", mapping, "local", tmp_path / "out").folder
    values = np.arange(-12, 12, dtype=np.float32).reshape(1, 3, 4, 2)
    result = values
    for name in ("local_cpu0", "local_cpu1"):
        path = folder / "submodels" / f"{name}.0.onnx"
        (brought,) = read_model(path).graph.inputs
        (result,) = run(path, {brought.name: result}).values()
    assert np.array_equal(np.maximum(values, 0), result)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("nhwc-to-nchw", "nhwc", "'nhwc' is not nhwc-to-nchw or nchw-to-nhwc"),
        ("layouts: {x: nchw", "layouts: {y: nchw", "'y' is none of the part's inputs"),
        (
            ", layouts: {x: nchw-to-nhwc}",
            "",
            "'y' of first.onnx is float32 [1, 2, 3, 4], but 'x' of second.onnx is"
            " float32 [1, 3, 4, 2]; expected the same: layouts: {x: nchw-to-nhwc} changes it",
        ),
        ("nchw-to-nhwc", "nhwc-to-nchw", "expected the same after nhwc-to-nchw"),
    ],
)
def test_a_mistake_about_a_layout_is_named_with_its_place(tmp_path, old, new, expected):
    save(tmp_path, IMAGES, "first.onnx")
    save(tmp_path, IMAGES.replace("2,3,4", "3,4,2"), "second.onnx")
    (tmp_path / "parts.yaml").write_text(LAYOUTS.replace(old, new))
    (message,) = messages(tmp_path / "parts.yaml")
    assert "parts.yaml: parts." in message
    assert expected in message


def test_the_part_that_feeds_one_for_litert_changes_the_layout(tmp_path):
    save(tmp_path, IMAGES.replace("2,3,4", "1,8,8"), "first.onnx")
    write_parts(tmp_path)
    (tmp_path / "parts.yaml").write_text("""
parts:
  first: {onnx: first.onnx, inputs: {x: image}}
  backbone:
    tflite: backbone.tflite
    inputs: {image: first/y}
    layouts: {image: nchw-to-nhwc}
outputs: {features: backbone/flatten_1/Reshape}
""")
    model = read_model(tmp_path / "parts.yaml")
    turned = next(layer for layer in model.graph.layers if layer.op == "Transpose")
    assert ("first", (1, 8, 8, 1)) == (turned.part.name, turned.outputs[0].shape)


SCORES = """
<ir_version: 8, opset_import: ["" : 17]>
scores (float[1,8,8,1] pixels) => (int8[1,192] flat) {
  shape = Constant <value_ints = [1, 64]> ()
  row = Reshape (pixels, shape)
  scaled = Concat <axis = 1> (row, row, row)
  flat = Cast <to = 3> (scaled)
}
"""

ALTERNATIVES = PARTS.replace("inputs: {image", "onnx: scores.onnx\n    inputs: {image", 1)


@pytest.mark.parametrize(
    ("board", "suffix"),
    [
        ({}, "tflite"),
        ({"cpu": {"engine": "onnxruntime"}}, "onnx"),
        ({"npu": {"engine": "litert"}}, "tflite"),
    ],
)
def test_a_part_is_taken_in_the_format_that_its_accelerator_runs(tmp_path, board, suffix):
    path = write_parts(tmp_path, ALTERNATIVES)
    save(tmp_path, SCORES, "scores.onnx")
    (tmp_path / "boards.yaml").write_text(json.dumps({"boards": {"edge": {"cores": 2, **board}}}))
    key = "edge_npu@0" if "npu" in board else "edge_cpu0"
    mapping = write_mapping(tmp_path, {key: ["backbone"], "edge_cpu1": ["head"]})
    built = build(path, mapping, str(tmp_path / "boards.yaml"), tmp_path / "out")
    first, second = built.plan.segments
    assert [suffix, "onnx"] == [s.file.rpartition(".")[2] for s in (first, second)]
    assert (f"backbone/{FEATURES}",) == first.outputs == second.inputs
    again = built_model(built.folder, built.plan, "test").graph
    assert suffix == again.layers[0].part.format


def test_files_of_a_part_that_differ_at_its_edges_are_refused(tmp_path):
    path = write_parts(tmp_path, ALTERNATIVES)
    other = SCORES.replace("int8[1,192] flat", "int8[1,192] flat, float[1,64] row")
    save(tmp_path, other, "scores.onnx")
    with pytest.raises(RankSliceError) as raised:
        read_parts(path, chosen={"backbone": "onnx"})
    assert "parts.yaml: parts.backbone: scores.onnx has flat: int8" in str(raised.value)
