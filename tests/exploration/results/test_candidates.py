"""From a problem to mappings to choose from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from chain_problems import platform, problem

from rankslice.exploration.objectives import available_objectives
from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.results.candidates import candidates_of, selected
from rankslice.exploration.search.exhaustive import exhaustive
from rankslice.exploration.search.planned import crossing_bytes
from rankslice.exploration.search.scoring import (
    clashing_devices,
    scorer,
    space_of,
)
from rankslice.exploration.search.seeds import (
    balanced,
    balanced_seeds,
    device_sets,
    planned_seeds,
    planned_sweep,
)
from rankslice.exploration.times.summed import summed_spans

CPU_1, GPU_1, CPU_2, GPU_2 = range(4)


@pytest.fixture
def two_boards(tmp_path: Path) -> Problem:
    return problem(tmp_path, platform(2, power=True))


def test_devices_are_the_accelerators_of_all_boards(two_boards: Problem) -> None:
    keys = [device.key for device in two_boards.devices]
    assert ["b1_cpu0-3", "b1_gpu", "b2_cpu0-3", "b2_gpu"] == keys


def test_choices_are_numbered_from_the_fastest(two_boards: Problem) -> None:
    objectives = ("throughput", "energy", "memory")
    found = exhaustive(scorer(two_boards, objectives), space_of(two_boards, objectives))
    candidates = candidates_of(two_boards, selected(found, 24))
    assert list(range(1, len(candidates) + 1)) == [candidate.number for candidate in candidates]
    rates = [candidate.figures[0].throughput_fps for candidate in candidates]
    assert sorted(rates, reverse=True) == rates
    assert rates[0] == pytest.approx(1 / found.values[:, 0].min())


def test_the_fastest_of_each_number_of_boards_is_a_choice(two_boards: Problem) -> None:
    found = exhaustive(scorer(two_boards, ("throughput",)), space_of(two_boards, ("throughput",)))
    candidates = candidates_of(two_boards, selected(found, 24))
    assert [(2, True), (1, False)] == [(len(c.boards), c.on_front) for c in candidates]
    assert {"cpu", "gpu"} == set(candidates[1].accelerators)


def test_a_choice_says_what_each_rank_does(two_boards: Problem) -> None:
    found = exhaustive(scorer(two_boards, ("memory",)), space_of(two_boards, ("memory",)))
    candidate = candidates_of(two_boards, selected(found, 1))[0]
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


def test_ranks_cannot_have_the_same_cores(tmp_path: Path) -> None:
    whole = problem(tmp_path, platform(1))
    shared = replace(whole.devices[0], key="b1_cpu0")
    crowded = replace(whole, devices=(*whole.devices, replace(shared, cores=(0,))))
    assert ((0, 2),) == clashing_devices(crowded)
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
    everything = exhaustive(score, space_of(two_boards, ("throughput",)))
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
