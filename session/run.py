"""``rankslice run``: start the job in a build folder, wait, and tell what happened."""

from __future__ import annotations

import subprocess
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.figures.sampling import Sample
from rankslice.backend.runtime.keeper import Entered, is_streamed
from rankslice.framework.errors import InterruptedRunError, Mistake, RankSliceError
from rankslice.measurement.board_history import HardwareLog, HardwareSummary
from rankslice.session.build_folder import REPORT, RESULTS, RUN
from rankslice.session.callbacks import NO_CALLBACKS, Callbacks, FinishedRun
from rankslice.session.prepare import PreparedRun, as_user_errors, prepare
from rankslice.session.results_files import move_results
from rankslice.session.run_folder import one_at_a_time
from rankslice.session.start import FailedJobError, own_folder, put_report, run_in

if TYPE_CHECKING:
    from rankslice.backend.runtime.figures.operator_profile import RankOperators
    from rankslice.backend.runtime.figures.rank_figures import RankFigures, SourceFigures
    from rankslice.backend.runtime.sinks.results import Results
    from rankslice.measurement.summary import RunSummary
    from rankslice.measurement.trace.trace_events import Trace
    from rankslice.session.fed_frames import FedFrames

__all__ = ["Callbacks", "FinishedRun", "PreparedRun", "prepare", "run"]


@dataclass(frozen=True, slots=True)
class EndedJob:
    prepared: PreparedRun
    """As the run was prepared; folder and plan are those of the last job, if others took over."""
    drained_by: str = ""
    names: Mapping[int, str] = field(default_factory=dict)
    """Of frames by number, if the source knows them only when it reads them."""
    fed: FedFrames | None = None
    """The frames, if this machine has fed them to the job."""


Execute: TypeAlias = Callable[[PreparedRun, Path, Callbacks], EndedJob]
"""Runs a job to its end, with its files in a folder.

Raises:
    RankSliceError: the job failed.
"""


def run_job_here(prepared: PreparedRun, folder: Path, callbacks: Callbacks) -> EndedJob:
    options = prepared.options
    callbacks = replace(callbacks, on_start=_load_ahead)
    if not (options.drain or options.announce or options.stream or is_streamed(options.inputs)):
        run_in(prepared, folder, callbacks)
        return EndedJob(prepared)
    from rankslice.session.connection import Connection, StandardInput, drained_by_signals

    stdin = StandardInput()
    feed = stdin.send_to if is_streamed(options.inputs) else None

    def drain(signal: str) -> None:
        callbacks.on_drain(signal)
        connection.drain()

    names: dict[int, str] = {}
    has_entered = threading.Event()
    keeps_names = prepared.source.names_late and not prepared.discards

    def enter(entered: Entered | None) -> None:
        callbacks.on_enter(entered)
        if entered is None:
            has_entered.set()
        elif keeps_names:
            names[entered.frame] = entered.name

    with Connection(
        prepared.plan.job.outputs, prepared.meeting_points, callbacks.on_result, feed, enter
    ) as connection:
        with drained_by_signals(drain if options.drain else None) as signals:
            try:
                run_in(prepared, folder, callbacks, variables=connection.variables)
            except RankSliceError:
                connection.wait_for_results(has_failed=True)
                raise
            connection.wait_for_results(has_failed=False)
        stdin.check()
        if keeps_names:
            has_entered.wait()
    return EndedJob(prepared, "".join(signals), names)


def run(
    prepared: PreparedRun,
    callbacks: Callbacks = NO_CALLBACKS,
    *,
    execute: Execute = run_job_here,
    verify: bool = False,
    tolerance: float | None = None,
    command: Sequence[str] = (),
    keep: bool = True,
) -> FinishedRun:
    """Run the job; return its summary and results.

    Its files are written in a folder of its own, so that other runs of the same build folder do
    not touch them, and moved to where they belong at the end.

    Args:
        prepared: from :func:`prepare`, or :func:`.fed_run.prepare_fed`.
        callbacks: called while it goes on.
        execute: runs the job; :func:`.fed_run.run_fed` survives the loss of boards.
        verify: compare all results with the unsliced model's: bit by bit if the options say
            ``exact``, else within :data:`rankslice.measurement.verify.TOLERANCE`.
        tolerance: by which share of their range results may differ instead.
        command: what was typed, for the record of the run.
        keep: whether the build folder keeps the results, the report and the record; not of a run
            that is one of many.

    Raises:
        RankSliceError: the job failed; the results of finished frames are kept.
    """
    if verify:
        from rankslice.session.verification.comparison import find_reference, verified

        reference = find_reference(prepared)
    log = HardwareLog(rank.board for rank in prepared.plan.ranks)

    def take(board: str, sample: Sample) -> None:
        log.add(board, sample)
        callbacks.on_sample(board, sample)

    modes = prepared.modes
    with own_folder(prepared) as folder:
        with finished_frames_kept(prepared, folder):
            ended = execute(prepared, folder, replace(callbacks, on_sample=take))
        results = _results(prepared, folder)
        ranks = _report(ended, folder, len(results))
        trace, operators = _events(prepared, folder)
        _keep_recording(ended.prepared, folder, ranks)
        if keep:
            _put_in_place(ended.prepared, folder)
    summary, arrivals = _summary(ended, ranks, results, log.summaries(), verify=verify)
    summary = replace(summary, modes=modes)
    named = zip(map(ended.names.get, results.numbers), arrivals, strict=True)
    with as_user_errors():
        labels = tuple(name or prepared.source.label(index) for name, index in named)
    finished = FinishedRun(
        summary,
        results,
        labels,
        tuple(arrivals),
        ended.drained_by,
        trace,
        log.histories(),
        operators,
        () if ended.fed is None else ended.fed.restarts,
        ended.prepared,
    )
    callbacks.on_ran(finished)
    if verify:
        with as_user_errors():
            verdict = verified(
                prepared,
                reference,
                results,
                arrivals,
                tolerance,
                callbacks.on_verified,
                callbacks.on_search,
            )
        finished = replace(finished, summary=replace(summary, verify=verdict))
    if keep:
        from rankslice.session.run_record import keep_record

        keep_record(ended.prepared, finished.summary, command)
    return finished


