"""Messages of gRPC: how much of one is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rankslice.serve.protocol.messages import MAX_FIELDS, MESSAGES, check_fields
from rankslice.serve.protocol.tensors import RefusalError

REQUEST = MESSAGES["ModelInferRequest"]
MANY = MAX_FIELDS + 1


def checked(content: bytes) -> int:
    return check_fields(REQUEST.DESCRIPTOR, memoryview(content))


def inside(fill: Callable[[Any], None]) -> bytes:
    request = REQUEST()
    fill(request)
    content: bytes = request.SerializeToString()
    return content


@pytest.mark.parametrize(
    "content",
    [
        b"\x2a\x00" * MANY,
        b"\x3a\x00" * MANY,
        b"\x78\x01" * MANY,
        inside(lambda request: request.inputs.add().contents.bytes_contents.extend([b""] * MANY)),
        inside(lambda request: [request.inputs.add().parameters.add() for _ in range(MANY)]),
    ],
    ids=["inputs", "raw", "unknown", "bytes", "parameters"],
)
def test_more_fields_than_a_valid_message_has_are_refused(content: bytes) -> None:
    REQUEST.FromString(content)
    with pytest.raises(RefusalError, match="more than 32768 fields"):
        checked(content)


def test_a_list_of_numbers_is_one_field() -> None:
    def fill(request: Any) -> None:
        tensor = request.inputs.add(name="x", datatype="FP32", shape=[MANY])
        tensor.contents.fp32_contents.extend([0.5] * MANY)

    assert MAX_FIELDS - 6 == checked(inside(fill))


@pytest.mark.parametrize("content", [b"\xff" * 1000, b"\x2a\xff\xff\xff\x7f", b"\x2a", b"\x0b"])
def test_what_is_no_message_is_left_to_its_reader(content: bytes) -> None:
    assert MAX_FIELDS > checked(content) >= MAX_FIELDS - len(content)
