"""What ``inspect --internals`` sees of LiteRT, for real."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from command_line import rankslice
from litert_engines import gpu_environment, needs_litert, needs_swiftshader, toy_delegate
from tflite_models import edited, model_file

from rankslice.backend.runtime.engines import EngineSettings
from rankslice.backend.runtime.figures.acceleration import Acceleration
from rankslice.framework.errors import RankSliceError
from rankslice.session.internals import Internals, ask_litert

CPU = EngineSettings(allow_fallback=True)


@pytest.fixture(scope="module")
def int8() -> Internals:
    return ask_litert(model_file("cnn_int8"), CPU)


def with_delegate(library: str, **options: str) -> EngineSettings:
    return EngineSettings(options={**options, "delegate": library}, allow_fallback=True)


@needs_litert
def test_a_delegate_is_a_node_in_the_place_of_others(int8):
    assert [("DELEGATE", "XNNPACK", tuple(range(13))), ("SOFTMAX", "LiteRT", ())] == [
        (node.op, node.provider, node.replaces) for node in int8.nodes
    ]
    assert Acceleration("XNNPACK", 13, 14, 1, ("SOFTMAX",)) == int8.accelerated
    assert {"file": 14, "delegated": 2} == int8.levels


@needs_litert
def test_weights_stay_in_the_mapped_file(int8):
    weight = int8.tensors[3]
    assert ("file", "file") == (weight.before, weight.after)
    if sys.platform == "linux":
        assert re.fullmatch(r"0x[0-9a-f]+-0x[0-9a-f]+ r-\S+", int8.mapped)


@needs_litert
def test_inputs_get_memory_when_tensors_are_allocated(int8):
    tensor = int8.tensors[0]
    assert ("none", "arena", 768) == (tensor.before, tensor.after, tensor.bytes)


@needs_litert
def test_results_inside_a_partition_have_no_memory_of_the_interpreters(int8):
    assert "none" == int8.tensors[12].after


@needs_litert
def test_tensors_take_turns_in_the_arena(tmp_path):
    found = ask_litert(
        model_file("cnn_float32"), with_delegate(toy_delegate(tmp_path), operator="0")
    )
    sizes = [tensor.bytes or 0 for tensor in found.tensors if tensor.after == "arena"]
    assert 0 < found.arena_bytes < sum(sizes)


@needs_litert
def test_a_delegate_library_takes_what_it_can(tmp_path):
    found = ask_litert(
        model_file("cnn_float32"), with_delegate(toy_delegate(tmp_path), operator="0")
    )
    assert "toy.so" == found.provider
    assert found.accelerated is not None
    assert (1, 13, 1) == (
        found.accelerated.operators,
        found.accelerated.of,
        found.accelerated.partitions,
    )
    assert "ADD" not in {node.op for node in found.nodes}
    assert 13 == len(found.nodes)


@needs_swiftshader
def test_of_a_compiled_model_the_operators_that_the_accelerator_takes_are_told(monkeypatch):
    for name, value in gpu_environment().items():
        monkeypatch.setenv(name, value)
    settings = EngineSettings(accelerator="gpu", allow_fallback=True)
    found = ask_litert(model_file("cnn_float32"), settings)
    assert found.accelerated is not None
    assert (13, 13) == (found.accelerated.operators, found.accelerated.of)
    assert () == found.nodes


@needs_litert
def test_inputs_and_outputs_that_are_left_out_connect_no_operators():
    found = ask_litert(model_file("lstm"), CPU)
    replaced = [number for node in found.nodes for number in node.replaces]
    assert len(replaced) == len(set(replaced))
    assert "WHILE" in {node.op for node in found.nodes}


@needs_litert
def test_text_and_handles_are_left_alone():
    kinds = {t.dtype: t.after for t in ask_litert(model_file("hash_table"), CPU).tensors}
    assert "unseen" == kinds["string"] == kinds["resource"]


@needs_litert
def test_a_variable_is_told_from_other_memory():
    found = ask_litert(model_file("variable_tensor"), CPU)
    assert "variable" in [tensor.after for tensor in found.tensors]


@needs_litert
def test_the_command_shows_nodes_and_memory(tmp_path):
    file = tmp_path / "internals.json"
    ended = rankslice("inspect", model_file("cnn_int8"), "--internals", "--json", file)
    assert (0, "") == (ended.code, ended.err)
    assert "13 of 14 operators by XNNPACK, in 1 partition; on the CPU: SOFTMAX\n" in ended.out
    assert re.search(r"time: means of \d+ frames of zeros, in a compiled model", ended.out)
    assert re.search(
        r"CONV_2D .* Convolution \(NHWC, QC8\) IGEMM +[\d.]+ us \([\d.]+ %\)", ended.out
    )
    assert re.search(r"DELEGATE +XNNPACK +0\.\.12", ended.out)
    assert re.search(
        r"the file is .*mapped.*; 3 tensors of 778 B take \d+ B of the arena", ended.out
    )
    record = json.loads(file.read_text())
    assert ("rankslice-internals", 3) == (record["format"], record["version"])
    (model,) = record["models"]
    kernels = {row["operator"].split()[0]: row["kernel"] for row in model["kernels"]}
    assert "SOFTMAX" == kernels["SOFTMAX"]
    assert {"mean_ms", "shapes", "count"} <= model["kernels"][0].keys()
    assert (None, "cnn_int8.tflite") == (model["rank"], model["file"])


@needs_litert
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (with_delegate("./none.so"), "delegate ./none.so cannot be loaded"),
        (
            EngineSettings(accelerator="npu", allow_fallback=True),
            "option vendor is '', expected openvino or qualcomm",
        ),
    ],
)
def test_a_delegate_or_accelerator_that_is_not_there_is_told(settings, message):
    with pytest.raises(RankSliceError, match=r"cnn_float32\.tflite: ") as error:
        ask_litert(model_file("cnn_float32"), settings)
    assert message in str(error.value)


@needs_litert
def test_an_operator_that_litert_lacks_is_told():
    with pytest.raises(RankSliceError, match=r"needs the custom operator Vendor\.Special"):
        ask_litert(model_file("custom_in_between"), CPU)


def test_a_missing_litert_is_one_line_that_names_the_extra(tmp_path, monkeypatch):
    for package in ("ai_edge_litert", "tflite_runtime", "tensorflow"):
        (tmp_path / f"{package}.py").write_text("raise ImportError('hidden by a test')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    ended = rankslice("inspect", model_file("cnn_int8"), "--internals")
    assert (1, "") == (ended.code, ended.out)
    assert ended.err.endswith(": hidden by a test; pip install 'rankslice[litert]'\n")
    assert 1 == ended.err.count("\n")


def test_a_file_of_another_kind_is_refused_before_litert_sees_it(tmp_path: Path):
    model = tmp_path / "model.tflite"
    model.write_bytes(b"\x1c\0\0\0TFL3")
    with pytest.raises(RankSliceError, match=r"expected a \.tflite model file"):
        ask_litert(model, CPU)


@needs_litert
def test_a_name_in_the_file_cannot_steer_the_terminal(tmp_path):
    def rename(main):
        first, *others = main.tables("tensors")
        return main.changed({"tensors": (first.changed({"name": b"[red]\x1b[2J"}), *others)})

    ended = rankslice("inspect", edited("cnn_int8", tmp_path, rename), "--internals")
    assert "[red]\\x1b[2J" in ended.out
