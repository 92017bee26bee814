"""A run before its start: what can be checked is checked, and the mpirun line is known."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rankslice.backend.agent.system import BRING_UP, LOOPBACK_DOWN, loopback_is_up
from rankslice.backend.boards.login import LOOPBACK, is_this_machine
from rankslice.backend.launch.mpirun import MpiRun, find_mpirun, launch_command
from rankslice.backend.runtime import keeper
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import Job
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.pipeline.slots import ring_bytes
from rankslice.backend.runtime.pipeline.wiring import NO_PAIRS, pairs_within_boards, wire_all
from rankslice.backend.runtime.sources import Source, find_source, open_source
from rankslice.backend.runtime.system.modes import BoardMode, board_mode
from rankslice.backend.runtime.system.processes import free_bytes
from rankslice.backend.runtime.version import RUNTIME_VERSION
from rankslice.framework.engines import computes
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.files.output_file import is_null
from rankslice.framework.plan import Plan
from rankslice.framework.wording import megabytes_text
from rankslice.session.arriving_frames import arrivals_in, refuse_switching
from rankslice.session.build_folder import REPORT, RESULTS, read_plan, renew
from rankslice.session.results_files import check_results
from rankslice.session.shared_options import DEFAULT_LAUNCHING, Launching

if TYPE_CHECKING:
    from rankslice.backend.boards.preflight import CheckedBoards


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """All that is known before the job starts."""

    folder: Path
    plan: Plan
    options: RunOptions
    source: Source
    launch: tuple[str, ...] = ()
    """The mpirun line up to the driver's options; empty: frames are fed to several jobs."""
    launching: Launching = DEFAULT_LAUNCHING
    boards: CheckedBoards | None = None
    """Those that run it; ``None``: this machine alone."""

    @property
    def command(self) -> tuple[str, ...]:
        """The mpirun line, to be typed by hand."""
        return self._line(self.options.results, self.folder)

    def again(self, options: RunOptions) -> PreparedRun:
        """Prepare another run of the same job, with other options."""
        return prepare(self.folder, options, self.launching, results=options.results)

    def command_in(self, folder: Path) -> tuple[str, ...]:
        """Return the mpirun line of a run that writes into a folder of its own."""
        results = self.options.results if self.discards else folder / RESULTS
        return self._line(results, folder)

    @property
    def own_board(self) -> str:
        """What this machine is called in a job that runs on it alone."""
        boards = {rank.board for rank in self.plan.ranks}
        return boards.pop() if len(boards) == 1 else _HERE

    @property
    def modes(self) -> dict[str, BoardMode]:
        """Modes of the boards, by name, as they were before the start."""
        if self.boards is None:
            return {self.own_board: board_mode()}
        return {shell.login.board: check.mode for shell, check in self.boards.checked}

    @property
    def meeting_points(self) -> tuple[str, str]:
        """Addresses of this machine at which source and sink reach it."""
        source, sink = (
            self.plan.ranks[rank].board for rank in (self.plan.job.source, self.plan.job.sink)
        )
        if self.boards is None:
            return LOOPBACK, LOOPBACK
        return self.boards.address_for(source), self.boards.address_for(sink)

    @property
    def is_endless(self) -> bool:
        """Whether nobody knows how many frames there will be."""
        return self.source.frames is None

    @property
    def discards(self) -> bool:
        """Whether no file gets the results: there may be any number of them."""
        return self.is_endless and is_null(self.options.results)

    @property
    def copied(self) -> tuple[str, ...]:
        files = self.options.inputs if self.source.reads_files else ()
        arrivals = self.options.arrivals
        return files if arrivals is None else (*files, str(arrivals))

    def _line(self, results: Path, folder: Path) -> tuple[str, ...]:
        inputs, arrivals = self.options.inputs, self.options.arrivals
        if self.boards is not None:  # names relative to the folder of the job on each board
            from rankslice.backend.boards.preflight import remote_inputs

            results, folder = results if self.discards else Path(RESULTS), Path()
            there = remote_inputs(self.copied)
            inputs = there[: len(inputs)] if self.source.reads_files else inputs
            arrivals = arrivals and Path(there[-1])
        options = replace(
            self.options,
            inputs=inputs,
            arrivals=arrivals,
            results=results,
            report=folder / REPORT,
            events=self.options.events and folder,
            record=self.options.record and folder,
        )
        return (*self.launch, *options.to_arguments())


