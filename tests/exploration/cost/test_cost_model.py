import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from line_graphs import line_graph, opened
from one_by_one import OneByOne
from placements import placements
from plans import planned
from predicted_plans import predict_plan
from problems import CHAIN, OVERHEADS, assigned_problems, board, platform, problem
from random_problems import random_problem

from rankslice.exploration.cost.cost_model import evaluate
from rankslice.exploration.cost.prediction import predict
from rankslice.exploration.problem.runtime_costs import (
    WAKE_UP_S,
    FrameBytes,
    Overheads,
    default_overheads,
)
from rankslice.exploration.times.span_times import summed_spans
from rankslice.framework.errors import RankSliceError
from rankslice.framework.graph import Weight
from rankslice.framework.platform import Link
from rankslice.framework.profile import SeenTensor

FREE = Link(float("inf"), 0.0)
TENSOR_BYTES = 16
ALL_SLOTS = 4 * TENSOR_BYTES
"""Two slots for each of the two tensors that a device takes and gives."""
TENSOR_S = TENSOR_BYTES / 125e6
"""Of a float32 tensor of four numbers at a gigabit per second."""


@given(assigned_problems())
def test_many_at_once_have_the_figures_of_one_explained(drawn):
    given_problem, population = drawn
    costs = evaluate(given_problem, population)
    for row, assignment in enumerate(population):
        one = predict(given_problem, assignment)
        alone = OneByOne(given_problem, assignment)
        assert alone.segment_s == pytest.approx([segment.busy_s for segment in one.segments])
        assert alone.bottleneck_s() == pytest.approx(costs.bottleneck_s[row], rel=1e-9)
        assert alone.latency_s() == pytest.approx(costs.latency_s[row], rel=1e-9)
        assert one.latency_s == pytest.approx(costs.latency_s[row], rel=1e-9)
        assert max(b.memory_bytes for b in one.boards) == pytest.approx(costs.memory_bytes[row])
        assert one.bottleneck_s == pytest.approx(costs.bottleneck_s[row], rel=1e-9)
        assert max(b.energy_j for b in one.boards) == pytest.approx(costs.energy_j[row], rel=1e-9)


@given(assigned_problems())
def test_many_at_once_need_the_memory_of_one_explained_if_devices_have_one_span_each(drawn):
    given_problem, population = drawn
    contiguous = np.sort(population, axis=1)
    costs = evaluate(given_problem, contiguous, latency=False)
    for row, assignment in enumerate(contiguous):
        one = predict(given_problem, assignment)
        assert max(b.memory_bytes for b in one.boards) == pytest.approx(costs.memory_bytes[row])


@given(assigned_problems())
def test_a_frame_that_is_alone_takes_at_least_the_bottleneck_and_its_layers_on_one_device(drawn):
    given_problem, population = drawn
    for assignment in population:
        one = predict(given_problem, assignment)
        assert one.latency_s >= max(device.busy_s for device in one.devices) - 1e-12
    alone = np.zeros((1, population.shape[1]), int)
    costs = evaluate(given_problem, alone)
    assert costs.latency_s[0] == pytest.approx(costs.bottleneck_s[0])


def test_the_slowest_device_sets_the_rate():
    one = predict(problem(), [0, 0, 1])
    assert (3.0, "computing on edge01_cpu0-1") == (one.bottleneck_s, one.bottleneck)
    assert one.throughput_fps == pytest.approx(1 / 3)
    assert [3.0, 3.0] == [device.compute_s for device in one.devices]


def test_latency_is_the_sum_over_a_chain_and_its_hops():
    one = predict(problem(), [0, 1, 0])
    assert one.latency_s == pytest.approx(6.0 + 2 * (TENSOR_S + 0.2e-3))


def test_branches_on_different_devices_overlap():
    graph = line_graph("a: x -> t\nb: t -> u\nc: t -> v\nd: u v -> y", outputs="y")
    boards = platform(*(board(f"edge{n}") for n in range(3)), link=FREE)
    parallel = problem(graph, boards, [[1.0, 2.0, 3.0, 1.0]])
    assert predict(parallel, [0, 1, 2, 0]).latency_s == pytest.approx(5.0)
    assert predict(parallel, [0, 0, 0, 0]).latency_s == pytest.approx(7.0)
    assert evaluate(parallel, np.array([[0, 1, 2, 0]])).latency_s[0] == pytest.approx(5.0)


def test_a_tensor_goes_once_to_each_device_that_needs_it():
    graph = line_graph("a: x -> t\nb: t -> u\nc: t u -> y", outputs="y")
    one = predict(problem(graph), [0, 1, 1])
    assert [("t", "edge01_cpu0-1", "edge02_cpu0-1")] == [
        (channel.tensor, channel.origin, channel.target) for channel in one.channels
    ]


