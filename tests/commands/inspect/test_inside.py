"""What ``inspect --internals`` sees of onnxruntime, for real; and the picture of it."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import onnx
import pytest
from command_line import Ended, rankslice
from jobs import FIGURE_2_RANKS, figure_2, write_mapping
from litert_engines import needs_litert
from onnx_models import save
from tflite_models import model_file

from rankslice.backend.runtime.engines import EngineSettings
from rankslice.commands.inspect import optimised
from rankslice.commands.inspect.child import ask_child
from rankslice.commands.inspect.inside import Inside, look_at
from rankslice.commands.inspect.inside_picture import picture_of_inside
from rankslice.commands.inspect.internals import Built, Internals, Wanted
from rankslice.commands.inspect.optimised import Optimised, look_at_stages
from rankslice.framework.errors import RankSliceError

SVG = "{http://www.w3.org/2000/svg}"
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
def fused(tmp_path_factory: pytest.TempPathFactory) -> Optimised:
    return look_at_stages(save(tmp_path_factory.mktemp("fused"), MODEL), EngineSettings())


def names(found: Optimised) -> dict[str, list[str]]:
    """Return the layers of each group, by its kind."""
    texts: dict[str, list[str]] = {}
    for group in found.groups:
        layers = " ".join(found.before[number].name for number in group.before)
        texts.setdefault(group.kind, []).append(layers)
    return texts


def test_onnxruntime_fuses_folds_and_drops_as_it_is_known_to(fused):
    found = names(fused)
    assert ["conv norm relu"] == found["fused"]
    assert ["div"] == found["kept"]
    assert (["same"], ["wide"]) == (found["dropped"], found["folded"])


def test_each_level_is_a_stage(fused):
    counts = {stage.level: len(stage.nodes) for stage in fused.stages}
    assert ["file", "disabled", "basic", "extended", "all"] == list(counts)
    assert 6 == counts["file"] == counts["disabled"]
    assert counts["basic"] == 3  # the convolution with its normalisation, Relu, Div
    assert counts["extended"] == 2


def test_each_node_tells_where_it_ran_and_its_share_of_the_time(fused):
    assert {"CPU"} == {ran.provider for ran in fused.ran}
    shares = [fused.share(number) for number in range(len(fused.after))]
    assert fused.frames > 0
    assert sum(share or 0 for share in shares) == pytest.approx(1)


def inspected(folder: Path, *options: str) -> Ended:
    return rankslice("inspect", save(folder, MODEL), "--internals", *options)


def test_the_command_says_what_became_of_the_layers(tmp_path):
    file, drawn = tmp_path / "found.json", tmp_path / "found.svg"
    ended = inspected(tmp_path, "--json", str(file), "--svg", str(drawn))
    assert (0, "") == (ended.code, ended.err)
    assert "6 layers in the file -> disabled 6 -> basic 3 -> extended 2" in ended.out
    assert "3 layers fused into 1 node\n" in ended.out
    assert "1 layer folded, that is computed when the model is loaded: wide" in ended.out
    assert re.search(r"CPU .* conv \+ norm \+ relu", ended.out)
    (model,) = json.loads(file.read_text())["models"]
    assert model["litert"] is None
    kinds = Counter(group["kind"] for group in model["onnxruntime"]["groups"])
    assert 1 == kinds["fused"] == kinds["kept"] == kinds["dropped"] == kinds["folded"]
    told = [text.text for text in ElementTree.parse(drawn).iter(f"{SVG}text")]
    assert {"conv", "norm", "relu", "fused", "dropped", "CPU", "fused (1)"} <= {*told}


def test_the_sub_models_of_each_rank_or_of_one_are_looked_into(tmp_path):
    onnx.save(figure_2(), tmp_path / "model.onnx")
    write_mapping(tmp_path / "mapping.json", FIGURE_2_RANKS)
    out = tmp_path / "out"
    built = rankslice(
        *("build", tmp_path / "model.onnx", "--mapping", tmp_path / "mapping.json"),
        *("--platform", "local", "--share-cores", "--out", out),
    )
    assert 0 == built.code, built.err
    ended = rankslice("inspect", out, "--internals", "--rank", "1")
    assert (0, "") == (ended.code, ended.err)
    assert ["rank 1"] == re.findall(r"^(rank \d): ", ended.out, re.MULTILINE)


def test_sizes_that_the_file_leaves_open_are_given(tmp_path):
    path = save(tmp_path, MODEL.replace("float[1, 3, 8, 8] x", "float[n, 3, 8, 8] x"))
    refused = rankslice("inspect", path, "--internals")
    assert 1 == refused.code
    assert "--shape x=1,3,8,8" in refused.err
    (found,) = look_at(path, Wanted(), optimised.GivenSizes(fixed={"x": (2, 3, 8, 8)}))
    assert found.onnxruntime is not None
    assert found.onnxruntime.frames > 0


def test_a_model_that_fails_on_zeros_is_shown_without_times(tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (int64[1] x) => (float[1] y) <float[2] w = {1, 2}, int64[1] two = {2}>
    { i = Add (x, two) y = Gather (w, i) }"""
    found = look_at_stages(save(tmp_path, text), EngineSettings())
    assert 0 == found.frames
    assert found.share(0) is None
    assert [told for told in found.unseen if told.startswith("times: it fails on zeros: ")]


