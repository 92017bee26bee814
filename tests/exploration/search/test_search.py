"""Searches that go by what trials find, where that is not what the cost model believes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from chain_problems import platform, problem

from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.results.results import Choice
from rankslice.exploration.search.nsga2 import Genetics
from rankslice.exploration.search.search import Found, Wanted, search, usual_genetics
from rankslice.framework.errors import RankSliceError

SMALL = Genetics(population=8, generations=12)


@pytest.fixture(autouse=True)
def first_generations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the search by the cost model, before one by trials, take less time."""
    monkeypatch.setattr("rankslice.exploration.search.search._FIRST_GENERATIONS", 5)


@pytest.fixture
def two_boards(tmp_path: Path) -> Problem:
    return problem(tmp_path, platform(2, power=True))


def slow_gpus(choice: Choice) -> Choice:
    """GPUs take ten times what the model believes: CPUs alone are best."""
    busy_s = [s.busy_s * (10 if s.accelerator == "gpu" else 1) for s in choice.stages]
    figures = replace(choice.figures[0], source="measured", throughput_fps=1 / max(busy_s))
    return replace(choice, figures=(*choice.figures, figures))


def found_by(
    problem: Problem, method: str, evaluations: int = 64, objectives: tuple[str, ...] = ()
) -> Found:
    wanted = Wanted(method=method, genetics=SMALL, evaluate="run", evaluations=evaluations)
    return search(problem, ("throughput", *objectives), wanted, slow_gpus)


def keys(choice: Choice) -> set[str]:
    return {stage.key for stage in choice.stages}


def test_the_model_alone_believes_in_gpus(two_boards: Problem) -> None:
    found = search(two_boards, ("throughput",), Wanted())
    assert {"b1_gpu", "b2_gpu"} <= keys(found.choices[0])
    assert (0, ()) == (found.tried, found.failures)


@pytest.mark.parametrize("method", ["nsga2", "exhaustive"])
def test_a_search_by_trials_finds_what_is_best_in_trials(tmp_path: Path, method: str) -> None:
    if method == "nsga2":
        pytest.importorskip("pymoo", reason="pymoo is not installed (extra: explore)")
    small = problem(tmp_path, platform(2), layers=3)
    found = found_by(small, method)
    # 1 + 2 ms on one CPU and 3 ms on the other; a GPU would take 10 ms for the last layer.
    assert {"b1_cpu0-3", "b2_cpu0-3"} == keys(found.choices[0])
    assert ["predicted", "measured"] == [each.source for each in found.choices[0].figures]
    assert found.tried <= 64
    best = max(choice.best_known.throughput_fps for choice in found.choices)
    assert best == found.choices[0].best_known.throughput_fps


def test_nsga2_stops_when_no_more_mappings_may_be_tried(two_boards: Problem) -> None:
    pytest.importorskip("pymoo", reason="pymoo is not installed (extra: explore)")
    found = found_by(two_boards, "nsga2", evaluations=13)
    assert 13 == found.tried
    assert all(len(choice.figures) == 2 for choice in found.choices)


def test_nsga2_tries_what_is_best_by_the_model_first(two_boards: Problem) -> None:
    pytest.importorskip("pymoo", reason="pymoo is not installed (extra: explore)")
    model = search(two_boards, ("throughput",), Wanted(method="nsga2", genetics=SMALL))
    found = found_by(two_boards, "nsga2", evaluations=1)
    assert 1 == found.tried
    assert model.choices[0].mapping == found.choices[0].mapping


def test_exhaustive_search_says_how_to_try_more(two_boards: Problem) -> None:
    with pytest.raises(RankSliceError, match="tries at most 64; raise --evaluations"):
        found_by(two_boards, "exhaustive")


def test_exact_plans_are_ranked_anew(two_boards: Problem) -> None:
    model = search(two_boards, ("throughput", "memory"), Wanted())
    found = found_by(two_boards, "exact", objectives=("memory",))
    rates = [choice.best_known.throughput_fps for choice in found.choices]
    assert sorted(rates, reverse=True) == rates
    assert {"b1_cpu0-3", "b2_cpu0-3"} != keys(model.choices[0])
    assert sorted(map(str, (c.mapping for c in model.choices))) == sorted(
        map(str, (c.mapping for c in found.choices))
    )
    assert [c.number for c in found.choices] == list(range(1, len(found.choices) + 1))


def test_exact_plans_without_a_trial_count_as_predicted(two_boards: Problem) -> None:
    found = found_by(two_boards, "exact", evaluations=1, objectives=("memory",))
    assert 1 == found.tried
    assert [1, 2] == sorted({len(choice.figures) for choice in found.choices})


def test_exact_plans_that_fail_are_no_choice(two_boards: Problem) -> None:
    def fails(choice: Choice) -> Choice:
        if len(choice.boards) > 1:
            raise RankSliceError("edge02 cannot be reached")
        return slow_gpus(choice)

    wanted = Wanted(evaluate="run", evaluations=50)
    found = search(two_boards, ("throughput", "memory"), wanted, fails)
    assert {1} == {len(choice.boards) for choice in found.choices}
    assert {"edge02 cannot be reached"} == {failure.reason for failure in found.failures}


def test_the_paper_says_how_much_the_model_evaluates_and_the_budget_how_much_is_tried() -> None:
    assert (100, 400) == sizes(usual_genetics("model", 0))
    assert (31, 66) == sizes(usual_genetics("simulator", 1000))
    assert (8, 14) == sizes(usual_genetics("run", 50))


def sizes(genetics: Genetics) -> tuple[int, int]:
    return genetics.population, genetics.generations
