"""A job to measure, or its unsliced model, and one start of it with what its events tell."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from rankslice.backend.boards.login import board_logins, is_this_machine
from rankslice.backend.runtime.figures.events import COMPUTE
from rankslice.backend.runtime.job import Rank
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sources import find_source
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.graph import Graph
from rankslice.framework.mapping import Mapping as LayerMapping, MappingEntry
from rankslice.framework.plan import Plan
from rankslice.framework.platform import Accelerator, Board, Platform
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.measurement.bench.bench_records import (
    BoardFacts,
    Load,
    Noise,
    RankFacts,
    StageTimes,
    Start,
    Subject,
)
from rankslice.measurement.bench.quiet import noise_between, noise_of, read_counters
from rankslice.measurement.board_history import BoardHistory
from rankslice.measurement.summary import RunSummary
from rankslice.measurement.trace.trace_events import (
    MAX_EVENTS,
    RankEvents,
    Trace,
    events_needed,
    in_order,
)
from rankslice.session.build_folder import read_plan, reference_model
from rankslice.session.building.build import BuildOptions, build
from rankslice.session.deployment import deploy, plan_deployment
from rankslice.session.run import Callbacks, PreparedRun, prepare, run
from rankslice.session.shared_options import DEFAULT_LAUNCHING, Launching

T = TypeVar("T")

_SOME = 1 << 12
"""Frames, enough to tell how many events one has."""


@dataclass(frozen=True, slots=True)
class Measured:
    name: str
    folder: Path
    options: RunOptions = field(default_factory=RunOptions)
    """Of each start: frames, inputs and limits, but not how the frames come."""
    launching: Launching = DEFAULT_LAUNCHING

    @property
    def plan(self) -> Plan:
        return read_plan(self.folder)

    @property
    def subject(self) -> Subject:
        plan = self.plan
        return Subject(
            name=self.name,
            model=plan.model.name,
            model_sha256=plan.model.sha256,
            job_sha256=plan.job.sha256,
            window=self.options.window or plan.job.window,
            ranks=tuple(RankFacts(rank.key, rank.board, rank.engine) for rank in plan.ranks),
        )

    def prepare(self, options: RunOptions) -> PreparedRun:
        """Prepare a run whose results are thrown away."""
        return prepare(self.folder, options, self.launching, results=Path("/dev/null"))

    def check(self) -> PreparedRun:
        """Check what can be checked before the first start."""
        frames = self.options.frames
        if events_needed(self.plan, frames) >= MAX_EVENTS:
            most = MAX_EVENTS * _SOME // events_needed(self.plan, _SOME) - 1
            found = f"the events of {frames} frames are too many to be kept"
            raise RankSliceError(
                Mistake("--frames", found, f"give {most} at most, and more starts")
            )
        prepared = self.prepare(self.options)
        if not (prepared.source.can_replay or prepared.source.is_live):
            found = f"{' '.join(self.options.inputs)} gives each frame once, and not in every start"
            raise RankSliceError(Mistake("--input", found, "record frames to a file"))
        return prepared


def is_live(inputs: Sequence[str]) -> bool:
    kind = find_source(inputs)
    return kind is not None and kind.is_live


def run_start(
    measured: Measured, load: Load, on_completed: Callable[[int], None] = lambda count: None
) -> Start:
    """Start a job, let its frames pass, and return what they took; results are thrown away.

    With a rate, frames come by the clock, and wait however many there are: a slow frame delays no
    arrival, so what waits behind it counts as late (no coordinated omission). A camera does not
    wait either. As its frames take memory, only about those of a second may wait: if there are
    more, the start fails.

    ``on_completed`` is called now and then with the number of frames that are done.

    Raises:
        RankSliceError: the job failed.
    """
    plan, options = measured.plan, measured.options
    is_timed = load.fps is not None or options.arrivals is not None
    options = replace(
        options,
        fps=load.fps,
        pull=not (is_timed or load.is_live),
        queue=options.frames if is_timed else None,
        events=Path("events"),
        events_kept=events_needed(plan, options.frames),
    )
    began_s, begin_s, before = time.time(), time.monotonic(), read_counters()
    prepared = measured.prepare(options)
    finished = run(prepared, Callbacks(on_completed), keep=False)
    took_s, after = time.monotonic() - begin_s, read_counters()
    assert finished.trace is not None
    arrived, latencies = _frames(finished.trace)
    if len(latencies) != finished.summary.completed:
        found = f"{finished.summary.completed} frames came out, {len(latencies)} are in the events"
        raise RankSliceError(Mistake(str(measured.folder), found))
    return Start(
        subject=0,
        load=0,
        turn=0,
        began_s=round(began_s, 3),
        took_s=round(took_s, 6),
        arrived_ns=arrived,
        latency_ns=latencies,
        stages=tuple(stage for rank in finished.trace.ranks for stage in _stages(rank)),
        noise=(noise_between(before, after), *_noises(prepared, finished.hardware)),
        frequency_mhz=_mean_of(finished.summary, plan, "frequency_mhz", fmean),
        temperature_c=_mean_of(finished.summary, plan, "temperature_c", max),
        mj_per_frame=finished.summary.mj_per_frame,
    )


def other_boards(prepared: PreparedRun) -> list[BoardFacts]:
    """Return the boards of a job that are not this machine, as they were asked beforehand."""
    if prepared.boards is None:
        return []
    return [
        BoardFacts(shell.login.board, check.cores, check.governor, round(check.load, 2), check.mode)
        for shell, check in prepared.boards.checked
        if not shell.is_here
    ]


def _noises(prepared: PreparedRun, histories: Sequence[BoardHistory]) -> Iterator[Noise]:
    by_board = {history.board: history for history in histories}
    for board in other_boards(prepared):
        history = by_board.get(board.name)
        if history is not None and (noise := noise_of(history, board.cores)) is not None:
            yield noise


def _mean_of(
    summary: RunSummary, plan: Plan, quantity: str, over: Callable[[list[float]], float]
) -> float | None:
    """Return a figure of the board of the first rank on this machine; a short start has none."""
    here = [rank for rank in plan.ranks if is_this_machine(rank.host)]
    board = (here or plan.ranks)[0].board
    parts = next((own.of(quantity) for own in summary.hardware if own.board == board), {})
    if quantity == "frequency_mhz":
        cores = {core for rank in plan.ranks if rank.board == board for core in rank.cores}
        parts = _of_cores(parts, cores) or parts
    means = [part["mean"] for part in parts.values()]
    return over(means) if means else None


def _of_cores(clocks: Mapping[str, T], cores: Iterable[int]) -> dict[str, T]:
    """Return the clocks of cores: ``policy4`` is that of core 4 and those that follow it."""
    first = {int(name[6:]): name for name in clocks if re.fullmatch(r"policy\d{1,9}", name)}
    own = {max((n for n in first if n <= core), default=None) for core in cores} - {None}
    return {first[number]: clocks[first[number]] for number in first if number in own}


def _frames(trace: Trace) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return each frame's time of arrival, since the first, and its latency, in nanoseconds."""
    begins, ends = trace.arrivals["begin_ns"], trace.arrivals["end_ns"]
    if not len(begins):
        return (), ()
    return tuple((begins - begins.min()).tolist()), tuple((ends - begins).tolist())


