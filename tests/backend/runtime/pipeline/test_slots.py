"""Rings of slots."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankslice.backend.runtime.job import TensorSpec
from rankslice.backend.runtime.pipeline.slots import Ring, View, ring_bytes

FOUR_FLOATS = TensorSpec("t", "float32", (1, 4))

specs = st.builds(
    TensorSpec,
    st.just("t"),
    st.sampled_from(["float32", "int8", "bool", "float16", "bfloat16", "int4", "float8e5m2"]),
    st.lists(st.integers(0, 5), max_size=4).map(tuple),
)


@given(specs, st.integers(1, 5))
def test_every_slot_begins_at_a_multiple_of_64_bytes(spec: TensorSpec, depth: int) -> None:
    ring = Ring(spec, depth, 1)
    assert depth == len(ring.slots) == len(ring.raw)
    assert all(raw.ctypes.data % 64 == 0 for raw in ring.raw)


@given(specs, st.integers(1, 5))
def test_slots_do_not_overlap(spec: TensorSpec, depth: int) -> None:
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
    assert nbytes == Ring(TensorSpec("t", dtype, (3,)), 1, 1).raw[0].nbytes


def test_an_empty_tensor_takes_a_byte_so_that_its_message_is_none_that_ends_the_stream() -> None:
    assert 1 == Ring(TensorSpec("t", "float32", (0, 3)), 1, 1).raw[0].nbytes


def test_the_memory_is_there_before_the_first_frame() -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    ring = Ring(TensorSpec("t", "uint8", (16 << 20,)), 2, 1)
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
    told: list[int] = []
    ring.on_freed = (lambda: told.append(min(ring.read)),)
    return told


def test_a_writer_is_woken_only_by_room_that_it_lacked() -> None:
    ring = Ring(FOUR_FLOATS, 2, 1)
    told = wakes(ring)
    ring.written = 2
    ring.free(0)
    ring.free(0)
    assert [1] == told


def test_a_reader_that_gives_back_several_slots_at_once_wakes_the_writer_of_a_full_ring() -> None:
    ring = Ring(FOUR_FLOATS, 3, 1)
    told = wakes(ring)
    ring.written = 3
    ring.free_up_to(0, 2)
    assert [2] == told


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
    told = wakes(shown)
    shown.arrive(2)
    for reader in (0, 0, 1, 1):
        shown.free(reader)
    assert [1, 2] == told


def test_two_threads_that_read_a_view_tell_of_each_slot_once() -> None:
    shown = view(2)
    told = wakes(shown)
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
    assert (5000, 5000) == (len(told), max(told))
