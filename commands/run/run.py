"""``rankslice run``: start the job in a build folder, wait, and tell what happened."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from rankslice.backend.boards.preflight import (
    CheckedBoards,
    check_boards,
    copy_inputs,
    remote_inputs,
)
from rankslice.backend.boards.ssh import is_this_machine
from rankslice.backend.boards.watch import Watches
from rankslice.backend.launch.job import run_job
from rankslice.backend.launch.mpirun import MpiRun, find_mpirun, launch_command
from rankslice.backend.runtime import version
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import load_job
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sinks.results import Results, most_bytes, read_results, results_of
from rankslice.backend.runtime.sources import Source, find_source, open_source
from rankslice.commands.build_folder import (
    PLAN,
    REPORT,
    RESULTS,
    converted_name,
    read_plan,
    unsliced_model,
)
from rankslice.commands.deploy.deploy import plan_deployment
from rankslice.commands.run import unsliced
from rankslice.commands.run.results_files import check_results, move_results
from rankslice.commands.run_folder import run_folder
from rankslice.framework.engines import reference_engine
from rankslice.framework.errors import InterruptedRunError, Mistake, RankSliceError
from rankslice.framework.files.output_file import STDOUT, is_null, whole_file
from rankslice.framework.plan import Plan
from rankslice.measurement.report import MAX_REPORT_BYTES, read_report
from rankslice.measurement.summary import RunSummary, summarise
from rankslice.measurement.verify import Comparison, explained

__all__ = [
    "FinishedRun",
    "PreparedRun",
    "prepare",
    "run",
    "unsliced_outputs",
]


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that came to its end, and where its results are."""

    summary: RunSummary
    results: Results
    labels: tuple[str, ...]
    """What each frame was: the name of its file, say."""


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """All that is known before the job starts."""

    folder: Path
    plan: Plan
    options: RunOptions
    source: Source
    launch: tuple[str, ...]
    """The mpirun line up to the driver's options."""
    boards: CheckedBoards | None = None
    """Those that run it; ``None``: this machine alone."""

    @property
    def command(self) -> tuple[str, ...]:
        """The mpirun line, to be typed by hand."""
        return self._line(self.options.results, self.options.report)

    def command_in(self, folder: Path) -> tuple[str, ...]:
        """Return the mpirun line of a run that writes into a folder of its own."""
        return self._line(folder / RESULTS, folder / REPORT)

    def _line(self, results: Path, report: Path | None) -> tuple[str, ...]:
        inputs = self.options.inputs
        if self.boards is not None:  # names relative to the folder of the job on each board
            results, report = Path(RESULTS), Path(REPORT)
            inputs = remote_inputs(inputs) if self.source.reads_files else inputs
        options = replace(self.options, inputs=inputs, results=results, report=report)
        return (*self.launch, *options.to_arguments())


def prepare(
    folder: Path,
    options: RunOptions,
    *,
    results: Path | None = None,
    mpirun: Path | None = None,
    ssh_config: Path | None = None,
) -> PreparedRun:
    """Check what can be checked before the start, and return the mpirun line.

    Boards other than this machine are asked whether they have their packages and what these need.

    Args:
        folder: made by ``build``.
        options: of the run.
        results: file for the outputs; ``results.bin`` in ``folder`` by default.
        mpirun: path of an mpirun; the one of this environment by default.
        ssh_config: handed to ssh as ``-F``.

    Raises:
        RankSliceError: the folder is no build folder, the input does not fit the model, there is
            no usable mpirun, or a board cannot run its package.
    """
    folder = _absolute(folder)
    plan = read_plan(folder)
    options = replace(
        options,
        inputs=_located(options.inputs),
        results=check_results(results or folder / RESULTS),
        report=folder / REPORT,
        progress=True,
    )
    _check_runtime(folder)
    with _told_to_people():
        source = open_source(options, load_job(folder / PLAN).inputs)
    found = find_mpirun(mpirun)
    if all(is_this_machine(placement.host) for placement in plan.ranks):
        launch = launch_command(plan, folder, found, ())
        return PreparedRun(folder, plan, options, source, tuple(launch))
    return _prepare_across(PreparedRun(folder, plan, options, source, ()), found, ssh_config)


