"""Which plan follows when a board is lost."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rankslice.backend.boards.login import is_this_machine
from rankslice.backend.launch.messages import accused_rank
from rankslice.commands.build_folder import read_plan
from rankslice.commands.job.prepare import PreparedRun
from rankslice.commands.survival import read_survival
from rankslice.framework.errors import RankSliceError
from rankslice.framework.plan import Plan
from rankslice.framework.wording import joined

_MOST_FRUITLESS = 3
"""Jobs in a row that give no result before another cause than a lost board is supposed."""


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

    def __str__(self) -> str:
        """Return it for users."""
        return f"{self.reason}; going on without {joined(sorted(self.without))}"


class Survivors:
    """The plans for boards that are left."""

    def __init__(
        self,
        folder: Path,
        prepare: Callable[[Path], PreparedRun],
        ssh_config: Path | None = None,
    ) -> None:
        """Take a build folder that was built to survive.

        Args:
            folder: made by ``build --survive``.
            prepare: returns a run of a build folder.
            ssh_config: handed to ssh as ``-F``.

        Raises:
            RankSliceError: it was built without ``--survive``.
        """
        self._folder, self._prepare, self._ssh_config = folder, prepare, ssh_config
        self._survival = read_survival(folder)
        self._prepared: dict[frozenset[str], PreparedRun] = {}
        self._fruitless = 0
        self._completed = -1

    def check(self) -> None:
        """Check for each board that may be lost that the others can run its plan.

        Raises:
            RankSliceError: they cannot.
        """
        alone = [frozenset({board}) for board in sorted(self._survival.boards)]
        with ThreadPoolExecutor(len(alone)) as threads:
            runs = threads.map(self._without, alone)
            self._prepared = dict(zip(alone, runs, strict=True))

    def take_all(self) -> dict[frozenset[str], PreparedRun]:
        """Return the runs for the loss of each board; they are started now."""
        taken, self._prepared = self._prepared, {}
        return taken

    def accused(self, plan: Plan, error: RankSliceError, completed: int) -> frozenset[str]:
        """Return the boards that a job has lost.

        Args:
            plan: of the job.
            error: why it has failed.
            completed: how many results have come, of all jobs.

        Raises:
            RankSliceError: the failure is not that of boards which may be lost.
        """
        self._fruitless = self._fruitless + 1 if completed == self._completed else 0
        self._completed = completed
        if self._fruitless >= _MOST_FRUITLESS:
            raise RankSliceError(
                f"{_MOST_FRUITLESS} jobs in a row have given no result: a board is not the cause"
            )
        accused = accused_boards(error, plan)
        if not accused:
            raise RankSliceError("no board is to blame, so the job is not started without one")
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

        Args:
            accused: boards that have just been lost.
            lost: boards that were lost before.

        Raises:
            RankSliceError: the boards that are left cannot run the model.
        """
        if accused in self._prepared:  # a run starts once
            return self._prepared.pop(accused), accused
        if not lost <= accused:
            with suppress(RankSliceError):
                return self._without(accused), accused
        return self._without(accused | lost), accused | lost

    def _without(self, lost: frozenset[str]) -> PreparedRun:
        folder = self._survival.fallback(lost)
        if folder is not None:
            return self._prepare(folder)
        # What builds is large to load, and a second loss is rare.
        from rankslice.commands.build.survival import plan_afresh
        from rankslice.commands.deploy.deploy import deploy, plan_deployment

        folder = plan_afresh(self._folder, lost)
        if not all(is_this_machine(rank.host) for rank in read_plan(folder).ranks):
            deploy(plan_deployment(folder, ssh_config=self._ssh_config))
        return self._prepare(folder)


def accused_boards(error: RankSliceError, plan: Plan) -> frozenset[str]:
    """Return the boards that the message of a failed job blames."""
    text = str(error)
    named = {rank.board for rank in plan.ranks if f"board {rank.board} (" in text}
    number = accused_rank(text)
    if not named and number is not None and number < len(plan.ranks):
        named = {plan.ranks[number].board}
    return frozenset(named)
