import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from line_graphs import line_graph, opened
from placements import many_placements, placements
from plans import FIGURE_2, FIGURE_2_RANKS, planned, plans
from predicted_plans import predict_plan
from problems import CHAIN, GIGABIT, assigned_problems, board, platform, problem
from simulated_jobs import FREE, links, steps_of, took

from rankslice.exploration.cost.cost_model import evaluate
from rankslice.exploration.cost.prediction import predict
from rankslice.exploration.problem.runtime_costs import BOUNDS, FrameBytes, LinkSpeeds, Overheads
from rankslice.exploration.simulator.simulator import Arrivals, at_rate, jittered, sampled, simulate
from rankslice.framework.graph import constant_layers
from rankslice.framework.plan import Plan
from rankslice.framework.platform import Link
from rankslice.framework.profile import SeenTensor

TENSOR_BYTES = 16
THREE = planned(CHAIN, {"a": 0, "b": 1, "c": 2})


def rate(plan, *seconds, link=FREE, wake_up_s=0.0, **more):
    names = dict.fromkeys(rank.board for rank in plan.ranks)
    simulation = simulate(
        plan, took(*seconds), links(*names, link=link, wake_up_s=wake_up_s), **more
    )
    assert simulation.completed == simulation.frames
    return simulation.throughput_fps


def test_the_rate_is_that_of_the_slowest_rank():
    assert rate(THREE, 0.01, 0.02, 0.005, frames=200) == pytest.approx(50)


def test_a_frame_that_is_alone_takes_the_sum_of_its_steps():
    simulation = simulate(THREE, took(0.01, 0.02, 0.005), links(), frames=20, window=1)
    assert simulation.latency_ms["p50"] == pytest.approx(35)
    assert simulation.latency_ms["max"] == pytest.approx(35)


READING = Overheads(read_s=0.03, read_s_per_byte=0.005 / TENSOR_BYTES, arrival_s=0.01)
"""Of a frame 35 ms, and 10 ms more where the source has slept until it came."""


def test_a_frame_that_arrives_by_the_clock_is_read_first():
    come = Arrivals(at_rate(20, 2.0), 9)
    simulation = simulate(THREE, took(0.01, 0.02, 0.005), links(), arrivals=come, overheads=READING)
    assert simulation.latency_ms["p50"] == pytest.approx(35 + 45)
    assert simulation.latency_ms["max"] == pytest.approx(35 + 45)


def test_a_source_reads_frames_one_after_the_other():
    come = Arrivals(np.zeros(3), 9)
    simulation = simulate(THREE, took(0.0, 0.0, 0.0), links(), arrivals=come, overheads=READING)
    assert simulation.latencies_s.tolist() == pytest.approx([0.045, 0.080, 0.115])


@pytest.mark.parametrize(("cores", "period_s"), [((0,), 0.055), ((0, 1), 0.035)])
def test_a_rank_of_one_core_reads_frames_besides_and_others_meanwhile(cores, period_s):
    first, *others = THREE.ranks
    plan = THREE.with_ranks([replace(first, cores=cores), *others])
    simulation = simulate(plan, took(0.02, 0.01, 0.01), links(), frames=200, overheads=READING)
    assert simulation.throughput_fps == pytest.approx(1 / period_s, rel=1e-3)
    busy = simulation.ranks[0].utilisation
    assert busy == pytest.approx((0.055 if len(cores) == 1 else 0.02) / period_s, rel=0.02)


@pytest.mark.parametrize("window", [1, 2, 3])
def test_a_small_window_limits_the_rate_to_window_over_latency(window):
    fps = rate(THREE, 0.001, 0.001, 0.001, wake_up_s=0.01, frames=100, window=window)
    # Three steps, two hops, and the credit's way back.
    assert fps == pytest.approx(window / 0.033)


def test_a_large_window_leaves_the_rate_to_the_slowest_rank():
    assert rate(THREE, 0.02, 0.001, 0.001, wake_up_s=0.01, frames=100) == pytest.approx(50)


def test_segments_of_one_rank_take_turns():
    plan = planned(FIGURE_2, FIGURE_2_RANKS)
    assert rate(plan, *[0.01] * 5, frames=500) == pytest.approx(50, rel=0.01)