def _prepare_across(prepared: PreparedRun, mpirun: MpiRun, ssh_config: Path | None) -> PreparedRun:
    """Ask the boards, and return the run with its mpirun line."""
    deployment = plan_deployment(prepared.folder, ssh_config=ssh_config)
    boards = check_boards(deployment.work, deployment.ssh_config, mpirun)
    launch = launch_command(
        prepared.plan,
        prepared.folder,
        mpirun,
        (),
        options=boards.mpirun_options(mpirun),
        program=boards.program,
    )
    return replace(prepared, launch=tuple(launch), boards=boards)


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
        on_completed: told now and then how many frames have come out.
        on_ran: told what the run showed, before any comparison.
        on_verified: told now and then how many frames have been compared.

    Raises:
        RankSliceError: the job failed; the results of finished frames are kept.
    """
    reference = _find_reference(prepared) if verify else None
    with _run_folder(prepared) as folder:
        try:
            _run_job(prepared, folder, on_completed)
        except RankSliceError as error:
            raise RankSliceError(*error.mistakes, *_kept(prepared, folder)) from None
        except KeyboardInterrupt:
            raise InterruptedRunError("interrupted", *_kept(prepared, folder)) from None
        except BaseException:  # a signal that ends this program
            _kept(prepared, folder)
            raise
        with _told_to_people():
            results = results_of(load_job(prepared.folder / PLAN), folder / RESULTS)
        records = read_report(folder / REPORT, prepared.plan, len(results))
        _put_in_place(prepared, folder)
    arrivals = _arrivals(records, len(results))
    with _told_to_people():
        labels = tuple(prepared.source.label(index) for index in arrivals)
    finished = FinishedRun(summarise(records, results.completed_s), results, labels)
    on_ran(finished)
    if reference is None:
        return finished
    with _told_to_people():
        comparison = _compared(prepared, reference, results, arrivals, on_verified)
    verdict = comparison.verdict(
        exact=prepared.options.exact, rounds=_rounds(prepared.plan), tolerance=tolerance
    )
    if not verdict.passed and verdict.max_rel_diff and not prepared.options.exact:
        with _told_to_people():
            verdict = explained(verdict, _optimisation_effect(prepared, reference, arrivals))
    return replace(finished, summary=replace(finished.summary, verify=verdict))


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
    move_results(folder / RESULTS, prepared.options.results)
    with suppress(OSError), whole_file(prepared.folder / REPORT) as file:
        file.write((folder / REPORT).read_bytes())


def _run_job(prepared: PreparedRun, folder: Path, on_completed: Callable[[int], None]) -> None:
    """Run the job to its end, and have its results and report in a folder."""
    if prepared.boards is None:
        run_job(prepared.command_in(folder), on_completed)
    else:
        _run_across(prepared, prepared.boards, folder, on_completed)


def _run_across(
    prepared: PreparedRun, boards: CheckedBoards, folder: Path, on_completed: Callable[[int], None]
) -> None:
    """Run a job across boards; fetch its results whether or not it ends well."""
    ranks = prepared.plan.ranks
    watches = Watches(boards, prepared.options.start_timeout_s)
    try:
        with watches:
            if prepared.source.reads_files:
                copy_inputs(boards, ranks[prepared.plan.source].board, prepared.options.inputs)
            command = prepared.command_in(folder)
            run_job(
                command,
                on_completed,
                alone=False,
                lines=watches.lines,
                on_start=watches.oversee,
                was_ended=lambda: watches.has_ended_mpirun,
            )
    except RankSliceError as error:
        told = watches.explained(error)
        raise RankSliceError(
            *told.mistakes, *_fetch_after_failure(prepared, boards, watches, folder)
        ) from None
    except KeyboardInterrupt:
        _fetch_after_failure(prepared, boards, watches, folder)
        raise
    try:
        _fetch(prepared, boards, folder, (RESULTS, REPORT))
    except RankSliceError as error:  # mpirun may take a daemon's end for that of the job
        raise watches.explained(error) from None


def _fetch(
    prepared: PreparedRun, boards: CheckedBoards, folder: Path, names: Sequence[str]
) -> None:
    """Fetch files from the sink's board into a folder; none is larger than the job can make it."""
    shell, _ = boards.of(prepared.plan.ranks[prepared.plan.sink].board)
    outputs = load_job(prepared.folder / PLAN).outputs
    frames = prepared.source.frames
    room = shutil.disk_usage(folder).free
    results_bytes = room if frames is None else most_bytes(outputs, frames)
    most = {RESULTS: results_bytes, REPORT: MAX_REPORT_BYTES}
    for name in names:
        shell.get(boards.run, name, folder / name, most_bytes=most[name])


