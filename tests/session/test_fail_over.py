"""Which plan follows when a board is lost."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import onnx
import pytest
from profiled_layers import kind_of, profile_of
from real_jobs import chain

import rankslice
from rankslice.backend.launch.messages import BoardMessage
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.plan import Plan
from rankslice.session.build_folder import read_plan
from rankslice.session.building.build import BuildOptions, build
from rankslice.session.building.plan_afresh import plan_afresh
from rankslice.session.fail_over import Survivors, accused_boards

LAYERS = 6
A, B, C = (frozenset({name}) for name in "abc")
NOBODY = frozenset[str]()


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


class Checked(str):
    """Stands for a run: the name of its folder."""

    plan: Plan


class Prepare:
    """Stands for the checks of a run; those that need a board which is off fail."""

    def __init__(self) -> None:
        self.off: set[str] = set()
        self.asked: list[str] = []
        self.answers = threading.Event()
        """Whether a board that is off is told at once, instead of after a long time."""
        self.answers.set()

    def __call__(self, folder: Path) -> Any:
        self.asked.append(folder.name)
        run = Checked(folder.name)
        run.plan = read_plan(folder)
        if off := self.off & {rank.board for rank in run.plan.ranks}:
            self.answers.wait(30)
            raise RankSliceError(f"{min(off)} does not answer")
        return run


@pytest.fixture
def checked(out: Path) -> tuple[Prepare, Survivors]:
    """The plans for boards that are left, after the check at the beginning."""
    prepare = Prepare()
    survivors = Survivors(out, prepare, plan_afresh)
    survivors.check()
    return prepare, survivors


@pytest.mark.parametrize(
    ("message", "boards"),
    [
        ("rank 1 (b_cpu0 on 10.0.0.2): the process was killed or crashed, last at start", B),
        (
            "rank 2 (c_cpu0 on 10.0.0.3): no sign of life for 5 s from rank 1 (b_cpu0 on 10.0.0.2),"
            " last heard at segment 0, frame 7: it is stopped",
            B,
        ),
        ("mpirun ended with exit code 1", NOBODY),
        ("rank 7 (x on y): segment 0", NOBODY),
        ("rank 1 (b_cpu0 on 10.0.0.2): segment 1, frame 7: board a (10.0.0.1) is gone", B),
        (
            "rank 1 (b_cpu0 on 10.0.0.2): segment 1, frame 7: no sign of life for"
            " 5 s from rank 0 (a_cpu0 on 10.0.0.1)",
            B,
        ),
        ("the engine: rank 0 (a_cpu0 on 10.0.0.1): the process was killed or crashed", NOBODY),
    ],
)
def test_the_message_of_a_failed_job_tells_which_boards_are_lost(
    out: Path, message: str, boards: frozenset[str]
) -> None:
    assert boards == accused_boards(RankSliceError(message), read_plan(out))


SILENCE = "rank 2 (c_cpu0 on 10.0.0.3): no sign of life for 5 s from rank {} ({}_cpu0 on 10.0.0.9)"


@pytest.mark.parametrize(
    ("mistake", "boards"),
    [
        (Mistake("board c (10.0.0.3)", "all ranks there have ended at once"), C),
        (Mistake("board a (10.0.0.1)", "board b (10.0.0.2): rank 2 (c_cpu0 on 10.0.0.3)"), A),
        (Mistake("model.onnx", "board a (10.0.0.1): is gone"), NOBODY),
        (BoardMessage(SILENCE.format(1, "b"), "c"), B),
        (BoardMessage(SILENCE.format(1, "b"), "a"), A),  # a speaks for a rank of c
        (BoardMessage(SILENCE.format(1, "b"), "c", "ab"), A | B),
        (BoardMessage("rank 0 (a_cpu0 on 10.0.0.1): the process was killed or crashed", "b"), B),
        (BoardMessage("rank 0 (a_cpu0 on 10.0.0.1): the process was killed or crashed"), NOBODY),
        (BoardMessage("nothing of the runtime's", "b"), NOBODY),
    ],
)
def test_who_says_something_is_known_by_the_way_on_which_it_came(
    out: Path, mistake: Mistake | BoardMessage, boards: frozenset[str]
) -> None:
    assert boards == accused_boards(RankSliceError(mistake), read_plan(out))


def test_a_boards_word_against_another_one_counts_once(out: Path) -> None:
    survivors, plan = Survivors(out, Prepare(), plan_afresh), read_plan(out)
    for silent, board, found in ((1, "b", B), (2, "c", A)):
        text = f"rank 0 (a_cpu0 on x): no sign of life for 5 s from rank {silent} ({board}_cpu0 on"
        assert found == survivors.accused(plan, RankSliceError(BoardMessage(text, "a")), silent)


def test_the_run_without_a_board_is_checked_beforehand(checked: tuple[Prepare, Survivors]) -> None:
    prepare, survivors = checked
    assert ["a", "b"] == sorted(prepare.asked)
    assert ("a", A) == survivors.next_run(A, NOBODY)
    assert 2 == len(prepare.asked)


def test_with_a_board_that_is_lost_already_its_plan_is_checked_alone(out: Path) -> None:
    prepare = Prepare()
    prepare.off = {"a"}
    survivors = Survivors(out, prepare, plan_afresh)
    assert ("a", A) == survivors.next_run(survivors.losable(A, None), NOBODY)
    with pytest.raises(RankSliceError, match=r"is off\n.*not built to continue without c"):
        survivors.losable(C, RankSliceError("board c is off"))


def test_a_board_that_answers_is_used_again(checked: tuple[Prepare, Survivors]) -> None:
    """It is asked again: the run of the beginning was prepared before it was lost."""
    prepare, survivors = checked
    survivors.next_run(A, NOBODY)
    assert ("b", B) == survivors.next_run(B, A)
    assert ("a", A) == survivors.next_run(A, B)
    assert ["a", "a", "b", "b"] == sorted(folder for folder in prepare.asked if "+" not in folder)


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Deployments are noted, not made: the boards that get a package."""
    boards: list[str] = []

    def deploy(deployment: Any, *, beside: int) -> None:
        assert beside >= 4
        boards.extend(shell.login.board for shell, _ in deployment.work)

    monkeypatch.setattr("rankslice.session.deployment.deploy", deploy)
    return boards


