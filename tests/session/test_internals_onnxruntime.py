"""What ``inspect --internals`` sees of onnxruntime, for real."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import onnx
import pytest
from command_line import Ended, rankslice, succeed
from jobs import FIGURE_2_RANKS, figure_2, write_mapping
from onnx_models import save

from rankslice.backend.runtime.engines import EngineSettings
from rankslice.framework.errors import RankSliceError
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.session import internals
from rankslice.session.internals import ask_onnxruntime

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1, 3, 8, 8] x) => (float[1, 3, 6, 6] y)
<float[3, 3, 3, 3] w = {WEIGHTS}, float[3] s = {1, 2, 3}, float[3] z = {0, 0, 0},
 float[3] v = {1, 1, 1}, int64[2] axes = {1, 2}>
{ [conv] a = Conv (x, w)
  [norm] b = BatchNormalization (a, s, z, z, v)
  [relu] c = Relu (b)
  [same] d = Identity (c)
  [wide] s3 = Unsqueeze (s, axes)
  [div] y = Div (d, s3) }""".replace("{WEIGHTS}", "{" + ", ".join(["0.1"] * 81) + "}")


@pytest.fixture(scope="module")
def fused(tmp_path_factory: pytest.TempPathFactory) -> internals.Internals:
    return ask_onnxruntime(save(tmp_path_factory.mktemp("fused"), MODEL), EngineSettings())


def test_the_nodes_after_each_level_of_optimisation_are_counted(fused):
    counts = fused.levels
    assert ["file", "disabled", "basic", "extended", "all"] == list(counts)
    assert 6 == counts["file"] == counts["disabled"]
    assert counts["basic"] == 3  # the convolution with its normalisation, Relu, Div
    assert counts["extended"] == 2
    assert counts["all"] == len(fused.nodes)


def test_each_node_tells_where_it_ran_and_for_how_long(fused):
    assert {"CPU"} == {node.provider for node in fused.nodes}
    assert all(node.microseconds is not None for node in fused.nodes)
    assert any(node.op.endswith("Conv") for node in fused.nodes)
    assert fused.frames > 0


def inspected(folder: Path, *options: str) -> Ended:
    return rankslice("inspect", save(folder, MODEL), "--internals", *options)


def test_the_command_shows_nodes_by_operator_and_one_by_one(tmp_path):
    file = tmp_path / "found.json"
    ended = inspected(tmp_path, "--json", str(file))
    assert (0, "") == (ended.code, ended.err)
    assert "file 6 -> disabled 6 -> basic 3 -> extended 2" in ended.out
    assert re.search(r"time: medians of \d+ frames of zeros", ended.out)
    assert re.search(r"0  \S+ .*Conv +CPU +[\d,]+ us \(\d+\.\d %\)", ended.out)
    (model,) = json.loads(file.read_text())["models"]
    assert ("model.onnx", "CPU", None) == (model["file"], model["provider"], model["accelerated"])
    assert {"Div"} <= {node["op"] for node in model["nodes"]}


def test_a_body_that_runs_often_per_frame_counts_as_often(tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2] x) => (float[2] y) <int64 n = {3}, bool c = {1}>
    { y = Loop (n, c, x) <body = b (int64 i, bool ci, float[2] s) => (bool co, float[2] t)
      { co = Identity (ci) t = Sin (s) }> }"""
    found = ask_onnxruntime(save(tmp_path, text), EngineSettings())
    times = {node.op: node.microseconds for node in found.nodes}
    assert times["Sin"] is not None


def test_the_sub_models_of_each_rank_or_of_one_are_looked_into(tmp_path):
    onnx.save(figure_2(), tmp_path / "model.onnx")
    write_mapping(tmp_path / "mapping.json", FIGURE_2_RANKS)
    out = tmp_path / "out"
    succeed(
        *("build", tmp_path / "model.onnx", "--mapping", tmp_path / "mapping.json"),
        *("--platform", "local", "--share-cores", "--out", out),
    )
    ended = rankslice("inspect", out, "--internals", "--rank", "1")
    assert (0, "") == (ended.code, ended.err)
    assert ["rank 1"] == re.findall(r"^(rank \d): ", ended.out, re.MULTILINE)


def test_sizes_that_the_file_leaves_open_are_given(tmp_path):
    path = save(tmp_path, MODEL.replace("float[1, 3, 8, 8] x", "float[n, 3, 8, 8] x"))
    refused = rankslice("inspect", path, "--internals")
    assert 1 == refused.code
    assert "--shape x=1,3,8,8" in refused.err
    found = ask_onnxruntime(path, EngineSettings(), GivenSizes(fixed={"x": (2, 3, 8, 8)}))
    assert found.frames > 0


def test_a_model_that_fails_on_zeros_is_shown_without_times(tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (int64[1] x) => (float[1] y) <float[2] w = {1, 2}, int64[1] two = {2}>
    { i = Add (x, two) y = Gather (w, i) }"""
    found = ask_onnxruntime(save(tmp_path, text), EngineSettings())
    assert 0 == found.frames
    assert {None} == {node.microseconds for node in found.nodes}
    assert found.untimed.startswith("it fails on zeros: ")


def crashing(folder: Path, *, answers: str) -> str:
    """Write a module that ends as a crash in an engine does; return its name."""
    answer = f"pathlib.Path(sys.argv[3]).write_text({answers!r})" if answers else ""
    code = f"import os, pathlib, signal, sys\n{answer}\nos.kill(os.getpid(), signal.SIGSEGV)\n"
    (folder / "crashing.py").write_text(code)
    return "crashing"


def test_a_model_that_crashes_the_engine_ends_its_process_only(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(internals, "_CHILD", crashing(tmp_path, answers=""))
    ended = inspected(tmp_path)
    assert (1, "") == (ended.code, ended.out)
    assert ended.err.endswith("model.onnx: onnxruntime crashed on it (SIGSEGV)\n")


def test_an_answer_that_is_none_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(internals, "_CHILD", crashing(tmp_path, answers="{}"))
    with pytest.raises(RankSliceError, match=r"onnxruntime's process: .*runtime"):
        ask_onnxruntime(save(tmp_path, MODEL), EngineSettings())


def test_an_answer_before_a_crash_counts(tmp_path, monkeypatch, fused):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    answer = json.dumps(dataclasses.asdict(fused))
    monkeypatch.setattr(internals, "_CHILD", crashing(tmp_path, answers=answer))
    found = ask_onnxruntime(save(tmp_path, MODEL), EngineSettings())
    assert (fused.nodes, "onnxruntime crashed on it (SIGSEGV)") == (found.nodes, found.untimed)


def test_a_provider_that_onnxruntime_lacks_is_refused(tmp_path):
    ended = inspected(tmp_path, "--option", "provider=Nobody")
    assert (1, "") == (ended.code, ended.out)
    assert "knows no provider 'Nobody'" in ended.err
