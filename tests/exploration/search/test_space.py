"""What a mapping is worth, and when it is impossible."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from chain_problems import platform, problem

from rankslice.exploration.cost.cost_model import core_groups
from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.search.space import scorer
from rankslice.exploration.times.span_times import summed_spans

CPU_1, GPU_1, CPU_2, GPU_2 = range(4)


def test_ranks_cannot_have_the_same_cores(tmp_path: Path) -> None:
    whole = problem(tmp_path, platform(1))
    shared = replace(whole.devices[0], key="b1_cpu0")
    crowded = replace(whole, devices=(*whole.devices, replace(shared, cores=(0,))))
    assert {(0, 2): (0, 0)} == core_groups(crowded)
    scores = scorer(crowded, ("throughput",))(np.array([[0] * 6, [0] * 3 + [2] * 3]))
    assert [0.0, 1.0] == scores.excess.tolist()


def test_layers_that_cannot_run_are_counted(tmp_path: Path) -> None:
    whole = problem(tmp_path, platform(1))
    times = whole.times_s.copy()
    times[1, 2:4] = np.inf
    picky = replace(whole, times_s=times, spans_s=summed_spans(times))
    scores = scorer(picky, ("throughput",))(np.array([[1] * 6, [1, 1, 0, 0, 1, 1]]))
    assert [2.0, 0.0] == scores.excess.tolist()


def test_what_does_not_fit_is_impossible(tmp_path: Path) -> None:
    tight = problem(tmp_path, platform(1, memory_mb=1e-4))
    assert (scorer(tight, ("throughput",))(np.array([[0] * 6])).excess > 0).all()


def test_boards_in_use_are_counted(two_boards: Problem) -> None:
    rows = np.array([[CPU_1] * 6, [CPU_1, GPU_1] * 3, [CPU_1, GPU_2] * 3])
    assert [1, 1, 2] == scorer(two_boards, ("throughput",))(rows).groups.tolist()
