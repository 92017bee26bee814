"""Messages that are compressed: both ends, what does not get smaller, damage, the package."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given, strategies as st
from in_process import run_in_process
from jobs import build_folder
from numpy.typing import NDArray
from real_jobs import chain
from twin import ThreadLinks, TwinTransport

from rankslice.backend.runtime.compression import (
    CompressedMessages,
    sort_by_number,
    sort_by_place,
)
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.transport import Completion, Lane

Bytes = NDArray[np.uint8]
CHANNEL = 3
SLOT_BYTES = 4000


@given(st.binary(max_size=70), st.sampled_from([1, 2, 4, 8, 16]))
def test_bytes_come_back_from_being_sorted_by_place(values: bytes, number_bytes: int) -> None:
    before = np.frombuffer(values, np.uint8)
    by_place, after = np.empty_like(before), np.empty_like(before)
    sort_by_place(before, number_bytes, by_place)
    sort_by_number(by_place, number_bytes, after)
    assert values == after.tobytes()


def test_the_bytes_of_a_place_lie_side_by_side_and_a_rest_behind_them() -> None:
    by_place = np.empty(11, np.uint8)
    sort_by_place(np.arange(11, dtype=np.uint8), 4, by_place)
    assert [0, 4, 1, 5, 2, 6, 3, 7, 8, 9, 10] == by_place.tolist()


class Pair:
    """Two ranks, and a channel from rank 0 to rank 1 with a slot at each end."""

    def __init__(self, number_bytes: int, size: int = SLOT_BYTES) -> None:
        links = ThreadLinks(2, eager_bytes=1 << 20)
        self.twins = [links.transport(rank) for rank in (0, 1)]
        self.ends = [CompressedMessages(twin) for twin in self.twins]
        self.slots = [np.zeros(size, np.uint8) for _ in (0, 1)]
        lanes = [
            Lane(CHANNEL, peer, (slot,), number_bytes=number_bytes)
            for peer, slot in zip((1, 0), self.slots, strict=True)
        ]
        self.ends[0].open(lanes[:1], [])
        self.ends[1].open([], lanes[1:])

    def carry(self, values: bytes) -> tuple[bytes, int]:
        """Send bytes; return what arrives, and how many bytes have crossed."""
        self.slots[0][: len(values)] = np.frombuffer(values, np.uint8)
        self.ends[0].send_part(0, 0, len(values))
        (message,) = self.twins[0]._links.mail[0, 1, CHANNEL]
        (done,) = self.receive()
        assert [Completion(0, 0)] == self.ends[0].poll()[0]
        return self.slots[1][: done.nbytes].tobytes(), message.payload.nbytes

    def receive(self) -> list[Completion]:
        self.ends[1].receive(0, 0)
        return self.ends[1].poll()[1]


@given(
    values=st.binary(min_size=1, max_size=300)
    | st.sampled_from([bytes(SLOT_BYTES), b"abcdefg" * 500, b"abc\0" * 500]),
    number_bytes=st.sampled_from([1, 2, 4, 8]),
)
def test_what_arrives_is_what_was_sent(values: bytes, number_bytes: int) -> None:
    assert values == Pair(number_bytes).carry(values)[0]


def test_numbers_are_sorted_by_place_only_where_few_are_zero() -> None:
    values = 1 + np.random.default_rng(0).random(1000, np.float32)
    many = np.where(np.arange(1000) % 2, values, 0)
    for numbers, kind in ((values, 2), (many, 1)):
        pair = Pair(4)
        pair.slots[0][:] = numbers.view(np.uint8)
        pair.ends[0].send(0, 0)
        (message,) = pair.twins[0]._links.mail[0, 1, CHANNEL]
        assert kind == message.payload[0]


def test_floats_that_are_alike_take_fewer_bytes_and_the_ratio_says_so() -> None:
    values = (1 + np.random.default_rng(0).random(1000, np.float32)).tobytes()
    pair = Pair(4)
    assert pair.ends[0].ratio is None
    arrived, crossed = pair.carry(values)
    assert values == arrived
    assert crossed < 0.9 * len(values)
    assert pair.ends[0].ratio == len(values) / crossed


def test_what_does_not_get_smaller_crosses_as_it_is() -> None:
    values = np.random.default_rng(0).bytes(SLOT_BYTES)
    assert (values, SLOT_BYTES + 1) == Pair(1).carry(values)


def test_a_whole_slot_is_sent_without_what_only_failed_frames_need() -> None:
    pair = Pair(1)
    slot = Lane(CHANNEL, 1, (pair.slots[0],), spare=500, number_bytes=1)
    pair.ends[0].open([slot], [])
    pair.ends[0].send(0, 0)
    assert [Completion(0, 0, False, SLOT_BYTES - 500)] == pair.receive()


def test_the_end_of_the_stream_is_no_frame() -> None:
    pair = Pair(4)
    pair.ends[0].send_end(0)
    assert [Completion(0, 0, True)] == pair.receive()


def test_other_lanes_pass_as_they_are() -> None:
    pair = Pair(0)
    pair.slots[0][:] = 7
    pair.ends[0].send(0, 0)
    assert [Completion(0, 0, False, SLOT_BYTES)] == pair.receive()
    assert (pair.slots[1] == 7).all()
    assert pair.ends[0].ratio is None


def packed(values: bytes, *, sized: bool = True) -> bytes:
    """Return the message of values."""
    return b"\1" + zstandard.ZstdCompressor(1, write_content_size=sized).compress(values)


def with_size(message: bytes, size: int) -> bytes:
    """Return a message whose frame says that it has so many bytes, 256 or more.

    Its size stands behind the kind, the magic number and the descriptor, less 256.
    """
    return message[:6] + (size - 256).to_bytes(2, "little") + message[8:]


DAMAGE: dict[str, tuple[bytes, str]] = {
    "of no known kind": (b"\3abc", "a damaged message"),
    "kind alone": (b"\1", "a damaged message"),
    "sorted, no frame": (b"\2" + bytes(range(200)), "a damaged message"),
    "sorted, cut off": (b"\2" + packed(b"abcd" * 99)[1:-3], "a damaged message"),
    "no frame": (b"\1" + bytes(range(200)), "a damaged message"),
    "cut off": (packed(np.random.default_rng(0).bytes(1000))[:-100], "a damaged message"),
    "head alone": (packed(b"a" * 1000)[:10], "a damaged message"),
    "size unknown": (packed(b"a" * 1000, sized=False), "a damaged message"),
    "no values": (packed(b""), "a damaged message"),
    "size too large": (with_size(packed(b"abc" * 300), 901), "a damaged message"),
    "size too small": (with_size(packed(b"abc" * 300), 899), "a damaged message"),
    "longer than the slot": (packed(bytes(SLOT_BYTES + 1)), f"{SLOT_BYTES + 1} bytes"),
    "much longer": (packed(bytes(1 << 24)), f"{1 << 24} bytes"),
    "longer as it is": (b"\0" + bytes(SLOT_BYTES + 1), f"{SLOT_BYTES + 2} bytes"),
}


@pytest.mark.parametrize("number_bytes", [1, 4])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_message_is_refused_with_its_rank_and_channel(
    damage: str, number_bytes: int
) -> None:
    message, expected = DAMAGE[damage]
    pair = Pair(number_bytes)
    sender = pair.twins[0]
    raw = np.frombuffer(message, np.uint8)
    sender.open([Lane(CHANNEL, 1, (raw,))], [])
    sender.send(0, 0)
    with pytest.raises(JobError, match=f"rank 0 sent {expected} through channel {CHANNEL}"):
        pair.receive()


def test_damage_ends_the_job_with_its_rank_and_channel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = build_folder(tmp_path, chain(2, 256), {"L0": 0, "L1": 1})
    honest: Callable[..., None] = TwinTransport.send_part

    def damaging(twin: TwinTransport, lane: int, slot: int, nbytes: int) -> None:
        if twin.rank == 0:
            twin._sends[lane].slots[slot][0] = 9
        honest(twin, lane, slot, nbytes)

    monkeypatch.setattr(TwinTransport, "send_part", damaging)
    options = RunOptions(results=folder / "results.bin", frames=5)
    with pytest.raises(
        JobError, match=r"^rank 1 \(.*rank 0 sent a damaged message through channel 1"
    ):
        run_in_process(folder, options, direct=(), compress=True)


def test_a_missing_package_is_told_before_the_start_with_the_rank_and_the_way_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = build_folder(tmp_path, chain(2), {"L0": 0, "L1": 1})
    monkeypatch.setitem(sys.modules, "zstandard", None)
    options = RunOptions(results=folder / "results.bin", frames=5)
    with pytest.raises(
        JobError, match=r"^rank 0 \(local_cpu.*zstandard cannot be loaded.*python3-zstandard"
    ):
        run_in_process(folder, options, direct=(), compress=True)
    run_in_process(folder, options, direct=(), compress=False)