def _stages(rank: RankEvents) -> list[StageTimes]:
    steps = in_order(rank.of(COMPUTE), "frame")
    names = sorted({*zip(steps["route"].tolist(), steps["number"].tolist(), strict=True)})
    stages = []
    for route, number in names:
        own = steps[(steps["route"] == route) & (steps["number"] == number)]
        times = tuple((own["end_ns"] - own["begin_ns"]).tolist())
        stages.append(StageTimes(rank.rank, route, number, times))
    return stages


_NAME = "unsliced"


def build_unsliced(folder: Path, plan: Plan, out: Path, ssh_config: Path | None) -> Rank:
    """Build the unsliced model for the accelerator where frames enter; return where it runs.

    If the source's rank has no layers, it is the accelerator of the first ones.

    Raises:
        RankSliceError: the model is not there any more, or cannot be built.
    """
    model = reference_model(folder, plan, "measure it", converts=False)
    first = plan.job.source if plan.of_rank(plan.job.source) else plan.segments[0].rank
    rank = plan.ranks[first]
    users = {login.board: login.user for login in board_logins(folder, plan)}
    key = re.sub(r"\.\d+$", "", rank.key)

    def whole(graph: Graph, platform: Platform) -> LayerMapping:
        layers = tuple(layer.name for layer in graph.layers)
        return LayerMapping(_NAME, (MappingEntry(key, layers),))

    platform = _platform(rank, users)
    built = build(model, whole, platform, out, BuildOptions(sizes=_sizes(plan)))
    if not is_this_machine(rank.host):
        deploy(plan_deployment(built.folder, ssh_config=ssh_config))
    return rank


def _platform(rank: Rank, users: Mapping[str, str]) -> Platform:
    unit = Accelerator(rank.engine, rank.options, rank.environment, rank.allow_fallback)
    kind, number = rank.accelerator[:3], int(rank.accelerator[3:] or 0)
    board = Board(
        name=rank.board,
        host=rank.host,
        user=users.get(rank.board, ""),
        cores=rank.cores,
        gpus=(unit,) * (number + 1) if kind == "gpu" else (),
        npus=(unit,) * (number + 1) if kind == "npu" else (),
        engine=rank.engine if kind == "cpu" else "",
        cpu=unit if kind == "cpu" else None,
    )
    return Platform(_NAME, (board,))


def _sizes(plan: Plan) -> GivenSizes:
    largest = {
        tensor.name: tensor.shape
        for tensor in plan.job.tensors.values()
        if tensor.shape is not None and any(tensor.symbols)
    }
    fixed = {
        tensor.name: tensor.shape
        for tensor in plan.job.tensors.values()
        if tensor.shape is not None and tensor.name in plan.inputs
        if tensor.name not in largest
    }
    return GivenSizes(fixed, largest)
