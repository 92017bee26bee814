"""The exact planner against trying every contiguous pipeline, on thousands of small chains."""

from __future__ import annotations

import math

import pytest
from chains import Tried, planned, random_case

from rankslice.exploration import NoPlanError
from rankslice.exploration.planner.optimal import Objective

REST = {"marks": pytest.mark.ci}
"""Of cases whose first 50 `make test` looks at."""

THROUGHPUT = [
    (0, 50),
    pytest.param(50, 200, **REST),
    *(pytest.param(first, 250, **REST) for first in range(250, 2000, 250)),
]
UNDER_A_FLOOR = [(10_000, 50), pytest.param(10_050, 450, **REST)]
WITHOUT_TABLES = [(20_000, 50), pytest.param(20_050, 200, **REST)]


def least(seed: int, objective: Objective, floor_fps: float) -> float:
    """Return what the planner finds; infinite if there is no pipeline."""
    try:
        found = planned(**random_case(seed), objective=objective, throughput_floor_fps=floor_fps)
    except NoPlanError:
        return math.inf
    assert found.proven
    values = {"latency": found.latency_s, "energy": found.energy_j}
    value = values.get(objective, found.bottleneck_s)
    assert value is not None
    return value


def floor_fps(seed: int) -> float:
    """Return a rate that can be reached, exactly or with some room; if none can, any."""
    best = Tried(random_case(seed), "throughput", math.inf).run()
    return 1 / best / (1.0, 1.3, 2.0, 5.0)[seed % 4] if 0 < best < math.inf else 1.0


@pytest.mark.parametrize(("first", "number"), THROUGHPUT)
def test_no_pipeline_has_a_smaller_bottleneck(first: int, number: int) -> None:
    for seed in range(first, first + number):
        expected = Tried(random_case(seed), "throughput", math.inf).run()
        assert expected == pytest.approx(least(seed, "throughput", 0.0), rel=1e-12, abs=0), seed


@pytest.mark.parametrize("objective", ["latency", "energy"])
@pytest.mark.parametrize(("first", "number"), UNDER_A_FLOOR)
def test_no_pipeline_above_the_floor_has_less(
    objective: Objective, first: int, number: int
) -> None:
    for seed in range(first, first + number):
        floor = floor_fps(seed)
        expected = Tried(random_case(seed), objective, 1 / floor).run()
        assert expected == pytest.approx(least(seed, objective, floor), rel=1e-12, abs=0), seed


def test_devices_that_can_run_few_layers_each_share_memory() -> None:
    seed = 110_824
    expected = Tried(random_case(seed), "throughput", math.inf).run()
    assert expected == pytest.approx(least(seed, "throughput", 0.0), rel=1e-12, abs=0)


def check_without_tables(seed: int) -> bool:
    """Plan as if no table fitted into memory; return whether the plan is proven."""
    case = random_case(seed)
    expected = Tried(case, "throughput", math.inf).run()
    try:
        found = planned(**case, most_steps=50)
    except NoPlanError as error:
        if math.isfinite(expected) and error.limit != "steps":
            raise
        return False
    assert found.bound_s is not None
    assert found.bound_s * (1 - 1e-12) <= expected <= found.bottleneck_s * (1 + 1e-12), seed
    if found.proven:
        assert found.bottleneck_s == pytest.approx(expected, rel=1e-12, abs=0), seed
    return found.proven


@pytest.fixture
def no_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all combinations of devices of more than one kind be too many."""
    monkeypatch.setattr("rankslice.exploration.planner.relaxation._MAX_BYTES", 200)
    monkeypatch.setattr("rankslice.exploration.planner.relaxation._KEPT", 2)


@pytest.mark.usefixtures("no_tables")
@pytest.mark.parametrize(("first", "number"), WITHOUT_TABLES)
def test_bounds_hold_where_not_all_combinations_of_devices_are_looked_at(
    first: int, number: int
) -> None:
    proven = [check_without_tables(seed) for seed in range(first, first + number)]
    assert number / 4 < proven.count(True) < 9 / 10 * number


@pytest.mark.slow
@pytest.mark.usefixtures("no_tables")
@pytest.mark.parametrize("first", range(200_000, 220_000, 1000))
def test_bounds_hold_there_in_many_more_cases(first: int) -> None:
    for seed in range(first, first + 1000):
        check_without_tables(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100_000, 120_000, 1000))
def test_no_pipeline_has_a_smaller_bottleneck_in_many_more_cases(first: int) -> None:
    for seed in range(first, first + 1000):
        expected = Tried(random_case(seed), "throughput", math.inf).run()
        assert expected == pytest.approx(least(seed, "throughput", 0.0), rel=1e-12, abs=0), seed


def test_the_cases_have_pipelines_and_have_none() -> None:
    values = [Tried(random_case(seed), "throughput", math.inf).run() for seed in range(200)]
    assert 30 < values.count(math.inf) < 120
