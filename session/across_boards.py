"""A job across boards: its inputs go there, its results come back."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rankslice.backend.boards.preflight import CheckedBoards, copy_inputs
from rankslice.backend.boards.ssh import BoardShell, on_all
from rankslice.backend.boards.watches import Watches
from rankslice.backend.launch.job import run_job
from rankslice.backend.runtime import recording
from rankslice.backend.runtime.figures.events import EVENT, HEAD_BYTES, NAME
from rankslice.backend.runtime.figures.operator_profile import (
    MAX_BYTES as OPERATORS_BYTES,
    NAME as OPERATORS_NAME,
)
from rankslice.backend.runtime.figures.sampling import OF_THE_JOB, Sample, split_name
from rankslice.backend.runtime.job import Rank
from rankslice.backend.runtime.keeper import is_kept
from rankslice.backend.runtime.sinks import results as results_file
from rankslice.framework.errors import RankSliceError
from rankslice.framework.plan import Plan
from rankslice.measurement.rank_report import MAX_REPORT_BYTES
from rankslice.measurement.trace import CLOCKS
from rankslice.session.build_folder import REPORT, RESULTS
from rankslice.session.callbacks import Callbacks
from rankslice.session.prepare import PreparedRun


def run_across(
    prepared: PreparedRun,
    boards: CheckedBoards,
    folder: Path,
    callbacks: Callbacks,
    variables: Mapping[str, str],
) -> None:
    """Run a job across boards; fetch its results whether or not it ends well.

    Raises:
        RankSliceError: the job failed, or its results cannot be fetched.
    """
    if prepared.copied:  # first: a watch gives up on a launcher that is silent for ten seconds
        source = prepared.plan.ranks[prepared.plan.job.source]
        copy_inputs(boards, source.board, prepared.copied)

    def take(board: str, sample: Sample) -> None:
        callbacks.on_sample(board, own_values(prepared.plan, board, sample))

    watches = Watches(
        boards,
        prepared.options.start_timeout_s,
        callbacks.on_failure,
        take,
        has_events=prepared.options.events is not None,
    )

    def oversee(mpirun: subprocess.Popen[str]) -> None:
        watches.oversee(mpirun)
        callbacks.on_start(mpirun)

    files = _JobFiles(prepared, boards, watches, folder)
    try:
        with watches:
            run_job(
                prepared.command_in(folder),
                callbacks.on_completed,
                boards=sum(not shell.is_here for shell, _ in boards.checked),
                variables=variables,
                lines=watches.lines,
                on_start=oversee,
                was_ended=lambda: watches.has_ended_mpirun,
            )
            # mpirun may take a daemon's end for that of the job; only a job that has ended well
            # leaves a report. So the boards are watched until it is here.
            files.fetch(REPORT, MAX_REPORT_BYTES)
            watches.note_success()
            files.fetch_after_success()
    except RankSliceError as error:
        explained = watches.explained(error)
        left_there = files.fetch_results_after_failure()
        files.fetch_last_events()
        raise RankSliceError(*explained.mistakes, *left_there) from None
    except KeyboardInterrupt:
        files.fetch_results_after_failure()
        raise
    if prepared.options.events is not None:
        files.write_clocks()


def own_values(plan: Plan, board: str, sample: Sample) -> Sample:
    """Return a board's sample without values of ranks, or of the job, that are not the board's."""
    own = {number for number, rank in enumerate(plan.ranks) if rank.board == board}
    has_source = plan.job.source in own

    def is_own(name: str) -> bool:
        _, part = split_name(name)
        return part in own if isinstance(part, int) else has_source or name not in OF_THE_JOB

    values = {name: value for name, value in sample.values.items() if is_own(name)}
    return replace(sample, values=values)


@dataclass(frozen=True, slots=True)
class _JobFiles:
    """What a job leaves on its boards, and the folder that it goes to."""

    prepared: PreparedRun
    boards: CheckedBoards
    watches: Watches
    folder: Path

    @property
    def _sink(self) -> BoardShell:
        job = self.prepared.plan.job
        return self.boards.of(job.ranks[job.sink].board)[0]

    @property
    def _has_results(self) -> bool:
        return not self.prepared.discards and not is_kept(self.prepared.options.inputs)

    def fetch(self, name: str, max_bytes: int) -> None:
        """Fetch a file from the sink's board, unless it is larger than a job makes it."""
        self._sink.get(self.boards.run, name, self.folder / name, max_bytes=max_bytes)

    def _fetch_results(self) -> None:
        frames, outputs = self.prepared.source.frames, self.prepared.plan.job.outputs
        room = shutil.disk_usage(self.folder).free
        self.fetch(RESULTS, room if frames is None else results_file.max_bytes(outputs, frames))

    def _fetch_of_ranks(
        self, name: str, max_bytes: Callable[[int], int], without: Collection[str] = ()
    ) -> None:
        """Fetch a file of each rank, named by its number, from its board.

        ``without``: boards that are not asked.

        Raises:
            RankSliceError: one is not there; those of other ranks are fetched nevertheless.
        """

        def fetch(rank: Rank) -> None:
            shell, _ = self.boards.of(rank.board)
            file = self.folder / f"{name}{rank.rank}"
            try:
                shell.get(self.boards.run, file.name, file, max_bytes=max_bytes(rank.rank))
            except RankSliceError:
                file.unlink(missing_ok=True)
                raise

        ranks = self.prepared.plan.job.ranks
        on_all(fetch, [rank for rank in ranks if rank.board not in without])

    def _fetch_events(self, without: Collection[str] = ()) -> None:
        nbytes = HEAD_BYTES + self.prepared.options.events_kept * EVENT.size
        self._fetch_of_ranks(NAME, lambda rank: nbytes, without)

    def fetch_after_success(self) -> None:
        """Fetch what a job that has ended well has left, besides the report."""
        job, options = self.prepared.plan.job, self.prepared.options
        if self._has_results:
            self._fetch_results()
        if options.events is not None:
            self._fetch_events()
            if options.operators:
                self._fetch_of_ranks(OPERATORS_NAME, lambda rank: OPERATORS_BYTES)
        if options.record is not None:
            frames = recording.recorded_frames(job, options)
            max_bytes = partial(recording.max_bytes, job, frames=frames)
            self._fetch_of_ranks(recording.NAME, max_bytes)

    def fetch_results_after_failure(self) -> list[str]:
        """Fetch the results of finished frames; return where they are if that is not possible."""
        if not self._has_results:
            return []
        login = self._sink.login
        if login.board not in self.watches.lost_boards():
            with suppress(RankSliceError):  # there may be none
                self._fetch_results()
            return []
        return [
            f"results of finished frames may be on {login.full_name} in"
            f" {self.boards.file(RESULTS)}; fetch them once it answers"
        ]

    def fetch_last_events(self) -> None:
        with suppress(RankSliceError):  # a rank may not have come so far
            self._fetch_events(self.watches.lost_boards())
        self.write_clocks()

    def write_clocks(self) -> None:
        """Note how the clocks of boards compare with that of this machine, if there is room."""
        with suppress(OSError):
            (self.folder / CLOCKS).write_text(json.dumps(self.watches.clock_samples()))
