"""A model over CPU, GPU and NPU of one board, compared with the unsliced model on the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from litert_engines import (
    NPU_ENVIRONMENT,
    NPU_OPTIONS,
    gpu_environment,
    needs_litert,
    needs_openvino,
    needs_swiftshader,
)
from tflite_models import model_file

from rankslice.backend.runtime.options import RunOptions
from rankslice.framework.commands.build import build
from rankslice.framework.commands.run import FinishedRun, prepare, run
from rankslice.framework.errors import RankSliceError

pytestmark = needs_litert

FRAMES = 12


def folder_of(
    path: Path, board: dict[str, Any], layers: dict[str, str], model: str = "cnn_float32"
) -> Path:
    """Build for a board called ``virtual``, of this machine, with these accelerators."""
    platform, mapping = path / "platform.yaml", path / "mapping.json"
    record = {"boards": {"virtual": {"host": "localhost", "cores": 1, **board}}}
    platform.write_text(json.dumps(record))
    mapping.write_text(json.dumps({f"virtual_{key}": [text] for key, text in layers.items()}))
    return build(model_file(model), mapping, platform, path / "out", share_cores=True).folder


def finished(folder: Path) -> FinishedRun:
    return run(prepare(folder, RunOptions(frames=FRAMES)), verify=True)


@needs_swiftshader
@needs_openvino
def test_cpu_gpu_and_npu_of_one_board_give_what_the_cpu_alone_gives(tmp_path: Path) -> None:
    board = {
        "gpu": {"engine": "litert", "environment": gpu_environment()},
        "npu": {"engine": "litert", "options": NPU_OPTIONS, "environment": NPU_ENVIRONMENT},
    }
    layers = {
        "cpu0": "CONV_2D_0..ADD_3",
        "gpu": "MAX_POOL_2D_4..RESHAPE_8",
        "npu": "FULLY_CONNECTED_9..SOFTMAX_12",
    }
    summary = finished(folder_of(tmp_path, board, layers)).summary
    assert FRAMES == summary.completed
    assert summary.verify is not None
    assert summary.verify.passed, summary.verify.complaint
    assert summary.verify.max_rel_diff <= 1e-5
    assert [
        ("XNNPACK", 4, 4),
        ("LiteRT's GPU accelerator", 5, 5),
        ("LiteRT's NPU accelerator", 4, 4),
    ] == [
        (record["by"], record["operators"], record["of"])
        for record in (rank.accelerated or {} for rank in summary.ranks)
    ]


def test_a_rank_whose_gpu_is_not_there_ends_the_job_with_the_reason(tmp_path: Path) -> None:
    nowhere = {"VK_DRIVER_FILES": "/nowhere.json", "VK_ICD_FILENAMES": "/nowhere.json"}
    board = {"gpu": {"engine": "litert", "environment": nowhere}}
    folder = folder_of(
        tmp_path, board, {"cpu0": "CONV_2D_0..RESHAPE_8", "gpu": "FULLY_CONNECTED_9..SOFTMAX_12"}
    )
    with pytest.raises(RankSliceError) as error:
        finished(folder)
    assert str(error.value).startswith("rank 1 (virtual_gpu on ")
    assert "cannot compile it for the gpu" in str(error.value)


def test_a_rank_is_started_with_the_environment_of_its_accelerator(tmp_path: Path) -> None:
    board = {
        "cpu": {"engine": "litert", "environment": {"RANK_VARIABLE": "two words"}},
    }
    folder = folder_of(tmp_path, board, {"cpu0": "CONV_2D_0..SOFTMAX_12"})
    # The library of the folder is its own copy: let it tell what it was started with.
    engine = folder / "runtime" / "engines" / "litert_engine.py"
    told = folder / "told"
    text = engine.read_text() + (
        f"\nimport os\nopen({str(told)!r}, 'w').write(os.environ.get('RANK_VARIABLE', ''))\n"
    )
    engine.unlink()
    engine.write_text(text)
    finished(folder)
    assert "two words" == told.read_text()
