"""A job over CPU and an NVIDIA GPU, with a driver and a provider of the test's in their place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
from command_line import succeed
from real_jobs import chain
from toy_cuda import install_toy_gpu
from toys import toy_library

from rankslice.backend.runtime.engines.onnxruntime_package import load_onnxruntime

pytestmark = pytest.mark.ci

ALL = ["device buffers", "CUDA graph", "pinned slots", "blocking sync"]
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "accelerator.py"


def run_over_gpu(folder: Path, *arguments: str, **options: str) -> tuple[str, list[Any]]:
    """Build and run a chain of four layers; return what is printed, and each rank's record."""
    core = min(os.sched_getaffinity(0))
    gpu = {"engine": "onnxruntime", "provider": "CUDA", "options": options}
    board = {"host": "localhost", "cores": [core], "gpu": gpu}
    (folder / "boards.yaml").write_text(json.dumps({"boards": {"one": board}}))
    mapping = {f"one_cpu{core}": ["L0"], "one_gpu": ["L1", "L2"], f"one_cpu{core}.2": ["L3"]}
    (folder / "mapping.json").write_text(json.dumps(mapping))
    onnx.save(chain(4), folder / "model.onnx")
    files = ("--mapping", folder / "mapping.json", "--platform", folder / "boards.yaml")
    succeed(*("build", folder / "model.onnx", *files, "--share-cores", "--out", folder / "out"))
    ended = succeed(
        *("run", folder / "out", "--frames", "30", "--json", folder / "run.json", *arguments)
    )
    return ended.out, json.loads((folder / "run.json").read_text())["ranks"]


def test_a_rank_on_the_gpu_gives_the_unsliced_results_and_says_what_it_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_toy_gpu(toy_library("toy_cuda.c", tmp_path), tmp_path, monkeypatch)
    told, ranks = run_over_gpu(tmp_path, "--verify")
    assert "with device buffers, CUDA graph, pinned slots and blocking sync" in told
    assert [None, (ALL, {}), None] == [
        each["accelerated"] and (each["accelerated"]["uses"], each["accelerated"]["without"])
        for each in ranks
    ]


@pytest.mark.skipif(
    "CUDAExecutionProvider" in load_onnxruntime().get_available_providers(),
    reason="there may be an accelerator",
)
def test_the_benchmark_says_that_there_is_no_accelerator() -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARK], capture_output=True, text=True, check=True, timeout=60
    )
    assert "no accelerator: this onnxruntime has no CUDA provider\n" == done.stdout
