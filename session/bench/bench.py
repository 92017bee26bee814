"""``rankslice bench``: start jobs again and again, in turns, and keep what their frames took."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean

from rankslice.backend.runtime.summary.rates import frames_to_fill
from rankslice.backend.runtime.system.modes import BoardMode, board_mode
from rankslice.backend.temporary import temporary_folder
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.wording import digits
from rankslice.measurement.bench.bench_records import Bench, BoardFacts, Load, Start
from rankslice.measurement.bench.bench_warm_up import MIN_FRAMES
from rankslice.measurement.bench.intervals import check_installed
from rankslice.measurement.bench.quiet import LIVE_NOTE, machine_facts
from rankslice.measurement.bench.series import Ratio, ratios, series
from rankslice.measurement.board_history import mode_differences
from rankslice.session.bench.bench_options import LEVELS, BenchOptions
from rankslice.session.bench.co_runner import beside_loads, run_beside
from rankslice.session.bench.frequencies import held_frequencies
from rankslice.session.bench.starts import Measured, build_unsliced, is_live, other_boards
from rankslice.session.build_folder import read_plan
from rankslice.session.shared_options import refuse_with
from rankslice.session.versions import versions

UNSLICED = "unsliced"
CLOSED = "closed loop"
LIVE = "as they come"
_SAME_RATE = 0.01
"""Rates that differ by less are compared."""


Progress = Callable[[str, int, int], None]
"""Called with what is measured, how many starts are done, and how many there are."""


def bench(
    folder: Path,
    against: Path | str | None = None,
    options: BenchOptions | None = None,
    *,
    on_progress: Progress = lambda step, done, total: None,
    on_turn: Callable[[Bench], None] = lambda bench: None,
) -> Bench:
    """Measure a job, and another one in turns with it.

    First as fast as frames are taken (the closed loop), which gives the saturation throughput,
    then with frames that come by the clock (the open loop). A camera sets the pace itself, so its
    frames are measured as they come. Each start is a new set of processes. If a co-runner works
    beside the job, or the boards are measured at several frequencies, frames come in one way, and
    the loads differ in that.
    In each turn every job is started once, in random order, so that what changes slowly on the
    machine meets both alike.

    Args:
        folder: made by ``build``. Packages are on their boards (``deploy``).
        against: another build folder, or ``unsliced``.
        on_turn: called after each turn, with what has been measured.

    Raises:
        RankSliceError: a job cannot run or has failed, or there are too few frames.
    """
    wanted = options or BenchOptions()
    check_installed()
    live = _refuse_rates_of_camera(wanted)
    first = _first_loads(wanted, live=live)
    levels = 1 if wanted.fps is not None else len(wanted.levels)
    levels = 0 if live or wanted.has_one_rate else levels
    with _measured(folder, against, wanted) as jobs:
        measuring = _Measuring(jobs, wanted, len(first) + levels, on_progress, on_turn)
        measuring.take(first)
        if levels:
            measuring.take(_open_loads(measuring.so_far(), wanted))
    return measuring.so_far()


@contextmanager
def _measured(
    folder: Path, against: Path | str | None, options: BenchOptions
) -> Iterator[list[Measured]]:
    """Yield the jobs to measure; the unsliced model's is built for as long as the block lasts."""

    def measured(name: str, folder: Path) -> Measured:
        return Measured(name, folder, options.run_options, options.launching)

    first = measured(str(folder), folder)
    if against is None:
        yield [first]
    elif str(against) != UNSLICED:
        yield [first, measured(str(against), Path(against))]
    else:
        with temporary_folder() as temporary:
            out = temporary.path / UNSLICED
            build_unsliced(folder, read_plan(folder), out, options.launching.ssh_config)
            yield [first, measured(UNSLICED, out)]


def _refuse_too_few(frames: int, window: int) -> None:
    needed = max(MIN_FRAMES, 4 * frames_to_fill(window))
    if frames < needed:
        found = f"{frames} frames are too few to find the warm-up and a rate"
        raise RankSliceError(Mistake("--frames", found, f"give {needed} or more"))


def _refuse_rates_of_camera(options: BenchOptions) -> bool:
    if not is_live(options.inputs):
        return False
    camera = f"--input {options.inputs[0]}, which sets the pace itself"
    refuse_with(camera, fps=options.fps, load_levels=options.levels != LEVELS)
    return True


