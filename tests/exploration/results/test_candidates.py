"""From what a search found to mappings to choose from, and what their runs showed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from chain_problems import platform, problem
from kept_runs import TIMES, rank_run, run_record

from rankslice.backend.runtime.figures.rank_figures import EnergyFigures
from rankslice.exploration.objectives import available_objectives
from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.results.candidates import (
    candidates_of,
    predicted_candidate,
    selected,
    with_measured,
)
from rankslice.exploration.search.space import exhaustive, search_of
from rankslice.framework.errors import RankSliceError
from rankslice.measurement.summary import RunSummary

CPU_1, GPU_1, CPU_2, GPU_2 = range(4)


def test_devices_are_the_accelerators_of_all_boards(two_boards: Problem) -> None:
    keys = [device.key for device in two_boards.devices]
    assert ["b1_cpu0-3", "b1_gpu", "b2_cpu0-3", "b2_gpu"] == keys


def test_choices_are_numbered_from_the_fastest(two_boards: Problem) -> None:
    objectives = ("throughput", "energy", "memory")
    archive = exhaustive(search_of(two_boards, objectives))
    candidates = candidates_of(two_boards, selected(archive, 24))
    assert list(range(1, len(candidates) + 1)) == [candidate.number for candidate in candidates]
    rates = [candidate.figures[0].throughput_fps for candidate in candidates]
    assert sorted(rates, reverse=True) == rates
    assert rates[0] == pytest.approx(1 / archive.values[:, 0].min())


def test_the_fastest_of_each_number_of_boards_is_a_choice(two_boards: Problem) -> None:
    archive = exhaustive(search_of(two_boards, ("throughput",)))
    candidates = candidates_of(two_boards, selected(archive, 24))
    assert [(2, True), (1, False)] == [(len(c.boards), c.on_front) for c in candidates]
    assert {"cpu", "gpu"} == set(candidates[1].accelerators)


def test_a_choice_says_what_each_rank_does(two_boards: Problem) -> None:
    archive = exhaustive(search_of(two_boards, ("memory",)))
    candidate = candidates_of(two_boards, selected(archive, 1))[0]
    assert 6 == sum(load.layer_count for load in candidate.ranks)
    assert candidate.mapping == {load.key: list(load.layers) for load in candidate.ranks}
    assert " ms per frame" in candidate.bottleneck


def test_energy_is_asked_for_in_vain_without_power_figures(tmp_path: Path) -> None:
    powerless = problem(tmp_path, platform(2))
    assert (
        ("throughput", "memory"),
        (
            "Energy is left out: the profile has none, and boards.yaml gives no power figures of"
            " 'b1', 'b2' (idle_w, busy_w).",
        ),
    ) == available_objectives(powerless, ("throughput", "energy", "memory"))


def test_energy_is_an_objective_where_power_is_known(two_boards: Problem) -> None:
    assert (("energy",), ()) == available_objectives(two_boards, ("energy",))


SPLIT = np.array([0] * 3 + [1] * 3)
"""On the CPU and the GPU of one board."""


def run(period_ms: float = 20, **mj_per_frame: float) -> RunSummary:
    ranks = (
        replace(rank_run(0, "b1_cpu0-3", memory_mb=60.0), compute_ms={**TIMES, "p50": 8.0}),
        replace(rank_run(1, "b1_gpu", memory_mb=90.0), compute_ms={**TIMES, "p50": 6.0}),
    )
    return run_record(
        *ranks,
        throughput_fps=1e3 / period_ms,
        latency_ms={**TIMES, "p50": 45.0},
        energy=tuple(
            EnergyFigures(board, "measured", "sensor", mj_per_frame=mj)
            for board, mj in mj_per_frame.items()
        ),
    ).summary


def test_figures_are_those_of_the_run(tmp_path: Path) -> None:
    one_board = problem(tmp_path, platform(1))
    candidate = with_measured(one_board, predicted_candidate(one_board, SPLIT), run())
    predicted, measured = candidate.figures
    assert ("predicted", "measured") == (predicted.basis, measured.basis)
    assert (50.0, 0.045) == (measured.throughput_fps, measured.latency_s)
    assert [0.008, 0.006] == [load.measured_s for load in candidate.ranks]


def test_a_run_of_too_few_frames_tells_no_rate(tmp_path: Path) -> None:
    one_board = problem(tmp_path, platform(1))
    with pytest.raises(RankSliceError, match="100 frames are too few to tell a rate"):
        with_measured(
            one_board,
            predicted_candidate(one_board, SPLIT),
            replace(run(), throughput_fps=None, completed=100),
        )


def test_memory_is_that_of_all_ranks_of_a_board(tmp_path: Path) -> None:
    one_board = problem(tmp_path, platform(1))
    candidate = with_measured(one_board, predicted_candidate(one_board, SPLIT), run())
    assert 150_000_000 == candidate.best_known.memory_bytes


def test_energy_is_power_times_what_was_measured(tmp_path: Path) -> None:
    one_board = problem(tmp_path, platform(1, power=True))
    predicted = predicted_candidate(one_board, SPLIT)
    candidate = with_measured(one_board, predicted, run())
    # 2 W for 20 ms; of the 8 W above that half is the CPU's and half the GPU's, while they are
    # busy: computing as measured, and with messages as predicted.
    messages_s = sum(load.busy_s - load.compute_s for load in predicted.ranks)
    expected = 2 * 0.020 + 4 * (0.008 + 0.006 + messages_s)
    assert candidate.best_known.energy_j == pytest.approx(expected)
    assert "modelled" == candidate.best_known.energy_basis


def test_energy_that_nobody_knows_stays_unknown(tmp_path: Path) -> None:
    one_board = problem(tmp_path, platform(1))
    candidate = with_measured(one_board, predicted_candidate(one_board, SPLIT), run())
    assert (None, None) == (candidate.best_known.energy_j, candidate.best_known.energy_basis)


@pytest.mark.parametrize("power", [True, False])
def test_energy_that_the_boards_sensor_told_is_measured(tmp_path: Path, power: bool) -> None:
    one_board = problem(tmp_path, platform(1, power=power))
    told = run(20, b1=170)
    candidate = with_measured(one_board, predicted_candidate(one_board, SPLIT), told)
    assert (0.17, "measured") == (candidate.best_known.energy_j, candidate.best_known.energy_basis)


def test_energy_that_was_told_of_no_board_in_use_does_not_count(tmp_path: Path) -> None:
    one_board = problem(tmp_path, platform(1, power=True))
    told = run(20, b1=170, b9=900)
    candidate = with_measured(one_board, predicted_candidate(one_board, SPLIT), told)
    assert (0.17, "measured") == (candidate.best_known.energy_j, candidate.best_known.energy_basis)


@pytest.mark.parametrize(("between_s", "joules"), [(0.0, 0.17), (0.01, 0.17), (0.05, 0.23)])
def test_the_idle_power_until_the_next_frame_of_a_camera_is_added(
    tmp_path: Path, between_s: float, joules: float
) -> None:
    # The run had a frame each 20 ms; the board draws 2 W at rest.
    timed = replace(problem(tmp_path, platform(1, power=True)), between_frames_s=between_s)
    predicted = predicted_candidate(timed, SPLIT)
    figures = with_measured(timed, predicted, run(20, b1=170)).best_known
    assert (pytest.approx(joules), "measured") == (figures.energy_j, figures.energy_basis)
    modelled = with_measured(timed, predicted, run()).best_known.energy_j
    at_once = with_measured(replace(timed, between_frames_s=0.0), predicted, run())
    added = 2 * max(0.0, between_s - 0.02)
    assert modelled == pytest.approx((at_once.best_known.energy_j or 0) + added)


def test_with_a_camera_energy_is_not_known_without_the_power_at_rest(tmp_path: Path) -> None:
    timed = replace(problem(tmp_path, platform(1)), between_frames_s=0.05)
    told = run(20, b1=170)
    candidate = with_measured(timed, predicted_candidate(timed, SPLIT), told)
    assert (None, None) == (candidate.best_known.energy_j, candidate.best_known.energy_basis)


BOTH = np.array([0] * 3 + [2] * 3)
"""On the CPUs of two boards."""


def test_of_boards_that_all_told_it_the_one_that_takes_most_counts(tmp_path: Path) -> None:
    boards = problem(tmp_path, platform(2))
    told = run(20, b1=170, b2=180)
    candidate = with_measured(boards, predicted_candidate(boards, BOTH), told)
    assert (0.18, "measured") == (candidate.best_known.energy_j, candidate.best_known.energy_basis)


def test_where_one_board_has_no_sensor_energy_is_not_called_measured(tmp_path: Path) -> None:
    boards = problem(tmp_path, platform(2, power=True))
    told = run(20, b1=900)
    candidate = with_measured(boards, predicted_candidate(boards, BOTH), told)
    assert (0.9, "modelled") == (candidate.best_known.energy_j, candidate.best_known.energy_basis)


def test_where_a_board_without_a_sensor_has_no_power_figures_energy_is_unknown(
    tmp_path: Path,
) -> None:
    boards = problem(tmp_path, platform(2))
    told = run(20, b1=900)
    candidate = with_measured(boards, predicted_candidate(boards, BOTH), told)
    assert (None, None) == (candidate.best_known.energy_j, candidate.best_known.energy_basis)
