"""Models whose sizes change from frame to frame, from the command line to the results.

A detector whose boxes a non-maximum suppression chooses, an encoder of texts of any length and
number, and a model that reads what the detector wrote.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command_line import rankslice, succeed
from jobs import write_mapping
from numpy.typing import NDArray

DETECTOR = """<ir_version: 8, opset_import: ["" : 17]>
detector (float[1,60,6] x) => (float[?,4] boxes, float[?] scores)
<int64[1] at_most = {50}, float[1] overlap = {0.5}, float[1] least = {0.9},
 int64[1] first = {0}, int64[1] third = {2}, int64[1] fourth = {3}, int64[1] fifth = {4},
 int64[1] sixth = {5}, int64[1] axis = {2}, int64[1] columns = {1}, int64[1] flat = {-1},
 int64[2] rows = {-1, 4}> {
  [Boxes] all_boxes = Slice (x, first, fifth, axis)
  [Logits] logits = Slice (x, fifth, sixth, axis)
  [Sigmoid] certainty = Sigmoid (logits)
  [Transpose] by_class = Transpose <perm = [0, 2, 1]> (certainty)
  [Suppress] chosen = NonMaxSuppression (all_boxes, by_class, at_most, overlap, least)
  [Numbers] numbers = Slice (chosen, third, fourth, columns)
  [FlatNumbers] indices = Reshape (numbers, flat)
  [FlatBoxes] flat_boxes = Reshape (all_boxes, rows)
  [GatherBoxes] picked = Gather <axis = 0> (flat_boxes, indices)
  [Scale] boxes = Mul (picked, size)
  [FlatScores] flat_scores = Reshape (certainty, flat)
  [GatherScores] scores = Gather <axis = 0> (flat_scores, indices)
}"""
DETECTOR_LAYERS = [
    *("Boxes", "Logits", "Sigmoid", "Transpose", "Suppress", "Numbers", "FlatNumbers"),
    *("FlatBoxes", "GatherBoxes", "Scale", "FlatScores", "GatherScores"),
]

AREAS = """<ir_version: 8, opset_import: ["" : 17]>
areas (float[n,4] boxes) => (float[n] area)
<int64[1] begin = {0}, int64[1] half = {2}, int64[1] end = {4}, int64[1] axis = {1}> {
  [Near] near = Slice (boxes, begin, half, axis)
  [Far] far = Slice (boxes, half, end, axis)
  [Extent] extent = Sub (far, near)
  [Area] area = ReduceProd <axes = [1], keepdims = 0> (extent)
}"""
AREAS_LAYERS = ["Near", "Far", "Extent", "Area"]

ENCODER = """<ir_version: 8, opset_import: ["" : 17]>
encoder (float[batch,seq,8] x) => (float[batch,seq,8] y) {
  [Query] query = MatMul (x, w)
  [Turned] turned = Transpose <perm = [0, 2, 1]> (x)
  [Scores] scores = MatMul (query, turned)
  [Weights] weights = Softmax (scores)
  [Mix] mixed = MatMul (weights, x)
  [Add] y = Add (mixed, x)
}"""
ENCODER_LAYERS = ["Query", "Turned", "Scores", "Weights", "Mix", "Add"]


def contiguous(layers: Sequence[str]) -> dict[str, int]:
    """Give each of three ranks a range of layers."""
    return {layer: 3 * number // len(layers) for number, layer in enumerate(layers)}


def interleaved(layers: Sequence[str]) -> dict[str, int]:
    """Give three ranks layers in turn."""
    return {layer: number % 3 for number, layer in enumerate(layers)}


def built(folder: Path, text: str, ranks: Mapping[str, int], *options: str) -> Path:
    """Build a model of those above for three ranks of this machine; return the build folder."""
    model = onnx.parser.parse_model(text)
    random = np.random.default_rng(1)
    for name, shape in {"w": (8, 8), "size": (1, 4)}.items():
        if any(name in node.input for node in model.graph.node):
            values = random.standard_normal(shape).astype(np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    folder.mkdir(exist_ok=True)
    onnx.save(model, folder / "model.onnx")
    mapping = write_mapping(folder / "mapping.json", ranks)
    out = folder / "out"
    command = ("build", folder / "model.onnx", "--mapping", mapping, "--share-cores")
    succeed(*command, "--out", out, *options)
    return out


def frames_file(path: Path, name: str, frames: Sequence[NDArray[np.float32]]) -> Path:
    np.savez(path, **{f"{name}/{number}": values for number, values in enumerate(frames)})
    return path


def pictures(*objects: int) -> NDArray[np.float32]:
    """Return what a detector sees before the suppression: frames with so many objects."""
    frames = np.zeros((len(objects), 1, 60, 6), np.float32)
    random = np.random.default_rng(2)
    corners = np.arange(60, dtype=np.float32)[:, None] * 10
    frames[:, 0, :, :4] = corners + np.array([0, 0, 5, 5], np.float32)
    frames[:, 0, :, :4] += random.uniform(0, 1, (len(objects), 60, 4)).astype(np.float32)
    frames[..., 4] = random.uniform(-5, 0, (len(objects), 1, 60))
    for frame, count in zip(frames, objects, strict=True):
        sure = random.choice(60, count, replace=False)
        frame[0, sure, 4] = random.uniform(3, 6, count)
    return frames


def run_exactly(out: Path, frames: Path) -> Path:
    """Run frames; return the results, whose every bit is the unsliced model's."""
    results = out.parent / "results.npz"
    succeed("run", out, "--input", frames, "--verify", "exact", "--results", results)
    return results