def crashing(folder: Path, *, answers: bool) -> str:
    """Write a module that ends as a crash in an engine does; return its name."""
    answer = 'pathlib.Path(sys.argv[3]).write_text("{}")' if answers else ""
    code = f"import os, pathlib, signal, sys\n{answer}\nos.kill(os.getpid(), signal.SIGSEGV)\n"
    (folder / "crashing.py").write_text(code)
    return "crashing"


def test_a_model_that_crashes_the_engine_ends_its_process_only(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(optimised, "_CHILD", crashing(tmp_path, answers=False))
    ended = inspected(tmp_path)
    assert (1, "") == (ended.code, ended.out)
    assert ended.err.endswith("model.onnx: onnxruntime crashed on it (SIGSEGV)\n")


def test_an_answer_before_a_crash_counts_and_one_that_is_none_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    name = crashing(tmp_path, answers=True)
    record, crash = ask_child(name, "onnxruntime", tmp_path / "model.onnx", {})
    assert ({}, "onnxruntime crashed on it (SIGSEGV)") == (record, crash)
    monkeypatch.setattr(optimised, "_CHILD", name)
    with pytest.raises(RankSliceError, match=r"onnxruntime's process: .*runtime"):
        look_at_stages(save(tmp_path, MODEL), EngineSettings())


def test_a_provider_that_onnxruntime_lacks_is_refused(tmp_path):
    ended = inspected(tmp_path, "--option", "provider=Nobody")
    assert (1, "") == (ended.code, ended.out)
    assert "knows no provider 'Nobody'" in ended.err


def test_a_picture_is_sound_whatever_names_a_model_has(fused):
    hostile = "<script>&amp;\x1b]]>"
    stages = tuple(
        optimised.Stage(
            stage.level,
            tuple(optimised.Node(hostile, n.op, n.inputs, n.outputs, "") for n in stage.nodes),
            stage.weights,
        )
        for stage in fused.stages
    )
    renamed = optimised.Optimised(
        **{name: getattr(fused, name) for name in fused.__slots__} | {"stages": stages}
    )
    drawn = picture_of_inside([Inside(0, None, renamed), Inside(1, None, fused)])
    texts = [text.text for text in ElementTree.fromstring(drawn).iter(f"{SVG}text")]
    assert "<script>&amp;\\x1b]]>" in texts
    assert {"rank 0: model.onnx", "rank 1: model.onnx"} <= {*texts}


@needs_litert
def test_of_litert_the_nodes_that_a_delegate_takes_are_drawn(tmp_path):
    drawn = tmp_path / "drawn.svg"
    ended = rankslice("inspect", model_file("cnn_int8"), "--internals", "--svg", drawn)
    assert (0, "") == (ended.code, ended.err)
    told = [text.text for text in ElementTree.parse(drawn).iter(f"{SVG}text")]
    assert {"delegated (1)", "kept (1)", "on XNNPACK: 1", "on LiteRT's kernels: 1"} <= {*told}


def test_what_litert_compiles_cannot_be_drawn():
    built = Built((), (), (), 0, 0, None)
    compiled = Internals("m.tflite", "litert", "gpu", None, 1, built, None, {}, ())
    with pytest.raises(RankSliceError, match="does not report which operators run where"):
        picture_of_inside([Inside(None, compiled, None)])
