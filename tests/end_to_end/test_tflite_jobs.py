"""Small ``.tflite`` models, sliced and run by mpirun, against the unsliced ones."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from command_line import rankslice_process
from litert import interpreter
from open_tflite_models import rows_model
from real_jobs import check_exact, verified
from tflite_models import model_file

from rankslice.framework.plan import Plan
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.frontend.formats.tflite.reader import read_tflite
from rankslice.measurement.verify import Verification
from rankslice.session.building.build import Build, BuildOptions, build

CORES = sorted(os.sched_getaffinity(0))
FRAMES = 4
KEYS = [f"local_cpu{CORES[0]}", f"local_cpu{CORES[-1]}.2", f"local_cpu{CORES[0]}.3"]

assert interpreter


def sliced(
    model: Path,
    ranks: dict[str, int],
    folder: Path,
    shapes: dict[str, tuple[int, ...]] | None = None,
) -> Build:
    layers: dict[str, list[str]] = {}
    for layer, rank in ranks.items():
        layers.setdefault(KEYS[rank], []).append(layer)
    mapping = folder / "mapping.json"
    mapping.write_text(json.dumps(layers))
    options = BuildOptions(share_cores=True, sizes=GivenSizes(shapes or {}))
    return build(model, mapping, "local", folder / "out", options)


def run_sliced(
    model: Path,
    ranks: dict[str, int],
    folder: Path,
    *,
    exact: bool = True,
    shapes: dict[str, tuple[int, ...]] | None = None,
) -> tuple[Plan, Verification]:
    built = sliced(model, ranks, folder, shapes)
    return built.plan, verified(built.folder, FRAMES, exact=exact)


@pytest.mark.ci
def test_what_litert_says_of_its_delegate_is_not_shown(tmp_path):
    sliced(model_file("cnn_float32"), in_turn(model_file("cnn_float32"), 1), tmp_path)
    ended = rankslice_process("run", tmp_path / "out", "--frames", "2", "--verify")
    assert (0, "") == (ended.code, ended.err)
    assert "verify passed" in ended.out


def in_turn(model: Path, ranks: int) -> dict[str, int]:
    layers = read_tflite(model).graph.layers
    return {layer.name: (number // 2) % ranks for number, layer in enumerate(layers)}


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("cnn_int8", 3),
        pytest.param("cnn_float16", 2, marks=pytest.mark.ci),
        pytest.param("control_flow", 3, marks=pytest.mark.ci),
    ],
)
def test_an_interleaved_job_gives_the_bits_of_the_unsliced_model(name, ranks, tmp_path):
    plan, verdict = run_sliced(model_file(name), in_turn(model_file(name), ranks), tmp_path)
    assert ("", True, FRAMES) == (verdict.complaint, verdict.bit_equal, verdict.frames)
    assert "tflite" == plan.model.format
    assert {".tflite"} == {Path(segment.file).suffix for segment in plan.segments}


@pytest.mark.ci
def test_a_job_as_deployed_gives_the_unsliced_models_results(tmp_path):
    model = model_file("cnn_float32")
    _, verdict = run_sliced(model, in_turn(model, 2), tmp_path, exact=False)
    assert ("", FRAMES) == (verdict.complaint, verdict.frames)


@pytest.mark.ci
def test_a_variable_keeps_its_value_from_frame_to_frame(tmp_path):
    model = model_file("variable")
    apart = ("MUL", "RELU")
    layers = read_tflite(model).graph.layers
    ranks = {layer.name: int(layer.op in apart and layer.name != "MUL_8") for layer in layers}
    _, verdict = run_sliced(model, ranks, tmp_path)
    assert ("", True, FRAMES) == (verdict.complaint, verdict.bit_equal, verdict.frames)


@pytest.mark.ci
def test_inputs_of_another_size_are_followed_through_the_job(tmp_path):
    model = model_file("open_batch")
    shapes = {read_tflite(model).graph.inputs[0].name: (3, 8, 8, 1)}
    plan, verdict = run_sliced(model, in_turn(model, 2), tmp_path, shapes=shapes)
    assert ("", True, FRAMES) == (verdict.complaint, verdict.bit_equal, verdict.frames)
    assert (3, 3) == next(t.shape for t in plan.job.tensors.values() if t.name == plan.outputs[0])


@pytest.mark.ci
@pytest.mark.parametrize("exact", [True, False])
def test_variables_begin_alike_where_inputs_have_another_size(exact, tmp_path):
    model = model_file("open_variable")
    graph = read_tflite(model).graph
    ranks = {layer.name: int(layer.op in ("MUL", "RELU")) for layer in graph.layers}
    assert 2 == len(set(ranks.values()))
    shapes = {graph.inputs[0].name: (3, 4)}
    _, verdict = run_sliced(model, ranks, tmp_path, shapes=shapes, exact=exact)
    assert ("", True, FRAMES) == (verdict.complaint, verdict.bit_equal, verdict.frames)


@pytest.mark.ci
def test_tensors_without_names_of_their_own_arrive(tmp_path):
    model = model_file("same_names")
    _, verdict = run_sliced(model, in_turn(model, 2), tmp_path)
    assert ("", True, FRAMES) == (verdict.complaint, verdict.bit_equal, verdict.frames)


def test_a_job_gives_the_bits_of_the_unsliced_model_where_the_data_decide_sizes(tmp_path):
    model = rows_model(tmp_path)
    rows = np.random.default_rng(0).normal(size=(8, 12, 4)).astype(np.float32)
    rows[2:4] = -1  # nothing is found
    np.savez(tmp_path / "frames.npz", rows=rows)
    names = [layer.name for layer in read_tflite(model).graph.layers]
    built = sliced(model, {name: number % 2 for number, name in enumerate(names)}, tmp_path)
    check_exact(built.folder, 8, tmp_path / "frames.npz")