def test_a_board_s_link_is_shared_by_all_that_leaves_it():
    graph = line_graph("a: x -> t u\nb: t -> v\nc: u -> w\nd: v w -> y", outputs="y")
    boards = platform(*(board(f"edge{n}") for n in range(3)), link=Link(1e-3, 0.0))
    one = predict(problem(graph, boards, [[1e-3] * 4]), [0, 1, 2, 1])
    message_s = 16 / 125
    assert one.bottleneck_s == pytest.approx(2 * message_s)
    assert "sending from edge0" == one.bottleneck


def test_inside_a_board_both_ranks_take_time_for_a_tensor_but_not_for_its_bytes():
    overheads = Overheads(message_s=8.0, network_s_per_byte=0.125, token_s=0.5)
    local = problem(
        keys=["edge01_cpu0", "edge01_cpu1"], times_s=[[1.0] * 3] * 2, overheads=overheads
    )
    one = predict(local, [0, 0, 1])
    assert [2.5, 1.5] == [device.busy_s for device in one.devices]
    assert [0.0, 0.0] == [device.copy_s for device in one.devices]


def test_messages_of_open_sizes_have_the_mean_size_of_frames_and_slots_the_bound_s():
    graph = opened(CHAIN, "t", "u")
    seen = SeenTensor("u", "float32", ((1, 0), (1, 3)))
    overheads = Overheads(network_s_per_byte=0.125)
    given_problem = problem(graph, frame_bytes=FrameBytes([seen]), overheads=overheads)
    for_t, for_u = (predict(given_problem, chosen) for chosen in ([0, 1, 1], [0, 0, 1]))
    assert [(64 + TENSOR_BYTES) * 0.125] * 2 == [device.copy_s for device in for_t.devices]
    assert [(64 + TENSOR_BYTES * 3 / 8) * 0.125] * 2 == [d.copy_s for d in for_u.devices]
    slots = 2 * TENSOR_BYTES + 2 * (64 + TENSOR_BYTES)
    layers = 2 * TENSOR_BYTES
    assert [slots + layers] * 2 == [board.memory_bytes for board in for_u.boards]
    assert any("tensor 't' changes" in note for note in for_t.notes)
    assert not any("changes" in note for note in for_u.notes)


def test_a_tensor_for_several_devices_of_another_board_crosses_the_cable_once():
    graph = line_graph("a: x -> t\nb: t -> u\nc: t -> v\nd: u v -> y", outputs="y")
    keys = ["edge01_cpu0", "edge02_cpu0", "edge02_cpu1"]
    overheads = Overheads(message_s=0.25, network_s_per_byte=0.0, token_s=0.125)
    one = predict(
        problem(graph, times_s=[[1.0] * 4] * 2, keys=keys, overheads=overheads), [0, 1, 2, 2]
    )
    assert [
        ("t", "edge01_cpu0", "edge02_cpu0"),
        ("t", "edge02_cpu0", "edge02_cpu1"),
        ("u", "edge02_cpu0", "edge02_cpu1"),
    ] == [(channel.tensor, channel.origin, channel.target) for channel in one.channels]
    assert [0.25, 0.25 + 2 * 0.125, 2 * 0.125] == [device.runtime_s for device in one.devices]
    slots = [2 + 2, 4 + 3 + 2]  # of x and t; of t, read last by c and d together, of u and of y
    layers = [2, 2 + 3]
    assert [each.memory_bytes for each in one.boards] == [
        TENSOR_BYTES * (held + largest) for held, largest in zip(slots, layers, strict=True)
    ]


def test_messages_over_the_network_take_time_of_the_cores_and_of_the_link():
    overheads = Overheads(network_s_per_byte=0.125)
    one = predict(problem(overheads=overheads), [0, 0, 1])
    assert [16 * 0.125] * 2 == [device.copy_s for device in one.devices]
    assert [5.0, 5.0] == [device.busy_s for device in one.devices]
    assert 10.0 == pytest.approx(one.latency_s, rel=1e-3)


def test_the_runtime_takes_time_for_each_frame_and_each_message():
    one = predict(problem(overheads=OVERHEADS), [0, 1, 0])
    assert [1e-3 + 2 * 2e-3] * 2 == pytest.approx([device.runtime_s for device in one.devices])
    assert one.latency_s == pytest.approx(6.01 + 2 * (TENSOR_S + 0.2e-3))


def test_devices_that_share_a_core_take_turns():
    sharing = problem(keys=["edge01_cpu0", "edge01_cpu0.2"])
    one = predict(sharing, [0, 1, 1])
    assert (6.0, "core 0 of edge01 (edge01_cpu0 and edge01_cpu0.2)") == (
        one.bottleneck_s,
        one.bottleneck,
    )


