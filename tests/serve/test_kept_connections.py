"""A connection that a client keeps is as fast as a new one, seen from the client."""

from __future__ import annotations

import socket
import time
from statistics import median

import pytest
from served import Doubling, Served, served

TRIES = 5
ASKED = 15
BODY = bytes(24)
INFER = (
    b"POST /v2/models/double/infer HTTP/1.1\r\nHost: h\r\n"
    b"Inference-Header-Content-Length: 0\r\nContent-Length: 24\r\n\r\n" + BODY
)
LENGTH = b"content-length: "


def connected(server: Served) -> socket.socket:
    host, _, port = server.http.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def ask(connection: socket.socket, request: bytes) -> None:
    """Send a request, and read the answer to its end."""
    connection.sendall(request)
    said = b""
    while b"\r\n\r\n" not in said:
        said += connection.recv(65536)
    head, _, body = said.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    length = int(head.lower().partition(LENGTH)[2].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65536)


def seconds(server: Served, request: bytes, kept: socket.socket | None) -> float:
    began = time.perf_counter()
    if kept is not None:
        ask(kept, request)
    else:
        with connected(server) as connection:
            ask(connection, request)
    return time.perf_counter() - began


@pytest.mark.parametrize(
    "request_", [INFER, b"GET /v2/models/double HTTP/1.1\r\nHost: h\r\n\r\n"], ids=["infer", "get"]
)
def test_a_kept_connection_is_answered_within_2_ms_of_a_new_one(request_: bytes) -> None:
    with served(Doubling()) as server, connected(server) as kept:
        for _ in range(TRIES):  # other work on the machine may take a turn
            pairs = [
                (seconds(server, request_, kept), seconds(server, request_, None))
                for _ in range(ASKED)
            ]
            difference_s = median(kept for kept, _ in pairs) - median(new for _, new in pairs)
            if difference_s < 2e-3:
                return
    pytest.fail(f"a kept connection takes {1e3 * difference_s:.1f} ms longer")
