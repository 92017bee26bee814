"""Rings of slots."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import psutil
import pytest
from hypothesis import given, strategies as st

from rankslice.backend.runtime.job import ALL, EACH, Steps, Tensor, Turns
from rankslice.backend.runtime.pipeline.slots import LentRing, Ring, SharedView, View, ring_bytes

FOUR_FLOATS = Tensor("t", "float32", (1, 4))

specs = st.builds(
    Tensor,
    st.just("t"),
    st.sampled_from(["float32", "int8", "bool", "float16", "bfloat16", "int4", "float8e5m2"]),
    st.lists(st.integers(0, 5), max_size=4).map(tuple),
)


@given(specs, st.integers(1, 5))
def test_every_slot_begins_at_a_multiple_of_64_bytes(spec: Tensor, depth: int) -> None:
    ring = Ring(spec, depth, 1)
    assert depth == len(ring.slots) == len(ring.raw)
    assert all(raw.ctypes.data % 64 == 0 for raw in ring.raw)


@given(specs, st.integers(1, 5))
def test_slots_do_not_overlap(spec: Tensor, depth: int) -> None:
    ring = Ring(spec, depth, 1)
    for number, raw in enumerate(ring.raw):
        raw[...] = number + 1
    assert all((raw == number + 1).all() for number, raw in enumerate(ring.raw))


def test_a_slot_has_the_type_and_shape_of_its_tensor_and_shares_memory_with_its_bytes() -> None:
    ring = Ring(FOUR_FLOATS, 2, 1)
    ring.slots[1][...] = 1.5
    assert np.full(4, 1.5, np.float32).tobytes() == ring.raw[1].tobytes()
    assert ((1, 4), np.float32) == (ring.slots[1].shape, ring.slots[1].dtype)


@pytest.mark.parametrize(
    ("dtype", "nbytes"), [("bfloat16", 6), ("int4", 2), ("float8e4m3fn", 3), ("float64", 24)]
)
def test_a_slot_of_three_values_is_as_long_as_their_type_says(dtype: str, nbytes: int) -> None:
    assert nbytes == Ring(Tensor("t", dtype, (3,)), 1, 1).raw[0].nbytes


def test_an_empty_tensor_takes_a_byte_so_that_its_message_is_none_that_ends_the_stream() -> None:
    assert 1 == Ring(Tensor("t", "float32", (0, 3)), 1, 1).raw[0].nbytes


def test_the_memory_is_there_before_the_first_frame() -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    ring = Ring(Tensor("t", "uint8", (16 << 20,)), 2, 1)
    grown = process.memory_info().rss - before
    assert grown > 0.9 * sum(slot.nbytes for slot in ring.slots)


def test_there_is_room_until_the_slowest_reader_is_a_whole_ring_behind() -> None:
    ring = Ring(FOUR_FLOATS, 2, 2)
    ring.written = 2
    ring.read = [2, 0]
    assert not ring.has_room()
    ring.read = [2, 1]
    assert ring.has_room()


def test_a_ring_without_readers_always_has_room() -> None:
    ring = Ring(FOUR_FLOATS, 1, 0)
    ring.written = 7
    assert ring.has_room()


def test_a_reader_has_a_frame_as_long_as_fewer_were_read_than_written() -> None:
    ring = Ring(FOUR_FLOATS, 2, 2)
    ring.written = 1
    ring.read = [0, 1]
    assert [True, False] == [ring.has_frame(0), ring.has_frame(1)]


def test_the_stream_has_ended_for_a_reader_that_has_read_all_its_frames() -> None:
    ring = Ring(FOUR_FLOATS, 4, 2)
    ring.written = 3
    ring.read = [3, 2]
    assert not ring.has_ended(0)
    ring.end = 3
    assert [True, False] == [ring.has_ended(0), ring.has_ended(1)]


def wakes(ring: Ring) -> list[int]:
    """Return a list that gets the count of its first reader whenever the ring tells of room."""
    calls: list[int] = []
    ring.on_freed = (lambda: calls.append(min(ring.read)),)
    return calls


def test_a_writer_is_woken_only_by_room_that_it_lacked() -> None:
    ring = Ring(FOUR_FLOATS, 2, 1)
    calls = wakes(ring)
    ring.written = 2
    ring.free(0)
    ring.free(0)
    assert [1] == calls


def test_a_reader_that_gives_back_several_slots_at_once_wakes_the_writer_of_a_full_ring() -> None:
    ring = Ring(FOUR_FLOATS, 3, 1)
    calls = wakes(ring)
    ring.written = 3
    ring.free_up_to(0, 2)
    assert [2] == calls


def test_a_count_that_comes_late_takes_nothing_back() -> None:
    ring = Ring(FOUR_FLOATS, 3, 1)
    ring.written = 3
    ring.free_up_to(0, 2)
    ring.free_up_to(0, 1)
    assert [2] == ring.read


def view(readers: int) -> View:
    return View(FOUR_FLOATS, 2, readers, np.zeros(ring_bytes(FOUR_FLOATS, 2), np.uint8))


def test_a_view_shows_the_slots_of_the_ring_in_whose_memory_it_lies() -> None:
    memory = np.zeros(ring_bytes(FOUR_FLOATS, 2), np.uint8)
    ring, shown = Ring(FOUR_FLOATS, 2, 1, memory), View(FOUR_FLOATS, 2, 1, memory)
    ring.slots[1][...] = 1.5
    assert [0.0, 1.5] == [slot[0, 0] for slot in shown.slots]


def test_a_view_has_the_frames_that_it_was_told_of_in_any_order() -> None:
    shown = view(1)
    shown.arrive(2)
    shown.arrive(1)
    assert 2 == shown.written
    shown.arrive_end(2)
    assert not shown.has_ended(0)
    shown.free(0)
    shown.free(0)
    assert shown.has_ended(0)


def test_a_view_tells_of_each_slot_once_when_its_last_reader_is_done() -> None:
    shown = view(2)
    calls = wakes(shown)
    shown.arrive(2)
    for reader in (0, 0, 1, 1):
        shown.free(reader)
    assert [1, 2] == calls


def test_two_threads_that_read_a_view_tell_of_each_slot_once() -> None:
    memory = np.zeros(ring_bytes(FOUR_FLOATS, 2), np.uint8)
    shown = SharedView(FOUR_FLOATS, 2, 2, memory)
    calls = wakes(shown)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def read_all(reader: int) -> None:
        for _ in range(5000):
            shown.free(reader)

    try:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(read_all, range(2)))
    finally:
        sys.setswitchinterval(interval)
    assert (5000, 5000) == (len(calls), max(calls))


def test_lent_frames_come_again_until_there_are_as_many_slots_as_wanted() -> None:
    frames = [np.full((1, 4), number, np.float32) for number in range(2)]
    ring = LentRing(FOUR_FLOATS, 3, (EACH,), frames)
    assert 4 == ring.depth
    for number in range(6):
        assert ring.has_room()
        assert frames[number % 2] is ring.slots[ring.written % ring.depth]
        ring.put()
        ring.free(0)


EVEN, ODD = Steps(0, (2, 0)), Steps(1, (0, 2))
LATE = Steps(5, (0, 0, 0, 0, 0, 6))
"""Takes frame 5 of each six."""


def test_a_ring_has_the_frames_of_its_writer_and_counts_them_from_0() -> None:
    ring = Ring(FOUR_FLOATS, 2, (EVEN, ODD, LATE, EACH), turns=Turns(4, (1, 2)))
    assert [0, 1, 5, 0] == ring.read
    assert [1, 2, 5, 6] == [ring.turns.frame(index) for index in range(4)]


def test_slots_that_a_reader_leaves_out_are_free_for_the_writer_at_once() -> None:
    ring = Ring(FOUR_FLOATS, 2, (ODD,))
    ring.written = 2
    assert ring.has_room()
    ring.written = 3
    assert not ring.has_room()
    ring.free(0)
    assert [3] == ring.read
    assert ring.has_room()


def test_a_reader_that_takes_its_first_frame_late_holds_nobody_up_before() -> None:
    ring = Ring(FOUR_FLOATS, 2, (LATE,))
    for written in range(5 + 2):
        assert written == ring.written
        assert ring.has_room()
        ring.put()
    assert not ring.has_room()


def test_a_reader_has_no_frame_while_those_are_there_that_it_leaves_out() -> None:
    ring = Ring(FOUR_FLOATS, 4, (ODD, LATE))
    seen = []
    for _ in range(4):
        seen.append((ring.has_frame(0), ring.has_frame(1)))
        ring.put()
    assert [(False, False), (False, False), (True, False), (True, False)] == seen


@pytest.mark.parametrize("steps", [EVEN, Steps(0, (3, 0, 0)), Steps(0, (5, 0, 0, 0, 0))])
def test_a_reader_that_jumps_over_the_slot_for_which_the_writer_waits_wakes_it(
    steps: Steps,
) -> None:
    ring = Ring(FOUR_FLOATS, 2, (steps,))
    calls = wakes(ring)
    ring.written = 2
    ring.free(0)
    assert [steps.after(0)] == calls


def test_a_count_that_jumps_over_the_slot_for_which_the_writer_waits_wakes_it() -> None:
    ring = Ring(FOUR_FLOATS, 2, (EACH,))
    calls = wakes(ring)
    ring.written = 2
    ring.free_up_to(0, 5)
    assert [5] == calls


@st.composite
def steps_of_readers(draw: st.DrawFn) -> Steps:
    period = draw(st.integers(1, 5))
    positions = draw(st.sets(st.integers(0, period - 1), min_size=1))
    return Turns(period, tuple(sorted(positions))).steps_in(ALL)


@given(
    st.lists(steps_of_readers(), min_size=1, max_size=3),
    st.integers(1, 4),
    st.lists(st.integers(0, 3), max_size=60),
)
def test_a_writer_overwrites_nothing_that_is_still_read_and_is_woken_when_it_may_go_on(
    steps: list[Steps], depth: int, choices: list[int]
) -> None:
    ring = Ring(FOUR_FLOATS, depth, steps)
    calls = wakes(ring)
    content = [-1] * depth
    for choice in choices:
        had_room, before = ring.has_room(), len(calls)
        if choice == 3 and had_room:
            content[ring.written % depth] = ring.written
            ring.put()
        elif choice < len(steps) and ring.has_frame(choice):
            assert ring.read[choice] == content[ring.read[choice] % depth]
            ring.free(choice)
            assert had_room or not ring.has_room() or len(calls) > before


@given(st.lists(steps_of_readers(), min_size=1, max_size=3), st.integers(0, 12))
def test_each_reader_is_told_of_the_frames_that_it_takes_and_of_the_end(
    steps: list[Steps], frames: int
) -> None:
    ring = Ring(FOUR_FLOATS, 99, steps)
    calls: list[list[int | str]] = [[] for _ in steps]

    def hear(reader: int) -> None:
        calls[reader].append(ring.written - 1 if ring.end is None else "end")

    for reader in range(len(steps)):
        ring.subscribe(reader, partial(hear, reader))
    for _ in range(frames):
        ring.put()
    ring.finish()
    assert calls == [[*filter(each.takes, range(frames)), "end"] for each in steps]


@given(steps_of_readers(), st.integers(0, 12))
def test_the_stream_has_ended_for_a_reader_that_has_read_those_it_takes(
    steps: Steps, frames: int
) -> None:
    ring = Ring(FOUR_FLOATS, 99, (steps,))
    for _ in range(frames):
        ring.put()
    ring.finish()
    taken = []
    while not ring.has_ended(0):
        assert ring.has_frame(0)
        taken.append(ring.read[0])
        ring.free(0)
    assert taken == [*filter(steps.takes, range(frames))]
    assert not ring.has_frame(0)


def test_a_view_whose_readers_take_other_frames_tells_of_each_slot_once() -> None:
    memory = np.zeros(ring_bytes(FOUR_FLOATS, 4), np.uint8)
    shown = View(FOUR_FLOATS, 4, (EACH, ODD), memory)
    calls = wakes(shown)
    shown.arrive(4)
    for reader in (0, 0, 0, 1, 1, 0):
        shown.free(reader)
    # Frame 0 has one reader; frame 1 has two, and the second one frees frame 2 as well.
    assert [1, 3, 4] == calls


def test_the_end_of_a_view_comes_though_its_readers_take_none_of_the_last_frames() -> None:
    memory = np.zeros(ring_bytes(FOUR_FLOATS, 2), np.uint8)
    shown = View(FOUR_FLOATS, 2, (EVEN,), memory)
    shown.arrive(1)
    shown.free(0)
    assert not shown.has_ended(0)
    shown.arrive_end(2)
    assert (1, 2) == (shown.written, shown.end)
    assert shown.has_ended(0)
