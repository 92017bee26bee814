"""Searches in which devices may take turns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from line_graphs import line_graph
from problems import board, platform, problem

from rankslice.backend.runtime.job import Turns
from rankslice.exploration.problem.devices import Team, teams_of_kinds
from rankslice.exploration.problem.problem import Problem, with_turns
from rankslice.exploration.results.candidates import candidates_of, predicted_candidate, selected
from rankslice.exploration.search.methods import find_mappings, replicas_text
from rankslice.exploration.search.nsga2 import nsga2
from rankslice.exploration.search.planned import ContiguousPlanner
from rankslice.exploration.search.search_options import GeneticOptions, SearchOptions
from rankslice.exploration.search.space import exhaustive, scorer, search_of
from rankslice.framework.platform import Link

KEYS = ["edge01_cpu0", "edge02_cpu0", "edge03_cpu0"]
FOUR = line_graph("a: x -> t\nb: t -> u\nc: u -> v\nd: v -> y", outputs="y")


def alike(times_s: tuple[float, ...] = (0.01, 0.01, 0.2, 0.01)) -> Problem:
    """Return the problem of four layers, one of them slow, and three equal boards."""
    boards = platform(*(board(f"edge0{n}") for n in (1, 2, 3)))
    return problem(FOUR, boards, [times_s], keys=KEYS)


def test_devices_of_one_kind_can_take_turns() -> None:
    assert ((0, 2), (1, 3), (1, 4), (3, 4), (1, 3, 4)) == tuple(
        team.devices for team in teams_of_kinds([0, 1, 0, 1, 1], 3)
    )


def test_of_very_many_devices_neighbours_take_turns() -> None:
    teams = teams_of_kinds([0] * 40, 2)
    assert [(n, n + 1) for n in range(39)] == [team.devices for team in teams]


def test_the_best_mapping_has_devices_in_turn_if_one_layer_takes_most() -> None:
    plain = alike()
    found = {
        name: exhaustive(search_of(made, ("throughput",)))
        for name, made in (("alone", plain), ("in turn", with_turns(plain, 3)))
    }
    assert 0.2 == pytest.approx(found["alone"].values[0, 0])
    # The whole model on three boards: what it takes to hand frames on is little.
    assert 0.23 / 3 == pytest.approx(found["in turn"].values[0, 0], rel=0.01)


def test_nsga2_lets_devices_take_turns() -> None:
    made = with_turns(alike(), 3)
    options = GeneticOptions(population=20, generations=30)
    archive = nsga2(search_of(made, ("throughput",)), options)
    assert 0.23 / 3 == pytest.approx(archive.values[0, 0], rel=0.01)


def test_a_team_cannot_have_a_device_that_has_other_layers() -> None:
    made = with_turns(alike(), 3)
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
    candidate = predicted_candidate(made, np.array([0, 0, 3, 0]))
    assert KEYS == [load.key for load in candidate.ranks]
    assert [Turns(), Turns(3, (0, 2)), Turns(3, (1,))] == [load.turns for load in candidate.ranks]
    entry = "edge02_cpu0*2|edge03_cpu0"
    assert {"edge01_cpu0": ["a..b", "d"], entry: ["c"]} == candidate.mapping
    assert candidate.figures[0].throughput_fps == pytest.approx(3 / 2 / 0.2, rel=0.01)


def test_choices_of_a_search_with_turns_can_be_told() -> None:
    made = with_turns(alike(), 3)
    objectives = ("throughput", "memory", "energy")
    archive = exhaustive(search_of(made, objectives))
    for candidate in candidates_of(made, selected(archive, 24)):
        assert list(candidate.mapping) == list(dict.fromkeys(r.entry for r in candidate.ranks))


def test_the_planner_has_devices_take_turns_where_the_problem_has_teams() -> None:
    plan = ContiguousPlanner(with_turns(alike(), 3)).plan([0, 1, 2])
    assert plan is not None
    # The third team: all three devices have the whole model.
    assert [6] * 4 == plan.assignment.tolist()
    alone = ContiguousPlanner(alike()).plan([0, 1, 2])
    assert alone is not None
    assert max(alone.assignment) < 3


def test_a_bound_with_turns_is_one_of_mappings_with_turns() -> None:
    made = with_turns(alike(), 3)
    archive = exhaustive(search_of(made, ("throughput",)))
    assert ContiguousPlanner(made).bound_s() == pytest.approx(archive.values[:, 0].min())
    assert ContiguousPlanner(alike()).bound_s() > archive.values[:, 0].min()


def test_the_exact_method_finds_the_best_mapping_with_turns() -> None:
    made = with_turns(alike(), 3)
    result = find_mappings(made, ("throughput",), SearchOptions(objectives=("throughput",)))
    assert {"edge01_cpu0|edge02_cpu0|edge03_cpu0": ["a..d"]} == result.candidates[0].mapping


def test_slices_that_the_whole_model_in_turn_beats_are_told_so() -> None:
    plain = alike()
    result = find_mappings(plain, ("throughput",), SearchOptions(objectives=("throughput",)))
    (text,) = replicas_text(plain, result.candidates)
    assert text.startswith(
        "The whole model in turn beats slices here: edge01_cpu0|edge02_cpu0|edge03_cpu0 gives 13.0"
        " frames/s by the cost model, the fastest slices 5.00."
    )


def test_nothing_is_told_of_turns_that_are_slower_than_slices() -> None:
    # A layer that only one kind can run keeps the whole model from being in turn.
    boards = platform(board("edge01", gpus=1), board("edge02"))
    made = problem(
        FOUR, boards, [[0.01] * 4, [0.01] * 3 + [np.inf]], keys=["edge01_gpu", "edge02_cpu0"]
    )
    result = find_mappings(made, ("throughput",), SearchOptions(objectives=("throughput",)))
    assert [] == list(replicas_text(made, result.candidates))


@given(
    st.lists(st.floats(0.001, 0.1), min_size=4, max_size=4),
    st.sampled_from([1.0, 10.0, 1000.0]),
)
def test_no_contiguous_mapping_with_turns_is_faster_than_the_bound(
    times_s: list[float], mbps: float
) -> None:
    boards = platform(*(board(f"edge0{n}") for n in (1, 2, 3)), link=Link(mbps, 0.2))
    made = with_turns(problem(FOUR, boards, [times_s], keys=KEYS), 3)
    search = search_of(made, ("throughput",))
    exhaustive(search)
    assert ContiguousPlanner(made).bound_s() <= search.contiguous_s * (1 + 1e-9)
