"""Objectives that a row adds, and nothing else: they are searched, and shown everywhere."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from chain_problems import platform, problem
from explorations import exploration

from rankslice.exploration.objectives import OBJECTIVES, Column, Objective, columns
from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.results.candidates import Candidate, Figures
from rankslice.exploration.results.front_files import candidates_csv, exploration_to_json
from rankslice.exploration.search.methods import SearchResult, find_mappings
from rankslice.exploration.search.search_options import SearchOptions
from rankslice.framework.errors import RankSliceError
from rankslice.views.exploration_page import page_of

RANKS = Objective(
    name="ranks",
    value=lambda candidate, _: len(candidate.ranks),
    evaluated=lambda _, rows, __: np.array([float(len({*row})) for row in rows.tolist()]),
    text=lambda value: f"{value:.0f}",
    unit="ranks",
    axis=Column("processes"),
    json=Column("ranks_used"),
    csv=Column("ranks_used"),
    extreme="The fewest ranks",
)
"""Both the cost model and a run tell it."""


def boards_left(candidate: Candidate, figures: Figures) -> float | None:
    return 1.0 + 2 - len(candidate.boards) if figures.basis == "measured" else None


BOARDS_LEFT = Objective(
    name="left",
    value=boards_left,
    evaluated=None,
    larger_is_better=True,
    text=lambda value: f"{value:.0f} boards",
    axis=Column("boards left"),
    json=Column("left"),
    csv=Column("left"),
)
"""Only a run tells it."""


@pytest.fixture(autouse=True)
def rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for row in (RANKS, BOARDS_LEFT):
        monkeypatch.setitem(OBJECTIVES, row.name, row)
    monkeypatch.setattr("rankslice.exploration.search.methods._FIRST_GENERATIONS", 5)


@pytest.fixture
def two_boards(tmp_path: Path) -> Problem:
    return problem(tmp_path, platform(2, power=True), layers=3)


METHODS = ["exact", "exhaustive", pytest.param("nsga2", marks=pytest.mark.ci)]


def measured(candidate: Candidate) -> Candidate:
    figures = replace(candidate.figures[0], basis="measured")
    return replace(candidate, figures=(*candidate.figures, figures))


def on_front(found: SearchResult) -> list[int]:
    return sorted(len(candidate.ranks) for candidate in found.candidates if candidate.on_front)


@pytest.mark.parametrize("method", METHODS)
def test_each_method_finds_a_front_of_an_added_objective(two_boards: Problem, method: str) -> None:
    if method == "nsga2":
        pytest.importorskip("pymoo", reason="pymoo is not installed (extra: explore)")
    result = find_mappings(two_boards, ("throughput", "ranks"), SearchOptions(method=method))
    # One GPU takes 2 ms for all layers, two of them 1 ms; CPUs help no further.
    assert [1, 2] == on_front(result)


@pytest.mark.parametrize("method", METHODS)
def test_what_only_runs_tell_makes_a_front_of_runs(two_boards: Problem, method: str) -> None:
    if method == "nsga2":
        pytest.importorskip("pymoo", reason="pymoo is not installed (extra: explore)")
    options = SearchOptions(
        method=method, objectives=("throughput", "left"), evaluate="run", evaluations=64
    )
    result = find_mappings(two_boards, ("throughput", "left"), options, measured)
    front = [candidate for candidate in result.candidates if candidate.on_front]
    assert {1, 2} == {len(each.boards) for each in front}
    assert all(candidate.best_known.basis == "measured" for candidate in result.candidates)


def test_a_run_that_does_not_tell_it_counts_as_failed(two_boards: Problem) -> None:
    options = SearchOptions(method="exhaustive", evaluate="run", evaluations=64)
    result = find_mappings(two_boards, ("throughput", "left"), options, lambda each: each)
    assert () == result.candidates
    assert {"the run did not measure left"} == {failure.reason for failure in result.failures}


@pytest.mark.parametrize("evaluate", ["model", "simulator"])
def test_what_only_runs_tell_needs_runs(evaluate: str) -> None:
    with pytest.raises(RankSliceError) as refused:
        SearchOptions(objectives=("throughput", "left"), evaluate=evaluate)
    assert (
        "--objectives: only runs tell 'left', and mappings are not run; add --evaluate run"
    ) == str(refused.value)


def test_an_added_objective_is_in_all_files() -> None:
    found = replace(exploration(), objectives=("throughput", "ranks", "left"))
    record = exploration_to_json(found)
    assert 3 == record["mappings"][0]["figures"][0]["ranks_used"]
    assert None is record["mappings"][0]["figures"][0]["left"]
    row = next(csv.DictReader(io.StringIO(candidates_csv(found.candidates))))
    assert ("3", "") == (row["ranks_used"], row["left"])


def test_the_answer_names_the_least_of_an_added_objective() -> None:
    assert any(text.startswith("The fewest ranks, 2: mapping 2") for text in exploration().answer)


def test_an_added_objective_is_on_the_page() -> None:
    found = replace(exploration(), objectives=("throughput", "ranks", "left"))
    page = page_of(found)
    assert '<figcaption class="title"><span>Throughput and ranks</span>' in page
    assert ">processes</text>" in page
    assert "mapping 1: two boards, 52.0 frames/s, 3 ranks" in page
    assert '<th scope="col" class="right">ranks</th>' in page
    assert "up or to the right for left, down or to the left for all else" in page


def test_an_added_objective_follows_the_columns_that_were_there() -> None:
    assert ["throughput", "latency", "memory", "energy", "ranks", "left"] == [
        row.name for row in columns()
    ]
