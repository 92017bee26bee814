"""Slots of tensors whose size changes: what a header may say, and what it must not."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.sizes import (
    HEADER_BYTES,
    MAX_DIMENSIONS,
    OpenSlot,
    disagreement,
    make_slot,
    shaped,
    slot_bytes,
    values_in,
)

BOXES = Tensor("boxes", "float32", (1, 100, 4), ("", "n", ""))
LARGE = Tensor("image", "uint8", (3, 4000, 4000), ("", "height", "width"))
NIBBLES = Tensor("nibbles", "int4", (5, 3), ("?", ""))
SPECS = (BOXES, LARGE, NIBBLES, Tensor("tokens", "int64", (8,), ("seq",)))

MOST_BYTES = 1 << 14
"""That reading a header may take, for the text of its error."""

HEADER = struct.Struct("<qiI12i")
"""Written down once more, as plans of one version must understand each other."""


def slot_of(spec: Tensor) -> tuple[OpenSlot, Any]:
    """Return a slot of zeros and its memory."""
    raw = np.zeros(slot_bytes(spec), np.uint8)
    slot = make_slot(spec, raw)
    assert isinstance(slot, OpenSlot)
    return slot, raw


def header(spec: Tensor, *sizes: int, nbytes: int | None = None, count: int | None = None) -> bytes:
    """Return a header with the right checksum and any sizes; the bytes are those of the sizes."""
    if nbytes is None:
        nbytes = Tensor("", spec.dtype, sizes).nbytes
    dims = (*sizes, *(0,) * (MAX_DIMENSIONS - len(sizes)))
    kind = zlib.crc32(spec.dtype.encode())
    return HEADER.pack(nbytes, len(sizes) if count is None else count, kind, *dims)


def meet(spec: Tensor, content: bytes, nbytes: int | None = None) -> Any:
    """Let a slot meet a header, and the length of its message; return the values."""
    slot, raw = slot_of(spec)
    raw[: len(content)] = np.frombuffer(content, np.uint8)
    if nbytes is not None:
        slot.check_message(nbytes)
    return slot.read()


def headers(spec: Tensor) -> st.SearchStrategy[bytes]:
    """Draw headers: any bytes, or fields that are nearly right."""
    int32 = st.integers(-(2**31), 2**31 - 1)
    size = st.one_of(st.sampled_from([*spec.shape, 0, 1, -1, 2**31 - 1, -(2**31)]), int32)
    near = st.builds(
        HEADER.pack,
        st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-1, spec.nbytes + 1)),
        st.one_of(st.integers(-1, MAX_DIMENSIONS + 1), int32),
        st.one_of(st.just(zlib.crc32(spec.dtype.encode())), st.integers(0, 2**32 - 1)),
        *[size] * MAX_DIMENSIONS,
    )
    honest = st.tuples(*(st.integers(-1, bound + 1) for bound in spec.shape)).map(
        lambda sizes: header(spec, *sizes)
    )
    return st.one_of(near, honest, st.binary(min_size=HEADER_BYTES, max_size=HEADER_BYTES))


def read_within(slot: OpenSlot, length: int | None) -> tuple[Any, str]:
    """Return a slot's values, or the text of the error; nothing large is allocated."""
    tracemalloc.start()
    try:
        if length is not None:
            slot.check_message(length)
        return slot.read(), ""
    except JobError as error:
        return None, str(error)
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < MOST_BYTES


@given(st.data(), st.sampled_from(SPECS))
def test_a_header_is_one_of_a_shape_that_the_tensor_may_have_or_an_error(
    data: st.DataObject, spec: Tensor
) -> None:
    content = data.draw(headers(spec))
    length = data.draw(st.integers(-1, slot_bytes(spec) + 1) | st.none())
    slot, raw = slot_of(spec)
    raw[:HEADER_BYTES] = np.frombuffer(content, np.uint8)
    values, message = read_within(slot, length)
    if values is None:
        assert repr(spec.name) in message
        assert len(message) < MOST_BYTES
        return
    nbytes, count, kind, *dims = HEADER.unpack(content)
    expected = Tensor(spec.name, spec.dtype, tuple(dims[:count]))
    assert all(
        0 <= size <= bound if symbol else size == bound
        for size, bound, symbol in zip(expected.shape, spec.shape, spec.symbols, strict=True)
    )
    assert zlib.crc32(spec.dtype.encode()) == kind
    assert expected.storage == (values.dtype, values.shape)
    assert nbytes == values.nbytes == expected.nbytes
    assert length in (None, nbytes + HEADER_BYTES)
    assert values.base is not None
    assert np.shares_memory(values, raw) or values.size == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (header(BOXES, 1, 101, 4), r"'boxes' of shape \[1, 101, 4\] is beyond its bound \[1, 100"),
        (header(BOXES, 1, 2**31 - 1, 4), "beyond its bound"),
        (header(BOXES, 1, -1, 4), r"dimension 1 is -1"),
        (header(BOXES, 1, 5, 3), "dimension 2 is 3, expected 4"),
        (header(BOXES, 1, 5), "has 2 dimensions, not 3"),
        (header(BOXES, 1, 5, 4, 1), "has 4 dimensions, not 3"),
        (header(BOXES, 1, 5, 4, count=-1), "without a valid header"),
        (header(BOXES, 1, 5, 4, count=13), "without a valid header"),
        (header(BOXES, 1, 5, 4, nbytes=84), "came with 84 bytes, expected 80"),
        (header(BOXES, 1, 5, 4, nbytes=-80), "came with -80 bytes, expected 80"),
        (header(Tensor("", "int32", ()), 1, 5, 4), "of another type"),
        (bytes(HEADER_BYTES), "without a valid header"),
        (b"\xff" * HEADER_BYTES, "without a valid header"),
    ],
)
def test_a_header_that_does_not_fit_is_refused_with_its_tensor(
    content: bytes, message: str
) -> None:
    with pytest.raises(JobError, match=message) as caught:
        meet(BOXES, content)
    assert "tensor 'boxes'" in str(caught.value)


