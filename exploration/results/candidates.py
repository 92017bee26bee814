"""Candidates: mappings that a search found, with their figures: predicted, and measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeAlias

from rankslice.backend.runtime.figures.rank_figures import EnergyFigures
from rankslice.backend.runtime.job.strict import vars_of
from rankslice.exploration.cost.prediction import DeviceCost, Prediction, predict
from rankslice.exploration.problem.problem import Problem, mapping_of
from rankslice.exploration.problem.split_problem import SplitMapping
from rankslice.exploration.results.front import Archive, Assignment, spread_out
from rankslice.framework.errors import RankSliceError
from rankslice.framework.mapping import WAYS, LayerPart, MappingEntry
from rankslice.framework.specs.keys import parse_key
from rankslice.framework.wording import digits
from rankslice.measurement.summary import RunSummary

ALONE, PIPELINE, IN_TURN = "one accelerator", "pipeline", "ranks in turn"
"""Strategies that split no layers; those that do are named after the ways in which they do."""

Selection: TypeAlias = list[tuple[Assignment, bool]]
"""Assignments of layers to devices, (layers,) each, and whether each is on the front."""


def selected(archive: Archive, most: int) -> Selection:
    """Return the assignments to show.

    They are at most ``most`` of the front, spread over all of it; then the fastest of each number
    of boards, where another number of boards beats it in everything, and of the fewest boards that
    are fast enough for a camera, those that need least.

    Args:
        archive: throughput is its first objective.
    """
    front = archive.assignments[spread_out(archive.values, most)]
    known = {row.tobytes() for row in front}
    whole = {row.tobytes() for row in archive.assignments}
    rows = [(row, True) for row in front]
    fastest = [archive.best(boards, 0) for boards in archive.groups]
    for best in (*fastest, *archive.frugal()):
        if best is not None and best.tobytes() not in known:
            known.add(best.tobytes())
            rows.append((best, best.tobytes() in whole))
    return rows


def candidates_of(
    problem: Problem, kept: Selection, tried: Mapping[bytes, Candidate] = MappingProxyType({})
) -> tuple[Candidate, ...]:
    """Return mappings to choose from, the fastest first and numbered so.

    Args:
        tried: those that were simulated or run, by the bytes of their assignments.
    """
    candidates = [
        replace(tried.get(row.tobytes()) or predicted_candidate(problem, row), on_front=on_front)
        for row, on_front in kept
    ]
    return numbered(candidates)


def numbered(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Return mappings, the fastest first and numbered so."""
    return tuple(
        replace(candidate, number=number)
        for number, candidate in enumerate(sorted(candidates, key=_order), 1)
    )


def _order(candidate: Candidate) -> tuple[float, ...]:
    figures = candidate.best_known
    return -figures.throughput_fps, len(candidate.boards), float(figures.memory_bytes or 0)


def predicted_candidate(problem: Problem, assignment: Assignment) -> Candidate:
    """Return an assignment with its predicted figures, without a number, taken to be on a front."""
    prediction = predict(problem, assignment)
    return _candidate(prediction, _loads(problem, assignment, prediction))


def split_candidate(split: SplitMapping, prediction: Prediction) -> Candidate:
    """Return a mapping that splits layers, as :func:`predicted_candidate` does."""
    costs = {device.key: device for device in prediction.devices}
    loads = (
        RankLoad(**vars_of(costs[entry.key]), layers=entry.layers)
        for entry in split.mapping.entries
    )
    return _candidate(prediction, loads)


def _candidate(prediction: Prediction, ranks: Iterable[RankLoad]) -> Candidate:
    return Candidate(
        number=0,
        ranks=tuple(ranks),
        traffic=tuple(_traffic(prediction)),
        figures=(predicted_figures(prediction),),
        bottleneck=f"{prediction.bottleneck}, {digits(1e3 * prediction.bottleneck_s)} ms per frame",
        on_front=True,
    )


def predicted_figures(prediction: Prediction) -> Figures:
    joules = [board.energy_j for board in prediction.boards]
    known = [joule for joule in joules if joule is not None]
    is_known = len(known) == len(joules)
    sources = {board.energy_source for board in prediction.boards}
    return Figures(
        basis="predicted",
        throughput_fps=prediction.throughput_fps,
        latency_s=prediction.latency_s,
        memory_bytes=round(max(board.memory_bytes for board in prediction.boards)),
        energy_j=max(known) if is_known else None,
        energy_basis=("modelled" if "modelled" in sources else "measured") if is_known else None,
    )


