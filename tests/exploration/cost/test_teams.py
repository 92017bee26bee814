"""What assignments cost in which devices take turns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray
from placements import placements
from plans import planned
from problems import CHAIN, GIGABIT, OVERHEADS, assigned_problems, board, platform, problem

from rankslice.backend.runtime.job import Turns
from rankslice.exploration.cost.cost_model import evaluate
from rankslice.exploration.cost.prediction import predict
from rankslice.exploration.problem.devices import Team
from rankslice.exploration.problem.problem import Problem, mapping_of
from rankslice.exploration.problem.runtime_costs import LinkSpeeds
from rankslice.exploration.simulator.simulator import simulate
from rankslice.framework.errors import RankSliceError

KEYS = ["edge01_cpu0", "edge02_cpu0", "edge03_cpu0"]
BOARDS = platform(*(board(f"edge0{n}") for n in (1, 2, 3)))
PAIR, TWO_TO_ONE, WHOLE = 3, 4, 5
TEAMS = Team((1, 2)), Team((1, 2), (2, 1)), Team((0, 1, 2))


def teamed(*times_s: float, **more: object) -> Problem:
    """Return the problem of three layers in a row and a core on each of three boards."""
    made = problem(CHAIN, BOARDS, [times_s or (0.02, 0.08, 0.01)], keys=KEYS, **more)
    return replace(made, teams=TEAMS)


def test_devices_in_turn_halve_the_time_between_frames_but_not_that_of_a_frame() -> None:
    alone, in_turn = (predict(teamed(), [0, number, 0]) for number in (1, PAIR))
    assert 0.04 == pytest.approx(in_turn.bottleneck_s)
    assert alone.latency_s == pytest.approx(in_turn.latency_s)
    assert 0.08 == pytest.approx(alone.bottleneck_s)


def test_a_device_handles_as_many_frames_as_its_weight_says() -> None:
    prediction = predict(teamed(), [0, TWO_TO_ONE, 0])
    assert {"edge01_cpu0": Turns(), "edge02_cpu0": Turns(3, (0, 2)), "edge03_cpu0": Turns(3, (1,))}
    assert [0.03, 0.08 * 2 / 3, 0.08 / 3] == pytest.approx([d.load_s for d in prediction.devices])
    assert [0.03, 0.08, 0.08] == pytest.approx([device.busy_s for device in prediction.devices])
    assert [Turns(), Turns(3, (0, 2)), Turns(3, (1,))] == [d.turns for d in prediction.devices]


def test_links_carry_each_device_s_part_of_the_frames() -> None:
    prediction = predict(teamed(), [0, TWO_TO_ONE, 0])
    assert {("t", 2 / 3), ("u", 2 / 3), ("t", 1 / 3), ("u", 1 / 3)} == {
        (channel.tensor, channel.share) for channel in prediction.channels
    }


def test_frames_enter_and_leave_at_the_first_device_of_a_whole_model_in_turn() -> None:
    prediction = predict(teamed(overheads=OVERHEADS), [WHOLE] * 3)
    # It sends two of three frames to the others, and takes their results.
    first = 0.11 + OVERHEADS.frame_s + 4 * OVERHEADS.message_s
    others = 0.11 + OVERHEADS.frame_s + 2 * OVERHEADS.message_s
    assert [first, others, others] == pytest.approx(
        [device.busy_s for device in prediction.devices]
    )
    assert first / 3 == pytest.approx(prediction.bottleneck_s)
    assert "computing on edge01_cpu0" == prediction.bottleneck
    hops = 2 * (16 / 125e6 + 2e-4) + 4 * OVERHEADS.message_s
    assert 0.11 + OVERHEADS.frame_s + hops == pytest.approx(prediction.latency_s)


def test_each_device_in_turn_holds_the_weights() -> None:
    made = replace(teamed(), weight_bytes=np.array([0, 1000, 0]))
    held = {each.name: each.weight_bytes for each in predict(made, [0, PAIR, 0]).boards}
    assert {"edge01": 0, "edge02": 1000, "edge03": 1000} == held


def test_the_mapping_s_key_names_all_devices_in_turn() -> None:
    made = teamed()
    assert {"edge01_cpu0": ["a", "c"], "edge02_cpu0*2|edge03_cpu0": ["b"]} == mapping_of(
        made, [0, TWO_TO_ONE, 0]
    )
    assert {"|".join(KEYS): ["a..c"]} == mapping_of(made, [WHOLE] * 3)


def test_a_device_cannot_take_turns_and_have_other_layers_too() -> None:
    population = np.array([[1, PAIR, 0], [0, PAIR, TWO_TO_ONE], [0, PAIR, PAIR]])
    costs = evaluate(teamed(), population)
    assert [False, False, True] == np.isfinite(costs.bottleneck_s).tolist()
    assert [False, False, True] == np.isfinite(costs.latency_s).tolist()
    with pytest.raises(RankSliceError, match="would take turns and have other layers"):
        predict(teamed(), [1, PAIR, 0])


CHOICES = [[0, 1, 2, 3], [4, 2, 3], [0, 1, 5], [4, 5], [6], [7, 1], [8, 0], [1, 3, 9]]
"""Numbers of devices and teams that share no device."""


def with_teams(made: Problem) -> Problem:
    """Return a problem of four devices with teams of them."""
    weighted = Team((1, 2, 3), (3, 1, 2)), Team((0, 2), (1, 2))
    return replace(
        made, teams=(Team((0, 1)), Team((2, 3)), Team((0, 1, 2, 3)), Team((3, 0, 2)), *weighted)
    )


@st.composite
def teamed_problems(draw: st.DrawFn) -> tuple[Problem, NDArray[np.int64]]:
    """Draw problems of two boards with a GPU each, and assignments in which some take turns."""
    made, _ = draw(assigned_problems())
    rows = draw(st.lists(st.sampled_from(CHOICES), min_size=1, max_size=4))
    layers = len(made.layers)
    chosen = [draw(st.lists(st.sampled_from(r), min_size=layers, max_size=layers)) for r in rows]
    return with_teams(made), np.array(chosen)


@given(teamed_problems())
def test_many_at_once_have_the_figures_of_one_explained(
    drawn: tuple[Problem, NDArray[np.int64]],
) -> None:
    made, population = drawn
    costs = evaluate(made, population)
    for row, assignment in enumerate(population):
        one = predict(made, assignment)
        assert one.bottleneck_s == pytest.approx(costs.bottleneck_s[row], rel=1e-9)
        assert one.latency_s == pytest.approx(costs.latency_s[row], rel=1e-9)
        assert max(b.memory_bytes for b in one.boards) == pytest.approx(costs.memory_bytes[row])
        joules = [0.0 if each.energy_j is None else each.energy_j for each in one.boards]
        assert max(joules) == pytest.approx(costs.energy_j[row], rel=1e-9)


@given(assigned_problems())
def test_assignments_without_turns_cost_what_they_cost_beside_those_with_turns(
    drawn: tuple[Problem, NDArray[np.int64]],
) -> None:
    made, population = drawn
    in_turn = np.full((1, population.shape[1]), 6)
    alone = evaluate(made, population)
    beside = evaluate(with_teams(made), np.concatenate([in_turn, population]))
    for name in alone.__slots__:
        assert getattr(alone, name) == pytest.approx(getattr(beside, name)[1:], nan_ok=True)


@pytest.mark.parametrize(
    ("numbers", "ranks", "weights", "times_s"),
    [
        ([0, PAIR, PAIR], {"a": 0, "b": 1, "c": 1}, {1: (1, 1)}, (0.02, 0.03, 0.02)),
        ([0, TWO_TO_ONE, 0], {"a": 0, "b": 1, "c": 0}, {1: (2, 1)}, (0.01, 0.09, 0.01)),
        ([WHOLE] * 3, {"a": 0, "b": 0, "c": 0}, {0: (1, 1, 1)}, (0.02, 0.03, 0.02)),
    ],
)
def test_a_simulated_job_has_the_rate_that_is_predicted(
    numbers: list[int],
    ranks: dict[str, int],
    weights: dict[int, tuple[int, ...]],
    times_s: tuple[float, ...],
) -> None:
    made = teamed(*times_s, overheads=OVERHEADS)
    one = predict(made, numbers)
    plan = planned(CHAIN, ranks, placements(*KEYS), weights=weights)
    own = [sum(times_s["abc".index(name)] for name in segment.layers) for segment in plan.segments]
    simulation = simulate(
        plan,
        [np.array([seconds]) for seconds in own],
        LinkSpeeds(platform(*BOARDS.boards, link=GIGABIT)),
        frames=300,
        overheads=OVERHEADS,
    )
    assert simulation.throughput_fps == pytest.approx(one.throughput_fps, rel=0.01)
    assert [d.busy_s for d in one.devices] == pytest.approx(
        [rank.busy_ms / 1e3 for rank in simulation.ranks], rel=0.02
    )
