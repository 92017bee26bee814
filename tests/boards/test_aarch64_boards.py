"""A board of aarch64 installs from its package alone, and computes what this machine computes.

Its programs run under qemu, ten to fifty times as slow as here.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
from collections.abc import Iterator
from pathlib import Path

import pytest

from boards import Board, Boards, make_root, usual_root, why_no_root
from boards.deployments import build_on, deploy, run
from rankslice.framework.errors import RankSliceError
from rankslice.frontend.formats import read_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

MODELS = Path(__file__).parents[2] / "models"
THERE = {"arch": "aarch64", "python": "3.11"}
HERE = {"arch": platform.machine(), "python": "{}.{}".format(*platform.python_version_tuple())}


@pytest.fixture(scope="module")
def rack() -> Iterator[Boards]:
    """Two boards; the first is of aarch64."""
    root = Path(os.environ.get("BOARDS_ROOT", usual_root()))
    reason = why_no_root(root)
    if reason:
        pytest.skip(reason)
    make_root(root)
    with Boards(2, disk_mb=3072, roots=[root]) as boards:
        yield boards


def model_for(engine: str) -> Path:
    """Return a model that an engine runs."""
    if engine == "litert" and importlib.util.find_spec("ai_edge_litert") is None:
        pytest.skip("ai-edge-litert is not installed (extra: litert)")
    return MODELS / ("digits.tflite" if engine == "litert" else "digits.onnx")


def built(boards: Boards, folder: Path, model: Path, mapping: dict[str, list[str]]) -> Path:
    """Return a build folder with the wheels that its boards need."""
    hosts = {
        board.name: {"host": board.address, "cores": 2, **kind}
        for board, kind in zip(boards, (THERE, HERE), strict=True)
    }
    try:
        return build_on(hosts, folder, model, mapping, wheels="download")
    except RankSliceError as error:
        if "from versions: none" in str(error):
            pytest.skip(f"no index of wheels can be reached: {error}")
        raise


def of_arch(package: Path) -> set[str]:
    """Return for which machines the wheels of a package are."""
    systems = [path.stem.rpartition("-")[2] for path in (package / "wheels").glob("*.whl")]
    return {"aarch64" if system.endswith("_aarch64") else system for system in systems}


def machine_of(board: Board) -> str:
    return board.ssh("python3", "-c", "import platform; print(platform.machine())").stdout.strip()


def test_one_board_is_of_aarch64_and_the_other_is_not(rack: Boards) -> None:
    assert ["aarch64", platform.machine()] == [machine_of(board) for board in rack]
    assert "board1\n" == rack[0].ssh("hostname").stdout


def test_a_board_of_aarch64_reaches_nothing_but_its_peers(rack: Boards) -> None:
    ask = "import socket; socket.create_connection(('{}', 22), 3)"
    assert 0 == rack[0].ssh("python3", "-c", ask.format(rack[1].address)).returncode
    beyond = rack[0].ssh("python3", "-c", ask.format("192.0.2.1"), check=False)
    assert "Network is unreachable" in beyond.stderr


@pytest.mark.parametrize("engine", ["onnxruntime", "litert"])
def test_it_installs_from_its_package_alone_and_gives_what_the_unsliced_model_gives(
    engine: str, rack: Boards, tmp_path: Path
) -> None:
    model = model_for(engine)
    out = built(rack, tmp_path, model, {"board1_cpu0": layers_of(model)})
    assert {"any", "aarch64"} == of_arch(out / "packages" / "board1")
    installed = deploy(rack, out, "--venv")
    assert 0 == installed.code, installed.err
    told = finished(rack, out, tmp_path / "run.json")
    assert [("board1", engine)] == [(rank["host"], rank["engine"]) for rank in told["ranks"]]


@pytest.mark.parametrize("engine", ["onnxruntime", "litert"])
def test_boards_of_both_kinds_share_a_job(engine: str, rack: Boards, tmp_path: Path) -> None:
    model = model_for(engine)
    layers = layers_of(model)
    half = len(layers) // 2
    mapping = {"board2_cpu0": layers[:half], "board1_cpu0": layers[half:]}
    out = built(rack, tmp_path, model, mapping)
    installed = deploy(rack, out, "--venv")
    assert 0 == installed.code, installed.err
    told = finished(rack, out, tmp_path / "run.json")
    assert ["board2", "board1"] == [rank["host"] for rank in told["ranks"]]


def finished(boards: Boards, out: Path, record: Path) -> dict:
    """Run a few frames and compare them with the unsliced model; return the run's record."""
    ended = run(boards, out, "--frames", "3", "--verify", "--json", str(record))
    assert 0 == ended.code, ended.err
    told = json.loads(record.read_text())
    assert 3 == told["completed"]
    return told


def layers_of(model: Path) -> list[str]:
    return [layer.name for layer in read_model(model).graph.layers]
