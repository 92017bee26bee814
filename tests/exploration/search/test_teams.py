"""Searches in which devices may take turns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from line_graphs import line_graph
from problems import board, platform, problem

from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.problem.teams import Team, teams_of_kinds
from rankslice.exploration.results.candidates import candidates_of, predicted_candidate, selected
from rankslice.exploration.results.front import Archive
from rankslice.exploration.search.exhaustive import exhaustive
from rankslice.exploration.search.nsga2 import nsga2
from rankslice.exploration.search.scoring import scorer, space_of
from rankslice.exploration.search.space import GeneticOptions, recording
from rankslice.framework.turns import Turns

KEYS = ["edge01_cpu0", "edge02_cpu0", "edge03_cpu0"]
FOUR = line_graph("a: x -> t\nb: t -> u\nc: u -> v\nd: v -> y", outputs="y")


def alike(times_s: tuple[float, ...] = (0.01, 0.01, 0.2, 0.01)) -> Problem:
    """Return the problem of four layers, one of them slow, and three equal boards."""
    boards = platform(*(board(f"edge0{n}") for n in (1, 2, 3)))
    return problem(FOUR, boards, [times_s], keys=KEYS)


def with_turns(made: Problem) -> Problem:
    return replace(made, teams=teams_of_kinds(made.device_kinds.tolist(), 3))


def test_devices_of_one_kind_can_take_turns() -> None:
    assert ((0, 2), (1, 3), (1, 4), (3, 4), (1, 3, 4)) == tuple(
        team.devices for team in teams_of_kinds([0, 1, 0, 1, 1], 3)
    )


def test_of_very_many_devices_neighbours_take_turns() -> None:
    found = teams_of_kinds([0] * 40, 2)
    assert [(n, n + 1) for n in range(39)] == [team.devices for team in found]


def test_the_best_mapping_has_devices_in_turn_if_one_layer_takes_most() -> None:
    plain = alike()
    found = {
        name: exhaustive(scorer(made, ("throughput",)), space_of(made, ("throughput",)))
        for name, made in (("alone", plain), ("in turn", with_turns(plain)))
    }
    assert 0.2 == pytest.approx(found["alone"].values[0, 0])
    # The whole model on three boards: what it takes to hand frames on is little.
    assert 0.23 / 3 == pytest.approx(found["in turn"].values[0, 0], rel=0.01)


def test_nsga2_lets_devices_take_turns() -> None:
    made = with_turns(alike())
    space = space_of(made, ("throughput",))
    archive = Archive(space.layers, space.objectives)
    options = GeneticOptions(population=20, generations=30)
    nsga2(recording(scorer(made, ("throughput",)), archive), space, options)
    assert 0.23 / 3 == pytest.approx(archive.values[0, 0], rel=0.01)


def test_a_team_cannot_have_a_device_that_has_other_layers() -> None:
    made = with_turns(alike())
    score = scorer(made, ("throughput",))(np.array([[0, 0, 3, 0], [2, 2, 3, 2]]))
    assert (0, 1) == made.teams[0].devices
    assert [True, False] == (score.excess > 0).tolist()
    assert 3 == score.groups[1]


def test_a_layer_that_one_of_a_team_cannot_run_makes_a_mapping_impossible() -> None:
    boards = platform(board("edge01", gpus=1), board("edge02"))
    keys = ["edge01_gpu", "edge02_cpu0"]
    made = problem(FOUR, boards, [[0.01] * 4, [0.01] * 3 + [np.inf]], keys=keys)
    made = replace(made, teams=(Team((0, 1)),))
    score = scorer(made, ("throughput",))(np.array([[2] * 4, [2] * 3 + [0]]))
    assert score.excess[0] > 0


def test_a_choice_with_devices_in_turn_has_a_rank_for_each_and_one_entry() -> None:
    made = replace(alike(), teams=(Team((1, 2), (2, 1)),))
    found = predicted_candidate(made, np.array([0, 0, 3, 0]))
    assert KEYS == [load.key for load in found.ranks]
    assert [Turns(), Turns(3, (0, 2)), Turns(3, (1,))] == [load.turns for load in found.ranks]
    entry = "edge02_cpu0*2|edge03_cpu0"
    assert {"edge01_cpu0": ["a..b", "d"], entry: ["c"]} == found.mapping
    assert found.figures[0].throughput_fps == pytest.approx(3 / 2 / 0.2, rel=0.01)


def test_choices_of_a_search_with_turns_can_be_told() -> None:
    made = with_turns(alike())
    objectives = ("throughput", "memory", "energy")
    archive = exhaustive(scorer(made, objectives), space_of(made, objectives))
    for candidate in candidates_of(made, selected(archive, 24)):
        assert list(candidate.mapping) == list(dict.fromkeys(r.entry for r in candidate.ranks))
