"""A job across boards: its inputs go there, its results come back."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from rankslice.backend.boards.parallel import on_all
from rankslice.backend.boards.preflight import CheckedBoards, copy_inputs
from rankslice.backend.boards.watches import Watches
from rankslice.backend.launch.job import run_job
from rankslice.backend.runtime import recording
from rankslice.backend.runtime.figures.events import EVENT, HEAD_BYTES, NAME
from rankslice.backend.runtime.figures.operator_profile import (
    MAX_BYTES as OPERATORS_BYTES,
    NAME as OPERATORS_NAME,
)
from rankslice.backend.runtime.figures.sampling import OF_THE_JOB, Sample, split_name
from rankslice.backend.runtime.keeper import is_kept
from rankslice.backend.runtime.sinks import results as results_file
from rankslice.framework.errors import Mistake, RankSliceError
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
    job, ranks = prepared.plan.job, prepared.plan.ranks

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

    try:
        with watches:
            if prepared.copied:
                copy_inputs(boards, ranks[job.source].board, prepared.copied)
            command = prepared.command_in(folder)
            run_job(
                command,
                callbacks.on_completed,
                boards=sum(not shell.is_here for shell, _ in boards.work),
                variables=variables,
                lines=watches.lines,
                on_start=oversee,
                was_ended=lambda: watches.has_ended_mpirun,
            )
            # mpirun may take a daemon's end for that of the job; only a job that has ended well
            # leaves a report. So the boards are watched until it is here.
            _fetch(prepared, boards, folder, REPORT)
            watches.note_success()
            _fetch_files(prepared, boards, folder)
    except RankSliceError as error:
        explained = watches.explained(error)
        fetched = _fetch_after_failure(prepared, boards, watches, folder)
        _fetch_last_events(prepared, boards, watches, folder)
        raise RankSliceError(*explained.mistakes, *fetched) from None
    except KeyboardInterrupt:
        _fetch_after_failure(prepared, boards, watches, folder)
        raise
    if prepared.options.events is not None:
        _write_clocks(watches, folder)


def _fetch_files(prepared: PreparedRun, boards: CheckedBoards, folder: Path) -> None:
    """Fetch what a job that has ended well has left on its boards, besides the report."""
    job, options = prepared.plan.job, prepared.options
    if _leaves_results(prepared):
        _fetch(prepared, boards, folder, RESULTS)
    if options.events is not None:
        _fetch_of_ranks(prepared, boards, folder, NAME, _events_bytes(prepared))
        if options.operators:
            _fetch_of_ranks(prepared, boards, folder, OPERATORS_NAME, lambda rank: OPERATORS_BYTES)
    if options.record is not None:
        frames = recording.recorded_frames(job, options)
        max_bytes = partial(recording.max_bytes, job, frames=frames)
        _fetch_of_ranks(prepared, boards, folder, recording.NAME, max_bytes)


def own_values(plan: Plan, board: str, sample: Sample) -> Sample:
    """Return a board's sample without values of ranks, or of the job, that are not the board's."""
    own = {number for number, rank in enumerate(plan.ranks) if rank.board == board}
    has_source = plan.job.source in own

    def is_own(name: str) -> bool:
        _, part = split_name(name)
        return part in own if isinstance(part, int) else has_source or name not in OF_THE_JOB

    values = {name: value for name, value in sample.values.items() if is_own(name)}
    return replace(sample, values=values)


def _fetch(prepared: PreparedRun, boards: CheckedBoards, folder: Path, name: str) -> None:
    """Fetch a file from the sink's board into a folder, unless it is larger than a job makes it."""
    shell, _ = boards.of(prepared.plan.ranks[prepared.plan.job.sink].board)
    max_bytes = MAX_REPORT_BYTES
    if name == RESULTS:
        frames = prepared.source.frames
        max_bytes = (
            shutil.disk_usage(folder).free
            if frames is None
            else results_file.max_bytes(prepared.plan.job.outputs, frames)
        )
    shell.get(boards.run, name, folder / name, max_bytes=max_bytes)


def _fetch_of_ranks(
    prepared: PreparedRun,
    boards: CheckedBoards,
    folder: Path,
    name: str,
    max_bytes: Callable[[int], int],
    ranks: Sequence[int] | None = None,
) -> None:
    """Fetch a file of each rank (by default all), named by its number, from its board.

    Raises:
        RankSliceError: one is not there; those of other ranks are fetched nevertheless.
    """

    def fetch(number: int) -> None:
        shell, _ = boards.of(prepared.plan.ranks[number].board)
        file = f"{name}{number}"
        try:
            shell.get(boards.run, file, folder / file, max_bytes=max_bytes(number))
        except RankSliceError:
            (folder / file).unlink(missing_ok=True)
            raise

    on_all(fetch, range(len(prepared.plan.ranks)) if ranks is None else ranks)


def _fetch_last_events(
    prepared: PreparedRun, boards: CheckedBoards, watches: Watches, folder: Path
) -> None:
    lost = watches.lost_boards()
    ranks = [number for number, rank in enumerate(prepared.plan.ranks) if rank.board not in lost]
    with suppress(RankSliceError):  # a rank may not have come so far
        _fetch_of_ranks(prepared, boards, folder, NAME, _events_bytes(prepared), ranks)
    _write_clocks(watches, folder)


def _events_bytes(prepared: PreparedRun) -> Callable[[int], int]:
    return lambda rank: HEAD_BYTES + prepared.options.events_kept * EVENT.size


def _write_clocks(watches: Watches, folder: Path) -> None:
    """Note how the clocks of boards compare with that of this machine, if there is room."""
    with suppress(OSError):
        (folder / CLOCKS).write_text(json.dumps(watches.clock_samples()))


def _leaves_results(prepared: PreparedRun) -> bool:
    return not prepared.discards and not is_kept(prepared.options.inputs)


def _fetch_after_failure(
    prepared: PreparedRun, boards: CheckedBoards, watches: Watches, folder: Path
) -> list[Mistake | str]:
    """Fetch the results of finished frames; return where they are if that is not possible."""
    if not _leaves_results(prepared):
        return []
    shell, _ = boards.of(prepared.plan.ranks[prepared.plan.job.sink].board)
    if shell.login.board not in watches.lost_boards():
        with suppress(RankSliceError):  # there may be none
            _fetch(prepared, boards, folder, RESULTS)
        return []
    return [
        f"results of finished frames may be on {shell.login.full_name} in {boards.file(RESULTS)};"
        " fetch them once it answers"
    ]
