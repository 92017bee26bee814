"""A model over CPU, GPU and NPU of one board, compared with the unsliced model on the CPU."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from litert_engines import (
    NPU_ENVIRONMENT,
    NPU_OPTIONS,
    gpu_environment,
    needs_litert,
    needs_openvino,
    needs_swiftshader,
)
from real_jobs import processes_of, ranks_of
from tflite_models import model_file
from waiting import until

from rankslice.backend.runtime.options import RunOptions
from rankslice.framework.errors import RankSliceError
from rankslice.session.building.build import BuildOptions, build
from rankslice.session.run import FinishedRun, prepare, run

pytestmark = [pytest.mark.ci, needs_litert]

FRAMES = 12


def folder_of(path: Path, board: dict[str, Any], layers: Mapping[str, str | list[str]]) -> Path:
    """Build for a board called ``virtual``, of this machine, with these accelerators."""
    platform, mapping = path / "platform.yaml", path / "mapping.json"
    record = {"boards": {"virtual": {"host": "localhost", "cores": 1, **board}}}
    platform.write_text(json.dumps(record))
    entries = {
        f"virtual_{key}": named if isinstance(named, list) else [named]
        for key, named in layers.items()
    }
    mapping.write_text(json.dumps(entries))
    return build(
        model_file("cnn_float32"), mapping, platform, path / "out", BuildOptions(share_cores=True)
    ).folder


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
        (record.by, record.operators, record.of)
        for record in (rank.accelerated for rank in summary.ranks)
        if record
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


COMPILED = {"cpu": {"engine": "litert", "options": {"api": "compiled"}}}
"""A board whose CPU ranks have compiled models, each in a process of its own."""

HALVES = {"cpu0": "CONV_2D_0..RESHAPE_8", "cpu0.2": "FULLY_CONNECTED_9..SOFTMAX_12"}


def helpers_of(folder: Path) -> list[psutil.Process]:
    """Return the processes in which the compiled models of a running job are, by rank.

    A rank starts them last: after the watchdog of its board.
    """
    ranks = ranks_of(folder)
    return [rank.children()[-1] for _, rank in sorted(ranks.items()) if rank.children()]


@contextmanager
def endless_job(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a job that would go on for hours; yield its launcher once frames come out."""
    rankslice = Path(sys.executable).with_name("rankslice")
    command = [rankslice, "run", folder, "--frames", "10000000"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as launcher:
        try:
            results = ".rankslice-run-*/results.bin"
            until(lambda: any(folder.glob(results)) and len(helpers_of(folder)) == 2, 60)
            yield launcher
        finally:
            for process in processes_of(folder):
                with suppress(psutil.Error):
                    process.kill()


def maps_of(process: psutil.Process) -> str:
    return Path(f"/proc/{process.pid}/maps").read_text()


def test_ranks_in_turn_with_compiled_models_give_every_frame_once_and_right(
    tmp_path: Path,
) -> None:
    turns = {
        "cpu0|virtual_cpu0.2": "CONV_2D_0..RESHAPE_8",
        "cpu0.3|virtual_cpu0.4*2": "FULLY_CONNECTED_9..SOFTMAX_12",
    }
    done = finished(folder_of(tmp_path, COMPILED, turns))
    assert list(range(FRAMES)) == done.results.records["frame"].tolist()
    assert [6, 6, 4, 8] == [rank.frames for rank in done.summary.ranks]
    assert done.summary.verify is not None
    assert done.summary.verify.passed, done.summary.verify.complaint
    assert [] == processes_of(tmp_path / "out")


def test_segments_of_one_rank_have_a_process_each_and_all_end_with_the_job(tmp_path: Path) -> None:
    folder = folder_of(
        tmp_path,
        COMPILED,
        {
            "cpu0": ["CONV_2D_0..CONV_2D_2", "FULLY_CONNECTED_9..SOFTMAX_12"],
            "cpu0.2": ["ADD_3..RESHAPE_8"],
        },
    )
    done = finished(folder)
    assert done.summary.verify is not None
    assert done.summary.verify.passed, done.summary.verify.complaint
    assert [7, 6] == [
        rank.accelerated and rank.accelerated.operators for rank in done.summary.ranks
    ]
    assert [] == processes_of(folder)


def test_a_crash_in_a_models_process_ends_the_job_and_names_rank_segment_and_frame(
    tmp_path: Path,
) -> None:
    folder = folder_of(tmp_path, COMPILED, HALVES)
    with endless_job(folder) as launcher:
        helpers = helpers_of(folder)
        helpers[1].send_signal(signal.SIGSEGV)
        _, errors = launcher.communicate(timeout=60)
    assert 1 == launcher.returncode
    message = next(line for line in errors.splitlines() if line.startswith("error: "))
    assert re.fullmatch(
        r"error: rank 1 \(virtual_cpu0\.2 on .*\): segment 0, frame \d+: .*\.0\.tflite: the process"
        r" of the accelerator was killed or crashed \(SIGSEGV\).*",
        message,
    )
    until(lambda: not any(helper.is_running() for helper in helpers), 60)


def test_models_processes_end_with_a_rank_that_is_killed(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, COMPILED, HALVES)
    with endless_job(folder) as launcher:
        helpers = helpers_of(folder)
        # Slots of its own rank, and of the other one.
        until(lambda: [2, 2] == [maps_of(each).count("rankslice-rings") for each in helpers], 60)
        os.kill(ranks_of(folder)[0].pid, signal.SIGKILL)
        _, errors = launcher.communicate(timeout=60)
    assert "rank 0 (virtual_cpu0 on " in errors
    assert "the process was killed or crashed" in errors
    until(lambda: not any(helper.is_running() for helper in helpers), 60)
