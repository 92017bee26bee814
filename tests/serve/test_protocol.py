"""Requests and answers of both protocols: how much of one is read, and what others notice of it."""

from __future__ import annotations

import json
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rankslice.backend.runtime.job import Tensor
from rankslice.serve.protocol import rest
from rankslice.serve.protocol.messages import MAX_FIELDS, MESSAGES, check_fields
from rankslice.serve.protocol.tensors import Reason, RefusalError, Request

SIZE = 60_000
X = Tensor("x", "float32", (2, SIZE))
HEAD = f'{{"inputs": [{{"name": "x", "datatype": "FP32", "shape": [2, {SIZE}], "data": ['
BODY_BYTES = rest.most_bytes([X], is_binary=False)


@pytest.mark.parametrize(
    "item", ["[],", '{"a": {}},', '"",', r'"\n\n\n\n\n\n\n\n\n\n\n\n\n",', "true,"]
)
@pytest.mark.parametrize("has_binary", [False, True])
def test_more_values_than_the_model_has_are_refused_before_they_take_memory(
    item: str, has_binary: bool
) -> None:
    body = (HEAD + item * ((BODY_BYTES - len(HEAD)) // len(item))).encode()
    assert len(body) <= BODY_BYTES
    tracemalloc.start()
    try:
        with pytest.raises(RefusalError, match=f"more than {2 * SIZE} numbers") as refused:
            rest.read_request(body, len(body) if has_binary else None, [X], [X])
        assert Reason.TOO_LARGE is refused.value.reason
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["x", "Bild – 画像 \U0001f600 \\"])
@pytest.mark.parametrize("is_ascii", [False, True])
@pytest.mark.parametrize("shape", [(2, 3), (6, 1, 1, 1), (6,)])
def test_all_that_the_model_can_need_is_read(
    name: str, shape: tuple[int, ...], is_ascii: bool
) -> None:
    spec = Tensor(name, "float32", shape)
    values = np.arange(6, dtype=np.float32).reshape(shape)
    tensor = {"name": name, "datatype": "FP32", "shape": shape, "data": values.tolist()}
    text = json.dumps({"inputs": [tensor], "id": "," * 60_000}, ensure_ascii=is_ascii)
    request = rest.read_request(text.encode(), None, [spec], [spec])
    assert (values == request.inputs[name]).all()
    assert request.inputs[name].shape == shape


def test_what_is_no_utf_8_is_no_json() -> None:
    with pytest.raises(RefusalError, match="is not valid JSON"):
        rest.read_request(HEAD.encode() + b'"\xff"]}]}', None, [X], [X])


def ticks_during(work: Callable[[], object]) -> int:
    """Return how often this thread gets its turn while work goes on in another one."""
    before, ticks = sys.getswitchinterval(), 0
    sys.setswitchinterval(1e-4)
    try:
        worker = threading.Thread(target=work)
        worker.start()
        while worker.is_alive():
            time.sleep(1e-4)
            ticks += 1
    finally:
        sys.setswitchinterval(before)
    return ticks


def test_other_threads_go_on_while_numbers_are_read_and_written() -> None:
    values = np.random.default_rng(1).random((2, SIZE), np.float32)
    body = (HEAD + ",".join(map(repr, values.reshape(-1).tolist())) + "]}]}").encode()
    assert ticks_during(lambda: rest.read_request(body, None, [X], [X])) > 40
    request, results = Request({}, (X,)), {"x": np.tile(values, 4)}
    assert ticks_during(lambda: rest.write_answer("m", "1", request, results)) > 20
    record = json.loads(rest.write_answer("m", "1", request, results)[0])
    assert (results["x"].reshape(-1) == record["outputs"][0]["data"]).all()


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