def _loads(problem: Problem, assignment: Assignment, prediction: Prediction) -> Iterator[RankLoad]:
    """Yield the ranks of the mapping, those that take turns as their entry's key names them."""
    costs = {device.key: device for device in prediction.devices}
    mapping = mapping_of(problem, assignment.tolist())
    numbers = dict.fromkeys(assignment.tolist())
    for number, (key, layers) in zip(numbers, mapping.items(), strict=True):
        for device in problem.numbered[number].devices:
            own = costs[problem.devices[device].key]
            in_turn_key = "" if key == own.key else key
            yield RankLoad(**vars_of(own), layers=tuple(layers), in_turn_key=in_turn_key)


def _traffic(prediction: Prediction) -> Iterator[RankTraffic]:
    """Yield what each rank sends to each other one, all tensors together, per frame of both."""
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for channel in prediction.channels:
        total = sums[channel.origin, channel.target]
        total[0] += channel.nbytes
        total[1] += channel.seconds
    for (origin, target), (nbytes, seconds) in sums.items():
        yield RankTraffic(origin, target, round(nbytes), seconds)


@dataclass(frozen=True, slots=True)
class Figures:
    """How good a mapping is."""

    basis: str
    """``predicted``, ``simulated`` or ``measured``."""
    throughput_fps: float
    latency_s: float
    """From a frame's entry to its result, with nothing waiting before it."""
    memory_bytes: int | None
    """Of the board that needs most."""
    energy_j: float | None
    """Per frame, of the board that needs most; ``None``: not known."""
    energy_basis: str | None
    """``measured``: by sensors; ``modelled``: from power figures. See docs/exploration.md."""


@dataclass(frozen=True, slots=True)
class RankLoad(DeviceCost):
    """What one rank does, predicted."""

    layers: tuple[str | LayerPart, ...] = ()
    """As in the mapping file: names and ranges, and parts of such layers."""
    measured_s: float | None = None
    """Computing, median of a real run."""
    in_turn_key: str = ""
    """Key of the mapping's entry, if other ranks take turns with it."""

    @property
    def entry(self) -> str:
        return self.in_turn_key or self.key

    @property
    def accelerator(self) -> str:
        """``cpu``, ``gpu`` or ``npu``."""
        return parse_key(self.key, self.key).kind


@dataclass(frozen=True, slots=True)
class RankTraffic:
    """What one rank sends to another for each frame, all tensors together."""

    sender: str
    receiver: str
    nbytes: int
    seconds: float
    """Predicted, per frame."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A mapping that a search proposes."""

    number: int
    """From 1, the fastest first."""
    ranks: tuple[RankLoad, ...]
    traffic: tuple[RankTraffic, ...]
    figures: tuple[Figures, ...]
    """What the cost model predicts; then, if asked for, what was simulated or measured."""
    bottleneck: str
    on_front: bool

    @property
    def file(self) -> str:
        return f"mapping-{self.number:02}.json"

    @property
    def best_known(self) -> Figures:
        """The figures that come closest to reality."""
        return self.figures[-1]

    @property
    def boards(self) -> tuple[str, ...]:
        """Boards that it uses, in the order of its ranks."""
        return tuple(dict.fromkeys(load.board for load in self.ranks))

    @property
    def accelerators(self) -> tuple[str, ...]:
        """Kinds of accelerators that it uses: ``cpu``, ``gpu``, ``npu``, in this order."""
        used = {load.accelerator for load in self.ranks}
        return tuple(kind for kind in ("cpu", "gpu", "npu") if kind in used)

    @property
    def entries(self) -> tuple[MappingEntry, ...]:
        layers = {load.entry: load.layers for load in self.ranks}
        return tuple(MappingEntry(key, items) for key, items in layers.items())

    @property
    def mapping(self) -> dict[str, list[Any]]:
        """As in a mapping file."""
        return {entry.key: [*entry.in_json()] for entry in self.entries}

    @property
    def ways(self) -> tuple[str, ...]:
        """In which ways it splits layers, of :data:`WAYS`."""
        items = [item for load in self.ranks for item in load.layers]
        ways = {item.by for item in items if isinstance(item, LayerPart)}
        return tuple(way for way in WAYS if way in ways)

    @property
    def strategy(self) -> str:
        """How it divides the work: in slices, in turn, or by split layers."""
        if self.ways:
            return " and ".join(self.ways)
        if any(load.in_turn_key for load in self.ranks):
            return IN_TURN
        return PIPELINE if len(self.ranks) > 1 else ALONE


@dataclass(frozen=True, slots=True)
class Failure:
    """A mapping that was tried and did not run."""

    mapping: dict[str, list[Any]]
    """As in a mapping file."""
    reason: str