def prepare(
    folder: Path,
    options: RunOptions,
    launching: Launching = DEFAULT_LAUNCHING,
    *,
    results: Path | None = None,
    check_memory: bool = True,
    by_hand: bool = False,
) -> PreparedRun:
    """Check what can be checked before the start, and return the mpirun line.

    Boards other than this machine are asked whether they have their packages and what these need.

    Args:
        folder: made by ``build``.
        options: of the run.
        launching: its mpirun is the one of this environment by default; its ssh configuration is
            handed to ssh as ``-F``.
        results: file for the outputs; ``results.bin`` in ``folder`` by default.
        check_memory: whether there is enough now; otherwise another job ends before this one
            starts.
        by_hand: the line is to be typed; the job cannot reach this program.

    Raises:
        RankSliceError: the folder is no build folder, the input does not fit the model, there is
            no usable mpirun, or a board cannot run its package or has too little memory for it.
    """
    typed, folder = folder, absolute(folder)
    plan = read_plan(folder)
    refuse_switching(plan, options, str(folder))
    if options.arrivals is not None:
        arrivals_in(options.arrivals)
    with as_user_errors():
        preprocessing = options.preprocessing.resolved()
    options = replace(
        options,
        preprocessing=preprocessing,
        inputs=_located(options.inputs),
        arrivals=options.arrivals and absolute(options.arrivals),
        results=check_results(results or folder / RESULTS),
        report=folder / REPORT,
        progress=True,
        quiet=not by_hand,
    )
    _check_runtime(folder)
    is_kept = keeper.is_kept(options.inputs)
    with as_user_errors():
        source = open_source(options, plan.job.inputs)
    reaches_launcher = not by_hand and not is_kept
    is_told = source.names_late or (options.stream and options.overflow == "drop")
    options = replace(
        options,
        drain=reaches_launcher and source.frames is None,
        announce=reaches_launcher and is_told,
    )

    needed = least_memory(plan.job, folder, options)
    mpirun = find_mpirun(launching.mpirun)
    if not loopback_is_up():
        raise RankSliceError(Mistake(_HERE, LOOPBACK_DOWN, BRING_UP))
    prepared = PreparedRun(folder, plan, options, source, launching=launching)
    if all(is_this_machine(placement.host) for placement in plan.ranks):
        renew(folder, plan)
        if check_memory:
            here = {_HERE: tuple(map(sum, zip(*needed.values(), strict=True)))}
            raise_mistakes(too_little_memory(here, {_HERE: free_bytes()}))
        own = [*mpirun.without_ssh(), *_exported(options)]
        return replace(prepared, launch=launch_command(plan, folder, mpirun, options=own))
    return _prepare_across(prepared, typed, needed if check_memory else {}, mpirun)


_HERE = "this machine"


def _prepare_across(
    prepared: PreparedRun,
    typed: Path,
    needed: Mapping[str, tuple[int, ...]],
    mpirun: MpiRun,
) -> PreparedRun:
    from rankslice.backend.boards.preflight import check_boards
    from rankslice.session.deployment import plan_deployment

    deployment = plan_deployment(prepared.folder, ssh_config=prepared.launching.ssh_config)
    boards = check_boards(deployment.work, deployment.ssh_config, mpirun, typed)
    free = {shell.login.full_name: check.free_bytes for shell, check in boards.checked}
    logins = [shell.login for shell, _ in boards.checked if needed]
    wanted = {login.full_name: needed[login.board] for login in logins}
    raise_mistakes(too_little_memory(wanted, free))
    launch = launch_command(
        prepared.plan,
        prepared.folder,
        mpirun,
        options=[*boards.mpirun_options(mpirun), *_exported(prepared.options)],
        program=boards.program,
    )
    return replace(prepared, launch=launch, boards=boards)


