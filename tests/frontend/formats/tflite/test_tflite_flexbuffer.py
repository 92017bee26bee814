"""FlexBuffers as their own library writes them, and bytes that are none."""

from __future__ import annotations

import random
import time

import pytest
from flatbuffers import flexbuffers

from rankslice.frontend.formats.tflite.flexbuffer import flexbuffer_value

SETTINGS = {
    "max_detections": 10,
    "use_regular_nms": False,
    "y_scale": 2.5,
    "names": ["a", "b\N{GREEK SMALL LETTER BETA}"],
    "nothing": None,
    "sizes": [1, -300, 1 << 40],
    "mixed": [1, 0.5, "x", True, {"inner": [[], {}]}],
}


@pytest.mark.parametrize(
    "value", [SETTINGS, [1, 2, 3], ["a", "b"], [1.5, -2.0], [], {}, {"k": "v" * 300}]
)
def test_a_flexbuffer_has_the_values_that_were_written(value):
    assert value == flexbuffer_value(bytes(flexbuffers.Dumps(value)))


def test_vectors_of_fixed_length_blobs_and_numbers_elsewhere_are_read():
    builder = flexbuffers.Builder()
    with builder.Map():
        for key, add in {
            "blob": lambda: builder.Blob(b"\x01\xff"),
            "fixed": lambda: builder.FixedTypedVectorFromElements([7, 8, 9]),
            "indirect": lambda: builder.IndirectFloat(0.25),
            "typed": lambda: builder.TypedVectorFromElements([True, False]),
        }.items():
            builder.Key(key)
            add()
    assert {"blob": "01ff", "fixed": [7, 8, 9], "indirect": 0.25, "typed": [True, False]} == (
        flexbuffer_value(bytes(builder.Finish()))
    )


@pytest.mark.parametrize(
    "data",
    [b"", b"\x01", b"\x01\x04\x01", b"vendor's own settings", bytes(64), b"\xff" * 64],
)
def test_other_bytes_are_none(data):
    assert flexbuffer_value(data) is None


def test_a_number_that_json_lacks_is_none():
    assert flexbuffer_value(bytes(flexbuffers.Dumps([1.0, float("nan")]))) is None


def test_a_buffer_that_is_cut_off_or_has_more_before_its_root_is_none():
    data = bytes(flexbuffers.Dumps(SETTINGS))
    assert not any(map(flexbuffer_value, (data[:length] for length in range(len(data)))))
    assert flexbuffer_value(data[:-3] + bytes(16) + data[-3:]) is None


def test_vectors_that_share_their_elements_again_and_again_are_none_soon():
    """Twelve vectors with eight references each to the one before: 8^12 values."""
    data = bytearray(b"\x08" + b"\x01" * 8 + b"\x04" * 8)
    start = 1
    for _ in range(12):
        data.append(8)
        begin = len(data)
        data += bytes(begin + number - start for number in range(8)) + bytes([10 << 2]) * 8
        start = begin
    data += bytes([len(data) - start, 10 << 2, 1])
    begin_s = time.monotonic()
    assert flexbuffer_value(bytes(data)) is None
    assert time.monotonic() - begin_s < 5


def test_a_vector_in_itself_is_none():
    assert flexbuffer_value(bytes([1, 0, 10 << 2, 2, 10 << 2, 1])) is None


def test_damaged_buffers_raise_nothing():
    data = bytes(flexbuffers.Dumps(SETTINGS))
    chance = random.Random(4)
    for _ in range(3000):
        changed = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        flexbuffer_value(bytes(changed))
