"""Measurements of a mapping's run, beside its predictions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from rankslice.backend.runtime.figures.rank_figures import EnergyFigures
from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.results.candidates import Candidate, Figures
from rankslice.framework.errors import RankSliceError
from rankslice.measurement.summary import RunSummary


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
