"""``rankslice run``: start the job in a build folder, wait, and tell what happened."""

from __future__ import annotations

import itertools
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankslice.backend.launch.job import run_job
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import load_job
from rankslice.backend.runtime.keeper import VARIABLE, Keeper
from rankslice.commands.build_folder import PLAN, REPORT, RESULTS
from rankslice.commands.run.prepare import PreparedRun, as_user_errors, prepare
from rankslice.commands.run.results_files import move_results
from rankslice.commands.run_folder import one_at_a_time, run_folder
from rankslice.framework.errors import InterruptedRunError, Mistake, RankSliceError
from rankslice.framework.files.output_file import STDOUT, is_null, whole_file

if TYPE_CHECKING:
    from rankslice.backend.runtime.sinks.results import Results
    from rankslice.measurement.summary import RunSummary

__all__ = ["FinishedRun", "PreparedRun", "prepare", "run"]


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that came to its end, and where its results are."""

    summary: RunSummary
    results: Results
    labels: tuple[str, ...]
    """What each frame was: the name of its file, say."""
    arrivals: tuple[int, ...] = ()
    """The number under which the source has each frame."""


def run(
    prepared: PreparedRun,
    *,
    verify: bool = False,
    tolerance: float | None = None,
    on_completed: Callable[[int], None] = lambda count: None,
    on_ran: Callable[[FinishedRun], None] = lambda finished: None,
    on_verified: Callable[[int], None] = lambda count: None,
) -> FinishedRun:
    """Run the job; return its summary and results.

    Its files are written in a folder of its own, so that other runs of the same build folder do
    not touch them, and moved to where they belong at the end.

    Args:
        prepared: from :func:`prepare`.
        verify: compare all results with the unsliced model's: bit by bit if the options say
            ``exact``, else within :data:`rankslice.measurement.verify.TOLERANCE`.
        tolerance: by which share of their range results may differ instead.
        on_completed: called from time to time with the number of finished frames.
        on_ran: called with the finished run before any comparison.
        on_verified: called from time to time with the number of compared frames.

    Raises:
        RankSliceError: the job failed; the results of finished frames are kept.
    """
    reference = _reference(prepared) if verify else None
    run_job_in = _runner(prepared)
    with _run_folder(prepared) as folder:
        try:
            run_job_in(folder, on_completed)
        except RankSliceError as error:
            raise RankSliceError(*error.mistakes, *_kept(prepared, folder)) from None
        except KeyboardInterrupt:
            raise InterruptedRunError("interrupted", *_kept(prepared, folder)) from None
        except BaseException:  # a signal that ends this program
            _kept(prepared, folder)
            raise
        from rankslice.backend.runtime.sinks.results import results_of
        from rankslice.measurement.report import read_report
        from rankslice.measurement.summary import summarise

        with as_user_errors():
            results = results_of(load_job(prepared.folder / PLAN), folder / RESULTS)
        records = read_report(folder / REPORT, prepared.plan, len(results))
        _put_in_place(prepared, folder)
    arrivals = _arrivals(records, len(results))
    with as_user_errors():
        labels = tuple(prepared.source.label(index) for index in arrivals)
    summary = summarise(records, results.completed_s)
    finished = FinishedRun(summary, results, labels, tuple(arrivals))
    on_ran(finished)
    if reference is None:
        return finished
    from rankslice.commands.run.comparison import verified

    with as_user_errors():
        verdict = verified(prepared, reference, results, arrivals, tolerance, on_verified)
    return replace(finished, summary=replace(finished.summary, verify=verdict))


def _reference(prepared: PreparedRun) -> Path:
    from rankslice.commands.run.comparison import find_reference

    return find_reference(prepared)


def run_kept(
    prepared: PreparedRun,
    keeper: Keeper,
    on_start: Callable[[subprocess.Popen[str]], None] = lambda mpirun: None,
) -> None:
    """Run a job whose frames and results a keeper has; its report goes to the build folder.

    Args:
        prepared: from :func:`prepare`, with frames from the keeper.
        keeper: where source and sink find it.
        on_start: called with mpirun's process.

    Raises:
        RankSliceError: the job failed.
    """
    variables = {VARIABLE: keeper.to_text()}

    def ignore(count: int) -> None:
        pass

    with _run_folder(prepared) as folder:
        if prepared.boards is None:
            command = prepared.command_in(folder)
            run_job(command, ignore, variables=variables, on_start=on_start)
        else:
            from rankslice.commands.run.across import run_across

            run_across(
                prepared, prepared.boards, folder, ignore, variables=variables, on_start=on_start
            )
        _put_report(prepared, folder)


@contextmanager
def _run_folder(prepared: PreparedRun) -> Iterator[Path]:
    """Yield a folder for the files of this run, on the file system where its results go."""
    results = prepared.options.results
    parent = results.parent
    if results == STDOUT or is_null(results):
        writable = os.access(prepared.folder, os.W_OK)
        parent = prepared.folder if writable else Path(tempfile.gettempdir())
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(run_folder(parent))
        except OSError as error:
            found = f"cannot be written: {error.strerror}"
            hint = "choose a file elsewhere with --results"
            raise RankSliceError(Mistake(str(parent), found, hint)) from None
        yield folder


def _put_in_place(prepared: PreparedRun, folder: Path) -> None:
    """Bring results and report to where they belong; of several runs, the last one's stay.

    A report that cannot be put into the build folder is left out: the results may lie elsewhere.
    """
    with one_at_a_time(prepared.folder):
        move_results(folder / RESULTS, prepared.options.results)
        _put_report(prepared, folder)


def _put_report(prepared: PreparedRun, folder: Path) -> None:
    with suppress(OSError), whole_file(prepared.folder / REPORT) as file:
        file.write((folder / REPORT).read_bytes())


def _runner(prepared: PreparedRun) -> Callable[[Path, Callable[[int], None]], None]:
    """Return what runs the job to its end, and has its results and report in a folder."""
    if prepared.boards is None:
        return partial(_run_here, prepared)
    from rankslice.commands.run.across import run_across

    return partial(run_across, prepared, prepared.boards)


def _run_here(prepared: PreparedRun, folder: Path, on_completed: Callable[[int], None]) -> None:
    run_job(prepared.command_in(folder), on_completed, on_start=_load_ahead)


def _load_ahead(mpirun: subprocess.Popen[str]) -> None:
    """Import what reads results and reports while mpirun starts, instead of before it.

    A thread does it: numpy cannot be imported again once Ctrl-C has interrupted its import.
    """
    threading.Thread(target=_load).start()


def _load() -> None:
    import rankslice.backend.runtime.sinks.results
    import rankslice.measurement.report
    import rankslice.measurement.summary  # noqa: F401


def _kept(prepared: PreparedRun, folder: Path) -> Sequence[Mistake | str]:
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
        report = prepared.folder / REPORT
        with suppress(OSError):
            if report.is_file() and not report.is_symlink():  # that of an older run
                report.unlink()
    return [f"the results of {count} finished frames are in {place}"] if place else []


def _arrivals(records: Sequence[dict[str, Any]], completed: int) -> list[int]:
    """Return for each completed frame which arrival it was: they differ once some were dropped."""
    dropped = next(set(record["source"]["dropped"]) for record in records if "source" in record)
    kept = (index for index in itertools.count() if index not in dropped)
    return list(itertools.islice(kept, completed))
