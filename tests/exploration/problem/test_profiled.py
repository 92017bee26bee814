"""From what a profile tells of a board's power to the energy of mappings."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest

import pytest
from problems import CHAIN, board, platform

from rankslice.exploration.cost.prediction import predict
from rankslice.exploration.problem.make_problem import profiled_problem
from rankslice.exploration.problem.problem import Problem
from rankslice.framework.profile import (
    Core,
    MeasuredBoard,
    Profile,
    ProfiledKind,
    ProfiledModel,
    Span,
)

KEYS = ("edge01_cpu0", "edge02_cpu0")


def profile(idle_mw: int | None, energy_uj: int | None) -> Profile:
    """Return a profile of a chain of three layers of 1 s each, with what a sensor told."""
    sensor = None if idle_mw is None else "hwmon ina219 power1"
    cores = (Core(0, None, None),)
    measured = MeasuredBoard("edge01", "e", "x86_64", "", "3.11", 1, cores, sensor, idle_mw)
    spans = tuple(
        Span(
            first,
            last,
            ((last - first + 1) * 10**9,),
            (1,),
            None,
            energy_uj if (first, last) == (0, 2) else None,
            None,
            False,
        )
        for first in range(3)
        for last in range(first, 3)
    )
    kind = ProfiledKind(
        KEYS[0], KEYS, "cpu", 1, "onnxruntime", "1", (), (), False, (), 0, measured, spans
    )
    return Profile(ProfiledModel("chain", "", (), ("a", "b", "c")), (kind,))


def with_memory(rank_bytes: int, *span_bytes: int | None) -> Profile:
    """Return the profile of a kind with the memory of a bare rank, and of its first spans."""
    given = profile(None, None)
    (kind,) = given.kinds
    spans = [
        replace(span, memory_bytes=taken)
        for span, taken in zip_longest(kind.spans, span_bytes[: len(kind.spans)])
    ]
    return replace(given, kinds=(replace(kind, rank_bytes=rank_bytes, spans=tuple(spans)),))


def explored(profile: Profile) -> Problem:
    """Return the problem of two equal boards of which no power is given."""
    boards = [board(name, idle_w=None, busy_w=None) for name in ("edge01", "edge02")]
    return profiled_problem(profile, CHAIN, platform(*boards), keys=KEYS)


def test_power_that_a_sensor_told_makes_energy_measured_on_all_boards_that_are_equal() -> None:
    # 3 s at 9 W, of which 2 W at rest: 7 W are due to computing.
    problem = explored(profile(2000, 27_000_000))
    (used,) = predict(problem, [1, 1, 1]).boards
    assert ("edge02", "measured", "profile.json") == (
        used.name,
        used.energy_source,
        used.energy_from,
    )
    busy_s = predict(problem, [1, 1, 1]).devices[0].busy_s
    assert used.energy_j == pytest.approx(9 * busy_s)


@pytest.mark.parametrize("told", [(None, None), (2000, None)])
def test_without_a_sensor_or_an_energy_of_any_span_energy_is_absent(
    told: tuple[int | None, int | None],
) -> None:
    (used,) = predict(explored(profile(*told)), [0, 0, 0]).boards
    assert (None, None) == (used.energy_j, used.energy_source)


@pytest.mark.parametrize(
    ("spans", "context"),
    [((640_000_000, 650_000_000, None, 645_000_000), 645_000_000), ((), 0), ((7,), 0)],
)
def test_a_rank_takes_the_context_of_its_engine_besides_its_layers(
    spans: tuple[int | None, ...], context: int
) -> None:
    bare = predict(explored(with_memory(0)), [0, 0, 0]).boards[0].memory_bytes
    (used,) = predict(explored(with_memory(100_000_000, *spans)), [0, 0, 0]).boards
    assert used.memory_bytes - bare == pytest.approx(100_000_000 + context, abs=1000)


def test_a_rank_takes_of_the_gpu_what_its_context_and_its_layers_need() -> None:
    (kind,) = with_memory(0).kinds
    spans = tuple(replace(span, gpu_bytes=700_000_000) for span in kind.spans[:1])
    given = replace(with_memory(0), kinds=(replace(kind, spans=spans + kind.spans[1:]),))
    problem = explored(given)
    (whole,) = predict(problem, [0, 0, 0]).devices
    halves = predict(problem, [0, 1, 1]).devices
    assert whole.gpu_bytes == pytest.approx(700_000_000, abs=1000)
    weights = int(problem.weight_bytes.sum() + problem.working_bytes.max())
    assert all(halve.gpu_bytes == pytest.approx(700_000_000, abs=weights) for halve in halves)
    assert predict(explored(with_memory(0)), [0, 0, 0]).devices[0].gpu_bytes is None
