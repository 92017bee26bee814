"""The exact planner with turns against trying every pipeline, on thousands of small chains."""

from __future__ import annotations

import math

import pytest
from chains import Tried, planned
from turns import TriedInTurns, random_turns, random_turns_case

from rankslice.exploration import NoPlanError
from rankslice.exploration.planner.optimal import Objective

OBJECTIVES: tuple[Objective, ...] = ("throughput", "latency", "energy")


def least(seed: int, objective: Objective, floor_fps: float) -> float:
    """Return what the planner finds; infinite if there is no pipeline."""
    try:
        found = planned(
            **random_turns_case(seed),
            objective=objective,
            throughput_floor_fps=floor_fps,
            most_turns=random_turns(seed),
        )
    except NoPlanError as error:
        return math.nan if error.limit == "steps" else math.inf
    assert found.proven
    values = {"latency": found.latency_s, "energy": found.energy_j}
    value = values.get(objective, found.bottleneck_s)
    assert value is not None
    return value


def tried(seed: int, objective: Objective, period_s: float) -> float:
    """Return what trying every pipeline finds."""
    return TriedInTurns(random_turns_case(seed), objective, period_s, random_turns(seed)).run()


def floor_fps(seed: int) -> float:
    """Return a rate that can be reached, exactly or with some room; if none can, any."""
    best = tried(seed, "throughput", math.inf)
    return 1 / best / (1.0, 1.3, 2.0, 5.0)[seed // 4 % 4] if 0 < best < math.inf else 1.0


def check(seed: int, objective: Objective) -> float:
    """Plan, and try everything; return what both found."""
    floor = 0.0 if objective == "throughput" else floor_fps(seed)
    expected = tried(seed, objective, 1 / floor if floor else math.inf)
    assert expected == pytest.approx(least(seed, objective, floor), rel=1e-12, abs=0), seed
    return expected


@pytest.mark.parametrize(
    ("objective", "first", "number"),
    [
        ("throughput", 0, 40),
        ("latency", 1000, 20),
        ("energy", 2000, 30),
        pytest.param("throughput", 40, 120, marks=pytest.mark.ci),
        pytest.param("latency", 1020, 60, marks=pytest.mark.ci),
        pytest.param("energy", 2030, 30, marks=pytest.mark.ci),
    ],
)
def test_no_pipeline_with_turns_is_better(objective: Objective, first: int, number: int) -> None:
    values = [check(seed, objective) for seed in range(first, first + number)]
    assert number / 8 < values.count(math.inf) < number / 2


def test_devices_whose_shares_of_memory_are_alike_do_not_take_turns() -> None:
    assert 2 < check(500_250, "throughput") < 3


def check_coarsely(seed: int) -> bool:
    """Plan with bounds that are coarse; return whether the plan is proven."""
    objective = OBJECTIVES[seed % 2]
    floor = floor_fps(seed) if objective == "latency" else 0.0
    expected = tried(seed, objective, 1 / floor if floor else math.inf)
    try:
        found = planned(
            **random_turns_case(seed),
            objective=objective,
            throughput_floor_fps=floor,
            most_turns=random_turns(seed),
            most_steps=40,
        )
    except NoPlanError as error:
        if math.isfinite(expected) and error.limit != "steps":
            raise
        return False
    value = found.latency_s if objective == "latency" else found.bottleneck_s
    assert found.bound_s is not None
    assert found.bound_s * (1 - 1e-12) <= expected <= value * (1 + 1e-12), seed
    if found.proven:
        assert value == pytest.approx(expected, rel=1e-12, abs=0), seed
    return found.proven


@pytest.mark.parametrize(
    ("first", "number"), [(3000, 30), pytest.param(3030, 70, marks=pytest.mark.ci)]
)
def test_bounds_hold_where_kinds_are_counted_as_one(
    monkeypatch: pytest.MonkeyPatch, first: int, number: int
) -> None:
    monkeypatch.setattr("rankslice.exploration.planner.relaxation._MAX_BYTES", 200)
    monkeypatch.setattr("rankslice.exploration.planner.relaxation._KEPT", 2)
    monkeypatch.setattr("rankslice.exploration.planner.solver._MAX_STATES", 8)
    proven = [check_coarsely(seed) for seed in range(first, first + number)]
    assert number / 5 < proven.count(True) < 9 / 10 * number


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100_000, 105_000, 500))
def test_no_pipeline_with_turns_is_better_in_many_more_cases(first: int) -> None:
    for seed in range(first, first + 500):
        check(seed, OBJECTIVES[seed % 5 % 3])


def test_turns_help_in_many_of_these_cases() -> None:
    alone = [Tried(random_turns_case(seed), "throughput", math.inf).run() for seed in range(160)]
    together = [tried(seed, "throughput", math.inf) for seed in range(160)]
    helped = [one for one, other in zip(together, alone, strict=True) if one < other]
    assert all(one <= other for one, other in zip(together, alone, strict=True))
    assert 40 < len(helped)
