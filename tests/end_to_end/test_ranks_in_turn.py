"""Ranks that take turns, under a real mpirun: every bit is that of the unsliced model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from command_line import rankslice, succeed
from jobs import turn_keys
from litert_engines import needs_litert
from real_jobs import chain_folder, debians_mpirun, let_ranks_sleep, shared_keys

from rankslice.backend.runtime.options import RunOptions
from rankslice.session.run import prepare, run

MODELS = Path(__file__).parents[2] / "models"
FRAMES = 50


@dataclass(frozen=True, slots=True)
class Case:
    """A model and how it is shared out."""

    model: str
    entries: tuple[str, ...]
    """A range of layers each."""
    weights: Mapping[int, Sequence[int]]
    """By entry, of the ranks that take turns."""
    turns: tuple[str, ...]
    """By rank, which frames it handles."""
    input: tuple[str, ...] = ("--frames", str(FRAMES))
    frames: int = FRAMES


DIGITS = ("conv1..pool1", "conv3..softmax")
CASES = {
    "the whole": Case("digits.onnx", ("conv1..softmax",), {0: (1, 1)}, ("0 of 2", "1 of 2")),
    "second half": Case("digits.onnx", DIGITS, {1: (2, 1)}, ("all", "0, 2 of 3", "1 of 3")),
    "both halves": Case(
        *("digits.onnx", DIGITS, {0: (1, 1), 1: (1, 1, 1)}),
        ("0 of 2", "1 of 2", "0 of 3", "1 of 3", "2 of 3"),
    ),
    "first half of tflite": Case(
        *("digits.tflite", ("CONV_2D_0..MAX_POOL_2D_2", "CONV_2D_3..SOFTMAX_10"), {0: (1, 1)}),
        ("0 of 2", "1 of 2", "all"),
    ),
    "a detector's suppression": Case(
        *("digit_detector.onnx", ("conv1..all labels", "suppression..labels"), {1: (1, 1)}),
        ("all", "0 of 2", "1 of 2"),
        ("--input", str(MODELS / "photographs")),
        6,
    ),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build folders that were made so far, by case; and where others go."""
    return {"": tmp_path_factory.mktemp("in-turn")}


def folder_of(name: str, folders: dict[str, Path]) -> Path:
    """Return the build folder of a case."""
    if name not in folders:
        case, place = CASES[name], folders[""] / name
        place.mkdir()
        keys = turn_keys(len(case.entries), case.weights, shared_keys(len(case.turns)).__getitem__)
        layers = [[each] for each in case.entries]
        (place / "mapping.json").write_text(json.dumps(dict(zip(keys, layers, strict=True))))
        ended = rankslice(
            *("build", MODELS / case.model, "--mapping", place / "mapping.json"),
            *("--platform", "local", "--share-cores", "--out", place / "out"),
        )
        assert (0, "") == (ended.code, ended.err)
        folders[name] = place / "out"
    return folders[name]


def ran(name: str, folders: dict[str, Path], *options: str) -> tuple[str, dict[str, Any]]:
    """Run a case with exact verification; return what was shown, and the figures."""
    folder, case = folder_of(name, folders), CASES[name]
    figures = folder.parent / "figures.json"
    ended = succeed("run", folder, *case.input, "--json", figures, "--verify", "exact", *options)
    return ended.out, json.loads(figures.read_text())


def assert_all_came_out_right(name: str, shown: str, figures: dict[str, Any]) -> None:
    case = CASES[name]
    assert case.frames == figures["frames"] == figures["completed"] == figures["verify"]["frames"]
    assert figures["verify"]["bit_equal"]
    rows = [line.split("│") for line in shown.splitlines() if line.startswith("│")]
    assert list(case.turns) == [row[-2].strip() for row in rows]
    for turns, rank in zip(case.turns, figures["ranks"], strict=True):
        positions, _, period = turns.replace("all", "0 of 1").partition(" of ")
        handled = [f for f in range(case.frames) if str(f % int(period)) in positions.split(", ")]
        assert len(handled) == rank["frames"]


def test_the_second_half_of_a_network_in_turn_gives_every_frame_once_in_order_and_right(
    folders: dict[str, Path],
) -> None:
    assert_all_came_out_right("second half", *ran("second half", folders))


@pytest.mark.ci
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("the whole", ()),
        ("the whole", ("--no-direct", "--window", "1")),
        ("second half", ("--no-direct",)),
        ("second half", ("--window", "1")),
        ("both halves", ()),
        ("both halves", ("--no-direct", "--latency")),
        pytest.param("first half of tflite", (), marks=needs_litert),
        pytest.param("first half of tflite", ("--no-direct",), marks=needs_litert),
        ("a detector's suppression", ()),
        ("a detector's suppression", ("--no-direct", "--window", "1")),
    ],
)
def test_ranks_in_turn_give_every_frame_once_in_order_and_right(
    name: str, options: tuple[str, ...], folders: dict[str, Path]
) -> None:
    assert_all_came_out_right(name, *ran(name, folders, *options))


@pytest.mark.ci
@pytest.mark.parametrize("options", [(), ("--no-direct", "--window", "2")])
def test_debians_open_mpi_runs_ranks_in_turn(
    options: tuple[str, ...], folders: dict[str, Path]
) -> None:
    mpirun = ("--mpirun", str(debians_mpirun()))
    assert_all_came_out_right("both halves", *ran("both halves", folders, *mpirun, *options))


@pytest.mark.ci
def test_frames_that_come_by_the_clock_queue_for_ranks_in_turn(folders: dict[str, Path]) -> None:
    shown, figures = ran("both halves", folders, "--fps", "100", "--queue", "20")
    assert_all_came_out_right("both halves", shown, figures)
    assert [] == figures["dropped"]
    assert "the source: 100 frames/s arrive" in figures["bottleneck"]


@pytest.mark.ci
@pytest.mark.parametrize("frames", [0, 1, 2])
def test_some_ranks_may_have_no_frame_at_all(frames: int, folders: dict[str, Path]) -> None:
    folder = folder_of("both halves", folders)
    figures = folder.parent / "figures.json"
    ended = rankslice("run", folder, "--frames", str(frames), "--json", figures)
    assert (0, "") == (ended.code, ended.err)
    handled = [rank["frames"] for rank in json.loads(figures.read_text())["ranks"]]
    assert [int(turn < frames) for turn in (0, 1, 0, 1, 2)] == handled


@pytest.mark.ci
def test_the_slowest_of_ranks_in_turn_is_the_bottleneck_for_its_share_of_the_time(
    tmp_path: Path,
) -> None:
    folder = let_ranks_sleep(
        chain_folder(tmp_path, 2, weights={1: (1, 1)}),
        5,
        options={1: {"sleep_ms": "30"}, 2: {"sleep_ms": "20"}},
    )
    summary = run(prepare(folder, RunOptions(frames=60))).summary
    steady = [rank.steady for rank in summary.ranks if rank.steady]
    assert steady[0]["frames"] == steady[1]["frames"] + steady[2]["frames"]
    first, slow, quick = (each["compute_share"] for each in steady)
    assert slow > 0.9
    assert 2 / 3 == pytest.approx(quick / slow, rel=0.2)
    assert 1 / 3 == pytest.approx(first / slow, rel=0.2)
    assert summary.bottleneck.startswith("rank 1 (")
    assert "; frames 0 of 2) computes 1" in summary.bottleneck
    assert "fewer layers or frames there would make it faster" in summary.bottleneck
