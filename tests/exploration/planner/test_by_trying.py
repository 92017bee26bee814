"""The exact planner against trying every contiguous pipeline, on thousands of small chains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from chains import Tried, planned, random_case, random_turns, random_turns_case

from rankslice.exploration import NoPlanError
from rankslice.exploration.planner.optimal import Objective

OBJECTIVES: tuple[Objective, ...] = ("throughput", "latency", "energy")


class Chain(NamedTuple):
    fields: dict[str, Any]
    most_turns: int
    seed: int


def alone(seed: int) -> Chain:
    return Chain(random_case(seed), 1, seed)


def in_turn(seed: int) -> Chain:
    return Chain(random_turns_case(seed), random_turns(seed), seed)


def least(chain: Chain, objective: Objective, floor_fps: float) -> float:
    """Return what the planner finds; infinite if there is no pipeline."""
    try:
        pipeline = planned(
            **chain.fields,
            objective=objective,
            throughput_floor_fps=floor_fps,
            most_turns=chain.most_turns,
        )
    except NoPlanError as error:
        return math.nan if error.limit == "steps" else math.inf
    assert pipeline.proven
    values = {"latency": pipeline.latency_s, "energy": pipeline.energy_j}
    value = values.get(objective, pipeline.bottleneck_s)
    assert value is not None
    return value


def tried(chain: Chain, objective: Objective = "throughput", floor_fps: float = 0.0) -> float:
    """Return what trying every pipeline finds."""
    period_s = 1 / floor_fps if floor_fps else math.inf
    return Tried(chain.fields, objective, period_s, chain.most_turns).run()


def floor_of(chain: Chain, number: int) -> float:
    """Return a rate that can be reached, exactly or with some room; if none can, any."""
    best = tried(chain)
    return 1 / best / (1.0, 1.3, 2.0, 5.0)[number % 4] if 0 < best < math.inf else 1.0


def check(chain: Chain, objective: Objective, floor_fps: float = 0.0) -> float:
    """Plan, and try everything; return what both found."""
    expected = tried(chain, objective, floor_fps)
    assert expected == pytest.approx(least(chain, objective, floor_fps), rel=1e-12, abs=0), (
        chain.seed
    )
    return expected


def check_in_turn(seed: int, objective: Objective) -> float:
    floor = 0.0 if objective == "throughput" else floor_of(in_turn(seed), seed // 4)
    return check(in_turn(seed), objective, floor)


def batches(first: int, sizes: Sequence[int]) -> list[Any]:
    """Return ranges of seeds; ``make test`` looks at the first one alone."""
    found = []
    for size in sizes:
        marks = [pytest.mark.ci] if found else []
        found.append(pytest.param(range(first, first + size), marks=marks, id=f"{first}+{size}"))
        first += size
    return found


@pytest.mark.parametrize("seeds", batches(0, [50, 200, *[250] * 7]))
def test_no_pipeline_has_a_smaller_bottleneck(seeds: range) -> None:
    for seed in seeds:
        check(alone(seed), "throughput")


@pytest.mark.parametrize("objective", ["latency", "energy"])
@pytest.mark.parametrize("seeds", batches(10_000, [50, 450]))
def test_no_pipeline_above_the_floor_has_less(objective: Objective, seeds: range) -> None:
    for seed in seeds:
        check(alone(seed), objective, floor_of(alone(seed), seed))


def test_devices_that_can_run_few_layers_each_share_memory() -> None:
    check(alone(110_824), "throughput")


@pytest.mark.parametrize(
    ("objective", "seeds"),
    [
        ("throughput", range(40)),
        ("latency", range(1000, 1020)),
        ("energy", range(2000, 2030)),
        pytest.param("throughput", range(40, 160), marks=pytest.mark.ci),
        pytest.param("latency", range(1020, 1080), marks=pytest.mark.ci),
        pytest.param("energy", range(2030, 2060), marks=pytest.mark.ci),
    ],
)
def test_no_pipeline_with_turns_is_better(objective: Objective, seeds: range) -> None:
    values = [check_in_turn(seed, objective) for seed in seeds]
    assert len(seeds) / 8 < values.count(math.inf) < len(seeds) / 2


def test_devices_whose_shares_of_memory_are_alike_do_not_take_turns() -> None:
    assert 2 < check_in_turn(500_250, "throughput") < 3


def is_proven(chain: Chain, objective: Objective, floor_fps: float, most_steps: int) -> bool:
    """Plan with coarse bounds, which must hold; return whether the plan is proven."""
    expected = tried(chain, objective, floor_fps)
    try:
        pipeline = planned(
            **chain.fields,
            objective=objective,
            throughput_floor_fps=floor_fps,
            most_turns=chain.most_turns,
            most_steps=most_steps,
        )
    except NoPlanError as error:
        if math.isfinite(expected) and error.limit != "steps":
            raise
        return False
    value = pipeline.latency_s if objective == "latency" else pipeline.bottleneck_s
    assert pipeline.bound_s is not None
    assert pipeline.bound_s * (1 - 1e-12) <= expected <= value * (1 + 1e-12), chain.seed
    if pipeline.proven:
        assert value == pytest.approx(expected, rel=1e-12, abs=0), chain.seed
    return pipeline.proven


@pytest.fixture
def no_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all combinations of devices of more than one kind be too many."""
    monkeypatch.setattr("rankslice.exploration.planner.relaxation._MAX_BYTES", 200)
    monkeypatch.setattr("rankslice.exploration.planner.relaxation._KEPT", 2)


