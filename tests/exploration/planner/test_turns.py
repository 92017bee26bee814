"""Devices of one kind that take turns on a slice: what counts once, and what for each of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from chains import planned

from rankslice.exploration import ArgumentError, Device, NoPlanError, Pipeline


def devices(*kinds: int, **what: Any) -> list[Device]:
    """Return devices of these kinds, each on a board of its own."""
    return [Device(f"edge{index}", kind, **what) for index, kind in enumerate(kinds)]


def cores(boards: int, each: int, **what: Any) -> list[Device]:
    """Return equal devices, several on each board."""
    return [
        Device(f"edge{board}_cpu{core}", 0, f"edge{board}", **what)
        for board in range(boards)
        for core in range(each)
    ]


def plan(
    times_s: Any = ((1.0, 6.0, 1.0),),
    output_bytes: Any = (0, 0, 0),
    memory_bytes: Any = (1, 1, 1),
    where: list[Device] | None = None,
    most_turns: int = 8,
    **what: Any,
) -> Pipeline:
    """Plan three layers on four equal devices, except for what is given."""
    return planned(
        times_s=times_s,
        output_bytes=output_bytes,
        memory_bytes=memory_bytes,
        devices=where or devices(0, 0, 0, 0),
        most_turns=most_turns,
        **what,
    )


def apart(**what: Any) -> Pipeline:
    """Plan a layer that kind 0 alone can run, and one for kind 1; what goes between is 12 bytes."""
    times = [[1.0, np.inf], [np.inf, 1.0]]
    return plan(times_s=times, output_bytes=[12, 0], memory_bytes=[1, 1], **what)


def turns(pipeline: Pipeline) -> list[tuple[int, int, int]]:
    return [(piece.turns, piece.first, piece.last) for piece in pipeline.slices]


def limit(**what: Any) -> tuple[str, str]:
    with pytest.raises(NoPlanError) as caught:
        plan(**what)
    return caught.value.limit, str(caught.value)


# Computing


def test_without_being_asked_no_devices_take_turns() -> None:
    assert [(1, 0, 0), (1, 1, 1), (1, 2, 2)] == turns(plan(most_turns=1))


def test_devices_in_turn_divide_the_time_of_a_slice_and_not_its_latency() -> None:
    pipeline = plan()
    assert [(4, 0, 2)] == turns(pipeline)
    assert (2.0, 8.0, 8.0) == (
        pipeline.bottleneck_s,
        pipeline.latency_s,
        pipeline.slices[0].compute_s,
    )
    assert (2.0, True) == (pipeline.bound_s, pipeline.proven)


def test_the_devices_of_a_slice_are_named_in_their_order() -> None:
    piece = plan().slices[0]
    assert "edge0|edge1|edge2|edge3" == "|".join(piece.devices)
    assert ((0, 1, 2, 3), "edge0", 0) == (piece.indices, piece.device, piece.index)


def test_no_more_devices_take_turns_than_may() -> None:
    pipeline = plan(most_turns=3)
    assert ([(3, 0, 1), (1, 2, 2)], 7 / 3) == (turns(pipeline), pipeline.bottleneck_s)


def test_devices_of_different_kinds_do_not_take_turns() -> None:
    pipeline = plan(times_s=[[8.0], [8.0]], output_bytes=[0], memory_bytes=[1], where=devices(0, 1))
    assert (8.0, [(1, 0, 0)]) == (pipeline.bottleneck_s, turns(pipeline))


def test_the_least_latency_at_a_rate_takes_as_few_turns_as_reach_it() -> None:
    pipeline = plan(
        output_bytes=[12] * 3,
        bandwidth_bytes_s=12.0,
        objective="latency",
        throughput_floor_fps=0.25,
    )
    assert (8.0, [(2, 0, 2)]) == (pipeline.latency_s, turns(pipeline))


def test_energy_counts_each_frame_once_and_each_board_in_use() -> None:
    where = devices(0, 0, 0, 0, busy_w=2.0, idle_w=1.0)
    pipeline = plan(where=where, objective="energy", throughput_floor_fps=1 / 4)
    assert 2 == len({index for piece in pipeline.slices for index in piece.indices})
    assert 8 * 2.0 + 2 * 4.0 == pipeline.energy_j


# Messages


def test_one_device_sends_all_frames_to_those_in_turn() -> None:
    pipeline = apart(where=devices(0, 1, 1), bandwidth_bytes_s=4.0)
    assert (3.0, 3.0, 3.0) == (
        pipeline.bottleneck_s,
        pipeline.slices[0].send_s,
        pipeline.slices[0].load_s,
    )


def test_devices_in_turn_on_both_sides_share_the_messages() -> None:
    pipeline = apart(where=devices(0, 0, 1, 1), bandwidth_bytes_s=4.0)
    assert [(2, 0, 0), (2, 1, 1)] == turns(pipeline)
    assert (1.5, 3.0, 1.5) == (
        pipeline.bottleneck_s,
        pipeline.slices[0].send_s,
        pipeline.slices[0].load_s,
    )


def test_the_cable_of_a_board_carries_what_all_its_devices_send() -> None:
    where = [Device(f"cpu{n}", 0, "edge0", bandwidth_bytes_s=4.0) for n in range(2)]
    where += [Device(f"gpu{n}", 1, f"edge{n + 1}", bandwidth_bytes_s=4.0) for n in range(2)]
    assert 3.0 == apart(where=where).bottleneck_s


def test_messages_stay_on_a_board_whose_devices_have_the_same_turn() -> None:
    where = [
        Device(f"edge{board}_{unit}", kind, f"edge{board}", bandwidth_bytes_s=1.0)
        for board in range(2)
        for kind, unit in enumerate(("cpu", "gpu"))
    ]
    pipeline = apart(where=where)
    assert ("edge0_cpu", "edge1_cpu") == pipeline.slices[0].devices
    assert ("edge0_gpu", "edge1_gpu") == pipeline.slices[1].devices
    assert (0.5, 0.0) == (pipeline.bottleneck_s, pipeline.slices[0].load_s)


def test_links_that_differ_add_up_to_what_each_device_sends() -> None:
    rates = np.full((3, 3), 12.0)
    rates[0, 2] = 3.0  # 1 s to the one, 4 s to the other
    pipeline = apart(where=devices(0, 1, 1), bandwidth_bytes_s=rates)
    assert [(1, 0, 0), (1, 1, 1)] == turns(pipeline)
    assert 1.0 == pipeline.bottleneck_s
    times = [[1.0, np.inf], [np.inf, 5.0]]
    both = plan(
        times_s=times,
        output_bytes=[12, 0],
        memory_bytes=[1, 1],
        where=devices(0, 1, 1),
        bandwidth_bytes_s=rates,
    )
    assert [(1, 0, 0), (2, 1, 1)] == turns(both)
    assert (2.5, 4.0) == (both.bottleneck_s, both.slices[0].send_s)


# Memory


def test_each_device_in_turn_needs_the_memory_of_the_slice() -> None:
    pipeline = plan(memory_bytes=[4, 4, 4], where=devices(0, 0, 0, 0, memory_bytes=8.0))
    assert ([(3, 0, 1), (1, 2, 2)], 7 / 3) == (turns(pipeline), pipeline.bottleneck_s)


def test_devices_in_turn_on_one_board_share_its_memory() -> None:
    what: dict[str, Any] = {"times_s": [[6.0]], "output_bytes": [0], "memory_bytes": [3]}
    pipeline = plan(**what, where=cores(1, 4, memory_bytes=10.0))
    assert ([(3, 0, 0)], 2.0, 3.0) == (
        turns(pipeline),
        pipeline.bottleneck_s,
        pipeline.slices[0].memory_bytes,
    )
    assert [(4, 0, 0)] == turns(plan(**what, where=devices(0, 0, 0, 0, memory_bytes=10.0)))


# What is refused


def test_memory_that_is_too_little_is_told_with_turns_too() -> None:
    which, text = limit(memory_bytes=[1, 9, 1], where=devices(0, 0, memory_bytes=8.0))
    assert "memory" == which
    assert text.startswith("layer 1: takes 9 B of memory")


def test_a_floor_that_turns_cannot_reach_comes_with_the_rate_that_they_reach() -> None:
    assert 0.5 == plan(throughput_floor_fps=0.5).throughput_fps
    for objective in ("throughput", "latency"):
        which, text = limit(objective=objective, throughput_floor_fps=2.0)
        assert "throughput" == which
        assert "the fastest pipeline reaches 0.5" in text


def test_a_slice_has_one_device_at_least() -> None:
    with pytest.raises(ArgumentError, match="most_turns: is 0; expected 1 or more"):
        plan(most_turns=0)