def _exported(options: RunOptions) -> list[str]:
    """Return the options of mpirun that hand ranks the variable which names this program."""
    is_asked = keeper.is_kept(options.inputs) or keeper.is_streamed(options.inputs)
    is_asked |= options.drain or options.announce or options.stream
    return ["-x", keeper.VARIABLE] if is_asked else []


def absolute(path: Path) -> Path:
    """Return a path from the root, with its links followed."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a link that leads to itself
        raise RankSliceError(Mistake(str(path), "is a link that leads to itself")) from None


def _check_runtime(folder: Path) -> None:
    """Refuse a folder whose copy of the runtime this launcher would misunderstand."""
    copy = folder / "runtime" / "version.py"
    # The file is read, not imported: this program does not run code of a build folder.
    line = rb"^RUNTIME_VERSION = %d$" % RUNTIME_VERSION
    if not copy.is_file() or not re.search(line, copy.read_bytes(), re.MULTILINE):
        raise RankSliceError(
            Mistake(str(folder), "was built by another version of RankSlice", "build it again")
        )


@contextmanager
def as_user_errors() -> Iterator[None]:
    """Turn the runtime's own kind of error into the one that the command line prints."""
    try:
        yield
    except JobError as error:
        raise RankSliceError(str(error)) from None


def _located(inputs: Sequence[str]) -> tuple[str, ...]:
    kind = find_source(inputs)
    if kind is not None and not kind.reads_files:
        return tuple(inputs)
    return tuple(str(absolute(Path(name))) for name in inputs)


def least_memory(job: Job, folder: Path, options: RunOptions) -> dict[str, tuple[int, ...]]:
    """Return the bytes that each board needs at least for each of the job's routes.

    These are the slots of its ranks, and the sub-models that they load into its memory: those of
    GPUs and NPUs may lie elsewhere, so they do not count. Engines need more.
    """
    needed = {rank.board: [0] * len(job.routes) for rank in job.ranks}
    for number, route in enumerate(job.routes):
        pairs = pairs_within_boards(route) if options.direct else NO_PAIRS
        for rank, wiring in zip(route.ranks, wire_all(route, options.window, pairs), strict=True):
            needed[rank.board][number] += sum(
                ring_bytes(ring.tensor, ring.depth) for ring in wiring.rings if ring.home is None
            )
        for segment in route.segments:
            rank = route.ranks[segment.rank]
            if rank.accelerator == "cpu" and computes(rank.engine):
                needed[rank.board][number] += _file_bytes(folder / segment.file)
    return {board: tuple(amounts) for board, amounts in needed.items()}


def _file_bytes(path: Path) -> int:
    files = (path, path.with_name(f"{path.name}.data"))
    return sum(file.stat().st_size for file in files if file.is_file())


def too_little_memory(
    needed: Mapping[str, tuple[int, ...]], free: Mapping[str, int | None]
) -> Iterator[Mistake]:
    """Yield the places that have less memory than a job certainly needs there.

    ``needed``: bytes by place, for each route; ``free``: bytes of memory and swap, ``None`` if
    unknown.
    """
    for place, amounts in needed.items():
        has = free[place]
        if has is None or sum(amounts) <= has:
            continue
        found = f"needs {megabytes_text(sum(amounts))} or more for weights and slots"
        expected = "give it fewer layers, run with a smaller --window, or end other programs there"
        if len(amounts) > 1:
            normal, surge = map(megabytes_text, amounts)
            found += f" of both routes ({normal} for normal, {surge} for surge)"
            expected += "; without --surge it needs those of one route"
        yield Mistake(place, f"{found}, and has {megabytes_text(has)} free", expected)
