"""Clients that break the protocol get a refusal each, and others get their answers."""

from __future__ import annotations

import json
import random
import socket
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import grpc
import numpy as np
import psutil
import pytest
import tritonclient.grpc
import tritonclient.http
from served import Doubling, Served, served
from waiting import until

from rankslice.backend.runtime.job import Tensor
from rankslice.serve.access import Limits
from rankslice.serve.protocol.messages import MAX_FIELDS, SERVICE

X = np.ones((2, 3), np.float32)
HASTY = Limits(connections=50, patience_s=0.4, slowest_bytes_per_s=1e7)
INFER = "POST /v2/models/double/infer HTTP/1.1\r\nHost: h\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    large = Doubling("large", (Tensor("x", "uint8", (4_000_000,)),))
    with served(Doubling(), large, limits=HASTY) as running:
        yield running


@pytest.fixture(autouse=True)
def _others_are_answered(server: Served) -> Iterator[None]:
    yield
    for kind, address in ((tritonclient.http, server.http), (tritonclient.grpc, server.grpc)):
        client = kind.InferenceServerClient(address)
        tensor = kind.InferInput("x", [2, 3], "FP32")
        tensor.set_data_from_numpy(X)
        answer = client.infer("double", [tensor]).as_numpy("twice_x")
        assert (X + X).tobytes() == answer.tobytes()
        client.close()


def connected(address: str) -> Any:
    host, _, port = address.rpartition(":")
    return closing(socket.create_connection((host, int(port)), timeout=10))


def reply(address: str, *sent: bytes) -> bytes:
    """Return all that a server says until it closes the connection."""
    with connected(address) as connection:
        said = b""
        with suppress(ConnectionError):
            for piece in sent:
                connection.sendall(piece)
            while piece := connection.recv(65536):
                said += piece
        return said


def status(said: bytes) -> int:
    return int(said.split(b" ", 2)[1])


def posted(body: bytes | str, *headers: str) -> bytes:
    body = body.encode() if isinstance(body, str) else body
    head = [INFER.strip(), "Connection: close", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*head, "", ""]).encode() + body


@pytest.mark.parametrize("sent", [b"", b"GET /v2 HT", INFER.encode()])
def test_half_a_head_is_refused_after_a_while(server: Served, sent: bytes) -> None:
    said = reply(server.http, sent)
    assert 408 == status(said)
    assert b'{"error": "no request within 0.4 s"}' in said


def test_half_a_body_is_refused_after_a_while(server: Served) -> None:
    said = reply(server.http, posted("{}" * 50)[:-50])
    assert 408 == status(said)
    assert b"no whole request within" in said


def test_a_body_that_trickles_is_refused(server: Served) -> None:
    with connected(server.http) as connection:
        connection.sendall(INFER.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        began = time.monotonic()
        with suppress(ConnectionError):
            while time.monotonic() - began < 5:
                connection.sendall(b"1\r\n{\r\n")
                time.sleep(0.02)
                connection.setblocking(False)
                with suppress(BlockingIOError):
                    assert 408 == status(connection.recv(65536))
                    break
                connection.setblocking(True)
        assert time.monotonic() - began < 4


@pytest.mark.parametrize(
    "headers", [("Content-Length: 10000000",), ("Transfer-Encoding: chunked",)]
)
def test_a_body_larger_than_the_model_can_need_is_refused(
    server: Served, headers: tuple[str, ...]
) -> None:
    head = "\r\n".join([INFER.strip(), *headers, "", ""]).encode()
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    with connected(server.http) as connection:
        connection.sendall(head + (3 * chunk if "chunked" in headers[0] else b""))
        assert 413 == status(connection.recv(65536))


def test_a_head_without_end_is_refused(server: Served) -> None:
    said = reply(server.http, b"GET /v2 HTTP/1.1\r\n", b"X: " + b"x" * 100_000)
    assert said == b"" or status(said) == 400


def item(**changed: Any) -> str:
    tensor = {"name": "x", "datatype": "FP32", "shape": [2, 3], "data": X.tolist()}
    return json.dumps({"inputs": [{**tensor, **changed}]})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "is not valid JSON"),
        ("[" * 50_000, "is not valid JSON"),
        ("[]", "expected a JSON object"),
        ("{}", "inputs: expected a list"),
        ('{"inputs": []}', "input 'x' is missing"),
        ('{"inputs": [1]}', "an input: expected a JSON object"),
        (item(name="y"), "the model has no such input"),
        (item(name=["x"]), "expected a name"),
        (item(shape=[2]), "has 1 dimensions, not 2"),
        (item(shape=[2, 10**18]), "dimension 1 is 1000000000000000000, expected 3"),
        (item(shape=[2, True]), "shape is not a list of sizes"),
        (item(shape=[1] * 1000), "shape is not a list of sizes"),
        (item(datatype=5), "datatype is no name of a type"),
        (item(data=[1, 2]), "has values of shape [2], not [2, 3]"),
        (item(data=[[1, 2], [3]]), "its lists differ in length"),
        (item(data=["1", "", "", "", "", ""]), "expected numbers"),
        (item(data=[10**400, 0, 0, 0, 0, 0]), "too large for FP32"),
        (item(data={}), "data is not a list"),
        (item(parameters={"binary_data_size": 4}), "either data or the parameter"),
        (item(parameters={"shared_memory_region": "r"}), "shared memory is not supported"),
        (item(parameters=3), "expected a JSON object"),
    ],
)
def test_a_wrong_body_is_refused_and_says_why(server: Served, body: str, message: str) -> None:
    said = reply(server.http, posted(body))
    assert 400 == status(said)
    assert message in json.loads(said.partition(b"\r\n\r\n")[2])["error"]