def test_what_an_engine_merges_counts_for_contiguous_layers():
    spans_s = summed_spans(np.array([[1.0, 2.0, 3.0]]))
    spans_s[0, 0, 1] = 2.5
    merged = problem(spans_s=spans_s)
    assert 2.5 == predict(merged, [0, 0, 1]).devices[0].compute_s
    assert 3.0 == evaluate(merged, np.array([[0, 0, 1]])).bottleneck_s[0]
    assert 4.0 == predict(merged, [0, 1, 0]).devices[0].compute_s


def test_a_device_that_cannot_run_a_layer_has_no_rate():
    broken = problem(times_s=[[1.0, math.inf, 1.0]])
    assert math.inf == evaluate(broken, np.array([[0, 0, 0]])).bottleneck_s[0]
    assert 0.0 == predict(broken, [0, 0, 0]).throughput_fps


def test_energy_is_modelled_of_the_lines_that_give_power():
    (used, other) = predict(problem(), [0, 0, 1]).boards
    assert (3 * 1.0 + 3 * 2.0, "modelled") == (used.energy_j, used.energy_source)
    assert "boards.yaml: boards.edge01.idle_w and busy_w" == used.energy_from
    assert 3 * 1.0 + 3 * 2.0 == other.energy_j


@pytest.mark.parametrize(("between_s", "period_s"), [(0.0, 3.0), (2.0, 3.0), (10.0, 10.0)])
def test_boards_idle_until_the_next_frame_of_a_camera_comes(between_s, period_s):
    timed = replace(problem(), between_frames_s=between_s)
    expected = [period_s * 1.0 + 3 * 2.0] * 2
    assert expected == [each.energy_j for each in predict(timed, [0, 0, 1]).boards]
    assert expected[0] == evaluate(timed, np.array([[0, 0, 1]])).energy_j[0]
    assert 3.0 == evaluate(timed, np.array([[0, 0, 1]])).bottleneck_s[0]


def test_energy_that_a_sensor_told_is_called_measured():
    power = {"measured_w": np.array([7.0]), "idle_w": {"edge01": 1.5}}
    (used,) = predict(problem(**power, times_source="profile.json"), [0, 0, 0]).boards
    assert (6 * (1.5 + 7.0), "measured", "profile.json") == (
        used.energy_j,
        used.energy_source,
        used.energy_from,
    )


def test_energy_is_measured_only_if_the_power_at_rest_is_too():
    (used,) = predict(problem(measured_w=np.array([7.0])), [0, 0, 0]).boards
    assert (6 * (1.0 + 7.0), "modelled") == (used.energy_j, used.energy_source)
    assert "given times; boards.yaml: boards.edge01.idle_w" == used.energy_from


def test_a_sensor_makes_up_for_a_platform_that_gives_no_power():
    boards = platform(board("edge01", idle_w=None, busy_w=None))
    told = problem(boards=boards, measured_w=np.array([7.0]), idle_w={"edge01": 1.5})
    assert told.has_energy
    assert 6 * (1.5 + 7.0) == evaluate(told, np.array([[0, 0, 0]])).energy_j[0]


def test_energy_that_nobody_knows_is_absent_and_not_zero():
    boards = platform(board("edge01", busy_w=None), board("edge02"))
    unknown = problem(boards=boards, times_s=[[1.0, 2.0, 3.0]] * 2)
    (used,) = predict(unknown, [0, 0, 0]).boards
    assert (None, None) == (used.energy_j, used.energy_source)
    assert "boards.edge01" in used.energy_from
    assert not unknown.has_energy
    costs = evaluate(unknown, np.array([[0, 0, 0], [1, 1, 1]]))
    assert [True, False] == np.isnan(costs.energy_j).tolist()


def test_a_board_whose_memory_is_too_small_is_told_by_how_much():
    small = problem(
        boards=platform(board("edge01", memory_mb=1.0), board("edge02")),
        times_s=[[1.0, 2.0, 3.0]] * 2,
        rank_bytes=np.array([3e6, 3e6]),
    )
    costs = evaluate(small, np.array([[0, 0, 0], [1, 1, 1]]))
    assert costs.memory_bytes == pytest.approx([3e6, 3e6], rel=1e-3)
    assert costs.excess_bytes == pytest.approx([2e6, 0.0], rel=1e-3)


def test_every_figure_says_where_it_is_from():
    one = predict(problem(times_source="profile.json"), [0, 1, 1])
    assert ["profile.json"] * 2 == [device.source for device in one.devices]
    assert ["boards.yaml: links.default"] == [channel.source for channel in one.channels]
    assert "boards.yaml: boards.edge01.memory_mb" in one.boards[0].memory_source
    assert any("interpreters" in note for note in one.notes)


def test_links_that_nobody_described_are_noted():
    one = predict(problem(boards=platform(link=None)), [0, 1, 1])
    assert any("describes no such link" in note for note in one.notes)