def test_a_skip_tensor_does_not_throttle_the_pipeline():
    layers = "\n".join(f"l{n}: t{n} -> t{n + 1}" for n in range(6))
    graph = line_graph(f"{layers}\nend: t6 t1 -> y", outputs="y", inputs="t0")
    plan = planned(graph, {**{f"l{n}": n for n in range(6)}, "end": 6})
    assert rate(plan, *[0.01] * 7, frames=200) == pytest.approx(100)


def test_a_link_that_all_messages_share_sets_the_rate():
    graph = line_graph("a: x -> t u\nb: t -> v\nc: u -> w\nd: v w -> y", outputs="y")
    plan = planned(
        graph,
        {"a": 0, "b": 1, "c": 2, "d": 3},
        placements("one_cpu0", "b_cpu0", "c_cpu0", "d_cpu0"),
    )
    slow = Link(bandwidth_mbps=TENSOR_BYTES * 8 / 1e6 / 0.05, latency_ms=0.0)  # 50 ms a tensor
    assert rate(plan, *[0.001] * 4, link=slow, frames=200) == pytest.approx(10)


def test_messages_of_open_sizes_take_what_those_of_their_frame_take():
    plan = planned(opened(CHAIN, "t"), {"a": 0, "b": 1, "c": 1}, placements("a_cpu0", "b_cpu0"))
    slow = links("a", "b", link=Link(bandwidth_mbps=8e-6 * 1000, latency_ms=0.0))  # a byte in 1 ms
    sent = {"t": np.array([64.0, 80.0, 72.0])}
    costs = Overheads(network_s_per_byte=1e-3)
    shown = simulate(
        plan, took(0.0, 0.0), slow, frames=6, window=1, sent_bytes=sent, overheads=costs
    )
    assert shown.latencies_s == pytest.approx(
        [0.192, 0.240, 0.216] * 2
    )  # at both ends, and between
    bound = simulate(plan, took(0.0, 0.0), slow, frames=6, window=1)
    assert bound.latencies_s == pytest.approx([0.080] * 6)


def test_sizes_of_a_frame_are_drawn_together():
    seen = [
        SeenTensor("t", "float32", ((1, 0), (1, 1), (1, 3))),
        SeenTensor("u", "int64", ((1, 0), (1, 1), (1, 3))),
    ]
    tensors = opened(CHAIN, "t", "u", "y").layers
    made = [tensor for layer in tensors for tensor in layer.outputs]
    found, again = (
        FrameBytes(seen).drawn(made, 100, np.random.default_rng(seed)) for seed in (3, 3)
    )
    assert {"t", "u"} == found.keys()
    assert {(64, 64), (68, 72), (76, 88)} == {*zip(found["t"], found["u"], strict=True)}
    assert found["t"].tolist() == again["t"].tolist()
    assert {} == BOUNDS.drawn(made, 100, np.random.default_rng(3))


def test_messages_to_several_boards_do_not_wait_for_each_other_s_receivers():
    graph = line_graph("a: x -> t\nb: t -> u\nc: u -> y", outputs="y")
    plan = planned(graph, {"a": 0, "b": 1, "c": 2}, placements("a_cpu0", "b_cpu0", "c_cpu0"))
    slow = Link(bandwidth_mbps=TENSOR_BYTES * 8 / 1e6 / 0.05, latency_ms=0.0)
    assert rate(plan, *[0.001] * 3, link=slow, frames=200) == pytest.approx(20)


def test_a_tensor_for_several_ranks_of_another_board_crosses_the_cable_once():
    graph = line_graph("a: x -> t\nb: t -> u\nc: t u -> y", outputs="y")
    plan = planned(graph, {"a": 0, "b": 1, "c": 2}, placements("a_cpu0", "b_cpu0", "b_cpu1"))
    simulation = simulate(plan, took(0.01, 0.01, 0.01), links("a", "b", link=GIGABIT), frames=50)
    assert [("a", True, 50), ("b", False, 50)] == [
        (link.board, link.is_outgoing, link.messages) for link in simulation.links
    ]


