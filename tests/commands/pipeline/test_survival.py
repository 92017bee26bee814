"""Which plan follows when a board is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from profiled_layers import kind_of, profile_of
from real_jobs import chain

import rankslice
from rankslice.commands.build.build import BuildOptions, build
from rankslice.commands.build_folder import read_plan
from rankslice.commands.pipeline.survival import Survivors, accused_boards
from rankslice.framework.errors import RankSliceError

LAYERS = 6
A, B, C = (frozenset({name}) for name in "abc")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chain on three boards on this machine, two of which may be lost."""
    folder = tmp_path_factory.mktemp("survivors")
    onnx.save(chain(LAYERS), folder / "model.onnx")
    keys = [f"{name}_cpu0" for name in "abc"]
    mapping = {key: [f"L{2 * n}..L{2 * n + 1}"] for n, key in enumerate(keys)}
    (folder / "mapping.json").write_text(json.dumps(mapping))
    hosts = {name: {"host": f"10.0.0.{n}", "cores": 2} for n, name in enumerate("abc", 1)}
    (folder / "boards.yaml").write_text(json.dumps({"boards": hosts}))
    profile = profile_of(folder / "model.onnx", LAYERS, kind_of(LAYERS, (10.0,), *keys))
    (folder / "profile.json").write_text(profile)
    names = ("model.onnx", "mapping.json", "boards.yaml", "out")
    options = BuildOptions(profile=folder / "profile.json", survive=("a", "b"))
    return build(*(folder / name for name in names), options).folder


class Prepare:
    """Stands for the checks of a run; those of some folders fail."""

    def __init__(self) -> None:
        self.failing: set[str] = set()
        self.asked: list[str] = []

    def __call__(self, folder: Path) -> Any:
        self.asked.append(folder.name)
        if folder.name in self.failing:
            raise RankSliceError(f"board of {folder.name} does not answer")
        return folder.name


@pytest.mark.parametrize(
    ("message", "boards"),
    [
        ("rank 1 (b_cpu0 on 10.0.0.2): the process was killed or crashed, last at start", B),
        (
            "rank 2 (c_cpu0 on 10.0.0.3): no sign of life for 5 s from rank 1 (b_cpu0 on 10.0.0.2),"
            " last heard at segment 0, frame 7: it is stopped",
            B,
        ),
        (
            "rank 2 (c_cpu0 on 10.0.0.3): no sign of life for 5 s from rank 1 (b_cpu0 on 10.0.0.2),"
            " last heard at start; boards board a (10.0.0.1) and board b (10.0.0.2) did not answer",
            A | B,
        ),
        ("board c (10.0.0.3): all ranks there have ended at once", C),
        ("mpirun ended with exit code 1", frozenset()),
        ("rank 7 (x on y): segment 0", frozenset()),
    ],
)
def test_the_message_of_a_failed_job_tells_which_boards_are_lost(
    out: Path, message: str, boards: frozenset[str]
) -> None:
    assert boards == accused_boards(RankSliceError(message), read_plan(out))


def test_the_run_without_a_board_is_checked_beforehand(out: Path) -> None:
    prepare = Prepare()
    survivors = Survivors(out, prepare)
    survivors.check()
    assert ["a", "b"] == sorted(prepare.asked)
    assert ("a", A) == survivors.next_run(A, frozenset())
    assert 2 == len(prepare.asked)


def test_with_a_board_that_is_lost_already_its_plan_is_checked_alone(out: Path) -> None:
    prepare = Prepare()
    prepare.failing = {"b"}
    survivors = Survivors(out, prepare)
    assert ("a", A) == survivors.next_run(survivors.losable(A, None), frozenset())
    with pytest.raises(RankSliceError, match=r"is off\n.*not built to continue without c"):
        survivors.losable(C, RankSliceError("board c is off"))


def test_a_board_that_answers_is_used_again(out: Path) -> None:
    prepare = Prepare()
    survivors = Survivors(out, prepare)
    survivors.check()
    survivors.next_run(A, frozenset())
    assert ("b", B) == survivors.next_run(B, A)
    assert ("a", A) == survivors.next_run(A, B)
    assert ["a", "a", "b"] == sorted(prepare.asked)


def test_a_second_board_that_is_lost_is_planned_for_afresh(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = Prepare()
    survivors = Survivors(out, prepare)
    survivors.check()
    survivors.take_all()
    prepare.failing = {"b"}
    deployed = []
    place = "rankslice.commands.deploy.deploy.deploy"
    monkeypatch.setattr(place, lambda deployment: deployed.append(deployment.work))
    assert ("a+b", A | B) == survivors.next_run(B, A)
    assert ["c"] == [shell.login.board for shell, _ in deployed[0]]
    assert {"c"} == {rank.board for rank in read_plan(out / "without" / "a+b").ranks}


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("mpirun ended with exit code 1", "no board is to blame"),
        (
            "board c (10.0.0.3): is gone",
            "not built to continue without c; build it with --survive a,b,c",
        ),
    ],
)
def test_a_failure_that_is_no_lost_board_is_told(out: Path, message: str, told: str) -> None:
    with pytest.raises(RankSliceError, match=told):
        Survivors(out, Prepare()).accused(read_plan(out), RankSliceError(message), 0)


def test_jobs_that_fail_without_a_result_are_not_started_forever(out: Path) -> None:
    survivors, plan = Survivors(out, Prepare()), read_plan(out)
    lost = RankSliceError("rank 0 (a_cpu0 on 10.0.0.1): segment 0, frame 3: ValueError")
    for completed in (3, 3, 3, 4, 4, 4):
        assert A == survivors.accused(plan, lost, completed)
    with pytest.raises(RankSliceError, match="3 jobs in a row have given no result"):
        survivors.accused(plan, lost, 4)


def test_a_folder_that_was_not_built_to_survive_says_so(tmp_path: Path, out: Path) -> None:
    plain = out / "without" / "a"
    with pytest.raises(RankSliceError, match="--survive"):
        Survivors(plain, Prepare())


def test_what_needs_survive_says_so(out: Path) -> None:
    with pytest.raises(RankSliceError, match="standby: is of use only with survive"):
        rankslice.open(out, standby=True)
