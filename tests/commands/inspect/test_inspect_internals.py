"""What ``inspect --internals`` sees of LiteRT, for real."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from command_line import rankslice
from litert_engines import gpu_environment, needs_litert, needs_swiftshader, toy_delegate
from tflite_models import edited, model_file

from rankslice.commands.inspect.internals import Internals, Wanted, look_inside
from rankslice.framework.errors import RankSliceError


@pytest.fixture(scope="module")
def int8() -> Internals:
    return look_inside(model_file("cnn_int8"), Wanted())


@needs_litert
def test_without_a_delegate_every_operator_is_a_node_that_runs(int8):
    assert ["CONV_2D", "DEPTHWISE_CONV_2D"] == [node.name for node in int8.plain.nodes[:2]]
    assert tuple(range(14)) == int8.plain.execution_plan


@needs_litert
def test_a_delegate_is_a_node_in_the_place_of_others(int8):
    (delegate,) = (node for node in int8.delegated.nodes if node.replaces)
    taken, left = set(delegate.replaces), set(int8.delegated.execution_plan) - {delegate.number}
    assert ("XNNPACK", "DELEGATE", 14) == (int8.by, delegate.name, delegate.number)
    assert set(range(14)) == taken | left
    assert not taken & left


@needs_litert
def test_weights_stay_in_the_mapped_file(int8):
    weight = int8.delegated.tensors[3]
    assert ("file", "file") == (weight.before, weight.after)
    if sys.platform == "linux":
        mapped = int8.mapped
        assert mapped is not None
        assert mapped.permissions.startswith("r-")


@needs_litert
def test_inputs_get_memory_when_tensors_are_allocated(int8):
    tensor = int8.plain.tensors[0]
    assert ("none", "arena", 768) == (tensor.before, tensor.after, tensor.bytes)


@needs_litert
def test_results_inside_a_partition_have_no_memory_of_the_interpreters(int8):
    inner = int8.plain.nodes[0].outputs[0]
    assert "arena" == int8.plain.tensors[inner].after
    assert "none" == int8.delegated.tensors[inner].after


@needs_litert
def test_tensors_take_turns_in_the_arena(int8):
    assert int8.plain.arena_bytes < int8.plain.arena_tensor_bytes
    assert int8.delegated.arena_bytes < int8.plain.arena_bytes


@needs_litert
def test_a_delegate_library_takes_what_it_can(tmp_path):
    wanted = Wanted(toy_delegate(tmp_path), options={"operator": "0"})
    found = look_inside(model_file("cnn_float32"), wanted)
    assert "toy.so" == found.by
    replaced = [number for node in found.delegated.nodes for number in node.replaces]
    assert ["ADD"] == [found.plain.nodes[number].name for number in replaced]
    assert len(found.plain.nodes) == len(found.delegated.execution_plan)


@needs_swiftshader
def test_of_a_compiled_model_the_operators_that_the_accelerator_takes_are_told(monkeypatch):
    for name, value in gpu_environment().items():
        monkeypatch.setenv(name, value)
    found = look_inside(model_file("cnn_float32"), Wanted(accelerator="gpu"))
    assert found.delegated is None
    assert found.accelerated is not None
    assert (13, 13) == (found.accelerated["operators"], found.accelerated["of"])
    assert "is read from LiteRT's log" in found.unseen[0]


@needs_litert
def test_inputs_and_outputs_that_are_left_out_connect_no_operators():
    found = look_inside(model_file("lstm"), Wanted())
    replaced = [number for node in found.delegated.nodes for number in node.replaces]
    assert len(replaced) == len(set(replaced))
    (loop,) = (node.number for node in found.plain.nodes if node.name == "WHILE")
    assert loop in found.delegated.execution_plan


@needs_litert
def test_text_and_handles_are_left_alone():
    found = look_inside(model_file("hash_table"), Wanted())
    kinds = {tensor.dtype: tensor.after for tensor in found.plain.tensors}
    assert "unseen" == kinds["string"] == kinds["resource"]


@needs_litert
def test_a_variable_is_told_from_other_memory():
    found = look_inside(model_file("variable_tensor"), Wanted())
    assert "variable" in [tensor.after for tensor in found.plain.tensors]


@needs_litert
def test_the_command_tells_each_step_and_what_it_cannot_see(tmp_path):
    file = tmp_path / "internals.json"
    ended = rankslice("inspect", model_file("cnn_int8"), "--internals", "--json", file)
    assert (0, "") == (ended.code, ended.err)
    for step in ("1. load", "2. build", "3. delegate: XNNPACK takes 13 of 14", "4. allocate"):
        assert step in ended.out
    assert "not to be seen from Python:" in ended.out
    record = json.loads(file.read_text())
    assert ("rankslice-internals", 2) == (record["format"], record["version"])
    (model,) = record["models"]
    assert (None, None) == (model["rank"], model["onnxruntime"])
    assert "cnn_int8.tflite" == model["litert"]["file"]


@needs_litert
@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (Wanted("./none.so"), "delegate ./none.so cannot be loaded"),
        (Wanted(accelerator="npu"), "option vendor is '', expected openvino or qualcomm"),
    ],
)
def test_a_delegate_or_accelerator_that_is_not_there_is_told(wanted, told):
    with pytest.raises(RankSliceError, match=r"cnn_float32\.tflite: ") as error:
        look_inside(model_file("cnn_float32"), wanted)
    assert told in str(error.value)


@needs_litert
def test_an_operator_that_litert_lacks_is_told():
    with pytest.raises(RankSliceError, match=r"unresolved custom op: Vendor\.Special"):
        look_inside(model_file("custom_in_between"), Wanted())


def test_a_missing_litert_is_one_line_that_names_the_extra(tmp_path, monkeypatch):
    for package in ("ai_edge_litert", "tflite_runtime", "tensorflow"):
        (tmp_path / f"{package}.py").write_text("raise ImportError('hidden by a test')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    ended = rankslice("inspect", model_file("cnn_int8"), "--internals")
    assert (1, "") == (ended.code, ended.out)
    expected = "LiteRT is needed to look inside it; pip install 'rankslice[litert]'\n"
    assert ended.err.endswith(expected)
    assert 1 == ended.err.count("\n")


def test_a_file_of_another_kind_is_refused_before_litert_sees_it(tmp_path: Path):
    model = tmp_path / "model.tflite"
    model.write_bytes(b"\x1c\0\0\0TFL3")
    with pytest.raises(RankSliceError, match=r"expected a \.tflite model file"):
        look_inside(model, Wanted())


@needs_litert
def test_a_name_in_the_file_cannot_steer_the_terminal(tmp_path):
    def rename(main):
        first, *others = main.tables("tensors")
        return main.changed({"tensors": (first.changed({"name": b"[red]\x1b[2J"}), *others)})

    ended = rankslice("inspect", edited("cnn_int8", tmp_path, rename), "--internals")
    assert "[red]\\x1b[2J" in ended.out