@pytest.mark.parametrize("says_so_at_once", [True, False])
def test_a_second_board_that_is_lost_is_planned_for_afresh(
    out: Path, checked: tuple[Prepare, Survivors], deployed: list[str], says_so_at_once: bool
) -> None:
    prepare, survivors = checked
    survivors.next_run(A, NOBODY)
    prepare.off = {"a", "b"}
    if not says_so_at_once:
        prepare.answers.clear()
    begin = time.monotonic()
    assert ("a+b", A | B) == survivors.next_run(B, A)
    assert time.monotonic() - begin < 20
    prepare.answers.set()
    assert {"c"} == set(deployed)
    assert {"c"} == {rank.board for rank in read_plan(out / "without" / "a+b").ranks}


def test_what_follows_the_next_loss_is_prepared_after_each(
    checked: tuple[Prepare, Survivors], deployed: list[str]
) -> None:
    prepare, survivors = checked
    assert [A, B] == list(survivors.spares(NOBODY, ()))
    survivors.next_run(A, NOBODY)
    prepare.off = {"a"}
    assert [A | B] == list(survivors.spares(A, ()))
    asked = len(prepare.asked)
    assert ("a+b", A | B) == survivors.next_run(B, A)
    assert ["b"] == prepare.asked[asked:]  # in case that a is back


def test_a_run_that_was_being_prepared_when_a_board_got_lost_is_not_taken(
    out: Path, deployed: list[str]
) -> None:
    prepare = Prepare()
    begun, goes_on = threading.Event(), threading.Event()

    def slowly(folder: Path) -> Any:
        run = prepare(folder)
        if folder.name == "b" and prepare.asked.count("b") == 1:
            begun.set()
            goes_on.wait(30)
        return run

    survivors = Survivors(out, slowly, plan_afresh)
    checking = threading.Thread(target=survivors.check)
    checking.start()
    assert begun.wait(30)
    assert ("a", A) == survivors.next_run(A, NOBODY)
    prepare.off = {"a"}
    goes_on.set()
    checking.join(30)
    assert ("a+b", A | B) == survivors.next_run(B, A)


def test_a_run_that_waits_is_not_prepared_again(
    checked: tuple[Prepare, Survivors], deployed: list[str]
) -> None:
    _, survivors = checked
    assert ["a", "b"] == [survivors.take(lost) for lost in survivors.spares(NOBODY, ())]
    assert None is survivors.take(A)
    assert [A] == list(survivors.spares(NOBODY, [B]))
    assert [] == list(survivors.spares(A, [A | B]))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("mpirun ended with exit code 1", "no board is to blame"),
        (
            Mistake("board c (10.0.0.3)", "is gone"),
            "not built to continue without c; build it with --survive a,b,c",
        ),
    ],
)
def test_a_failure_that_is_no_lost_board_is_told(
    out: Path, message: Mistake | str, expected: str
) -> None:
    with pytest.raises(RankSliceError, match=expected):
        Survivors(out, Prepare(), plan_afresh).accused(read_plan(out), RankSliceError(message), 0)


def test_jobs_that_fail_without_a_result_are_not_started_forever(out: Path) -> None:
    survivors, plan = Survivors(out, Prepare(), plan_afresh), read_plan(out)
    lost = RankSliceError("rank 0 (a_cpu0 on 10.0.0.1): segment 0, frame 3: ValueError")
    for completed in (3, 3, 3, 4, 4, 4):
        assert A == survivors.accused(plan, lost, completed)
    with pytest.raises(RankSliceError, match="3 jobs in a row have given no result"):
        survivors.accused(plan, lost, 4)


def test_a_folder_that_was_not_built_to_survive_says_so(tmp_path: Path, out: Path) -> None:
    plain = out / "without" / "a"
    with pytest.raises(RankSliceError, match="--survive"):
        Survivors(plain, Prepare(), plan_afresh)


def test_what_needs_survive_says_so(out: Path) -> None:
    with pytest.raises(RankSliceError, match="standby: is given without survive"):
        rankslice.open(out, standby=True)
