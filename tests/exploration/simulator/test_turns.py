"""Simulated jobs whose ranks take turns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from in_process import run_in_process
from line_graphs import line_graph, opened
from placements import placements
from plans import planned, plans
from problems import CHAIN
from simulated_jobs import links, steps_of, took

from rankslice.backend.codegen import render_driver
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.backend.runtime.summary.rates import throughput_fps
from rankslice.exploration.problem.runtime_costs import Overheads
from rankslice.exploration.simulator.simulation import Simulation
from rankslice.exploration.simulator.simulator import Arrivals, at_rate, jittered, simulate
from rankslice.framework.plan import Plan
from rankslice.framework.platform import Link

RANKS = {"a": 0, "b": 1, "c": 2}


def chain(*weights: int) -> Plan:
    """Return the plan of three layers in a row, the second one by ranks in turn."""
    return planned(CHAIN, RANKS, weights={1: weights})


def on_boards(keys: str, *weights: int) -> Plan:
    return planned(CHAIN, RANKS, placements(*keys.split()), weights={1: weights})


def simulated(plan: Plan, *seconds: float, **more: object) -> Simulation:
    boards = dict.fromkeys(rank.board for rank in plan.ranks)
    simulation = simulate(plan, took(*seconds), links(*boards), **more)  # type: ignore[arg-type]
    assert simulation.completed == simulation.frames
    return simulation


def frames_of(found: Simulation) -> dict[int, list[int]]:
    """Return the frames of each rank, in the order in which it computed them."""
    frames = defaultdict(list)
    for step in steps_of(found):
        frames[step.rank].append(step.frame)
    return dict(frames)


def test_two_ranks_in_turn_keep_up_with_one_that_is_twice_as_fast() -> None:
    simulation = simulated(chain(1, 1), 0.02, 0.04, 0.04, 0.001, frames=200)
    assert simulation.throughput_fps == pytest.approx(50)
    assert [1.0, 1.0] == pytest.approx([r.utilisation for r in simulation.ranks[1:3]], abs=0.02)


def test_eight_ranks_in_turn_have_eight_times_the_rate() -> None:
    simulation = simulated(chain(*[1] * 8), 0.02, *[0.16] * 8, 0.001, frames=400)
    assert simulation.throughput_fps == pytest.approx(50)


def test_unequal_ranks_in_turn_have_the_sum_of_their_rates() -> None:
    simulation = simulated(chain(2, 1), 0.001, 0.03, 0.06, 0.001, frames=300)
    assert simulation.throughput_fps == pytest.approx(1 / 0.03 + 1 / 0.06, rel=0.02)


def test_a_whole_model_on_two_ranks_has_twice_the_rate_of_one() -> None:
    plan = planned(CHAIN, dict.fromkeys("abc", 0), weights={0: (1, 1)})
    assert simulated(plan, 0.04, 0.04, frames=200).throughput_fps == pytest.approx(50)


def test_ranks_in_turn_after_others_in_turn_have_the_rate_of_the_slower_group() -> None:
    plan = planned(CHAIN, RANKS, weights={0: (1, 1), 1: (1, 1, 1)})
    simulation = simulated(plan, *[0.04] * 2, *[0.06] * 3, 0.001, frames=300)
    assert simulation.throughput_fps == pytest.approx(50)


@pytest.mark.parametrize("replicas", [2, 4])
def test_a_skip_connection_over_ranks_in_turn_costs_nothing(replicas: int) -> None:
    graph = line_graph("a: x -> t s\nb: t -> u\nc: u s -> y", outputs="y")
    plan = planned(graph, RANKS, weights={1: (1,) * replicas})
    seconds = 0.02, *[0.02 * replicas] * replicas, 0.001
    assert simulated(plan, *seconds, frames=200).throughput_fps == pytest.approx(50)


def test_a_frame_that_is_alone_takes_the_time_of_its_own_rank() -> None:
    simulation = simulated(chain(1, 1), 0.01, 0.02, 0.04, 0.001, frames=4, window=1)
    assert simulation.latencies_s == pytest.approx([0.031, 0.051] * 2)


def test_results_come_in_order_however_fast_a_rank_is() -> None:
    simulation = simulated(chain(1, 1), 0.001, 0.2, 0.001, 0.001, frames=4)
    # The second and fourth frame are through at once, and wait for those before them.
    assert simulation.completed_s == pytest.approx([0.202, 0.203, 0.402, 0.403])


def test_steps_name_the_frames_of_the_stream() -> None:
    simulation = simulated(chain(2, 1), 0.01, 0.01, 0.01, 0.01, frames=20, traced=6)
    every = [0, 1, 2, 3, 4, 5]
    assert {0: every, 1: [0, 2, 3, 5], 2: [1, 4], 3: every} == frames_of(simulation)


def test_times_of_computing_are_those_of_the_stream_s_frames() -> None:
    each = np.array([0.01, 0.02, 0.03, 0.04])
    simulation = simulate(
        chain(1, 1), [*took(0), each, each, *took(0)], links(), frames=8, window=1
    )
    assert simulation.latencies_s == pytest.approx([0.01, 0.02, 0.03, 0.04] * 2)


def test_a_rank_in_turn_is_busy_for_the_frames_that_it_handles() -> None:
    simulation = simulated(chain(3, 1), 0.01, 0.02, 0.03, 0.001, frames=40)
    assert [10.0, 20.0, 30.0, 1.0] == pytest.approx([rank.busy_ms for rank in simulation.ranks])


def test_only_frames_for_a_rank_wait_for_it() -> None:
    simulation = simulated(chain(1, 1), 0.001, 0.05, 0.05, 0.001, frames=40)
    # Of four slots two are for each, and one of those is in use.
    assert [1, 1] == [rank.queue_max for rank in simulation.ranks[1:3]]


def test_messages_carry_the_frames_that_both_ends_handle() -> None:
    plan = on_boards("a_cpu0 b_cpu0 c_cpu0 d_cpu0", 2, 1)
    simulation = simulated(plan, *[0.001] * 4, frames=30)
    assert {("a", 30), ("b", 20), ("c", 10)} == {
        (link.board, link.messages) for link in simulation.links if link.is_outgoing
    }
    assert {("b", 20), ("c", 10), ("d", 30)} == {
        (link.board, link.messages) for link in simulation.links if not link.is_outgoing
    }


def test_messages_of_open_sizes_take_what_those_of_their_frame_take() -> None:
    plan = planned(
        opened(CHAIN, "t"), RANKS, placements("a_cpu0", "b_cpu0", "c_cpu0", "a_cpu1"),
        weights={1: (1, 1)},
    )  # fmt: skip
    slow = links(
        "a", "b", "c", link=Link(bandwidth_mbps=8e-6 * 1000, latency_ms=0.0)
    )  # 1 B in 1 ms
    sent = {"t": np.array([64.0, 80.0, 72.0])}
    simulation = simulate(plan, took(*[0.0] * 4), slow, frames=6, window=1, sent_bytes=sent)
    back = 0.016
    assert simulation.latencies_s == pytest.approx([0.064 + back, 0.080 + back, 0.072 + back] * 2)


def test_the_source_s_rank_pays_for_messages_of_frames_that_others_handle() -> None:
    plan = planned(
        CHAIN, dict.fromkeys("abc", 0), placements("a_cpu0", "b_cpu0"), None, {0: (1, 1)}
    )
    costs = Overheads(frame_s=0.0, message_s=0.001)
    simulation = simulate(plan, took(0.01, 0.01), links("a", "b"), frames=41, overheads=costs)
    # Of every second frame the input goes to the other rank, and its result comes back.
    assert [12.0, 12.0] == pytest.approx([rank.busy_ms for rank in simulation.ranks], rel=0.01)


def test_frames_that_come_by_the_clock_go_to_ranks_in_turn() -> None:
    arrivals = Arrivals(at_rate(100, 40.0), 4)
    simulation = simulate(chain(1, 1), took(0.001, 0.045, 0.045, 0.001), links(), arrivals=arrivals)
    assert (100, ()) == (simulation.completed, simulation.dropped)
    assert simulation.latency_ms["max"] == pytest.approx(47)


def test_a_dropped_frame_has_no_turn() -> None:
    arrivals = Arrivals(np.zeros(20), 5)
    simulation = simulate(
        chain(1, 1), took(0.01, 0.01, 0.01, 0.01), links(), arrivals=arrivals, traced=20
    )
    assert simulation.dropped
    assert list(range(simulation.completed)) == sorted(
        frames_of(simulation)[1] + frames_of(simulation)[2]
    )


@st.composite
def spread_plans(draw: st.DrawFn) -> Plan:
    """Draw plans, their ranks on up to three boards."""
    plan = draw(plans())
    return plan.with_ranks([replace(r, board=draw(st.sampled_from("abc"))) for r in plan.ranks])


def handled(plan: Plan, rank: int, frames: int) -> list[int]:
    turns = plan.ranks[rank].turns
    return [frame for frame in range(frames) if frame % turns.period in turns.positions]


@given(spread_plans(), st.integers(1, 12), st.integers(0, 2**32))
@settings(max_examples=120, deadline=None)
def test_every_frame_passes_its_ranks_in_any_plan_and_window(
    plan: Plan, window: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    times = [jittered(0.01, 1.0, 13, random) for _ in plan.segments]
    between = links("a", "b", "c", link=Link(1.0, 1.0), wake_up_s=1e-3)
    simulation = simulate(plan, times, between, frames=13, window=window, traced=13)
    assert (13, ()) == (simulation.completed, simulation.dropped)
    assert np.all(np.diff(simulation.completed_s) >= 0)
    for segment in plan.segments:
        steps = [
            s for s in steps_of(simulation) if (s.rank, s.segment) == (segment.rank, segment.index)
        ]
        assert handled(plan, segment.rank, 13) == [step.frame for step in steps]


def null_folder(folder: Path, plan: Plan, sleep_ms: Sequence[float]) -> Path:
    """Write a plan whose ranks sleep instead of computing."""
    ranks = tuple(
        replace(rank, engine="null", options=(("sleep_ms", str(each)),))
        for rank, each in zip(plan.ranks, sleep_ms, strict=True)
    )
    (folder / "driver.py").write_text(render_driver(plan.with_ranks(ranks)))
    return folder


@pytest.mark.ci
@pytest.mark.parametrize(("weights", "sleep_ms"), [((1, 1), (40, 40)), ((2, 1), (30, 60))])
def test_a_simulated_job_has_about_the_rate_of_the_real_one(
    tmp_path: Path, weights: tuple[int, ...], sleep_ms: tuple[float, ...]
) -> None:
    plan = chain(*weights)
    each_ms = 20, *sleep_ms, 1
    told = simulated(plan, *(ms / 1e3 for ms in each_ms), frames=60)
    results = tmp_path / "results.bin"
    run_in_process(null_folder(tmp_path, plan, each_ms), RunOptions(frames=60, results=results))
    real = throughput_fps(read_results(results).completed_s, plan.job.window)[0]
    assert 0.6 < told.throughput_fps / real < 1.3
