"""What a mapping showed when it was run, beside what was predicted of it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.results.results import Choice, Figures

__all__ = ["MeasuredEnergy", "MeasuredRank", "MeasuredRun", "with_measured"]


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
class MeasuredEnergy:
    """What a board's sensor told."""

    board: str
    frame_uj: int
    """Of all that the sensor sees, while the run lasted, over its frames."""


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """What a mapping showed in a run."""

    frames: int
    period_ns: int
    """Time from frame to frame; its inverse is the throughput."""
    latency_ns: int
    """Median."""
    ranks: tuple[MeasuredRank, ...]
    energies: tuple[MeasuredEnergy, ...] = ()
    """Of the boards whose sensor told it."""


def with_measured(problem: Problem, choice: Choice, run: MeasuredRun) -> Choice:
    """Return a choice with the figures of a run beside the predicted ones.

    Args:
        problem: whose figures of power the energy rests on, on boards whose sensor told none.
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
    energy_j, energy_source = _worst_energy(problem, measured, run)
    figures = Figures(
        source="measured",
        throughput_fps=1e9 / run.period_ns,
        latency_s=run.latency_ns / 1e9,
        memory_bytes=max(memory.values()),
        energy_j=energy_j,
        energy_source=energy_source,
    )
    return replace(measured, figures=(*choice.figures, figures))


def _worst_energy(
    problem: Problem, choice: Choice, run: MeasuredRun
) -> tuple[float | None, str | None]:
    """Return the energy of a frame on the board that takes most, in joules, and its source.

    ``None``: that of a board in use is not known. It is measured if sensors told it of all boards.
    """
    told = {energy.board: energy.frame_uj / 1e6 for energy in run.energies}
    if all(board in told for board in choice.boards):
        return max(told[board] for board in choice.boards), "measured"
    if choice.figures[0].energy_j is None:
        return None, None
    joules = _modelled_j(problem, choice, run.period_ns / 1e9) | told
    return max(joules.values()), "modelled"


def _modelled_j(problem: Problem, choice: Choice, period_s: float) -> dict[str, float]:
    """Return the energy of a frame by board, from power figures and measured times.

    As the cost model has it: a board idles for the time between frames, and its accelerators draw
    more while they are busy.
    """
    idle = {board.name: board.idle_w or 0.0 for board in problem.boards}
    joules = {board: idle[board] * period_s for board in choice.boards}
    power = {
        device.key: float(watts)
        for device, watts in zip(problem.devices, problem.active_w, strict=True)
    }
    for stage in choice.stages:
        assert stage.measured_s is not None
        busy_s = stage.measured_s + stage.busy_s - stage.compute_s
        joules[stage.board] += power[stage.key] * busy_s
    return joules
