"""What a run of a mapping showed, beside what was predicted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from chain_problems import platform, problem

from rankslice.exploration.choices import predicted_choice
from rankslice.exploration.real_runs import MeasuredRank, MeasuredRun, with_measured

SPLIT = np.array([0] * 3 + [1] * 3)
"""On the CPU and the GPU of one board."""


def run(period_ms: int = 20) -> MeasuredRun:
    ranks = (
        MeasuredRank("b1_cpu0-3", ("l1..l3",), 8_000_000, 60_000_000),
        MeasuredRank("b1_gpu", ("l4..l6",), 6_000_000, 90_000_000),
    )
    return MeasuredRun(100, period_ms * 1_000_000, 45_000_000, ranks)


def test_figures_are_those_of_the_run(tmp_path: Path) -> None:
    one_board = problem(tmp_path, platform(1))
    choice = with_measured(one_board, predicted_choice(one_board, SPLIT), run())
    predicted, measured = choice.figures
    assert ("predicted", "measured") == (predicted.source, measured.source)
    assert (50.0, 0.045) == (measured.throughput_fps, measured.latency_s)
    assert [0.008, 0.006] == [stage.measured_s for stage in choice.stages]


def test_memory_is_that_of_all_ranks_of_a_board(tmp_path: Path) -> None:
    one_board = problem(tmp_path, platform(1))
    choice = with_measured(one_board, predicted_choice(one_board, SPLIT), run())
    assert 150_000_000 == choice.best_known.memory_bytes


def test_energy_is_power_times_what_was_measured(tmp_path: Path) -> None:
    one_board = problem(tmp_path, platform(1, power=True))
    predicted = predicted_choice(one_board, SPLIT)
    choice = with_measured(one_board, predicted, run())
    # 2 W for 20 ms; of the 8 W above that half is the CPU's and half the GPU's, while they are
    # busy: computing as measured, and with messages as predicted.
    messages_s = sum(stage.busy_s - stage.compute_s for stage in predicted.stages)
    expected = 2 * 0.020 + 4 * (0.008 + 0.006 + messages_s)
    assert choice.best_known.energy_j == pytest.approx(expected)
    assert "modelled" == choice.best_known.energy_source


def test_energy_that_nobody_knows_stays_unknown(tmp_path: Path) -> None:
    one_board = problem(tmp_path, platform(1))
    choice = with_measured(one_board, predicted_choice(one_board, SPLIT), run())
    assert (None, None) == (choice.best_known.energy_j, choice.best_known.energy_source)