def test_inside_a_board_a_rank_holds_a_slot_of_the_writer_until_it_is_done():
    plan = planned(CHAIN, {"a": 0, "b": 1, "c": 1})
    simulation = simulate(plan, took(0.001, 1.0), links(wake_up_s=0.0001), frames=4, traced=4)
    steps = {(step.rank, step.frame): step for step in steps_of(simulation)}
    assert steps[1, 0].begin_s == pytest.approx(steps[0, 0].end_s + 0.0001)
    # Three slots: the fourth frame takes that of the first one.
    assert steps[0, 2].end_s < 0.01
    assert steps[0, 3].begin_s == pytest.approx(steps[1, 0].end_s)


def test_ranks_that_share_a_core_take_turns_on_it():
    both = placements("board_cpu0", "board_cpu0.2")
    one_core = tuple(
        type(rank)(**{**{n: getattr(rank, n) for n in rank.__slots__}, "cores": (0,)})
        for rank in both
    )
    plan = planned(CHAIN, {"a": 0, "b": 0, "c": 1}, one_core)
    assert rate(plan, 0.01, 0.01, frames=200) == pytest.approx(50, rel=0.01)


@given(plans(), st.integers(1, 12))
@settings(max_examples=80, deadline=None)
def test_every_frame_comes_out_in_any_plan_and_window(plan, window):
    seconds = [0.01] * len(plan.segments)
    simulation = simulate(plan, took(*seconds), links(), frames=15, window=window)
    assert (15, ()) == (simulation.completed, simulation.dropped)
    assert np.all(np.diff(simulation.completed_s) >= 0)


@given(assigned_problems())
@settings(max_examples=60, deadline=None)
def test_a_rank_that_is_never_kept_waiting_reaches_the_predicted_rate(drawn):
    """With windows and slots that are no limit, nothing is slower than the cost model says."""
    given_problem, population = drawn
    assert given_problem.graph is not None
    # A layer that reads constants only is counted as if a model input paced it, which a segment
    # with other layers does not need.
    graph, constant = given_problem.graph, constant_layers(given_problem.graph)
    constants = {t.name for each in graph.layers if each.name in constant for t in each.outputs}
    placed = [each for each in graph.layers if each.name in given_problem.layers]
    assume(all({t.name for t in layer.inputs} - constants for layer in placed))
    names = {device: n for n, device in enumerate(dict.fromkeys(population[0].tolist()))}
    chosen = dict(zip(given_problem.layers, population[0].tolist(), strict=True))
    ranks = {name: names[device] for name, device in chosen.items()}
    rest = {layer.name: 0 for layer in given_problem.graph.layers if layer.name not in ranks}
    keys = [given_problem.devices[device].key for device in names]
    plan = planned(given_problem.graph, {**rest, **ranks}, on_boards(keys))
    one = predict_plan(given_problem, plan)
    boards = platform(board("edge01", gpus=1), board("edge02", gpus=1))
    simulation = simulate(
        plan,
        [np.array([segment.compute_s]) for segment in one.segments],
        LinkSpeeds(boards),
        frames=300,
        # What slices take longer in a pipeline is in the predicted times.
        overheads=replace(given_problem.overheads, slice_s=0.0),
    )
    assert simulation.completed == 300
    longest_s = max(p.busy_s for p in one.devices)
    assert simulation.duration_s >= 300 * longest_s * (1 - 1e-9)
    assert one.bottleneck_s == pytest.approx(
        evaluate(given_problem, population[:1]).bottleneck_s[0]
    )


def on_boards(keys):
    """Return ranks on the boards that keys name, with a core of their own."""
    return placements(*keys)


def test_a_chain_reaches_the_rate_and_latency_that_the_cost_model_says():
    chain = problem(overheads=Overheads(1e-3, 2e-3, "given"), times_s=[[0.01, 0.03, 0.02]])
    one = predict(chain, [0, 1, 0])
    plan = planned(CHAIN, {"a": 0, "b": 1, "c": 0}, placements("edge01_cpu0-1", "edge02_cpu0-1"))
    compute = [np.array([segment.compute_s]) for segment in one.segments]
    gigabit = LinkSpeeds(platform(link=GIGABIT))
    more = {"overheads": chain.overheads, "frames": 200}
    fast = simulate(plan, compute, gigabit, **more)
    assert fast.throughput_fps == pytest.approx(one.throughput_fps, rel=0.01)
    alone = simulate(plan, compute, gigabit, window=1, **more)
    assert alone.latency_ms["p50"] == pytest.approx(1e3 * one.latency_s)