def test_channels_inside_a_board_have_a_source_too():
    local = problem(keys=["edge01_cpu0", "edge01_cpu1"], times_s=[[1.0] * 3] * 2)
    (channel,) = predict(local, [0, 1, 1]).channels
    assert "shared memory, as measured on another machine" == channel.source
    assert channel.seconds == pytest.approx(WAKE_UP_S)


def test_a_plan_costs_what_its_assignment_costs():
    local = problem(keys=["edge01_cpu0", "edge01_cpu1"], times_s=[[1.0] * 3] * 2)
    plan = planned(CHAIN, {"a": 0, "b": 1, "c": 0}, placements("edge01_cpu0", "edge01_cpu1"))
    assert predict(local, [0, 1, 0]) == predict_plan(local, plan)


def test_arrays_alone_are_a_problem_too():
    assert 5.0 == predict(replace(problem(), graph=None), [0, 1, 1]).bottleneck_s


def test_nothing_to_evaluate_gives_nothing():
    assert 0 == len(evaluate(problem(), np.zeros((0, 3), int)).bottleneck_s)


def test_layers_that_cannot_be_apart_have_no_rate_apart():
    bound = replace(problem(), together=((0, 1),))
    costs = evaluate(bound, np.array([[0, 1, 1], [0, 0, 1]]))
    assert [True, False] == np.isinf(costs.bottleneck_s).tolist()


def test_a_tensor_of_unknown_size_cannot_be_cut():
    graph = line_graph("a: x -> t\nb: t -> y", outputs="y")
    first, last = graph.layers
    endless = replace(first.outputs[0], shape=None)
    layers = (replace(first, outputs=(endless,)), replace(last, inputs=(endless,)))
    open_ended = problem(replace(graph, layers=layers), times_s=[[1.0, 2.0]])
    assert math.inf == evaluate(open_ended, np.array([[0, 1]])).bottleneck_s[0]
    assert 3.0 == evaluate(open_ended, np.array([[0, 0]])).bottleneck_s[0]
    with pytest.raises(RankSliceError, match="cannot be cut here"):
        predict(open_ended, [0, 1])


def test_a_weight_that_layers_share_counts_once_on_each_device():
    shared = Weight("w", "float32", (10,), 40, CHAIN.layers[0].record, None)
    first, middle, last = CHAIN.layers
    layers = (replace(first, weights=(shared,)), middle, replace(last, weights=(shared,)))
    sharing = problem(replace(CHAIN, layers=layers))
    assert [40, 0, 40] == sharing.weight_bytes.tolist()
    assert [40] == [board.weight_bytes for board in predict(sharing, [0, 0, 0]).boards]
    assert [40, 40] == [board.weight_bytes for board in predict(sharing, [0, 1, 1]).boards]
    at_once, cut = evaluate(sharing, np.array([[0, 0, 0], [0, 0, 1]])).memory_bytes
    assert 40 + 2 * TENSOR_BYTES + ALL_SLOTS == at_once == cut


def test_memory_is_weights_the_largest_layer_and_slots():
    one = predict(problem(rank_bytes=np.array([1000.0])), [0, 0, 1])
    expected = 1000 + 2 * TENSOR_BYTES + ALL_SLOTS
    assert [expected, expected] == [board.memory_bytes for board in one.boards]


def test_each_run_of_layers_takes_longer_in_a_pipeline_than_by_itself():
    overheads = Overheads(slice_s=0.25)
    interleaved = problem(overheads=overheads, times_s=[[1.0, 2.0, 3.0]])
    assert 4.5 == predict(interleaved, [0, 1, 0]).devices[0].compute_s
    assert 4.5 == pytest.approx(evaluate(interleaved, np.array([[0, 1, 0]])).bottleneck_s[0], 1e-3)
    assert 6.25 == predict(interleaved, [0, 0, 0]).devices[0].compute_s


def test_ranks_that_sleep_lose_nothing_by_interruptions():
    assert 0.0 == default_overheads(["null", "null"]).slice_s
    assert 0.0 < default_overheads(["onnxruntime", "null"]).slice_s


def test_figures_of_many_at_once_hold_with_values_of_nothing_and_without_end():
    for seed in range(150):
        drawn = random_problem(seed)
        shape = 6, len(drawn.layers)
        population = np.random.default_rng(seed).integers(0, len(drawn.devices), shape)
        costs = evaluate(drawn, population)
        for row in np.flatnonzero(np.isfinite(costs.bottleneck_s)):
            one = predict(drawn, population[row])
            assert one.bottleneck_s == pytest.approx(costs.bottleneck_s[row], rel=1e-9, abs=0)
            assert one.latency_s == pytest.approx(costs.latency_s[row], rel=1e-9, abs=0)
            assert max(b.memory_bytes for b in one.boards) == pytest.approx(costs.memory_bytes[row])