def only(results: Path, output: str) -> Path:
    """Write a file with one output of some results; return its path."""
    path = results.with_name(f"{output}.npz")
    found = {name: values for name, values in arrays(results).items() if output in name}
    np.savez(path, **found)
    return path


def arrays(path: Path) -> dict[str, NDArray[Any]]:
    with np.load(path) as archive:
        return dict(archive)


def shapes_of(path: Path, output: str) -> list[tuple[int, ...]]:
    found = arrays(path)
    count = sum(name.startswith(f"{output}/") for name in found)
    return [found[f"{output}/{frame}"].shape for frame in range(count)]


OBJECTS = (0, 50, 3, 0, 17, 1, 31, 0, 50, 2)


@pytest.mark.ci
def test_detections_are_exact_and_their_shapes_are_told(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=pictures(*OBJECTS))
    out = built(tmp_path, DETECTOR, contiguous(DETECTOR_LAYERS))
    figures = tmp_path / "figures.json"
    ended = succeed(
        *("run", out, "--input", tmp_path / "x.npz", "--verify", "exact", "--json", figures)
    )
    assert "output boxes: 0 to 50 x 4\noutput scores: 0 to 50\n" in ended.out
    told = json.loads(figures.read_text())["shapes"]
    assert {"boxes": [[n, 4] for n in OBJECTS], "scores": [[n] for n in OBJECTS]} == told


@pytest.mark.ci
def test_detections_across_many_cuts_are_exact_and_can_be_frames_again(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=pictures(*OBJECTS))
    out = built(tmp_path / "detector", DETECTOR, interleaved(DETECTOR_LAYERS))
    found = run_exactly(out, tmp_path / "x.npz")
    assert [(count, 4) for count in OBJECTS] == shapes_of(found, "boxes")
    out = built(tmp_path / "areas", AREAS, interleaved(AREAS_LAYERS), "--at-most", "n=50")
    areas = run_exactly(out, only(found, "boxes"))
    assert [(count,) for count in OBJECTS] == shapes_of(areas, "area")


@pytest.mark.ci
def test_texts_of_any_length_and_number_are_exact(tmp_path: Path) -> None:
    out = built(
        *(tmp_path, ENCODER, interleaved(ENCODER_LAYERS)),
        *("--at-most", "batch=3", "--at-most", "seq=20"),
    )
    random = np.random.default_rng(3)
    sizes = [(3, 20), (1, 1), (2, 0), (3, 7), (0, 5), (1, 20), (2, 13)]
    texts = [random.standard_normal((*size, 8)).astype(np.float32) for size in sizes]
    given = frames_file(tmp_path / "x.npz", "x", texts)
    assert [(*size, 8) for size in sizes] == shapes_of(run_exactly(out, given), "y")


@pytest.mark.ci
def test_frames_without_any_object_are_proven_by_the_tensors_at_cuts(tmp_path: Path) -> None:
    out = built(tmp_path, DETECTOR, contiguous(DETECTOR_LAYERS))
    np.savez(tmp_path / "x.npz", x=pictures(0, 0, 0))
    results = tmp_path / "r.npz"
    run = ("run", out, "--input", tmp_path / "x.npz", "--results", results)
    ended = succeed(*run, "--verify", "exact")
    assert "output 'boxes' is empty in every frame: inconclusive" in ended.out
    assert "the tensors at the cuts agree, and vary" in ended.out
    assert [(0, 4)] * 3 == shapes_of(results, "boxes")


@pytest.mark.ci
def test_a_frame_beyond_its_bound_ends_the_job_and_keeps_those_before(tmp_path: Path) -> None:
    out = built(tmp_path, DETECTOR, contiguous(DETECTOR_LAYERS), "--at-most", "indices=20")
    np.savez(tmp_path / "x.npz", x=pictures(*(3,) * 12, 21, *(1,) * 8))
    results = tmp_path / "r.npz"
    ended = rankslice("run", out, "--input", tmp_path / "x.npz", "--results", results)
    assert 1 == ended.code
    assert (
        "segment 0, frame 12: tensor 'indices' of shape [21] is beyond its bound [20]: build with"
        " larger ones (--at-most indices=21)"
    ) in ended.err
    kept = shapes_of(results, "boxes") if results.exists() else []
    assert f"the results of {len(kept)} finished frames" in ended.err or not kept
    assert len(kept) <= 12
    assert {(3, 4)} >= set(kept)
