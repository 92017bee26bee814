"""Slices told by where they begin: ``build --cuts``."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from pathlib import Path

import onnx
import pytest
from command_line import COMMAND, rankslice
from jobs import figure_2
from line_graphs import line_graph

from rankslice.framework.errors import RankSliceError
from rankslice.framework.graph import Graph
from rankslice.framework.platform import Accelerator, Board, Platform
from rankslice.framework.specs.read_platform import local_platform
from rankslice.session.building.cut_mapping import mapping_of_cuts, parse_cuts
from rankslice.views.inspection import layer_numbers

GPU = Accelerator("litert")
BOARDS = Platform(
    "boards.yaml",
    (
        Board("a", "a", cores=(0, 1, 2, 3), gpus=(GPU,), npus=(GPU, GPU)),
        Board("b", "b", cores=(4,)),
        Board("c", "c"),
    ),
)


def chain(count: int) -> Graph:
    lines = [f"layer{n}: t{n} -> t{n + 1}" for n in range(count)]
    return line_graph("\n".join(lines), f"t{count}", "t0")


@pytest.fixture
def figure(tmp_path: Path) -> Path:
    onnx.save(figure_2(), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def test_slices_begin_with_the_layers_of_these_numbers() -> None:
    graph = chain(6)
    names = [layer.name for layer in graph.layers]
    mapping = mapping_of_cuts((3, 4))(graph, BOARDS)
    expected = [tuple(names[:2]), tuple(names[2:3]), tuple(names[3:])]
    assert expected == [entry.layers for entry in mapping.entries]
    assert {name: number for number, name in enumerate(names, 1)} == layer_numbers(graph)


def test_slices_go_to_the_accelerators_in_order_and_cores_are_left_to_drive_them() -> None:
    mapping = mapping_of_cuts((2, 3, 4, 5, 6))(chain(6), BOARDS)
    expected = ["a_cpu3", "a_gpu", "a_npu", "a_npu1", "b_cpu4", "c_cpu0"]
    assert expected == [entry.key for entry in mapping.entries]
    mapping = mapping_of_cuts((2,))(chain(6), BOARDS)
    assert ["a_cpu1-3", "a_gpu"] == [entry.key for entry in mapping.entries]


def test_on_this_machine_each_slice_has_a_core() -> None:
    cores = sorted(os.sched_getaffinity(0))
    mapping = mapping_of_cuts((2,), share_cores=True)(chain(3), local_platform())
    expected = [f"local_cpu{cores[0]}", f"local_cpu{cores[1]}" if len(cores) > 1 else None]
    assert expected[0] == mapping.entries[0].key
    assert (expected[1] or f"local_cpu{cores[0]}.2") == mapping.entries[1].key


def test_more_slices_than_cores_need_to_share_them() -> None:
    count = len(os.sched_getaffinity(0)) + 1
    graph, cuts = chain(count), tuple(range(2, count + 1))
    with pytest.raises(RankSliceError, match="--share-cores"):
        mapping_of_cuts(cuts)(graph, local_platform())
    mapping = mapping_of_cuts(cuts, share_cores=True)(graph, local_platform())
    assert mapping.entries[-1].key == f"{mapping.entries[0].key}.2"


@pytest.mark.parametrize("cuts", [(1,), (0,), (7,), (3, 3), (4, 2)])
def test_numbers_that_are_no_cuts_are_refused(cuts: tuple[int, ...]) -> None:
    with pytest.raises(RankSliceError, match="--cuts"):
        mapping_of_cuts(cuts)(chain(6), BOARDS)


@pytest.mark.parametrize("text", ["", "x", "3,", "-1", "1.5", "²", "9" * 5000])
def test_what_is_not_a_list_of_numbers_is_refused(text: str) -> None:
    with pytest.raises(RankSliceError, match="not a list of numbers"):
        parse_cuts(text)


def test_a_model_is_cut_where_it_is_told(figure: Path) -> None:
    out = figure.parent / "out"
    ended = rankslice("build", figure, "--cuts", "2, 4", "--share-cores", "--out", out)
    assert (0, "") == (ended.code, ended.err)
    assert "ranks: 3; segments: 3" in ended.out


def test_cuts_are_asked_for_at_a_terminal(figure: Path) -> None:
    ours, theirs = pty.openpty()
    arguments = ("build", figure, "--share-cores", "--out", figure.parent / "out")
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)], stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    asked = read_until(ours, "cuts:")
    os.write(ours, b"3\n")
    answered = read_until(ours, "written to")
    os.close(ours)
    assert 0 == process.wait(60)
    assert "cuts, narrowest first" in asked
    assert "ranks: 2; segments: 2" in answered


def read_until(terminal: int, text: str) -> str:
    """Return what a terminal shows until a text is there, or for a minute."""
    shown, end = "", time.monotonic() + 60
    while text not in shown and select.select([terminal], [], [], end - time.monotonic())[0]:
        shown += os.read(terminal, 4096).decode("utf-8", "replace")
    return shown


def test_nobody_is_asked_without_a_terminal(figure: Path) -> None:
    ended = subprocess.run(
        [*COMMAND, "build", str(figure)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert 2 == ended.returncode
    assert "neither this nor --cuts is given" in ended.stderr


def test_inspect_numbers_the_cuts(figure: Path) -> None:
    shown = rankslice("inspect", figure).out
    table = shown[shown.index("cuts, narrowest") :]
    rows = [line.split() for line in table.splitlines() if line.strip()[:1].isdigit()]
    assert {"2", "3", "4", "5"} == {row[0] for row in rows[:4]}
