"""What a mapping showed when it was run, beside what was predicted of it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from rankslice.exploration.problem import Problem
from rankslice.exploration.results import Choice, Figures

__all__ = ["MeasuredRank", "MeasuredRun", "with_measured"]


@dataclass(frozen=True, slots=True)
class MeasuredRank:
    """What a rank showed."""

    key: str
    layers: tuple[str, ...]
    """As in the mapping file."""
    compute_ns: int
    """Computing, median per frame."""
    memory_bytes: int
    """Peak resident memory."""


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """What a mapping showed in a run."""

    frames: int
    period_ns: int
    """Time from frame to frame; its inverse is the throughput."""
    latency_ns: int
    """Median."""
    ranks: tuple[MeasuredRank, ...]


def with_measured(problem: Problem, choice: Choice, run: MeasuredRun) -> Choice:
    """Return a choice with the figures of a run beside the predicted ones.

    Args:
        problem: whose figures of power the energy rests on.
        choice: with what was predicted.
        run: of its mapping.
    """
    stages = tuple(
        replace(stage, measured_s=rank.compute_ns / 1e9)
        for stage, rank in zip(choice.stages, run.ranks, strict=True)
    )
    memory: dict[str, int] = defaultdict(int)
    for stage, rank in zip(stages, run.ranks, strict=True):
        memory[stage.board] += rank.memory_bytes
    measured = replace(choice, stages=stages)
    figures = Figures(
        source="measured",
        throughput_fps=1e9 / run.period_ns,
        latency_s=run.latency_ns / 1e9,
        memory_bytes=max(memory.values()),
        energy_j=_worst_energy_j(problem, measured, run.period_ns / 1e9),
        energy_source=choice.figures[0].energy_source,
    )
    return replace(measured, figures=(*choice.figures, figures))


def _worst_energy_j(problem: Problem, choice: Choice, period_s: float) -> float | None:
    """Return the energy of a frame on the board that takes most; ``None``: no power is known.

    As the cost model has it, with measured times: a board idles for the time between frames, and
    its accelerators draw more while they are busy.
    """
    if choice.figures[0].energy_j is None:
        return None
    idle = {board.name: board.idle_w or 0.0 for board in problem.boards}
    joules = {board: idle[board] * period_s for board in choice.boards}
    power = {
        place.key: float(watts)
        for place, watts in zip(problem.places, problem.active_w, strict=True)
    }
    for stage in choice.stages:
        assert stage.measured_s is not None
        busy_s = stage.measured_s + stage.busy_s - stage.compute_s
        joules[stage.board] += power[stage.key] * busy_s
    return max(joules.values())
