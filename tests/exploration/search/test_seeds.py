"""Mappings that a search begins with: balanced and planned ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from chain_problems import platform, problem

from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.search.planned import crossing_bytes
from rankslice.exploration.search.seeds import (
    balanced,
    balanced_seeds,
    device_sets,
    planned_seeds,
    planned_sweep,
)
from rankslice.exploration.search.space import exhaustive, scorer, search_of

CPU_1, GPU_1, CPU_2, GPU_2 = range(4)


def test_balanced_slices_are_as_short_as_can_be(two_boards: Problem) -> None:
    row = balanced(two_boards, [CPU_1, CPU_2])
    assert row is not None
    # 1 + 2 + 3 + 4 against 5 + 6: no cut of 21 ms is better than 11.
    assert [CPU_1] * 4 + [CPU_2] * 2 == row.tolist()


def test_a_faster_device_gets_more(two_boards: Problem) -> None:
    row = balanced(two_boards, [CPU_1, GPU_2])
    assert row is not None
    assert [CPU_1] * 3 + [GPU_2] * 3 == row.tolist()


def test_a_device_that_cannot_run_all_is_not_balanced(two_boards: Problem) -> None:
    times = two_boards.times_s.copy()
    times[1, 0] = np.inf
    assert balanced(replace(two_boards, times_s=times), [CPU_1, GPU_2]) is None


def test_seeds_are_contiguous_and_use_from_one_to_all_devices(tmp_path: Path) -> None:
    seeds = balanced_seeds(problem(tmp_path, platform(2), layers=12, gpu=1.5))
    counts = {len(np.unique(row)) for row in seeds}
    assert {1, 2, 3, 4} == counts
    assert all(1 + (np.diff(row) != 0).sum() == len(np.unique(row)) for row in seeds)


def test_what_crosses_a_chain_is_one_tensor(two_boards: Problem) -> None:
    assert [256.0] * 5 == crossing_bytes(two_boards).tolist()


def test_exact_plans_are_the_fastest_contiguous_mappings(two_boards: Problem) -> None:
    score = scorer(two_boards, ("throughput",))
    everything = exhaustive(search_of(two_boards, ("throughput",)))
    planned = score(planned_seeds(two_boards)).values.min()
    # Here nothing else is faster: a chain has no reason to go back.
    assert planned == pytest.approx(everything.values.min(), rel=0.01)


def test_exact_plans_use_one_board_and_two(two_boards: Problem) -> None:
    groups = scorer(two_boards, ("throughput",))(planned_seeds(two_boards)).groups
    assert {1, 2} == set(groups.tolist())


def test_a_sweep_finds_less_energy_and_less_memory(two_boards: Problem) -> None:
    score = scorer(two_boards, ("throughput", "energy", "memory"))
    fastest = score(planned_seeds(two_boards)).values.min(axis=0)
    swept = score(np.array(list(planned_sweep(two_boards, ("energy", "memory"))))).values.min(
        axis=0
    )
    assert fastest[0] == swept[0]
    assert swept[1] <= fastest[1]
    assert swept[2] <= fastest[2]


def test_of_boards_that_are_alike_only_their_number_counts(tmp_path: Path) -> None:
    sets = list(device_sets(problem(tmp_path, platform(3), layers=3)))
    assert [[0, 1], [0, 1, 2, 3], [0, 1, 2, 3, 4, 5]] == sets[:3]
    assert [[0], [1], [0, 2, 4], [1, 3, 5]] == sets[3:]


def test_layers_that_belong_together_stay_together(two_boards: Problem) -> None:
    bound = replace(two_boards, together=((1, 4),))
    for row in planned_seeds(bound):
        assert 1 == len(set(row[1:5].tolist()))


def test_exact_plans_keep_to_devices_that_share_no_core(tmp_path: Path) -> None:
    whole = problem(tmp_path, platform(1))
    single = [replace(whole.devices[0], key=f"b1_cpu{core}", cores=(core,)) for core in (0, 1)]
    crowded = replace(whole, devices=(*whole.devices, *single))
    assert [[0, 1], [0], [1]] == list(device_sets(crowded))[:3]
    assert (scorer(crowded, ("throughput",))(planned_seeds(crowded)).excess == 0).all()
