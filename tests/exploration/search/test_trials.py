"""Mappings that are tried one by one, and searches that go by what trials find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from chain_problems import platform, problem

from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.results.candidates import Candidate
from rankslice.exploration.search.methods import SearchResult, find_mappings
from rankslice.exploration.search.search_options import SearchOptions
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


SMALL = SearchOptions(method="nsga2", population=8, generations=12)


@pytest.fixture(autouse=True)
def first_generations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the search by the cost model, before one by trials, take less time."""
    monkeypatch.setattr("rankslice.exploration.search.methods._FIRST_GENERATIONS", 5)


def slow_gpus(candidate: Candidate) -> Candidate:
    """GPUs take ten times what the model believes: CPUs alone are best."""
    busy_s = [s.busy_s * (10 if s.accelerator == "gpu" else 1) for s in candidate.ranks]
    figures = replace(candidate.figures[0], basis="measured", throughput_fps=1 / max(busy_s))
    return replace(candidate, figures=(*candidate.figures, figures))


def found_by(
    problem: Problem, method: str, evaluations: int = 64, objectives: tuple[str, ...] = ()
) -> SearchResult:
    wanted = replace(SMALL, method=method, evaluate="run", evaluations=evaluations)
    return find_mappings(problem, ("throughput", *objectives), wanted, slow_gpus)


def keys(candidate: Candidate) -> set[str]:
    return {load.key for load in candidate.ranks}


def test_the_model_alone_believes_in_gpus(two_boards: Problem) -> None:
    result = find_mappings(two_boards, ("throughput",), SearchOptions())
    assert {"b1_gpu", "b2_gpu"} <= keys(result.candidates[0])
    assert (0, ()) == (result.tried, result.failures)


@pytest.mark.parametrize("method", [pytest.param("nsga2", marks=pytest.mark.ci), "exhaustive"])
def test_a_search_by_trials_finds_what_is_best_in_trials(tmp_path: Path, method: str) -> None:
    if method == "nsga2":
        pytest.importorskip("pymoo", reason="pymoo is not installed (extra: explore)")
    small = problem(tmp_path, platform(2), layers=3)
    result = found_by(small, method)
    # 1 + 2 ms on one CPU and 3 ms on the other; a GPU would take 10 ms for the last layer.
    assert {"b1_cpu0-3", "b2_cpu0-3"} == keys(result.candidates[0])
    assert ["predicted", "measured"] == [figure.basis for figure in result.candidates[0].figures]
    assert result.tried <= 64
    best = max(candidate.best_known.throughput_fps for candidate in result.candidates)
    assert best == result.candidates[0].best_known.throughput_fps


def test_nsga2_stops_when_no_more_mappings_may_be_tried(two_boards: Problem) -> None:
    pytest.importorskip("pymoo", reason="pymoo is not installed (extra: explore)")
    result = found_by(two_boards, "nsga2", evaluations=13)
    assert 13 == result.tried
    assert all(len(candidate.figures) == 2 for candidate in result.candidates)


def test_nsga2_tries_what_is_best_by_the_model_first(two_boards: Problem) -> None:
    pytest.importorskip("pymoo", reason="pymoo is not installed (extra: explore)")
    model = find_mappings(two_boards, ("throughput",), SMALL)
    result = found_by(two_boards, "nsga2", evaluations=1)
    assert 1 == result.tried
    assert model.candidates[0].mapping == result.candidates[0].mapping


def test_exhaustive_search_says_how_to_try_more(two_boards: Problem) -> None:
    with pytest.raises(RankSliceError, match="tries at most 64; raise --evaluations"):
        found_by(two_boards, "exhaustive")


def test_exact_plans_are_ranked_anew(two_boards: Problem) -> None:
    model = find_mappings(two_boards, ("throughput", "memory"), SearchOptions())
    result = found_by(two_boards, "exact", objectives=("memory",))
    rates = [candidate.best_known.throughput_fps for candidate in result.candidates]
    assert sorted(rates, reverse=True) == rates
    assert {"b1_cpu0-3", "b2_cpu0-3"} != keys(model.candidates[0])
    assert sorted(map(str, (c.mapping for c in model.candidates))) == sorted(
        map(str, (c.mapping for c in result.candidates))
    )
    assert [c.number for c in result.candidates] == list(range(1, len(result.candidates) + 1))


def test_exact_plans_without_a_trial_count_as_predicted(two_boards: Problem) -> None:
    result = found_by(two_boards, "exact", evaluations=1, objectives=("memory",))
    assert 1 == result.tried
    assert [1, 2] == sorted({len(candidate.figures) for candidate in result.candidates})


def test_exact_plans_that_fail_are_no_choice(two_boards: Problem) -> None:
    def fails(candidate: Candidate) -> Candidate:
        if len(candidate.boards) > 1:
            raise RankSliceError("edge02 cannot be reached")
        return slow_gpus(candidate)

    wanted = SearchOptions(evaluate="run", evaluations=50)
    result = find_mappings(two_boards, ("throughput", "memory"), wanted, fails)
    assert {1} == {len(candidate.boards) for candidate in result.candidates}
    assert {"edge02 cannot be reached"} == {failure.reason for failure in result.failures}


def test_the_paper_says_how_much_the_model_evaluates_and_the_budget_how_much_is_tried() -> None:
    sizes = [
        (genetics.population, genetics.generations)
        for evaluate in ("model", "simulator", "run")
        for genetics in [SearchOptions(evaluate=evaluate).genetics]
    ]
    assert [(100, 400), (31, 66), (8, 14)] == sizes