@dataclass(frozen=True, slots=True)
class Strategy:
    """The best mappings of one strategy."""

    name: str
    """As :attr:`Candidate.strategy` has it."""
    best: dict[str, int]
    """Number of its best mapping, by objective; those that are not known are left out."""
    wins: tuple[str, ...]
    """Objectives in which no mapping of another strategy is better."""


@dataclass(frozen=True, slots=True)
class ScalingPoint:
    """The fastest mapping on so many equal boards."""

    boards: int
    candidate: Candidate


@dataclass(frozen=True, slots=True)
class Exploration:
    """What an exploration found, and how."""

    model: str
    platform: str
    profile: str
    method: str
    """In words: ``NSGA-II, 400 generations of 100, seed 0``."""
    objectives: tuple[str, ...]
    left_out: tuple[str, ...]
    """Objectives that were asked for and are not available, each with its reason."""
    evaluations: int
    """Mappings that the cost model evaluated."""
    candidates: tuple[Candidate, ...]
    answer: tuple[str, ...]
    tried_by: str | None = None
    """``simulator`` or ``run``: what evaluated mappings after the cost model, if anything did."""
    tried: int = 0
    failures: tuple[Failure, ...] = ()
    target_fps: float | None = None
    surge_fps: float | None = None
    routes: tuple[int, ...] = ()
    """Numbers of the mappings for the usual load and for the surge; none: there is no such pair."""
    scaling: tuple[ScalingPoint, ...] = ()
    """The fastest mapping on each number of equal boards, if that was asked for."""
    strategies: tuple[Strategy, ...] = ()
    """If they were compared."""


def with_measured(problem: Problem, candidate: Candidate, run: RunSummary) -> Candidate:
    """Return a candidate with the figures of its run beside the predicted ones.

    Raises:
        RankSliceError: there were too few frames to tell a rate.
    """
    if not run.throughput_fps:
        raise RankSliceError(too_few(run.completed))
    ranks = tuple(
        replace(load, measured_s=rank.compute_ms["p50"] / 1e3)
        for load, rank in zip(candidate.ranks, run.ranks, strict=True)
    )
    memory: dict[str, int] = defaultdict(int)
    for load, rank in zip(ranks, run.ranks, strict=True):
        memory[load.board] += round(1e6 * rank.memory_mb)
    measured = replace(candidate, ranks=ranks)
    energy_j, energy_basis = _worst_energy(problem, measured, run.energy, 1 / run.throughput_fps)
    figures = Figures(
        basis="measured",
        throughput_fps=run.throughput_fps,
        latency_s=run.latency_ms["p50"] / 1e3,
        memory_bytes=max(memory.values()),
        energy_j=energy_j,
        energy_basis=energy_basis,
    )
    return replace(measured, figures=(*candidate.figures, figures))


def too_few(frames: int) -> str:
    return f"{frames} frames are too few to tell a rate"


def _worst_energy(
    problem: Problem, candidate: Candidate, energies: Sequence[EnergyFigures], period_s: float
) -> tuple[float | None, str | None]:
    """Return the energy of a frame on the board that takes most, in joules, and its basis.

    ``None``: that of a board in use is not known. It is measured if all boards have sensors.
    """
    # Runs take frames as fast as they can. Where frames come by the clock, boards idle between.
    idle_s = max(0.0, problem.between_frames_s - period_s)
    idle = {board.name: board.idle_w for board in problem.boards}
    by_board = {
        energy.board: energy.mj_per_frame / 1e3 + idle_s * (idle[energy.board] or 0.0)
        for energy in energies
        if energy.mj_per_frame is not None
        and energy.board in candidate.boards  # a report comes from a board, and may say anything
    }
    if idle_s and any(idle[board] is None for board in candidate.boards):
        return None, None
    if all(board in by_board for board in candidate.boards):
        return max(by_board[board] for board in candidate.boards), "measured"
    if candidate.figures[0].energy_j is None:
        return None, None
    joules = _modelled_j(problem, candidate, period_s + idle_s) | by_board
    return max(joules.values()), "modelled"


def _modelled_j(problem: Problem, candidate: Candidate, period_s: float) -> dict[str, float]:
    """Return the energy of a frame by board, from power figures and measured times.

    As the cost model has it: a board idles for the time between frames, and its accelerators draw
    more while they are busy.
    """
    idle = {board.name: board.idle_w or 0.0 for board in problem.boards}
    joules = {board: idle[board] * period_s for board in candidate.boards}
    power = {
        device.key: float(watts)
        for device, watts in zip(problem.devices, problem.active_w, strict=True)
    }
    for load in candidate.ranks:
        assert load.measured_s is not None
        busy_s = load.measured_s + load.busy_s - load.compute_s
        joules[load.board] += power[load.key] * busy_s * float(load.turns.share)
    return joules
