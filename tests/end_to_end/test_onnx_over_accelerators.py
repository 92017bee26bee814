"""The trained digit classifier as ONNX file, over CPU, GPU and NPU of one board."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from digits_over_accelerators import (
    MODELS,
    answers_over_accelerators,
    built_over_accelerators,
)
from plugin_providers import needs_plugins, needs_plugins_and_gpu, plugin_board

from rankslice.backend.runtime.options import RunOptions
from rankslice.commands.trace.trace import prepare_trace, trace_run
from rankslice.framework.errors import RankSliceError

pytestmark = pytest.mark.ci

MAPPING = MODELS.parent / "mappings" / "virtual-rubikpi-digits.json"
LAYERS: list[str | list[str]] = list(json.loads(MAPPING.read_text()).values())


def refusal(folder: Path, board: dict[str, Any]) -> str:
    with pytest.raises(RankSliceError) as error:
        answers_over_accelerators(MODELS / "digits.onnx", LAYERS, folder, board=board)
    return str(error.value)


@needs_plugins_and_gpu
def test_slices_read_digits_as_well_as_the_whole(tmp_path: Path) -> None:
    found = answers_over_accelerators(
        MODELS / "digits.onnx", LAYERS, tmp_path, board=plugin_board()
    )
    assert (f"{found.unsliced:.4f}", f"{found.sliced:.4f}", found.same) == ("0.9833", "0.9833", 1.0)
    assert found.difference <= 1e-5
    cpu, gpu, npu = (rank.accelerated for rank in found.summary.ranks)
    assert cpu is None
    assert gpu is not None
    assert npu is not None
    assert ("WebGpu", gpu.of, 1) == (gpu.by, gpu.operators, gpu.partitions)
    assert ("QNN", npu.of, 1) == (npu.by, npu.operators, npu.partitions)


@needs_plugins_and_gpu
def test_operators_of_the_npu_are_in_the_trace(tmp_path: Path) -> None:
    out = built_over_accelerators(MODELS / "digits.onnx", LAYERS, tmp_path, board=plugin_board())
    traced = trace_run(prepare_trace(out, RunOptions(frames=20), operators=True))
    drawn = traced.drawn
    assert {(0, ""), (1, ""), (2, ""), (2, "QNN")} <= {(n.rank, n.by) for n in drawn.operators}
    (npu,) = (at for at, track in enumerate(drawn.tracks) if track.name == "segment 0 on QNN")
    operators = [each for each in drawn.slices if each.track == npu]
    assert {*range(20)} == {each.frame for each in operators}
    assert {"dense", "softmax"} <= {each.name for each in operators}
    # Plug-ins of WebGPU do not report what the GPU did.
    assert any("rank 1: WebGpu does not report when its operators ran" in n for n in traced.notes)
    assert any(
        note.startswith("timestamps of operators on QNN are accurate to") for note in traced.notes
    )


@needs_plugins
def test_an_npu_in_software_has_to_be_asked_for(tmp_path: Path) -> None:
    board = plugin_board()
    del board["npu"]["options"]["device_type"]
    message = refusal(tmp_path, board)
    assert message.startswith("rank 2 (virtual_npu on ")
    assert (
        "the provider of onnxruntime-qnn offers no NPU on this board, only CPU; if it is to compute"
        " on that, add device_type: CPU to its options"
    ) in message


@needs_plugins
def test_a_gpu_without_a_driver_does_not_become_the_cpu(tmp_path: Path) -> None:
    board = plugin_board()
    board["gpu"]["environment"] |= {
        "VK_DRIVER_FILES": "/nowhere.json",
        "VK_ICD_FILENAMES": "/nowhere.json",
    }
    message = refusal(tmp_path, board)
    assert message.startswith("rank 1 (virtual_gpu on ")
    assert "Failed to get a WebGPU adapter" in message
