"""From what a search found to mappings to choose from."""

from __future__ import annotations

from pathlib import Path

import pytest
from chain_problems import platform, problem

from rankslice.exploration.objectives import available_objectives
from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.results.candidates import candidates_of, selected
from rankslice.exploration.search.space import exhaustive, search_of

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
