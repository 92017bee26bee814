"""Which plan follows when a board is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, as_completed, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from rankslice.backend.boards.login import Login, is_this_machine
from rankslice.backend.launch.messages import BoardMessage, accused_rank
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.plan import Plan
from rankslice.framework.wording import joined
from rankslice.session.build_folder import read_plan
from rankslice.session.keeper.job_connections import start_thread
from rankslice.session.prepare import PreparedRun
from rankslice.session.survival import read_survival

PlanAfresh: TypeAlias = Callable[[Path, frozenset[str]], Path]
"""Builds a build folder's model for the boards that are left when some are lost; returns the new
build folder.

Raises:
    RankSliceError: no mapping can run on the boards that are left.
"""


def plan_afresh(folder: Path, lost: frozenset[str]) -> Path:
    # What builds is large to load, and a second loss is rare.
    from rankslice.session.building import plan_afresh as building

    return building.plan_afresh(folder, lost)


_MAX_FRUITLESS = 3
"""Jobs in a row that give no result before another cause than a lost board is supposed."""
_BACK_S = 1.5
"""Time for a board that was lost before to show that it is back: it answers within a second."""

_PLANNING = threading.Lock()


@dataclass(frozen=True, slots=True)
class Restart:
    """A job that takes over from one that has failed."""

    reason: RankSliceError
    """Why that one has failed."""
    without: frozenset[str]
    """Boards that are not used any more."""
    folder: Path
    """The build folder of the job that takes over."""
    completed: int
    """How many results had come."""
    recovered_s: float | None = None
    """From the last result before it to the first one after it; ``None``: unknown yet, or there is
    no such result."""

    def __str__(self) -> str:
        return f"{self.reason}; going on without {joined(sorted(self.without))}"

    def to_json(self) -> dict[str, Any]:
        """Return the values for ``run --json``."""
        return {
            "reason": str(self.reason),
            "without": sorted(self.without),
            "completed": self.completed,
            "recovered_s": self.recovered_s,
        }


class Survivors:
    def __init__(
        self,
        folder: Path,
        prepare: Callable[[Path], PreparedRun],
        plan_afresh: PlanAfresh = plan_afresh,
        ssh_config: Path | None = None,
    ) -> None:
        """Take a build folder, and what prepares a job of one.

        ``plan_afresh`` is for the loss of more boards than the build folder is prepared for.
        """
        self._folder, self._prepare, self._ssh_config = folder, prepare, ssh_config
        self._plan_afresh = plan_afresh
        self._survival = read_survival(folder)
        self._runs: dict[frozenset[str], Future[PreparedRun]] = {}
        """By the boards that they do without; prepared, or about to be."""
        self._changing = threading.Lock()
        self._witnesses = frozenset[str]()
        """Boards that have accused another one."""
        self._fruitless = 0
        self._completed = -1

    def check(self) -> None:
        """Check for each board that may be lost that the others can run its plan."""
        for sought in [self._seek(frozenset({board})) for board in sorted(self._survival.boards)]:
            sought.result()

    def spares(
        self, lost: frozenset[str], waiting: Collection[frozenset[str]]
    ) -> Iterator[frozenset[str]]:
        """Prepare for the next loss of each board; yield what each of the runs does without.

        Boards that were lost are used if they answer.

        Args:
            lost: boards that the job does without.
            waiting: what runs that have been started for that do without.
        """
        alone = [frozenset({board}) for board in sorted(self._survival.boards - lost)]
        left = [board for board in alone if not {board, board | lost} & set(waiting)]
        for accused in left:
            self._seek(accused)
        for accused in left:
            with suppress(RankSliceError):
                yield self._prepared(accused, lost)

    def take(self, without: frozenset[str]) -> PreparedRun | None:
        """Return a run that is prepared; it is started now. ``None``: it has been."""
        with self._changing:
            sought = self._runs.get(without)
            if sought is None or not sought.done() or sought.exception() is not None:
                return None
            return self._runs.pop(without).result()

    def accused(self, plan: Plan, error: RankSliceError, completed: int) -> frozenset[str]:
        """Return the boards that a job has lost, when so many results had come of all jobs.

        Raises:
            RankSliceError: the failure is not that of boards which may be lost.
        """
        self._fruitless = self._fruitless + 1 if completed == self._completed else 0
        self._completed = completed
        if self._fruitless >= _MAX_FRUITLESS:
            raise RankSliceError(
                f"{_MAX_FRUITLESS} jobs in a row have given no result: a board is not the cause"
            )
        accused = accused_boards(error, plan)
        if not accused:
            raise RankSliceError("no board is to blame, so the job is not started without one")
        senders = {
            message.sender
            for message in error.mistakes
            if isinstance(message, BoardMessage) and not message.silent
        }
        if hearsay := self._survival.boards & (senders - accused):
            # Its word against another board's counts once: then it is more likely at fault itself.
            accused = hearsay if hearsay <= self._witnesses else accused
            self._witnesses |= hearsay
        return self.losable(accused, None)

    def losable(self, accused: frozenset[str], reason: RankSliceError | None) -> frozenset[str]:
        """Return the boards if a job may go on without them.

        Raises:
            RankSliceError: it was not built for that; after the reason why they are lost.
        """
        if unplanned := sorted(accused - self._survival.boards):
            names = ",".join(sorted(self._survival.boards | accused))
            raise RankSliceError(
                *(() if reason is None else reason.mistakes),
                f"the job was not built to continue without {joined(unplanned)}; build it with"
                f" --survive {names}",
            )
        return accused

    def next_run(
        self, accused: frozenset[str], lost: frozenset[str]
    ) -> tuple[PreparedRun, frozenset[str]]:
        """Return the run that takes over, and the boards that it does without.

        Boards that were lost before are used again if they answer.

        Raises:
            RankSliceError: the boards that are left cannot run the model.
        """
        with self._changing:
            self._runs = {
                without: sought
                for without, sought in self._runs.items()
                if not _may_need(without, sought, accused)
            }
        while True:
            without = self._prepared(accused, lost)
            if (run := self.take(without)) is not None:  # else it has just been taken for a spare
                return run, without

    def _prepared(self, accused: frozenset[str], lost: frozenset[str]) -> frozenset[str]:
        """Wait for a run that is prepared for a loss; return the boards that it does without."""
        runs = {(alone := self._seek(accused)): accused}
        if not lost <= accused:
            wait([alone], _BACK_S)
            if not alone.done() or alone.exception():
                runs[self._seek(accused | lost)] = accused | lost
        for sought in as_completed(runs):
            error = sought.exception()
            if error is None:
                return runs[sought]
        assert error is not None
        raise error

    def _seek(self, without: frozenset[str]) -> Future[PreparedRun]:
        with self._changing:
            known = self._runs.get(without)
            if known is not None and not (known.done() and known.exception()):
                return known
            sought = self._runs[without] = Future[PreparedRun]()
        start_thread("plan", self._find, without, sought)
        return sought

    def _find(self, without: frozenset[str], sought: Future[PreparedRun]) -> None:
        try:
            sought.set_result(self._without(without))
        except BaseException as error:
            sought.set_exception(error)

    def _without(self, lost: frozenset[str]) -> PreparedRun:
        folder = self._survival.fallback(lost)
        if folder is None or len(lost) > 1:
            from rankslice.session.deployment import deploy, plan_deployment

            with _PLANNING:
                folder = self._plan_afresh(self._folder, lost)
            if not all(is_this_machine(rank.host) for rank in read_plan(folder).ranks):
                # Beside the packages for each loss, and for this one's successors.
                beside = 2 * len(self._survival.boards)
                deploy(plan_deployment(folder, ssh_config=self._ssh_config), beside=beside)
        return self._prepare(folder)


def accused_boards(error: RankSliceError, plan: Plan) -> frozenset[str]:
    """Return the boards that a failed job has lost, by what the launcher knows of each message.

    A text can name any board, as engines and models have their words in it. So a board is lost if
    the launcher itself found that, or if a message that came from there, or from a rank that
    listens to it, begins with the words of the runtime.
    """
    hosts = {rank.board: rank.host for rank in plan.ranks}
    names = {Login(board, host).full_name: board for board, host in hosts.items()}
    known: set[str] = set()
    for mistake in error.mistakes:
        if isinstance(mistake, BoardMessage):
            known |= mistake.silent
        elif isinstance(mistake, Mistake) and mistake.where in names:
            known.add(names[mistake.where])
    for message in error.mistakes:
        if not known and isinstance(message, str):
            known |= _accused_by(message, plan)
    return frozenset(known & hosts.keys())


def _accused_by(message: str, plan: Plan) -> frozenset[str]:
    ranks = dict(enumerate(rank.board for rank in plan.ranks))
    reporter, accused = (ranks.get(number, "") for number in accused_rank(message))
    if (
        reporter and isinstance(message, BoardMessage) and reporter != message.sender
    ):  # it speaks for another board
        return frozenset({message.sender})
    return frozenset({accused})


def _may_need(without: frozenset[str], sought: Future[PreparedRun], lost: frozenset[str]) -> bool:
    if not sought.done():  # its plan is unknown, and the board may have been there when it began
        return not lost <= without
    if sought.exception() is not None:
        return False
    return not lost.isdisjoint(rank.board for rank in sought.result().plan.ranks)