def _fetch_after_failure(
    prepared: PreparedRun, boards: CheckedBoards, watches: Watches, folder: Path
) -> list[Mistake | str]:
    """Fetch the results of finished frames; return where they are if that is not possible."""
    shell, _ = boards.of(prepared.plan.ranks[prepared.plan.sink].board)
    if shell.reach.board not in watches.lost_boards():
        with suppress(RankSliceError):  # there may be none
            _fetch(prepared, boards, folder, (RESULTS,))
        return []
    return [
        f"results of finished frames may be on {shell.reach.full_name} in {boards.file(RESULTS)};"
        " fetch them once it answers"
    ]


def _absolute(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a link that leads to itself
        raise RankSliceError(Mistake(str(path), "leads nowhere")) from None


def _check_runtime(folder: Path) -> None:
    """Refuse a folder whose copy of the runtime this launcher would misunderstand."""
    ours = Path(version.__file__).read_bytes()
    copy = folder / "runtime" / "version.py"
    if not copy.is_file() or copy.read_bytes() != ours:
        raise RankSliceError(
            Mistake(str(folder), "was built by another version of RankSlice", "build it again")
        )


@contextmanager
def _told_to_people() -> Iterator[None]:
    """Turn the runtime's own kind of error into the one that the command line prints."""
    try:
        yield
    except JobError as error:
        raise RankSliceError(str(error)) from None


def _located(inputs: Sequence[str]) -> tuple[str, ...]:
    """Return what names the source, files by their absolute paths."""
    kind = find_source(inputs)
    if kind is not None and not kind.reads_files:
        return tuple(inputs)
    return tuple(str(_absolute(Path(name))) for name in inputs)


def _kept(prepared: PreparedRun, folder: Path) -> Sequence[Mistake | str]:
    """Keep the results of finished frames; return where they are."""
    try:
        count = len(read_results(folder / RESULTS))
    except JobError:
        return []
    if not count:
        return []
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


def _find_reference(prepared: PreparedRun) -> Path:
    if not prepared.source.can_replay:
        found = f"needs each frame twice, and {' '.join(prepared.options.inputs)} gives it once"
        raise RankSliceError(Mistake("--verify", found, "record frames to a file and verify those"))
    converted = prepared.folder / converted_name(prepared.plan.model.format)
    if converted.is_file():
        return converted
    return unsliced_model(prepared.folder, prepared.plan, "verify a run")


def _compared(
    prepared: PreparedRun,
    reference: Path,
    results: Results,
    arrivals: Sequence[int],
    on_verified: Callable[[int], None],
) -> Comparison:
    """Compare each frame's results with the unsliced model's."""
    comparison = Comparison([spec.name for spec in results.outputs])
    for frame, expected in enumerate(unsliced_outputs(prepared, reference, arrivals)):
        actual = [results.records[f"output_{number}"][frame] for number in range(len(expected))]
        comparison.add(expected, actual)
        on_verified(frame + 1)
    return comparison


def _optimisation_effect(prepared: PreparedRun, reference: Path, arrivals: Sequence[int]) -> float:
    """Return by which share of its range the engine's optimisation changes the unsliced model."""
    plain = replace(prepared, options=replace(prepared.options, exact=True))
    job = load_job(prepared.folder / PLAN)
    comparison = Comparison([spec.name for spec in job.outputs])
    pairs = zip(
        unsliced_outputs(prepared, reference, arrivals),
        unsliced_outputs(plain, reference, arrivals),
        strict=True,
    )
    for expected, actual in pairs:
        comparison.add(expected, actual)
    return comparison.verdict(exact=False).max_rel_diff


def _rounds(plan: Plan) -> bool:
    """Return whether float16 values cross cuts."""
    crossing = {channel.tensor for channel in plan.channels}
    return any(tensor.dtype == "float16" for tensor in plan.tensors if tensor.name in crossing)


def unsliced_outputs(
    prepared: PreparedRun, model: Path, arrivals: Sequence[int]
) -> Iterator[list[NDArray[Any]]]:
    """Yield the outputs of the unsliced model for some of a run's frames, each on one thread.

    Args:
        prepared: the run; its source gives the frames, its options say whether engines optimise.
        model: the unsliced model's file.
        arrivals: numbers of frames.

    Yields:
        One array per model output; they are overwritten by a later frame.
    """
    plan = prepared.plan
    return unsliced.unsliced_outputs(
        model,
        load_job(prepared.folder / PLAN),
        reference_engine(plan.model.format, (rank.engine for rank in plan.ranks)),
        prepared.source,
        arrivals,
        exact=prepared.options.exact,
    )
