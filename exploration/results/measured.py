"""Measurements of a mapping's run, beside its predictions."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.results.candidates import Candidate, Figures


@dataclass(frozen=True, slots=True)
class MeasuredRank:
    """Measurements of a rank."""

    key: str
    layers: tuple[str, ...]
    """As in the mapping file."""
    compute_ns: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class MeasuredEnergy:
    """Energy that a board's sensor measured."""

    board: str
    frame_uj: int
    """All that the sensor measured during the run, over the number of frames."""


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """Measurements of a mapping's run."""

    frames: int
    period_ns: int
    """Time from frame to frame; its inverse is the throughput."""
    latency_ns: int
    """Median."""
    ranks: tuple[MeasuredRank, ...]
    energies: tuple[MeasuredEnergy, ...] = ()
    """Of boards with a sensor."""


def with_measured(problem: Problem, candidate: Candidate, run: MeasuredRun) -> Candidate:
    """Return a candidate with the figures of a run beside the predicted ones."""
    ranks = tuple(
        replace(load, measured_s=rank.compute_ns / 1e9)
        for load, rank in zip(candidate.ranks, run.ranks, strict=True)
    )
    memory: dict[str, int] = defaultdict(int)
    for load, rank in zip(ranks, run.ranks, strict=True):
        memory[load.board] += rank.memory_bytes
    measured = replace(candidate, ranks=ranks)
    energy_j, energy_basis = _worst_energy(problem, measured, run)
    figures = Figures(
        basis="measured",
        throughput_fps=1e9 / run.period_ns,
        latency_s=run.latency_ns / 1e9,
        memory_bytes=max(memory.values()),
        energy_j=energy_j,
        energy_basis=energy_basis,
    )
    return replace(measured, figures=(*candidate.figures, figures))


def _worst_energy(
    problem: Problem, candidate: Candidate, run: MeasuredRun
) -> tuple[float | None, str | None]:
    """Return the energy of a frame on the board that takes most, in joules, and its basis.

    ``None``: that of a board in use is not known. It is measured if all boards have sensors.
    """
    period_s = run.period_ns / 1e9
    # Runs take frames as fast as they can. Where frames come by the clock, boards idle between.
    idle_s = max(0.0, problem.between_frames_s - period_s)
    idle = {board.name: board.idle_w for board in problem.boards}
    by_board = {
        energy.board: energy.frame_uj / 1e6 + idle_s * (idle[energy.board] or 0.0)
        for energy in run.energies
        if energy.board in candidate.boards  # a report comes from a board, and may say anything
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
