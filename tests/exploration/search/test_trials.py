"""Mappings that are tried one by one, as searches ask for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from chain_problems import platform, problem

from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.results.candidates import Candidate
from rankslice.exploration.search.space import scorer
from rankslice.exploration.search.trials import Trials, most_promising
from rankslice.framework.errors import InterruptedRunError, RankSliceError

OBJECTIVES = ("throughput", "energy", "memory")
CPU_1, GPU_1, CPU_2, GPU_2 = range(4)
MAPPINGS = np.array([[CPU_1] * 6, [CPU_1] * 4 + [CPU_2] * 2, [GPU_1] * 6])


def ran(candidate: Candidate, throughput_fps: float = 7.0) -> Candidate:
    """Return a mapping with the figures of a run that told nothing of energy and memory."""
    found = replace(
        candidate.figures[0],
        basis="measured",
        throughput_fps=throughput_fps,
        energy_j=None,
        memory_bytes=None,
    )
    return replace(candidate, figures=(*candidate.figures, found))


class Attempts:
    """Tells what was tried, and does with it what it is told to."""

    def __init__(self, does: Callable[[Candidate], Candidate] = ran) -> None:
        self.does = does
        self.keys: list[tuple[str, ...]] = []

    def __call__(self, candidate: Candidate) -> Candidate:
        self.keys.append(tuple(load.key for load in candidate.ranks))
        return self.does(candidate)


def fails(candidate: Candidate) -> Candidate:
    if "b2_cpu0-3" in candidate.mapping:
        raise RankSliceError("killed: out of memory", "and more")
    return ran(candidate)


def test_a_trial_says_how_fast_a_mapping_is_and_the_model_what_it_does_not_tell(
    two_boards: Problem,
) -> None:
    scores = Trials(two_boards, OBJECTIVES, ran, 10)(MAPPINGS)
    assert [1 / 7] * 3 == scores.values[:, 0].tolist()
    predicted = scorer(two_boards, OBJECTIVES)(MAPPINGS)
    assert predicted.values[:, 1:].tolist() == scores.values[:, 1:].tolist()
    assert [1, 2, 1] == scores.groups.tolist()


def test_a_mapping_is_tried_once(two_boards: Problem) -> None:
    attempts = Attempts()
    trials = Trials(two_boards, OBJECTIVES, attempts, 10)
    first, again = trials(MAPPINGS), trials(MAPPINGS[[2, 0, 1, 1]])
    assert [("b1_cpu0-3",), ("b1_cpu0-3", "b2_cpu0-3"), ("b1_gpu",)] == attempts.keys
    assert first.values[[2, 0, 1, 1]].tolist() == again.values.tolist()


def test_a_mapping_that_fails_is_impossible_and_the_others_go_on(two_boards: Problem) -> None:
    trials = Trials(two_boards, OBJECTIVES, Attempts(fails), 10)
    assert [False, True, False] == (trials(MAPPINGS).excess > 0).tolist()
    (failure,) = trials.failures
    assert "killed: out of memory" == failure.reason
    assert {"b1_cpu0-3": ["l1..l4"], "b2_cpu0-3": ["l5..l6"]} == failure.mapping
    assert {MAPPINGS[0].tobytes(), MAPPINGS[2].tobytes()} == trials.candidates.keys()


def test_no_more_mappings_are_tried_than_are_allowed(two_boards: Problem) -> None:
    attempts, told = Attempts(), []
    trials = Trials(two_boards, OBJECTIVES, attempts, 2, told.append)
    assert [False, False, True] == (trials(MAPPINGS).excess > 0).tolist()
    assert trials.is_exhausted
    assert [1, 2] == told
    assert 2 == len(attempts.keys)


def test_what_cannot_run_by_the_model_is_not_tried(tmp_path: Path) -> None:
    attempts = Attempts()
    tight = problem(tmp_path, platform(1, memory_mb=1e-4))
    scores = Trials(tight, ("throughput",), attempts, 10)(np.array([[0] * 6]))
    assert scores.excess[0] > 0
    assert [] == attempts.keys


def test_a_person_who_ends_a_run_ends_the_search(two_boards: Problem) -> None:
    def interrupted(candidate: Candidate) -> Candidate:
        raise InterruptedRunError("interrupted")

    with pytest.raises(KeyboardInterrupt):
        Trials(two_boards, OBJECTIVES, interrupted, 10)(MAPPINGS)


def test_the_fastest_of_each_number_of_boards_come_first_then_others_spread_over_all() -> None:
    rates = np.array([10.0, 90, 80, 70, 60, 50, 40])
    boards = np.array([1, 3, 3, 2, 3, 3, 3])
    assert [1, 3, 0] == most_promising(rates, boards, 3)
    assert [1, 3, 0, 2, 6] == most_promising(rates, boards, 5)
    assert [1, 3] == most_promising(rates, boards, 2)
