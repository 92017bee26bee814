"""``rankslice run``: start the job in a build folder, wait, and tell what happened."""

from __future__ import annotations

import subprocess
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.figures.sampling import OnSample, Sample
from rankslice.backend.runtime.keeper import Entered, is_streamed
from rankslice.framework.errors import InterruptedRunError, Mistake, RankSliceError
from rankslice.measurement.board_history import HardwareLog
from rankslice.session.build_folder import REPORT, RESULTS, RUN
from rankslice.session.callbacks import Callbacks
from rankslice.session.failed_job import FailedJobError
from rankslice.session.prepare import PreparedRun, as_user_errors, prepare
from rankslice.session.results_files import move_results
from rankslice.session.run_folder import one_at_a_time
from rankslice.session.start import own_folder, put_report, run_in

if TYPE_CHECKING:
    from rankslice.backend.runtime.figures.operators import RankOperators
    from rankslice.backend.runtime.figures.rank_figures import SourceFigures
    from rankslice.backend.runtime.sinks.results import Results
    from rankslice.measurement.board_history import BoardHistory
    from rankslice.measurement.summary import RunSummary
    from rankslice.measurement.trace.events import Trace
    from rankslice.session.connection import OnEnter, OnResult

__all__ = ["FinishedRun", "Listeners", "PreparedRun", "prepare", "run"]


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that came to its end, and where its results are."""

    summary: RunSummary
    results: Results
    labels: tuple[str, ...]
    """What each frame was: the name of its file, say."""
    arrivals: tuple[int, ...] = ()
    """The number under which the source has each frame."""
    drained_by: str = ""
    """Name of the signal that ended the stream; empty: it ended by itself."""
    trace: Trace | None = None
    """What the ranks did, if the options say ``events``."""
    hardware: tuple[BoardHistory, ...] = ()
    """What each board was like, second by second."""
    operators: tuple[RankOperators, ...] = ()
    """When operators ran, by rank, if the options say ``operators``, too."""


@dataclass(frozen=True, slots=True)
class Listeners:
    """What is told of a run while it goes on."""

    on_completed: Callable[[int], None] = lambda count: None
    """From time to time, the number of finished frames."""
    on_result: OnResult | None = None
    """Results as they come, in a thread; the options say ``stream``."""
    on_enter: OnEnter = lambda entered: None
    """What is known of each frame that enters, in a thread; the options say ``announce``."""
    on_drain: Callable[[str], None] = lambda signal: None
    """The name of the signal at which no further frames enter. So the first SIGINT or SIGTERM acts
    where nobody knows how many frames there are."""
    on_sample: OnSample = lambda board, sample: None
    """Once a second, in threads, what each board and its ranks are like."""
    on_ran: Callable[[FinishedRun], None] = lambda finished: None
    """The finished run, before any comparison."""
    on_verified: Callable[[int], None] = lambda count: None
    """From time to time, the number of compared frames."""
    on_search: Callable[[], None] = lambda: None
    """That a frame is run again, to find the first tensor that differs."""


def run(
    prepared: PreparedRun,
    listeners: Listeners = Listeners(),
    *,
    verify: bool = False,
    tolerance: float | None = None,
    command: Sequence[str] = (),
    keep: bool = True,
) -> FinishedRun:
    """Run the job; return its summary and results.

    Its files are written in a folder of its own, so that other runs of the same build folder do
    not touch them, and moved to where they belong at the end.

    Args:
        prepared: from :func:`prepare`.
        listeners: told while it goes on.
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
        listeners.on_sample(board, sample)

    with own_folder(prepared) as folder:
        with finished_frames_kept(prepared, folder):
            drained_by, names = _run_job(prepared, folder, replace(listeners, on_sample=take))
        from rankslice.backend.runtime.figures.rank_figures import ends_of
        from rankslice.backend.runtime.sinks.results import no_results, results_of
        from rankslice.measurement.report import read_report
        from rankslice.measurement.summary import summarise
        from rankslice.session.run_record import keep_record

        with as_user_errors():
            job = prepared.plan.job
            discards = prepared.discards
            results = (
                no_results(job)
                if discards
                else results_of(job, folder / RESULTS, may_lack=prepared.options.skip_failed)
            )
        ranks = read_report(folder / REPORT, prepared.plan, len(results))
        source, _ = ends_of(ranks)
        trace = _trace(prepared, folder)
        _keep_recording(prepared, folder, source.frames)
        operators = _operators(prepared, folder)
        if keep:
            _put_in_place(prepared, folder)
    if verify:
        _refuse_unknown_arrivals(source)
    arrivals = _arrivals(source, results.numbers)
    named = zip(map(names.get, results.numbers), arrivals, strict=True)
    with as_user_errors():
        labels = tuple(name or prepared.source.label(index) for name, index in named)
    summary = summarise(ranks, None if discards else results.completed_s, hardware=log.summaries())
    finished = FinishedRun(
        summary,
        results,
        labels,
        tuple(arrivals),
        drained_by,
        trace,
        log.histories(),
        operators,
    )
    listeners.on_ran(finished)
    if not verify:
        if keep:
            keep_record(prepared, summary, command)
        return finished
    with as_user_errors():
        verdict = verified(
            prepared,
            reference,
            results,
            arrivals,
            tolerance,
            listeners.on_verified,
            listeners.on_search,
        )
    summary = replace(summary, verify=verdict)
    keep_record(prepared, summary, command)
    return replace(finished, summary=summary)