@pytest.mark.parametrize(
    ("header", "body", "message"),
    [
        ("0", b"1234", "has 4 bytes"),
        ("500", b"{}", "the body 2"),
        ("-1", b"{}", "expected a number"),
        ("2", b"{}1234", "inputs: expected a list"),
    ],
)
def test_wrong_binary_data_is_refused(
    server: Served, header: str, body: bytes, message: str
) -> None:
    said = reply(server.http, posted(body, f"Inference-Header-Content-Length: {header}"))
    assert 400 == status(said)
    assert message in said.decode()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("GET /", 404),
        ("GET /v2/models/double/infer", 405),
        ("GET /v2/models/double/versions/2", 404),
    ],
)
def test_what_is_not_there_is_refused(server: Served, line: str, expected: int) -> None:
    said = reply(server.http, f"{line} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode())
    assert expected == status(said)
    assert "error" in json.loads(said.partition(b"\r\n\r\n")[2])


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("seed", range(3))
def test_random_bytes_are_refused(server: Served, protocol: str, seed: int) -> None:
    said = reply(getattr(server, protocol), random.Random(seed).randbytes(2000))
    if protocol == "http":
        assert status(said) in (400, 408)  # 408: without an end of line it is no whole head


def test_a_message_of_too_many_fields_is_refused(server: Served) -> None:
    with grpc.insecure_channel(server.grpc) as channel:
        infer = channel.unary_unary(f"/{SERVICE}/ModelInfer")
        with pytest.raises(grpc.RpcError, match=r"RESOURCE_EXHAUSTED[^!]*more than 32768 fields"):
            infer(b"\x2a\x00" * (MAX_FIELDS + 1), timeout=20)


def test_more_connections_than_allowed_leave_those_that_are_used(server: Served) -> None:
    client = tritonclient.http.InferenceServerClient(server.http)
    assert client.is_server_live()
    idle = [socket.create_connection(server.http.split(":")) for _ in range(120)]
    assert client.is_server_live()
    idle[0].settimeout(10)
    assert 503 == status(idle[0].recv(65536))
    for connection in idle:
        connection.close()
    client.close()


def is_served(connection: socket.socket) -> bool:
    """Tell whether the server, which is in this process, has its end of a connection open."""
    ends = (connection.getpeername(), connection.getsockname())
    connections = psutil.Process().net_connections("tcp")
    return any((tuple(other.laddr), tuple(other.raddr)) == ends for other in connections)


def test_a_client_that_does_not_read_its_answer_is_left(server: Served) -> None:
    head = "POST /v2/models/large/infer HTTP/1.1\r\nHost: h\r\n"
    body = json.dumps({
        "inputs": [{
            "name": "x", "datatype": "UINT8", "shape": [4_000_000],
            "parameters": {"binary_data_size": 4_000_000},
        }],
    }).encode()  # fmt: skip
    head += f"Content-Length: {len(body) + 4_000_000}\r\n"
    head += f"Inference-Header-Content-Length: {len(body)}\r\n\r\n"
    with connected(server.http) as connection:
        until(lambda: is_served(connection), 30)
        connection.sendall(head.encode() + body + bytes(4_000_000))
        until(lambda: not is_served(connection), 30)
        received = 0
        with suppress(ConnectionError):
            while piece := connection.recv(1 << 20):
                received += len(piece)
    assert received < 8_000_000
