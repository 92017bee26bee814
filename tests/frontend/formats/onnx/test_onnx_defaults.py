"""Inputs that have a default: initialisers that the file lists as inputs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from command_line import rankslice, succeed
from in_process import run_in_process
from jobs import session, shared_core_key, unsliced_outputs

from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.framework.errors import RankSliceError
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.frontend.formats.onnx.reader import read_onnx

DETECTOR = """<ir_version: {version}, opset_import: ["" : 17]>
g (float[1, 8] scores, float least) => (float[1, 8] kept) <float least = {{0.5}}>
{{ [relu] a = Relu(scores)
  [larger] b = Greater(a, least)
  [cast] c = Cast <to = 1> (b)
  [keep] kept = Mul(a, c) }}"""
SCORES = np.linspace(0, 1, 8, dtype=np.float32)[None]
FRAMES = {"scores": SCORES, "least": np.array(0.2, np.float32)}


def detector(folder: Path, version: int = 8) -> Path:
    onnx.save(onnx.parser.parse_model(DETECTOR.format(version=version)), folder / "model.onnx")
    np.savez(folder / "frames.npz", **FRAMES)
    return folder / "model.onnx"


def built(folder: Path, *options: str) -> Path:
    mapping = {shared_core_key(0): ["relu", "larger"], shared_core_key(1): ["cast", "keep"]}
    (folder / "mapping.json").write_text(json.dumps(mapping))
    names = ("--mapping", folder / "mapping.json", "--share-cores", "--out", folder / "out")
    succeed("build", detector(folder), *names, *options)
    return folder / "out"


def test_a_frame_decides_about_an_input_whose_shape_is_given(tmp_path: Path) -> None:
    out = built(tmp_path, "--shape", "least=")
    options = RunOptions((str(tmp_path / "frames.npz"),), results=tmp_path / "r.bin")
    run_in_process(out, options)
    expected = session(tmp_path / "model.onnx").run(None, FRAMES)[0]
    assert 6 == np.count_nonzero(expected)
    np.testing.assert_array_equal(expected, read_results(tmp_path / "r.bin").values(0)[0])
    (unsliced,) = unsliced_outputs(out, options.inputs, 1)
    np.testing.assert_array_equal(expected, unsliced[0])


def test_an_input_without_a_given_shape_keeps_its_default(tmp_path: Path) -> None:
    out = built(tmp_path)
    np.savez(tmp_path / "frames.npz", scores=SCORES)
    options = RunOptions((str(tmp_path / "frames.npz"),), results=tmp_path / "r.bin")
    run_in_process(out, options)
    assert 4 == np.count_nonzero(read_results(tmp_path / "r.bin").values(0))


def test_a_frame_that_would_be_ignored_is_refused_with_the_way_out(tmp_path: Path) -> None:
    out = built(tmp_path)
    ended = rankslice("run", out, "--input", tmp_path / "frames.npz", "--dry-run")
    assert 1 == ended.code
    assert (
        "frames.npz: has values for 'least', and the model's inputs are 'scores': leave them out;"
        " if the model's file has a default for this input, build with --shape NAME=SIZES"
    ) in ended.err


def test_old_files_list_all_weights_as_inputs_so_none_has_a_default(tmp_path: Path) -> None:
    with pytest.raises(RankSliceError, match="input 'least': the model has no such input"):
        read_onnx(detector(tmp_path, version=3), GivenSizes({"least": ()}))
