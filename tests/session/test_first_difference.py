"""The first tensor that differs, where a comparison with the unsliced model fails."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from command_line import rankslice
from damage import change_tflite_weight, change_weight
from hypothesis import given, settings, strategies as st
from jobs import FIGURE_2_RANKS, build_folder, figure_2
from onnx import helper
from quantised import averaging_cnn, images
from real_jobs import replace_file
from recorded import litert_in_halves, record, searched
from strategies import Network, assignments, networks

from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.recording import RECORD
from rankslice.backend.runtime.sinks.results import Results
from rankslice.framework.quantisers import is_quantiser
from rankslice.framework.reading.read_driver import read_driver
from rankslice.frontend.formats.onnx.reader import read_onnx
from rankslice.models import convert_digits
from rankslice.session.build_folder import read_plan
from rankslice.session.run import prepare, run
from rankslice.session.verification.first_difference import first_difference

MODELS = Path(convert_digits.__file__).parent


def submodel(folder: Path, output: str) -> Path:
    """Return the sub-model that makes a tensor."""
    job = read_driver(folder / "driver.py")
    return next(folder / s.file for s in job.segments if output in s.outputs)


@pytest.mark.ci
def test_a_changed_weight_is_found_where_it_is(copied: Path) -> None:
    change_weight(submodel(copied, "fc"), 0.5)
    ended = rankslice("run", copied, "--frames", "4", "--verify")
    assert 1 == ended.code
    shown = " ".join(ended.out.split())
    expected = "first difference: tensor 'fc' that rank 1 sends to rank 0 (frame 0) differs by "
    assert expected in shown
    assert "of its range; its inputs agree" in shown
    assert ended.err.startswith("error: verify: output 'y' differs by up to ")
    assert [] == [*copied.glob(".rankslice*")]


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    ("tensor", "place"),
    [
        ("pooled", "that rank 0 sends to ranks 1 and 2"),
        ("convolved", "that rank 2 sends to rank 0"),
        ("added", "that rank 0 sends to rank 2"),
        ("y", "that rank 2 makes"),
    ],
)
def test_every_segment_can_be_the_first_one(
    tensor: str, place: str, exact: bool, copied: Path
) -> None:
    append(submodel(copied, tensor), tensor, "Add", ["inside", "inside"])
    difference = searched(copied, RunOptions(frames=2, exact=exact), 1)
    assert difference.startswith(
        f"first difference: tensor {tensor!r} {place} (frame 1) differs by "
    )


def append(path: Path, tensor: str, operator: str, inputs: list[str]) -> None:
    """Put an operator behind the maker of a tensor, whose result is called ``inside`` then."""
    model = onnx.load(path)
    for node in model.graph.node:
        node.output[:] = ["inside" if name == tensor else name for name in node.output]
    model.graph.node.append(helper.make_node(operator, inputs, [tensor]))
    model.graph.initializer.append(helper.make_tensor("most", 1, [], [5.0]))
    replace_file(path, model.SerializeToString())


THRESHOLD = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,4] x) => (float[1,4] y) { a = Relu(x) b = Sigmoid(a) y = Neg(b) }
"""


@pytest.mark.ci
def test_the_frame_that_differs_is_run_again(tmp_path: Path) -> None:
    ranks = {"Relu_0": 0, "Sigmoid_1": 1, "Neg_2": 2}
    folder = build_folder(tmp_path, onnx.parser.parse_model(THRESHOLD), ranks)
    append(submodel(folder, "a"), "a", "Clip", ["inside", "", "most"])
    frames = np.random.default_rng(2).random((7, 1, 4), np.float32)
    frames[5, 0, 2] = 7
    np.save(tmp_path / "frames.npy", frames)
    finished = run(prepare(folder, RunOptions((str(tmp_path / "frames.npy"),))), verify=True)
    verdict = finished.summary.verify
    assert verdict is not None
    assert (False, 5) == (verdict.passed, verdict.first_frame)
    assert verdict.first_difference.startswith(
        "first difference: tensor 'a' that rank 0 sends to rank 1 (frame 5) differs by 2, "
    )


def test_a_tensor_that_changes_on_its_way_is_told(built: Path, tmp_path: Path) -> None:
    options = RunOptions(frames=2)
    results = record(built, tmp_path / "ran", options)
    file = tmp_path / "ran" / "tensors-1"
    raw = bytearray(file.read_bytes())
    raw[raw.index(b"]]}\n") + 4 + RECORD.size + 16] ^= 1  # of what rank 1 got in frame 0
    file.write_bytes(raw)
    prepared = prepare(built, replace(options, record=tmp_path / "ran"))
    difference = first_difference(prepared, results, 0, (0, 1), None)
    expected = "first difference: rank 1 has another tensor 'pooled' than rank 0 made (frame 0)"
    assert expected == difference


def test_an_input_that_the_source_does_not_give_any_more_is_told(
    built: Path, tmp_path: Path
) -> None:
    results = record(built, tmp_path / "ran", RunOptions(frames=2, seed=1))
    prepared = prepare(built, RunOptions(frames=2, seed=2, record=tmp_path / "ran"))
    difference = first_difference(prepared, results, 0, (0, 1), None)
    assert difference.startswith("first difference: the input 'x' (frame 0) differs by ")
    assert difference.endswith(" from what the source gives here")


