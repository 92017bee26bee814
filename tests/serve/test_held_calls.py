"""Calls of gRPC that hold their messages back take neither the memory nor the places of others."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import numpy as np
import psutil
import pytest
import tritonclient.grpc
from held_calls import HeldCalls
from served import Doubling, served

from rankslice.backend.runtime.job import Tensor
from rankslice.serve.access import Access, Limits

TOKEN = "s3cret"
LARGE_BYTES = 1_500_000
MIB = 2**20
CALLS = 600
CONNECTIONS = 8
BACK_S = 30.0

SERVER = """
import sys
from served import Doubling, served
from rankslice.backend.runtime.job import Tensor
from rankslice.serve.access import Access

large = Doubling("large", (Tensor("x", "uint8", (int(sys.argv[2]),)),))
with served(Doubling(), large, access=Access(sys.argv[1])) as server:
    print(server.grpc, flush=True)
    sys.stdin.read()
"""


def large(nbytes: int) -> Doubling:
    """Return a pipeline whose requests have so many bytes, at most."""
    return Doubling("large", (Tensor("x", "uint8", (nbytes,)),))


def ask(address: str) -> None:
    """Ask as a client with the token does; it is answered at once."""
    with closing(tritonclient.grpc.InferenceServerClient(address)) as client:
        tensor = tritonclient.grpc.InferInput("x", [2, 3], "FP32")
        tensor.set_data_from_numpy(np.ones((2, 3), np.float32))
        headers = {"authorization": f"Bearer {TOKEN}"}
        answer = client.infer("double", [tensor], headers=headers, client_timeout=10)
        assert (2 == answer.as_numpy("twice_x")).all()


@contextmanager
def held(address: str, calls: int, method: str = "ModelInfer") -> Iterator[list[HeldCalls]]:
    """Give connections with so many calls, in all, that hold their messages back."""
    with ExitStack() as stack:
        share = calls // CONNECTIONS
        yield [
            stack.enter_context(closing(HeldCalls(address, share, LARGE_BYTES, method)))
            for _ in range(CONNECTIONS)
        ]


@pytest.mark.parametrize("method", ["ModelInfer", "ServerLive", "Unknown"])
def test_without_the_token_no_message_is_awaited(method: str) -> None:
    calls = 160
    with (
        served(Doubling(), large(LARGE_BYTES), access=Access(TOKEN)) as server,
        held(server.grpc, calls, method) as connections,
    ):
        sent = sum(connection.send() for connection in connections)
        ask(server.grpc)
        assert calls == sum(len(connection.ended) for connection in connections)
        assert sent <= calls * 2**16


def test_messages_that_come_slowly_share_their_memory_and_are_refused_in_time() -> None:
    nbytes, calls = 2_000_000, 16
    most = 2 * nbytes + 65536  # of one message
    limits = Limits(patience_s=0.4, slowest_bytes_per_s=4e7, held_bytes=2 * most)
    with (
        served(Doubling(), large(nbytes), limits=limits) as server,
        closing(HeldCalls(server.grpc, calls, nbytes)) as connection,
    ):
        began = time.monotonic()
        assert nbytes < connection.send(0.1) <= 2 * nbytes + calls * 2**16
        while len(connection.ended) < calls:
            connection.send(0.1)
            assert time.monotonic() - began < 20
        ask(server.grpc)


@pytest.mark.ci
def test_the_memory_of_600_held_calls_stays_small_and_goes_with_them() -> None:
    line = [sys.executable, "-c", SERVER, TOKEN, str(LARGE_BYTES)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(line, env=environment, text=True, **pipes) as process:  # type: ignore[call-overload]
        address = process.stdout.readline().strip()
        rss = psutil.Process(process.pid).memory_info
        ask(address)
        before = rss().rss
        with held(address, CALLS) as connections:
            for _ in range(3):
                for connection in connections:
                    connection.send()
                ask(address)
            assert CALLS == sum(len(connection.ended) for connection in connections)
            assert rss().rss < before + 64 * MIB
        began = time.monotonic()
        while rss().rss > before + 8 * MIB:
            assert time.monotonic() - began < BACK_S
            ask(address)
            time.sleep(0.5)
        process.stdin.close()