def test_frames_that_come_slower_than_the_pipeline_wait_for_nobody():
    simulation = simulate(
        THREE, took(0.01, 0.02, 0.005), links(), arrivals=Arrivals(at_rate(100, 20.0), 4)
    )
    assert simulation.throughput_fps == pytest.approx(20)
    assert simulation.latency_ms["max"] == pytest.approx(35)
    assert (0, ()) == (simulation.waiting_max, simulation.dropped)


def test_frames_that_come_faster_wait_and_then_find_no_room():
    simulation = simulate(
        THREE, took(0.01, 0.02, 0.005), links(), arrivals=Arrivals(at_rate(200, 100.0), 5)
    )
    assert 5 == simulation.waiting_max
    assert simulation.throughput_fps == pytest.approx(50)
    assert 200 == simulation.completed + len(simulation.dropped)
    assert len(simulation.dropped) == pytest.approx(100, abs=10)


def test_a_burst_waits_at_the_source():
    simulation = simulate(
        THREE, took(0.01, 0.02, 0.005), links(), arrivals=Arrivals(np.zeros(10), 10)
    )
    assert (10, 10) == (simulation.completed, simulation.frames)
    assert simulation.waiting_max == 10 - 2  # the model input has two slots
    assert simulation.latency_ms["max"] == pytest.approx(1e3 * (0.01 + 10 * 0.02 + 0.005))


def test_busy_ranks_are_told_with_what_waits_for_them():
    simulation = simulate(THREE, took(0.01, 0.02, 0.005), links(), frames=300)
    assert [0.5, 1.0, 0.25] == pytest.approx([r.utilisation for r in simulation.ranks], abs=0.01)
    assert [20.0] == pytest.approx([simulation.ranks[1].busy_ms])
    assert 2 == simulation.ranks[1].queue_max  # of three slots one is in use
    assert 0 == simulation.ranks[2].queue_max


def test_links_are_told_by_direction():
    plan = planned(CHAIN, {"a": 0, "b": 1, "c": 1}, placements("a_cpu0", "b_cpu0"))
    simulation = simulate(plan, took(0.01, 0.02), links("a", "b", link=GIGABIT), frames=50)
    assert [("a", True, 50), ("b", False, 50)] == [
        (link.board, link.is_outgoing, link.messages) for link in simulation.links
    ]


ELSEWHERE = [{"cores": (0, 7)}, {"accelerator": "gpu"}]
"""Where another thread than the one that computes lets frames in."""


def with_first_rank(**fields):
    first, second = placements("board_cpu0", "board_cpu1")
    return planned(CHAIN, {"a": 0, "b": 1, "c": 1}, (replace(first, **fields), second))


def test_a_frame_waits_for_a_slow_first_rank_only_if_another_thread_lets_it_in():
    def latency_ms(plan):
        return simulate(plan, took(0.03, 0.02), links()).latency_ms["p50"]

    assert latency_ms(with_first_rank()) == pytest.approx(30 + 20)
    for fields in ELSEWHERE:
        assert latency_ms(with_first_rank(**fields)) == pytest.approx(30 + 30 + 20)


def test_frames_that_come_by_the_clock_are_let_in_while_the_first_rank_computes():
    clock = Arrivals(np.array([0.0, 0.01, 0.02]), 1)
    simulation = simulate(with_first_rank(), took(0.03, 0.02), links(), arrivals=clock)
    assert (3, ()) == (simulation.completed, simulation.dropped)


def test_steps_of_the_first_frames_are_kept():
    simulation = simulate(THREE, took(0.01, 0.02, 0.005), links(), frames=20, traced=2)
    assert [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)] == sorted(
        (step.rank, step.frame) for step in steps_of(simulation)
    )


