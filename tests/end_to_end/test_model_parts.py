"""A detector in two formats, run by mpirun, against its parts run one after the other."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import rankslice
from litert import Runner
from onnx_models import run as run_onnx
from real_jobs import check_exact, shared_keys, verified

from rankslice.backend.runtime.sinks.results import read_results
from rankslice.session.building.build import BuildOptions, build

MODELS = Path(__file__).parents[2] / "models"
DETECTOR = MODELS / "digit_detector-parts.yaml"
FRAMES = 5

pytestmark = pytest.mark.ci


def built(folder: Path, *layers: list[str]) -> Path:
    mapping = folder / "mapping.json"
    mapping.write_text(json.dumps(dict(zip(shared_keys(len(layers)), layers, strict=True))))
    options = BuildOptions(share_cores=True)
    return build(DETECTOR, mapping, "local", folder / "out", options).folder


def test_a_backbone_for_litert_and_a_head_in_onnx_give_what_they_give_one_after_the_other(tmp_path):
    folder = built(tmp_path, ["backbone"], ["head"])
    images = np.random.default_rng(1).random((FRAMES, 1, 192, 256, 3), np.float32)
    np.save(tmp_path / "images.npy", images)
    files = (tmp_path / "images.npy", "--results", tmp_path / "results.bin")
    ended = rankslice("run", folder, "--input", *files, "--verify", "exact")
    assert 0 == ended.code, ended.err
    assert "bit-equal" in ended.out
    results = read_results(tmp_path / "results.bin")
    backbone = Runner(MODELS / "digit_detector-backbone.tflite")
    for frame, image in enumerate(images):
        (features,) = backbone.run([image])
        inputs = {"features": np.ascontiguousarray(features.transpose(0, 3, 1, 2))}
        expected = run_onnx(MODELS / "digit_detector-head.onnx", inputs)
        for number, name in enumerate(("boxes", "scores", "labels")):
            np.testing.assert_array_equal(expected[name], results.frames(number)[frame])


def test_a_rank_runs_both_engines_and_cuts_need_not_be_between_the_parts(tmp_path):
    folder = built(
        tmp_path,
        ["backbone/QUANTIZE_0..backbone/CONV_2D_6", "head/all scores..head/labels"],
        ["backbone/CONV_2D_7..head/probabilities"],
    )
    check_exact(folder, FRAMES)
    assert verified(folder, FRAMES, exact=False).passed