class _Measuring:
    """Starts jobs under loads, turn by turn."""

    def __init__(
        self,
        jobs: Sequence[Measured],
        options: BenchOptions,
        loads: int,
        on_progress: Progress,
        on_turn: Callable[[Bench], None],
    ) -> None:
        """Check that the jobs can run; ``loads``: how many there will be."""
        self._jobs, self._options = jobs, options
        self._on_progress, self._on_turn = on_progress, on_turn
        self._subjects = tuple(job.subject for job in jobs)
        most = max(subject.window for subject in self._subjects)
        _refuse_too_few(options.frames, most)
        self._prepared = [job.check() for job in jobs]
        self._boards: dict[str, BoardFacts] = {}
        for board in (board for job in self._prepared for board in other_boards(job)):
            self._boards.setdefault(board.name, board)
        self._load_before, self._versions = os.getloadavg()[0], versions()
        self._mode = board_mode()
        self._order = Random(options.seed)
        self._total = options.starts * len(jobs) * loads
        self._loads: list[Load] = []
        self._starts: list[Start] = []

    def take(self, loads: Sequence[Load]) -> None:
        """Start the jobs under more loads."""
        first = len(self._loads)
        self._loads += loads
        with held_frequencies(self._options.frequency, self._prepared[0]) as hold:
            for turn in range(self._options.starts):
                for place in self._shuffled(len(loads)):
                    limit_mhz = hold(loads[place].frequency_mhz)
                    for subject in self._shuffled(len(self._jobs)):
                        start = self._start(subject, loads[place])
                        start = replace(start, load=first + place, turn=turn, limit_mhz=limit_mhz)
                        self._starts.append(start)
                self._on_turn(self.so_far())

    def _start(self, subject: int, load: Load) -> Start:
        job, done = self._jobs[subject], len(self._starts)
        self._on_progress(f"{job.name}, {load.name}", done, self._total)
        start = run_beside(job, self._prepared[subject], load)
        self._on_progress(f"{job.name}, {load.name}", done + 1, self._total)
        return replace(start, subject=subject)

    def _shuffled(self, count: int) -> list[int]:
        return self._order.sample(range(count), count)

    def so_far(self) -> Bench:
        return Bench(
            inputs=self._options.inputs,
            frames=self._options.frames,
            seed=self._options.seed,
            machine=machine_facts(self._versions.items(), self._load_before, self._mode),
            boards=tuple(self._boards.values()),
            subjects=self._subjects,
            loads=tuple(self._loads),
            starts=tuple(self._starts),
        )


def _first_loads(options: BenchOptions, *, live: bool) -> list[Load]:
    """Return the loads to measure first; all of them, if frames come in one way."""
    if live:
        usual = Load(LIVE, is_live=True)
    elif options.has_one_rate and options.fps is not None:
        usual = Load(f"{options.fps:g} frames/s", options.fps)
    else:
        usual = Load(CLOSED)
    if options.frequency:
        rising = sorted(hertz / 1e6 for hertz in options.frequency)
        return [replace(usual, name=f"{usual.name}, {f:g} MHz", frequency_mhz=f) for f in rising]
    return beside_loads(usual, options.load, options.busy) if options.load else [usual]


def _open_loads(closed: Bench, options: BenchOptions) -> list[Load]:
    """Return the loads whose frames come by the clock.

    Jobs that are compared get the same rates, so shares are of the slower one's.
    """
    if options.fps is not None:
        return [Load(f"{options.fps:g} frames/s", fps=options.fps)]
    rates = [
        fmean(start.throughput_fps for start in series(closed, subject, 0).starts)
        for subject in range(len(closed.subjects))
    ]
    return [
        Load(f"{100 * level:g} %", fps=level * min(rates), share=level) for level in options.levels
    ]


@dataclass(frozen=True, slots=True)
class Compared:
    """Two files of benchmarks, side by side."""

    ratios: tuple[Ratio, ...]
    """The first one's figures over the second's."""
    notes: tuple[str, ...]
    """What must be known to read them."""


def compare(measured: Bench, reference: Bench) -> Compared:
    """Return the figures of the first job of a benchmark over those of another one's.

    They were not measured in turns, so the machine may have changed in between, which no interval
    of either can tell.

    Raises:
        RankSliceError: they cannot be compared.
    """
    check_installed()
    sides = (measured, reference)
    mine, theirs = (side.subjects[0] for side in sides)
    if mine.model_sha256 != theirs.model_sha256:
        found = f"are of different models, {mine.model} and {theirs.model}"
        raise RankSliceError(Mistake("the benchmarks", found, "measure both in turns: --against"))
    for what in ("inputs", "frames"):
        values = [getattr(side, what) for side in sides]
        if values[0] != values[1]:
            found = f"have different {what}: {_shown(values[0])} and {_shown(values[1])}"
            raise RankSliceError(Mistake("the benchmarks", found, "measure one of them again"))
    rows: list[Ratio] = []
    notes = [
        "not measured in turns: the ratios include changes of the machine between the two, which"
        " the intervals do not cover"
    ]
    if any(load.is_live for load in measured.loads):
        notes.append(LIVE_NOTE)
    modes = {"this one": _modes(measured), "the first one": _modes(reference)}
    notes += mode_differences(modes)
    for name in ("host", "processor", "cores", "kernel", "governor", "versions"):
        if getattr(measured.machine, name) != getattr(reference.machine, name):
            notes.append(f"the machines differ: {name}")
    for number, load in enumerate(measured.loads):
        other = next(
            (n for n, candidate in enumerate(reference.loads) if candidate.name == load.name), None
        )
        if other is None:
            continue
        rates = load.fps, reference.loads[other].fps
        if rates[0] and rates[1] and abs(rates[0] / rates[1] - 1) > _SAME_RATE:
            notes.append(
                f"{load.name}: skipped, because frames arrived at {digits(rates[0], 4)} and"
                f" {digits(rates[1], 4)} per second"
            )
            continue
        pair = series(measured, 0, number), series(reference, 0, other)
        if not all(side.starts for side in pair):
            continue
        rows += ratios(load, *pair, paired=False)
    if not rows:
        expected = "measure both with the same --fps"
        raise RankSliceError(Mistake("the benchmarks", "have no load in common", expected))
    return Compared(tuple(rows), tuple(notes))


def _modes(bench: Bench) -> dict[str, BoardMode]:
    boards = {board.name: board.mode for board in bench.boards}
    return {bench.machine.host: bench.machine.mode, **boards}


def _shown(value: object) -> str:
    return " ".join(value) if isinstance(value, tuple) else str(value)