def _trace(prepared: PreparedRun, folder: Path) -> Trace | None:
    if prepared.options.events is None:
        return None
    from rankslice.measurement.trace.events import read_trace

    return read_trace(folder, prepared.plan, prepared.plan.job.sha256)


def _keep_recording(prepared: PreparedRun, folder: Path, frames: int) -> None:
    if prepared.options.record is not None:
        from rankslice.session.run_recording import keep_recording

        keep_recording(prepared, folder, frames)


def _operators(prepared: PreparedRun, folder: Path) -> tuple[RankOperators, ...]:
    if prepared.options.events is None or not prepared.options.operators:
        return ()
    from rankslice.measurement.trace.operators import read_operators

    if prepared.boards is not None:
        from rankslice.session.across_boards import fetch_operators

        fetch_operators(prepared, prepared.boards, folder)
    return read_operators(folder, prepared.plan, prepared.plan.job.sha256)


def _put_in_place(prepared: PreparedRun, folder: Path) -> None:
    """Bring results and report to where they belong; of several runs, the last one's stay.

    A report that cannot be put into the build folder is left out: the results may lie elsewhere.
    """
    with one_at_a_time(prepared.folder):
        if not prepared.discards:
            move_results(folder / RESULTS, prepared.options.results)
        put_report(prepared, folder)


def _run_job(
    prepared: PreparedRun, folder: Path, listeners: Listeners
) -> tuple[str, dict[int, str]]:
    """Run the job to its end, with its results and report in a folder.

    Returns:
        What drained it, and the names of its frames by number, if only the source knows them.
    """
    options = prepared.options
    told = Callbacks(listeners.on_completed, _load_ahead, on_sample=listeners.on_sample)
    if not (options.drain or options.announce or options.stream or is_streamed(options.inputs)):
        run_in(prepared, folder, told)
        return "", {}
    from rankslice.session.connection import Connection
    from rankslice.session.drain import drained_by_signals
    from rankslice.session.standard_input import StandardInput

    outputs = prepared.plan.job.outputs
    stdin = StandardInput()
    feed = stdin.send_to if is_streamed(options.inputs) else None

    def drain(signal: str) -> None:
        listeners.on_drain(signal)
        connection.drain()

    names: SimpleQueue[tuple[int, str] | None] = SimpleQueue()
    keeps_names = prepared.source.names_late and not prepared.discards

    def enter(entered: Entered | None) -> None:
        listeners.on_enter(entered)
        if keeps_names:
            names.put(None if entered is None else (entered.frame, entered.name))

    with Connection(
        outputs, prepared.meeting_points, listeners.on_result, feed, enter
    ) as connection:
        with drained_by_signals(drain if options.drain else None) as signals:
            try:
                run_in(prepared, folder, told, variables=connection.variables)
            except RankSliceError:
                connection.wait_for_results(has_failed=True)
                raise
            connection.wait_for_results(has_failed=False)
        stdin.check()
        return "".join(signals), dict(iter(names.get, None)) if keeps_names else {}


def _load_ahead(mpirun: subprocess.Popen[str]) -> None:
    """Import what reads results and reports while mpirun starts, instead of before it.

    A thread does it: numpy cannot be imported again once Ctrl-C has interrupted its import.
    """
    threading.Thread(target=_load).start()


def _load() -> None:
    import rankslice.backend.runtime.sinks.results
    import rankslice.measurement.report
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
    """Keep the results of finished frames; return where they are."""
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


def _refuse_unknown_arrivals(source: SourceFigures) -> None:
    """Raise if too many arrivals were dropped for their numbers to be kept."""
    if source.more_dropped:
        found = "too many arrivals were dropped to determine which frames came out"
        raise RankSliceError(Mistake("--verify", found, "give fewer --frames"))


def _arrivals(source: SourceFigures, frames: Sequence[int]) -> list[int]:
    """Return which arrival each of some frames was: they differ once some were dropped."""
    if frames and frames[-1] >= source.frames:
        found = f"has frame {frames[-1]}, and {source.frames} frames entered"
        raise RankSliceError(Mistake(RESULTS, found, "run it again"))
    entered = [number - place for place, number in enumerate(source.dropped)]
    return [frame + bisect_right(entered, frame) for frame in frames]