def test_results_that_differ_though_no_tensor_does_are_told_as_such(copied: Path) -> None:
    difference = searched(copied, RunOptions(frames=3), 1, change=1.0)
    assert "frame 1 agrees when it is run again: results vary from run to run" == difference
    difference = searched(copied, RunOptions(frames=3), 1)
    assert "no tensor at a cut differs from an unsliced model that also outputs these" in difference


def test_only_the_rank_whose_turn_it_is_counts(tmp_path: Path) -> None:
    folder = build_folder(tmp_path, figure_2(), FIGURE_2_RANKS, weights={1: (1, 1)})
    plan = read_plan(folder)
    places = {}
    for path in (folder / s.file for s in plan.segments if "fc" in s.outputs):
        broken = Path(shutil.copytree(folder, tmp_path / path.stem, symlinks=True))
        change_weight(broken / path.relative_to(folder), 0.5)
        differences = [searched(broken, RunOptions(frames=2), frame) for frame in (0, 1)]
        (place,) = (n for n, text in enumerate(differences) if "tensor 'fc' that rank" in text)
        assert "no tensor at a cut differs" in differences[1 - place]
        places[path] = place
    assert {0, 1} == {*places.values()}


@pytest.mark.ci
def test_what_the_engine_merges_in_the_slices_alone_is_told_as_such(tmp_path: Path) -> None:
    model = averaging_cnn(tmp_path, "QInt8")
    names = [layer.name for layer in read_onnx(model).graph.layers if not is_quantiser(layer)]
    ranks = {name: int(n >= names.index("pool")) for n, name in enumerate(names)}
    folder = build_folder(tmp_path, model, ranks)
    frames = tmp_path / "frames.npz"
    np.savez(frames, image=np.stack([image["image"] for image in images(2)]))
    finished = run(prepare(folder, RunOptions((str(frames),))), verify=True)
    verdict = finished.summary.verify
    assert verdict is not None
    if verdict.passed:
        pytest.skip("onnxruntime merges signed averages on this kind of processor")
    assert "no tensor at a cut differs" in verdict.first_difference
    assert verdict.first_difference.endswith("the engine fuses layers across the cuts")


@pytest.mark.ci
def test_litert_is_searched_too(tmp_path: Path) -> None:
    folder = litert_in_halves("cnn_float32", tmp_path)
    first = read_plan(folder).segments[0]
    change_tflite_weight(folder / first.file)
    difference = searched(folder, RunOptions(frames=1))
    assert any(
        difference.startswith(f"first difference: tensor {tensor!r} that rank 0 sends to rank 1")
        for tensor in first.outputs
    )


@pytest.mark.ci
@pytest.mark.parametrize("name", ["cnn_int8", "open_attention", "control_flow", "variable_tensor"])
def test_no_tensor_of_a_sound_litert_job_differs(name: str, tmp_path: Path) -> None:
    folder = litert_in_halves(name, tmp_path)
    assert "no tensor at a cut differs" in searched(folder, RunOptions(frames=3, exact=True), 2)


@pytest.mark.ci
@settings(max_examples=15)
@given(data=st.data(), network=networks(rows="n"))
def test_no_tensor_of_a_sound_job_differs(data: st.DataObject, network: Network) -> None:
    ranks = data.draw(assignments(network.graph()))
    with tempfile.TemporaryDirectory() as temporary:
        folder = build_folder(Path(temporary), network.model(), ranks, {"n": (5,)})
        difference = searched(folder, RunOptions(frames=3, exact=True), 2)
        assert not difference or "no tensor at a cut differs" in difference


def test_a_model_that_is_not_cut_is_not_searched(tmp_path: Path) -> None:
    folder = build_folder(tmp_path, figure_2(), dict.fromkeys(FIGURE_2_RANKS, 0))
    prepared = prepare(folder, RunOptions(frames=2))
    results = Results("", (), np.empty(0), ())
    assert "" == first_difference(prepared, results, 0, (0, 1), None)


def test_what_cannot_be_searched_says_why(built: Path) -> None:
    results = Results("", (), np.empty(0), ())
    why = "which tensor differs first is not known: "
    surviving = replace(prepare(built, RunOptions(frames=2)), launch=())
    difference = first_difference(surviving, results, 0, (0, 1), None)
    assert f"{why}a run with --survive is not repeated" == difference


@pytest.mark.parametrize(
    ("tensorflow", "reason"),
    [
        (None, "converting model.onnx once more needs TensorFlow: pip install 'rankslice[keras]'"),
        ("", "int8 models cannot be converted once more without the representative frames"),
    ],
)
def test_a_keras_model_that_cannot_be_converted_once_more_says_why(
    tensorflow: str | None, reason: str, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{first_difference.__module__}.find_spec", lambda name: tensorflow)
    shutil.copyfile(MODELS / "digits-int8.tflite", copied / "model.onnx")
    results = Results("", (), np.empty(0), ())
    difference = first_difference(prepare(copied, RunOptions(frames=2)), results, 0, (0, 1), None)
    assert f"which tensor differs first is not known: {reason}" == difference
