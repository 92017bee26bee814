"""What is said of the fastest mapping, against trying all of them, on small random problems."""

from __future__ import annotations

import math

import numpy as np
import pytest
from random_problems import random_problem

from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.search.local_search import local_search
from rankslice.exploration.search.proof import Proof, prove
from rankslice.exploration.search.seeds import balanced_seeds, planned_seeds
from rankslice.exploration.search.space import (
    Search,
    every_mapping,
    is_contiguous,
    scorer,
    search_of,
)

OBJECTIVES = ("throughput", "energy", "memory")
FEW = 300
"""Mappings that are changed: fewer than it takes to find all that is best."""


def least_s(problem: Problem) -> tuple[float, float]:
    """Return the least bottleneck of all mappings, and of contiguous ones, by trying them."""
    devices, layers = len(problem.devices), len(problem.layers)
    rows = every_mapping(devices, layers, 0, devices**layers)
    scores = scorer(problem, ("throughput",))(rows)
    times = np.where(scores.excess <= 0, scores.values[:, 0], np.inf)
    contiguous = times[is_contiguous(rows, devices)]
    return float(times.min()), float(contiguous.min())


def searched(problem: Problem, tried: int) -> tuple[Proof, Search]:
    """Return what a search with a small budget claims and finds."""
    search = search_of(problem, OBJECTIVES)
    seeds = np.array([*planned_seeds(problem), *balanced_seeds(problem)], np.int64)
    local_search(search, seeds.reshape(-1, search.space.layers), FEW)
    return prove(problem, search, tried), search


def check(seed: int) -> bool:
    """Compare what a search claims with all mappings; return whether it claims a proof."""
    problem = random_problem(seed)
    every, contiguous = least_s(problem)
    proof, search = searched(problem, (0, 10, 10_000)[seed % 3])
    assert proof.bound_s <= contiguous * (1 + 1e-12), seed
    assert proof.bottleneck_s >= contiguous * (1 - 1e-12), seed
    assert search.any_s >= every * (1 - 1e-12), seed
    if math.isfinite(search.any_s):
        assert search.any_s == search.archive.values[:, 0].min(), seed
    if proof.is_proven:
        assert proof.bottleneck_s == pytest.approx(contiguous, rel=1e-9, abs=0), seed
    return proof.is_proven


@pytest.mark.parametrize(("first", "number"), [(0, 25), pytest.param(25, 75, marks=pytest.mark.ci)])
def test_nothing_is_called_proven_that_is_not_the_best(first: int, number: int) -> None:
    proven = [check(seed) for seed in range(first, first + number)]
    assert 6 / 10 * number < proven.count(True) < number


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000_000, 1_020_000, 1000))
def test_nothing_is_called_proven_that_is_not_the_best_in_many_more_cases(first: int) -> None:
    for seed in range(first, first + 1000):
        check(seed)
