"""What the exact planner takes into account, what it returns, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from chains import planned

from rankslice.exploration import (
    ArgumentError,
    Device,
    LayerChain,
    NoPlanError,
    Pipeline,
    optimal_pipeline,
)
from rankslice.exploration.planner.optimal import Objective


def devices(*kinds: int, **what: Any) -> list[Device]:
    """Return devices of these kinds, each on a board of its own."""
    return [Device(f"device {index}", kind, **what) for index, kind in enumerate(kinds)]


def plan(
    times_s: Any = ((1.0, 1.0, 1.0, 1.0),),
    output_bytes: Any = (0, 0, 0, 0),
    memory_bytes: Any = (1, 1, 1, 1),
    where: list[Device] | None = None,
    **what: Any,
) -> Pipeline:
    """Plan four equal layers on two equal devices, except for what is given."""
    return planned(
        times_s=times_s,
        output_bytes=output_bytes,
        memory_bytes=memory_bytes,
        devices=where or devices(0, 0),
        **what,
    )


def spans(pipeline: Pipeline) -> list[tuple[str, int, int]]:
    return [(piece.device, piece.first, piece.last) for piece in pipeline.slices]


def mistakes(**what: Any) -> str:
    with pytest.raises(ArgumentError) as caught:
        plan(**what)
    assert isinstance(caught.value, ValueError)
    return str(caught.value)


def limit(**what: Any) -> tuple[str, str]:
    with pytest.raises(NoPlanError) as caught:
        plan(**what)
    return caught.value.limit, str(caught.value)


# What is taken into account


def test_equal_layers_are_dealt_out_evenly() -> None:
    pipeline = plan()
    assert 2.0 == pipeline.bottleneck_s
    assert [(0, 1), (2, 3)] == [(piece.first, piece.last) for piece in pipeline.slices]


def test_a_device_that_does_not_help_is_left_unused() -> None:
    pipeline = plan(times_s=[[1.0] * 4, [9.0] * 4], where=devices(1, 0))
    assert [("device 1", 0, 3)] == spans(pipeline)


def test_a_slow_link_is_not_used() -> None:
    pipeline = plan(output_bytes=[100] * 4, bandwidth_bytes_s=10.0)
    assert 4.0 == pipeline.bottleneck_s
    assert 1 == len(pipeline.slices)


def test_the_cut_goes_where_little_is_sent() -> None:
    pipeline = plan(output_bytes=[20, 100, 100, 100], bandwidth_bytes_s=10.0)
    assert (0, 0) == (pipeline.slices[0].first, pipeline.slices[0].last)
    assert 2.0 == pipeline.slices[0].send_s
    assert 3.0 == pipeline.bottleneck_s


def test_a_cut_with_infinite_bytes_is_forbidden() -> None:
    pipeline = plan(output_bytes=[math.inf, math.inf, 0, math.inf])
    assert 3.0 == pipeline.bottleneck_s


def test_the_latency_of_a_link_counts() -> None:
    assert 4.0 == plan(latency_s=5.0).bottleneck_s


def test_devices_of_one_board_send_each_other_nothing_over_the_network() -> None:
    where = devices(0, 0, board="b", bandwidth_bytes_s=1.0)
    assert 2.0 == plan(output_bytes=[100] * 4, where=where).bottleneck_s


def test_stages_of_one_board_share_its_memory() -> None:
    shared = devices(0, 0, board="b", memory_bytes=3.0)
    assert "memory" == limit(where=shared)[0]
    assert 2.0 == plan(where=devices(0, 0, memory_bytes=3.0)).bottleneck_s


def test_buffers_take_memory() -> None:
    where = devices(0, 0, memory_bytes=4.0)
    pipeline = plan(where=where, receive_memory_bytes=[0, 9, 9, 3], send_memory_bytes=[0, 0, 1, 0])
    assert [(0, 2), (3, 3)] == [(piece.first, piece.last) for piece in pipeline.slices]
    assert [4.0, 4.0] == [piece.memory_bytes for piece in pipeline.slices]


def test_measured_spans_replace_sums() -> None:
    table = np.full((1, 4, 4), 9.0)
    table[0, 0, 2], table[0, 3, 3] = 0.5, 0.25
    pipeline = plan(spans_s=table)
    assert 0.5 == pipeline.bottleneck_s


def test_a_layer_that_cannot_run_cannot_run_in_a_span_either() -> None:
    times = [[1.0, math.inf, 1.0, 1.0], [5.0] * 4]
    pipeline = plan(times_s=times, spans_s=np.ones((2, 4, 4)), where=devices(0, 1))
    assert "device 1" in [one for one, first, last in spans(pipeline) if first <= 1 <= last]


def test_every_pair_of_boards_has_its_own_link() -> None:
    rates = np.full((3, 3), 1.0)
    rates[2, 0] = 100.0
    pipeline = plan(output_bytes=[100] * 4, where=devices(0, 0, 0), bandwidth_bytes_s=rates)
    assert ["device 2", "device 0"] == [piece.device for piece in pipeline.slices]


def test_the_least_latency_above_a_floor_takes_what_is_fast_enough() -> None:
    times = [[1.0] * 4, [2.0] * 4]
    what: dict[str, Any] = {"times_s": times, "where": devices(0, 1), "latency_s": 0.5}
    assert 4.0 == plan(**what, objective="latency").latency_s
    pipeline = plan(**what, objective="latency", throughput_floor_fps=1 / 3)
    assert (3.0, 5.5) == (pipeline.bottleneck_s, pipeline.latency_s)


def test_the_floor_can_be_what_was_found() -> None:
    times = np.random.default_rng(0).random((1, 4))
    best = plan(times_s=times)
    pipeline = plan(times_s=times, objective="latency", throughput_floor_fps=best.throughput_fps)
    assert best.bottleneck_s == pipeline.bottleneck_s


def test_the_least_energy_counts_each_board_in_use_once() -> None:
    where = [
        Device("cpu", 0, "b", busy_w=2.0, idle_w=10.0),
        Device("gpu", 0, "b", busy_w=1.0, idle_w=10.0),
        Device("other", 0, busy_w=0.5, idle_w=100.0),
    ]
    pipeline = plan(where=where, objective="energy", throughput_floor_fps=1 / 3)
    assert {"cpu", "gpu"} == {piece.device for piece in pipeline.slices}
    assert 3 * 1.0 + 1 * 2.0 + 3 * 10.0 == pipeline.energy_j == pipeline.bound_j
    assert pipeline.bound_s is None


def test_energy_is_unknown_where_a_power_is() -> None:
    assert plan().energy_j is None


def test_what_takes_no_time_has_an_endless_rate() -> None:
    assert math.inf == plan(times_s=[[0.0] * 4]).throughput_fps


@pytest.mark.parametrize("objective", ["throughput", "latency"])
def test_a_bottleneck_of_nothing_is_found_where_only_one_device_takes_no_time(
    objective: Objective,
) -> None:
    times = [[0.0, *(4.0**n for n in range(-20, 0))], [1.0, *[0.0] * 20]]
    sums = [[[sum(row[a : b + 1]) for b in range(21)] for a in range(21)] for row in times]
    chain = LayerChain(times, [0] * 21, [1] * 21, devices(0, 1), spans_s=sums)
    pipeline = optimal_pipeline(chain, objective=objective)
    assert (0.0, 0.0, True) == (pipeline.bottleneck_s, pipeline.bound_s, pipeline.proven)
    assert [("device 0", 0, 0), ("device 1", 1, 20)] == spans(pipeline)


def test_devices_that_differ_in_power_alone_are_alike_unless_energy_counts() -> None:
    where = [Device(f"device {index}", 0, busy_w=1.0 + index) for index in range(30)]
    times = np.random.default_rng(0).random((1, 100))
    case: dict[str, Any] = {"output_bytes": np.zeros(100), "memory_bytes": np.ones(100)}
    pipeline = plan(times_s=times, where=where, **case, most_steps=1)
    assert pipeline.proven
    assert pipeline.energy_j is not None
    least = plan(where=where[:8], objective="energy")
    assert ["device 0"] == [piece.device for piece in least.slices]


# Beyond what is proven at once


def test_many_boards_with_links_that_all_differ_get_a_plan_and_a_bound() -> None:
    draw = np.random.default_rng(2)
    where = [Device(f"{index}", 0) for index in range(16)]
    chain = LayerChain(
        draw.random((1, 60)),
        draw.integers(10, 90, 60),
        np.ones(60),
        where,
        bandwidth_bytes_s=draw.uniform(2, 30, (16, 16)),
    )
    pipeline = optimal_pipeline(chain, most_steps=300)
    assert not pipeline.proven
    assert pipeline.bound_s is not None
    assert 0.9 * pipeline.bottleneck_s < pipeline.bound_s < pipeline.bottleneck_s


def test_no_answer_is_told_apart_from_no_pipeline() -> None:
    draw = np.random.default_rng(2)
    size = draw.integers(1, 10, 30)  # 147 in all, for boards with 155
    where = [Device(f"{index}", 0, f"board {index // 2}", 31.0) for index in range(10)]
    chain = LayerChain(draw.random((1, 30)), np.ones(30), size, where)
    with pytest.raises(NoPlanError) as caught:
        optimal_pipeline(chain, most_steps=1)
    assert "steps" == caught.value.limit


def drawn(layers: int, number: int, kinds: int) -> dict[str, Any]:
    """Return random layers, and devices of some kinds, each somewhat slower than the last."""
    draw = np.random.default_rng(0)
    return {
        "times_s": draw.random((kinds, layers)) * np.linspace(1, 3, kinds)[:, None],
        "output_bytes": draw.random(layers) / 10,
        "memory_bytes": np.ones(layers),
        "devices": devices(*(index % kinds for index in range(number))),
        "bandwidth_bytes_s": 1.0,
    }


def test_many_devices_of_several_kinds_get_a_proven_plan() -> None:
    # 531,441 combinations of numbers of devices.
    assert planned(**drawn(500, 48, 6)).proven


def test_more_combinations_of_devices_than_fit_into_memory_get_a_plan_close_to_its_bound() -> None:
    pipeline = planned(**drawn(60, 32, 16))
    assert pipeline.bound_s is not None
    assert pipeline.bound_s <= pipeline.bottleneck_s <= 1.055 * pipeline.bound_s


def test_sixteen_devices_that_share_little_memory_get_a_plan_close_to_its_bound() -> None:
    draw = np.random.default_rng(2)
    times = draw.random((13, 50)) * draw.uniform(1, 4, (13, 1))
    where = [
        Device(f"{index}", int(draw.integers(13)), f"b{index // 2}", 8.125, bandwidth_bytes_s=1.0)
        for index in range(16)
    ]
    chain = LayerChain(times, draw.random(50), np.ones(50), where)
    pipeline = optimal_pipeline(chain, most_steps=20_000)
    assert pipeline.bound_s is not None
    assert pipeline.bottleneck_s <= 1.04 * pipeline.bound_s


# What is refused


def test_a_layer_that_nobody_can_run_is_named() -> None:
    which, text = limit(times_s=[[1.0, 1.0, math.inf, 1.0]])
    assert "layers" == which
    assert text.startswith("layer 2: no device can run it")


def test_a_layer_that_fits_nowhere_is_named() -> None:
    which, text = limit(memory_bytes=[1, 1, 50, 1], where=devices(0, 0, memory_bytes=8.0))
    assert "memory" == which
    assert text.startswith("layer 2: takes 50 B of memory")
    assert "2 x 8 B" in text


def test_layers_that_do_not_fit_together_are_told_with_both_sums() -> None:
    which, text = limit(memory_bytes=[6] * 4, where=devices(0, 0, memory_bytes=8.0))
    assert "memory" == which
    assert "the layers take 24 B" in text


def test_layers_that_fit_nowhere_and_cannot_be_cut_apart_are_named() -> None:
    spans_s = np.full((1, 3, 3), math.inf)
    spans_s[0, 0, 2] = 1.0
    one = devices(0, memory_bytes=4.0)
    which, text = limit(
        times_s=[[1.0] * 3],
        output_bytes=[0] * 3,
        memory_bytes=[2, 3, 4],
        spans_s=spans_s,
        where=one,
    )
    assert "memory" == which
    assert text.startswith("layer 0: takes 9 B of memory")
    assert 3 == len(text.splitlines())


def test_cuts_with_infinite_bytes_are_told_apart_from_links_without_bandwidth() -> None:
    times = [[1.0, 1.0, math.inf, math.inf], [math.inf, math.inf, 1.0, 1.0]]
    what: dict[str, Any] = {"times_s": times, "where": devices(0, 1)}
    which, text = limit(**what, output_bytes=[1, math.inf, 1, 1])
    assert "cuts" == which
    assert "the bytes are infinite behind the layers 1" in text
    assert "links" == limit(**what, output_bytes=[1, 1, math.inf, 1], bandwidth_bytes_s=0.0)[0]


def test_slices_that_make_no_whole_are_told() -> None:
    spans_s = np.full((1, 4, 4), math.inf)
    spans_s[0, 0, 2] = spans_s[0, 1, 3] = 1.0
    which, text = limit(spans_s=spans_s)
    assert "layers" == which
    assert "begins and ends where there can be cuts" in text
    spans_s[0, 1, 3] = math.inf
    assert "layer 3: no device can run it" in limit(spans_s=spans_s)[1]


def test_links_without_bandwidth_are_told() -> None:
    times = [[1.0, 1.0, math.inf, math.inf], [math.inf, math.inf, 1.0, 1.0]]
    where = devices(0, 1)
    assert (
        "links" == limit(times_s=times, where=where, output_bytes=[1] * 4, bandwidth_bytes_s=0.0)[0]
    )


def test_too_few_devices_for_what_alternates_are_told() -> None:
    times = [[1.0, math.inf, 1.0, math.inf], [math.inf, 1.0, math.inf, 1.0]]
    which, text = limit(times_s=times, where=devices(0, 1))
    assert "devices" == which
    assert "3 times" in text


def test_a_floor_that_cannot_be_reached_comes_with_the_best_rate() -> None:
    for objective in ("throughput", "latency"):
        which, text = limit(objective=objective, throughput_floor_fps=2.0)
        assert "throughput" == which
        assert "the fastest pipeline reaches 0.5" in text


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ({"times_s": [1.0, 2.0]}, "times_s: has the shape (2,); expected (kinds, layers)"),
        ({"times_s": np.zeros((0, 4))}, "times_s: has the shape (0, 4)"),
        ({"times_s": [[1.0, math.nan, 1.0, 1.0]]}, "times_s[0, 1]: is nan; expected no negative"),
        ({"times_s": [[1.0, -1.0, 1.0, 1.0]]}, "times_s[0, 1]: is -1.0; expected no negative"),
        ({"times_s": "fast"}, "times_s: is not an array of numbers"),
        (
            {"output_bytes": [1, 2]},
            "output_bytes: has the shape (2,); expected (layers)",
        ),
        ({"memory_bytes": [1, 2]}, "memory_bytes: has the shape (2,)"),
        ({"memory_bytes": [1, 2, 3, math.inf]}, "memory_bytes[3]: is inf"),
        ({"spans_s": np.ones((4, 4))}, "spans_s: has the shape (4, 4)"),
        ({"spans_s": -np.ones((1, 4, 4))}, "spans_s[0, 0, 0]: is -1.0; expected no negative"),
        ({"bandwidth_bytes_s": np.ones((3, 3))}, "bandwidth_bytes_s: has the shape (3, 3)"),
        ({"latency_s": -1.0}, "latency_s: is -1.0"),
        ({"where": devices(0, 3)}, "devices[1].kind: there is no row 3 in times_s"),
        ({"where": [Device("a", 0), Device("a", 0)]}, "devices[1].name: 'a' appears again"),
        ({"where": [Device("a", 0, memory_bytes=math.nan)]}, "devices[0].memory_bytes: is nan"),
        (
            {"where": [Device("a", 0, "b", 1.0), Device("c", 0, "b", 2.0)]},
            "devices[1]: memory, bandwidth or idle power of b differ",
        ),
        ({"objective": "speed"}, "objective: is 'speed'; expected throughput, latency or energy"),
        ({"objective": "energy"}, "devices[0].busy_w: is not given"),
        ({"throughput_floor_fps": -1.0}, "throughput_floor_fps: is -1.0"),
        (
            {"objective": "energy", "where": devices(0, busy_w=1.0, idle_w=1.0)},
            "throughput_floor_fps: is not given",
        ),
    ],
)
def test_arguments_that_make_no_sense_are_told(what: dict[str, Any], told: str) -> None:
    assert told in mistakes(**what)


def test_there_has_to_be_a_device() -> None:
    with pytest.raises(ArgumentError, match="devices: none are given"):
        optimal_pipeline(LayerChain([[1.0]], [1], [1], []))


def test_all_mistakes_of_devices_are_told_at_once() -> None:
    text = mistakes(where=[Device("a", 7, idle_w=-1.0), Device("a", 0)])
    assert 3 == len(text.splitlines())
