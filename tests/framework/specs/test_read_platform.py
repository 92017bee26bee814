import os
import platform as machine
from pathlib import Path

import pytest
from spec_strategies import FULL_PLATFORM

from rankslice.framework.platform import Accelerator, Board, Link, Platform
from rankslice.framework.specs.read_platform import read_platform


def read(folder: Path, text: str, name: str = "platform.yaml") -> Platform:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_platform(path)


def test_a_yaml_file_is_read_in_full(tmp_path: Path) -> None:
    options = (("delegate", "libgpu.so"), ("precision", "fp16"), ("cache", "true"), ("n", "3"))
    cuda = Accelerator("onnxruntime", (("provider", "CUDA"),), allow_fallback=True)
    edge01 = Board(
        name="edge01",
        host="1.10",
        user="no",
        arch="aarch64",
        cores=(0, 1, 2, 3, 4, 5, 7),
        memory_mb=8192,
        gpus=(Accelerator("litert", options),),
        npus=(Accelerator("litert"), cuda),
        engine="litert",
        idle_w=2.5,
        busy_w=12,
    )
    boards = (
        edge01,
        Board("edge_02.lan", "edge_02.lan", cores=(0, 1, 4, 5)),
        Board("edge-03", "edge-03", cores=(0, 1, 2)),
        Board("edge04", "edge04"),
    )
    links = (("edge01", "edge-03", Link(100, 0)),)
    expected = Platform("platform.yaml", boards, Link(1000, 0.2), links)
    assert expected == read(tmp_path, FULL_PLATFORM)


def test_a_list_with_one_core_is_that_core_and_a_number_is_a_count(tmp_path: Path) -> None:
    boards = read(tmp_path, "boards: {a: {cores: [2]}, b: {cores: 2}, c: {cores: '2'}}").boards
    assert [(2,), (0, 1), (0, 1)] == [board.cores for board in boards]


def text_board(folder: Path, line: str) -> Board:
    (board,) = read(folder, line, "platform.txt").boards
    return board


CUDA = (Accelerator("onnxruntime", (("provider", "CUDAExecutionProvider"),)),)
OTHER = (Accelerator(""),)
SIX = tuple(range(6))


@pytest.mark.parametrize(
    ("line", "board"),
    [
        ("nx01", Board("nx01", "nx01")),
        ("nx01:192.168.178.45", Board("nx01", "192.168.178.45")),
        ("nx01 slots=4", Board("nx01", "nx01", cores=(0, 1, 2, 3))),
        ("nx01 slots=0,2,4", Board("nx01", "nx01", cores=(0, 2, 4))),
        ("nx01 x86 slots = 0-5", Board("nx01", "nx01", arch="x86", cores=SIX)),
        (
            "edge01 arm slots=0-5 NVIDIAVolta CUDA",
            Board("edge01", "edge01", arch="arm", cores=SIX, gpus=CUDA),
        ),
        (
            "nx01, arm, slots=0-5, gpu=NVIDIAVolta (CUDA)",
            Board("nx01", "nx01", arch="arm", cores=SIX, gpus=CUDA),
        ),
        ("nx01;arm;slots=0-5;NVIDIA", Board("nx01", "nx01", arch="arm", cores=SIX, gpus=CUDA)),
        ("pi gpu", Board("pi", "pi", gpus=OTHER)),
        (
            "pi\tarm\tslots=0-5\tMali VULKAN # GPU",
            Board("pi", "pi", arch="arm", cores=SIX, gpus=OTHER),
        ),
    ],
)
def test_autodices_lines_are_read_in_all_their_forms(
    tmp_path: Path, line: str, board: Board
) -> None:
    assert board == text_board(tmp_path, line)


def test_autodices_file_of_names_is_read(tmp_path: Path) -> None:
    boards = read(tmp_path, "nx01\nnx02\n\n# the last two\nnx03\nnx04\n", "platform.txt").boards
    assert ["nx01", "nx02", "nx03", "nx04"] == [board.name for board in boards]
    assert {None} == {board.cores for board in boards}


def test_local_is_this_machine() -> None:
    result = read_platform("local")
    (board,) = result.boards
    assert ("local", "local", "localhost") == (result.name, board.name, board.host)
    assert tuple(sorted(os.sched_getaffinity(0))) == board.cores
    assert machine.machine() == board.arch
    assert board.memory_mb is not None
    assert board.memory_mb > 100


def test_accelerators_have_providers_environments_and_fallbacks(tmp_path: Path) -> None:
    text = """
boards:
  edge01:
    cpu: {engine: onnxruntime, provider: XNNPACK}
    gpu:
      engine: onnxruntime
      provider: CUDA
      plugin: onnxruntime-ep-cuda
      options: {device_id: 1}
      environment: {CUDA_VISIBLE_DEVICES: "0,1"}
      allow_fallback: true
"""
    gpu = Accelerator(
        "onnxruntime",
        (("provider", "CUDA"), ("plugin", "onnxruntime-ep-cuda"), ("device_id", "1")),
        (("CUDA_VISIBLE_DEVICES", "0,1"),),
        allow_fallback=True,
    )
    board = read(tmp_path, text).boards[0]
    assert (Accelerator("onnxruntime", (("provider", "XNNPACK"),)), gpu) == (
        board.cpu,
        *board.gpus,
    )