@pytest.mark.parametrize("nbytes", [-1, 0, 1, 63, 64, 143, 145, 1664, 2**40])
def test_a_message_whose_length_is_not_that_of_its_header_is_refused(nbytes: int) -> None:
    with pytest.raises(JobError, match=f"'boxes' came in a message of {nbytes} bytes"):
        meet(BOXES, header(BOXES, 1, 5, 4), nbytes)


@given(st.lists(st.integers(0, 100), min_size=2, max_size=6))
def test_a_slot_that_is_used_again_shows_the_last_frame_alone(rows: list[int]) -> None:
    slot, _ = slot_of(BOXES)
    for frame, count in enumerate(rows):
        slot.shaped((1, count, 4))[...] = frame
        assert (1, count, 4) == slot.read().shape
        assert [frame] * 4 * count == slot.read().reshape(-1).tolist()
        assert HEADER_BYTES + 16 * count == slot.message_bytes
        slot.check_message(slot.message_bytes)


@pytest.mark.parametrize(("rows", "nbytes"), [(0, 0), (1, 2), (4, 6), (5, 8)])
def test_values_of_4_bits_travel_two_to_a_byte(rows: int, nbytes: int) -> None:
    slot, _ = slot_of(NIBBLES)
    slot.shaped((rows, 3))[...] = 7
    assert HEADER_BYTES + nbytes == slot.message_bytes
    assert [7] * nbytes == slot.read().tolist()


def test_sizes_from_numpy_are_numbers_in_headers_and_messages() -> None:
    slot, _ = slot_of(BOXES)
    slot.shaped(np.array([1, 7, 4], np.int32))
    assert (1, 7, 4) == slot.read().shape
    with pytest.raises(JobError, match=r"of shape \[1, 101, 4\] is beyond"):
        slot.shaped(np.array([1, 101, 4], np.int32))


@pytest.mark.parametrize("shape", [(1,) * 13, (2**31,)])
def test_a_tensor_that_no_header_can_describe_gets_no_slot(shape: tuple[int, ...]) -> None:
    spec = Tensor("vast", "uint8", shape, ("n", *("",) * (len(shape) - 1)))
    with pytest.raises(JobError, match=r"'vast' has open sizes .* at most 12 dimensions"):
        OpenSlot(spec, np.zeros(HEADER_BYTES, np.uint8))


def test_values_of_another_type_or_shape_are_not_written() -> None:
    slot, _ = slot_of(BOXES)
    with pytest.raises(JobError, match="'boxes' has values of type float64, expected float32"):
        slot.write(np.zeros((1, 3, 4)))
    with pytest.raises(JobError, match=r"'boxes' of shape .*: dimension 2 is 3, expected 4"):
        slot.write(np.zeros((1, 3, 3), np.float32))


def test_only_a_size_that_has_a_name_must_be_the_same_in_all_tensors() -> None:
    def frame(*symbols: str) -> list[OpenSlot]:
        slots = [slot_of(Tensor(f"t{n}", "uint8", (9,), (s,)))[0] for n, s in enumerate(symbols)]
        for size, slot in enumerate(slots, 3):
            slot.shaped((size,))
        return slots

    assert "size 'seq' is 3 in 't0' and 4 in 't1'" == disagreement(frame("seq", "seq"))
    assert "" == disagreement(frame("seq", "batch"))
    assert "" == disagreement(frame("?", "?"))


def test_a_fixed_tensor_has_its_values_and_no_header() -> None:
    spec = Tensor("x", "float32", (2, 3))
    slot = make_slot(spec)
    assert 24 == slot_bytes(spec)
    assert shaped(slot, (2, 3)) is slot is values_in(slot)
    with pytest.raises(JobError, match="do not fit the shape"):
        shaped(slot, (2, 2))