def _results(prepared: PreparedRun, folder: Path) -> Results:
    from rankslice.backend.runtime.sinks.results import no_results, results_of

    job = prepared.plan.job
    if prepared.discards:
        return no_results(job)
    with as_user_errors():
        return results_of(job, folder / RESULTS, may_lack=prepared.options.skip_failed)


def _report(ended: EndedJob, folder: Path, completed: int) -> tuple[RankFigures, ...]:
    """Return the ranks' measurements; none if a job has failed after its last result."""
    from rankslice.measurement.rank_report import read_report

    if ended.fed is None:
        return read_report(folder / REPORT, ended.prepared.plan, completed)
    if not (folder / REPORT).is_file():
        return ()
    return read_report(folder / REPORT, ended.prepared.plan, 0)  # others may have come before


def _summary(
    ended: EndedJob,
    ranks: Sequence[RankFigures],
    results: Results,
    hardware: Sequence[HardwareSummary],
    *,
    verify: bool,
) -> tuple[RunSummary, list[int]]:
    """Summarise a run; return also the arrival of each frame of its results."""
    from rankslice.backend.runtime.figures.rank_figures import ends_of
    from rankslice.measurement.summary import summarise

    if ended.fed is not None:
        return ended.fed.summary(ranks, hardware), ended.fed.arrivals_of(results.numbers)
    source, _ = ends_of(ranks)
    if verify and source.more_dropped:
        found = "too many arrivals were dropped to determine which frames came out"
        raise RankSliceError(Mistake("--verify", found, "give fewer --frames"))
    completed_s = None if ended.prepared.discards else results.completed_s
    return summarise(ranks, completed_s, hardware), _arrivals(source, results.numbers)


def _events(prepared: PreparedRun, folder: Path) -> tuple[Trace | None, tuple[RankOperators, ...]]:
    if prepared.options.events is None:
        return None, ()
    from rankslice.measurement.trace.trace_events import read_trace
    from rankslice.measurement.trace.traced_operators import read_operators

    kept = folder, prepared.plan, prepared.plan.job.sha256
    return read_trace(*kept), read_operators(*kept) if prepared.options.operators else ()


def _keep_recording(prepared: PreparedRun, folder: Path, ranks: Sequence[RankFigures]) -> None:
    if prepared.options.record is not None:
        from rankslice.session.recording_folder import keep_recording

        frames = next((rank.source.frames for rank in ranks if rank.source is not None), 0)
        keep_recording(prepared, folder, frames)


def _put_in_place(prepared: PreparedRun, folder: Path) -> None:
    """Bring results and report to where they belong; of several runs, the last one's stay.

    A report that cannot be put into the build folder is left out: the results may lie elsewhere.
    """
    with one_at_a_time(prepared.folder):
        if not prepared.discards:
            move_results(folder / RESULTS, prepared.options.results)
        put_report(prepared, folder)


def _load_ahead(mpirun: subprocess.Popen[str]) -> None:
    """Import what reads results and reports while mpirun starts, instead of before it.

    A thread does it: numpy cannot be imported again once Ctrl-C has interrupted its import.
    """
    threading.Thread(target=_load).start()


def _load() -> None:
    import rankslice.backend.runtime.sinks.results
    import rankslice.measurement.rank_report
    import rankslice.measurement.summary  # noqa: F401


@contextmanager
def finished_frames_kept(prepared: PreparedRun, folder: Path) -> Iterator[None]:
    """Keep the results of finished frames if the block fails, and say where they are.

    Raises:
        RankSliceError: it failed, or the user has interrupted it.
    """
    try:
        yield
    except RankSliceError as error:
        hint = [error.hint] if isinstance(error, FailedJobError) else []
        raise RankSliceError(*error.mistakes, *hint, *_keep_finished(prepared, folder)) from None
    except KeyboardInterrupt:
        raise InterruptedRunError("interrupted", *_keep_finished(prepared, folder)) from None
    except BaseException:  # a signal that ends this program
        _keep_finished(prepared, folder)
        raise


def _keep_finished(prepared: PreparedRun, folder: Path) -> Sequence[Mistake | str]:
    from rankslice.backend.runtime.sinks.results import read_results

    try:
        count = len(read_results(folder / RESULTS))
    except JobError:
        return []
    if not count:
        return []
    with one_at_a_time(prepared.folder):
        try:
            place = move_results(folder / RESULTS, prepared.options.results)
        except RankSliceError as error:
            return error.mistakes
        if not place:
            return []
        for older in (prepared.folder / REPORT, prepared.folder / RUN):
            with suppress(OSError):
                if older.is_file() and not older.is_symlink():
                    older.unlink()
    return [f"the results of {count} finished frames are in {place}"]


def _arrivals(source: SourceFigures, frames: Sequence[int]) -> list[int]:
    """Return the arrival of each frame: the numbers differ once some were dropped."""
    if frames and frames[-1] >= source.frames:
        found = f"has frame {frames[-1]}, and {source.frames} frames entered"
        raise RankSliceError(Mistake(RESULTS, found, "run it again"))
    entered = [number - place for place, number in enumerate(source.dropped)]
    return [frame + bisect_right(entered, frame) for frame in frames]