def test_a_jittered_pipeline_is_slower_than_a_steady_one_and_a_window_helps():
    random = np.random.default_rng(0)
    times = [jittered(0.01, 0.5, 2000, random) for _ in range(3)]
    slower = simulate(THREE, times, links(), frames=2000, window=3).throughput_fps
    faster = simulate(THREE, times, links(), frames=2000, window=50).throughput_fps
    assert slower < faster < 100


def test_jittered_times_have_the_mean_and_variation_that_were_asked_for():
    times = jittered(0.02, 0.3, 200_000, np.random.default_rng(0))
    assert (0.02, 0.006) == pytest.approx((times.mean(), times.std()), rel=0.02)
    assert [0.02] == jittered(0.02, 0.0, 5, np.random.default_rng(0)).tolist()


def test_sampled_times_are_measured_ones_in_proportion():
    times = sampled(2.0, np.array([1.0, 1.0, 4.0]), 1000, np.random.default_rng(0))
    assert {2.0, 8.0} == set(times.tolist())


def test_the_same_seed_gives_the_same_answer():
    def once():
        times = [jittered(0.01, 0.3, 100, np.random.default_rng(3))] * 3
        return simulate(THREE, times, links(), frames=100).completed_s.tolist()

    assert once() == once()


def test_a_simulation_can_be_written_as_json():
    simulation = simulate(THREE, took(0.01, 0.02, 0.005), links(), frames=30)
    assert 30 == json.loads(json.dumps(simulation.to_json()))["completed"]


def test_no_frames_give_no_rate():
    simulation = simulate(THREE, took(0.01, 0.02, 0.005), links(), frames=0)
    assert (0, 0.0) == (simulation.completed, simulation.throughput_fps)
    assert math.isnan(simulation.latency_ms["p50"])


def test_hundreds_of_ranks_keep_the_rate_of_one():
    ranks = 300
    text = "\n".join(f"l{n}: t{n} -> t{n + 1}" for n in range(ranks))
    plan = planned(
        line_graph(text, outputs=f"t{ranks}", inputs="t0"),
        {f"l{n}": n for n in range(ranks)},
        many_placements(ranks),
    )
    assert rate(plan, *[0.01] * ranks, frames=50) == pytest.approx(100)


def fan(readers: int) -> Plan:
    """Return the plan of a tensor that so many ranks read, and one more joins what they make."""
    lines = ["first: x -> t", *(f"r{n}: t -> u{n}" for n in range(readers))]
    lines += [f"last: {' '.join(f'u{n}' for n in range(readers))} -> y"]
    ranks = {"first": 0, **{f"r{n}": n + 1 for n in range(readers)}, "last": readers + 1}
    return planned(line_graph("\n".join(lines), outputs="y"), ranks)


def turns(count: int) -> Plan:
    """Return the plan of two ranks with so many segments in all."""
    lines = "\n".join(f"l{n}: t{n} -> t{n + 1}" for n in range(count))
    graph = line_graph(lines, outputs=f"t{count}", inputs="t0")
    return planned(graph, {f"l{n}": n % 2 for n in range(count)})


def lines_run(plan: Plan) -> int:
    """Return how many lines of the simulator and the wiring the simulation of frames runs."""
    count = 0

    def trace(frame, event, about):
        nonlocal count
        count += event == "line"
        return (
            trace if {"simulator", "pipeline"} & {*Path(frame.f_code.co_filename).parts} else None
        )

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        simulate(plan, took(*[0.01] * len(plan.segments)), links(), frames=8)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.ci
@pytest.mark.parametrize("shape", [fan, turns])
def test_twice_as_many_readers_or_segments_take_twice_as_many_steps(shape):
    assert lines_run(shape(160)) < 2.1 * lines_run(shape(80))


def test_simulating_loads_neither_an_engine_nor_mpi():
    program = (
        "import sys, rankslice.exploration.simulator.simulator\n"
        "heavy = {'mpi4py', 'onnxruntime', 'ai_edge_litert'} & sys.modules.keys()\n"
        "sys.exit(' '.join(heavy) or None)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