@pytest.mark.usefixtures("no_tables")
@pytest.mark.parametrize("seeds", batches(20_000, [50, 200]))
def test_bounds_hold_where_not_all_combinations_of_devices_are_looked_at(seeds: range) -> None:
    proven = [is_proven(alone(seed), "throughput", 0.0, 50) for seed in seeds]
    assert len(seeds) / 4 < proven.count(True) < 9 / 10 * len(seeds)


@pytest.mark.usefixtures("no_tables")
@pytest.mark.parametrize("seeds", batches(3000, [30, 70]))
def test_bounds_hold_where_kinds_are_counted_as_one(
    monkeypatch: pytest.MonkeyPatch, seeds: range
) -> None:
    monkeypatch.setattr("rankslice.exploration.planner.solver._MAX_STATES", 8)
    proven = []
    for seed in seeds:
        objective = OBJECTIVES[seed % 2]
        floor = floor_of(in_turn(seed), seed // 4) if objective == "latency" else 0.0
        proven.append(is_proven(in_turn(seed), objective, floor, 40))
    assert len(seeds) / 5 < proven.count(True) < 9 / 10 * len(seeds)


@pytest.mark.slow
@pytest.mark.usefixtures("no_tables")
@pytest.mark.parametrize("first", range(200_000, 220_000, 1000))
def test_bounds_hold_there_in_many_more_cases(first: int) -> None:
    for seed in range(first, first + 1000):
        is_proven(alone(seed), "throughput", 0.0, 50)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100_000, 120_000, 1000))
def test_no_pipeline_has_a_smaller_bottleneck_in_many_more_cases(first: int) -> None:
    for seed in range(first, first + 1000):
        check(alone(seed), "throughput")


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100_000, 105_000, 500))
def test_no_pipeline_with_turns_is_better_in_many_more_cases(first: int) -> None:
    for seed in range(first, first + 500):
        check_in_turn(seed, OBJECTIVES[seed % 5 % 3])


def test_the_cases_have_pipelines_and_have_none() -> None:
    values = [tried(alone(seed)) for seed in range(200)]
    assert 30 < values.count(math.inf) < 120


def test_turns_help_in_many_of_these_cases() -> None:
    without = [tried(in_turn(seed)._replace(most_turns=1)) for seed in range(160)]
    together = [tried(in_turn(seed)) for seed in range(160)]
    pairs = [*zip(together, without, strict=True)]
    assert all(one <= other for one, other in pairs)
    assert 40 < sum(one < other for one, other in pairs)
