"""Simulated jobs with two routes: when frames change the route, and what becomes of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from in_process import run_in_process
from line_graphs import line_graph
from plans import routed
from problems import CHAIN, GIGABIT, OVERHEADS, board, platform, problem
from real_jobs import chain_folder, let_ranks_sleep
from simulated_jobs import links, took

from rankslice.backend.runtime.figures.events import READ, WRITE
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sources.switching import (
    ROUTE_NAMES,
    SURGE,
    USUAL,
    Automatic,
    Fixed,
    Observation,
)
from rankslice.exploration.cost.prediction import predict
from rankslice.exploration.problem.runtime_costs import LinkSpeeds, Overheads
from rankslice.exploration.simulator.simulation import Simulation
from rankslice.exploration.simulator.simulator import Arrivals, at_rate, simulate
from rankslice.exploration.times.segment_times import KnownTimes
from rankslice.framework.plan import Plan, plan_from_json
from rankslice.framework.platform import Platform
from rankslice.session.exploring.simulate import simulate_job

WHOLE = dict.fromkeys("abc", 0)
SLICED = {"a": 0, "b": 1, "c": 2}
PLAN = routed(CHAIN, WHOLE, SLICED, shift=1)
"""The whole chain on a rank, and a slice on each of three others."""
SHARED = routed(CHAIN, WHOLE, SLICED)
"""The same, with the first slice on the rank that otherwise has all."""
SECONDS = 0.04, *[0.013] * 3
"""The usual route handles 25 frames/s, the other one 77."""
CALM_FPS, SURGE_FPS = 15, 45


def waves(*seconds: float) -> np.ndarray:
    """Return when frames arrive: calm for some seconds, then a surge, and so on."""
    rates = itertools.cycle((CALM_FPS, SURGE_FPS))
    begins = itertools.accumulate(seconds, initial=0.0)
    parts = zip(begins, seconds, rates, strict=False)
    return np.concatenate([b + at_rate(round(s * fps), fps) for b, s, fps in parts])


def simulated(times_s: Sequence[float] | np.ndarray, plan: Plan = PLAN) -> Simulation:
    """Return what a job shows that changes the route by itself."""
    return simulate(
        plan,
        took(*SECONDS),
        links(),
        arrivals=Arrivals(np.array(times_s), 100),
        traced=len(times_s),
        switching=Automatic(RunOptions(), 1),
    )


def frames_on(found: Simulation, route: str) -> list[int]:
    reads = found.trace.ranks[found.trace.plan.job.source].of(READ)
    return sorted(reads["frame"][reads["route"] == ROUTE_NAMES.index(route)].tolist())


def test_below_the_normal_rate_nothing_changes() -> None:
    simulation = simulated(at_rate(200, CALM_FPS))
    assert () == simulation.switches
    assert list(range(200)) == frames_on(simulation, "normal")
    assert simulation.latencies_s == pytest.approx([0.04] * 200)


@pytest.mark.parametrize("plan", [PLAN, SHARED], ids=["ranks of their own", "a rank of both"])
def test_a_surge_begins_and_ends(plan: Plan) -> None:
    times_s = waves(4, 4, 4, 4, 4)
    simulation = simulated(times_s, plan)
    assert ["surge", "normal"] * 2 == [change.route for change in simulation.switches]
    for change, wave in zip(simulation.switches, (4, 8, 12, 16), strict=True):
        assert wave <= change.time_s < wave + 2
    # A pipeline keeps up: few wait after a surge has begun.
    assert simulation.waiting_max < 15
    first, second, third, fourth = (change.frame for change in simulation.switches)
    assert [*range(first, second), *range(third, fourth)] == frames_on(simulation, "surge")
    assert simulation.on_surge == len(frames_on(simulation, "surge"))


@pytest.mark.parametrize("plan", [PLAN, SHARED], ids=["ranks of their own", "a rank of both"])
def test_no_frame_is_lost_or_overtaken_where_the_route_changes(plan: Plan) -> None:
    simulation = simulated(waves(3, 3, 3), plan)
    assert (simulation.frames, ()) == (simulation.completed, simulation.dropped)
    assert (np.diff(simulation.completed_s) > 0).all()
    of = {route: frames_on(simulation, route) for route in ("normal", "surge")}
    assert list(range(simulation.frames)) == sorted(of["normal"] + of["surge"])


def test_the_route_changes_once_nothing_is_inside() -> None:
    simulation = simulated(waves(3, 3, 3))
    assert simulation.switches
    for change in simulation.switches:
        source, sink = (
            simulation.trace.ranks[0],
            simulation.trace.ranks[simulation.trace.plan.job.sink],
        )
        reads, writes = source.of(READ), sink.of(WRITE)
        before = writes["end_ns"][writes["frame"] < change.frame]
        after = reads["begin_ns"][reads["frame"] >= change.frame]
        assert max(before) <= 1e9 * change.time_s + 1 <= min(after) + 2


def test_a_surge_ends_in_a_pause() -> None:
    simulation = simulated([*waves(3, 3), 30.0])
    assert ["surge", "normal"] == [change.route for change in simulation.switches]
    assert 6 < simulation.switches[1].time_s < 15


def test_each_route_has_its_window() -> None:
    both = [
        simulate(PLAN, took(*SECONDS), links(), frames=200, switching=Fixed(route))
        for route in (USUAL, SURGE)
    ]
    windows = {(each.window, each.surge_window) for each in both}
    assert {tuple(route.job.window for route in PLAN.routes)} == windows
    assert [1 / 0.04, 1 / 0.013] == pytest.approx([each.throughput_fps for each in both], rel=0.01)


def test_frames_that_arrive_together_are_seen_together() -> None:
    simulation = simulated([0.0] * 8)
    assert [("surge", 0, 8)] == [(c.route, c.frame, c.waiting) for c in simulation.switches]


class Whim:
    """Changes the route before some frames."""

    def __init__(self, frames: set[int]) -> None:
        self._left = set(frames)

    def decide(self, route: int, seen: Observation) -> tuple[int, str]:
        if seen.arrived in self._left:
            self._left.remove(seen.arrived)
            return 1 - route, "told so"
        return route, ""


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_frames_come_out_in_order_wherever_the_route_changes(data: st.DataObject) -> None:
    weights = data.draw(st.sampled_from([(1,), (1, 1), (2, 1)]))
    graph = line_graph("a: x -> t s\nb: t -> u\nc: u s -> y", outputs="y")
    shift = data.draw(st.integers(0, 3))
    plan = routed(graph, WHOLE, SLICED, shift=shift, surge_weights={1: weights})
    seconds = [data.draw(st.floats(0, 0.02)) for route in plan.routes for _ in route.segments]
    whim = Whim(data.draw(st.sets(st.integers(1, 30))))
    boards = dict.fromkeys(rank.board for rank in plan.ranks)
    simulation = simulate(
        plan, took(*seconds), links(*boards), frames=30, traced=30, overheads=OVERHEADS,
        switching=whim, window=data.draw(st.none() | st.integers(1, 5)),
    )  # fmt: skip
    assert 30 == simulation.completed
    assert (np.diff(simulation.completed_s) >= 0).all()
    ways = {route: frames_on(simulation, route) for route in ("normal", "surge")}
    assert list(range(30)) == sorted(ways["normal"] + ways["surge"])
    assert len(ways["surge"]) == simulation.on_surge


def test_a_job_changes_the_route_where_it_is_predicted(tmp_path: Path) -> None:
    folder = let_ranks_sleep(chain_folder(tmp_path, 3, usually_whole=True), 3)
    times_s = [*np.arange(0, 0.6, 0.02), *np.arange(0.6, 1.2, 1 / 150), *np.arange(1.2, 2.2, 0.02)]
    (tmp_path / "trace.txt").write_text("".join(f"{times_:.6f}\n" for times_ in times_s))
    plan = plan_from_json((folder / "plan.json").read_text())
    options = RunOptions(
        results=tmp_path / "results.bin", frames=len(times_s), arrivals=tmp_path / "trace.txt",
        normal_fps=100.0, normal_after_s=0.3,
    )  # fmt: skip
    nowhere = Platform("local", ())
    found = simulate_job(plan, nowhere, KnownTimes(None), "", options).simulation
    ran = next(r.source for r in run_in_process(folder, options) if r.source)
    assert ["surge", "normal"] == [change.route for change in ran.switches]
    assert ["surge", "normal"] == [change.route for change in found.switches]
    assert [change.frame for change in ran.switches] == pytest.approx(
        [change.frame for change in found.switches], abs=8
    )


def test_the_cost_model_knows_the_latency_of_one_route_and_the_rate_of_the_other() -> None:
    overheads = Overheads(frame_s=1e-3, message_s=1e-4, source="given", token_s=5e-4)
    keys = [f"board_cpu{n}" for n in range(4)]
    here = platform(replace(board("board"), cores=(0, 1, 2, 3)))
    each_s = 0.013
    made = problem(CHAIN, here, [[each_s] * 3] * 4, keys=keys, overheads=overheads)
    usual, surge = predict(made, [0, 0, 0]), predict(made, [1, 2, 3])
    speeds = LinkSpeeds(platform(board("board"), link=GIGABIT))
    seconds = took(3 * each_s, *[each_s] * 3)
    calm = simulate(
        PLAN, seconds, speeds, arrivals=Arrivals(at_rate(100, 15), 9), overheads=overheads,
        switching=Automatic(RunOptions(), 1),
    )  # fmt: skip
    assert calm.latency_ms["p50"] == pytest.approx(1e3 * usual.latency_s, rel=0.02)
    full = simulate(PLAN, seconds, speeds, frames=300, overheads=overheads, switching=Fixed(SURGE))
    assert full.throughput_fps == pytest.approx(surge.throughput_fps, rel=0.02)
