"""Searches that go by what trials find, where that is not what the cost model believes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from chain_problems import platform, problem

from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.results.candidates import Candidate
from rankslice.exploration.search.methods import SearchResult, find_mappings
from rankslice.exploration.search.search_options import SearchOptions
from rankslice.framework.errors import RankSliceError

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
