"""Let a server meet clients that break the protocols, beside two that do not.

``python tests/fuzz/clients.py --seconds 60`` serves the digits' network, sends rubbish to its ports
for HTTP and gRPC and to the two of its keeper, and prints what came of it. It fails if a good
client is not answered as before, if the server ends, or if its memory grows.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil
import tritonclient.grpc
import tritonclient.http

from rankslice.serve.protocol.messages import MESSAGES, SERVICE
from rankslice.session.building.build import BuildOptions, build

ROOT = Path(__file__).parents[2]
MOST_GROWTH = 32 * 2**20
"""Bytes that the server may have in the end beyond what it had after the first quarter."""
WARM_UP = 0.25
ATTACKERS = 3

BODY = (
    b'{"inputs": [{"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8], '
    b'"parameters": {"binary_data_size": 256}}]}'
)
REQUEST = (
    b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: h\r\n"
    b"Inference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n"
    % (len(BODY), len(BODY) + 256)
    + BODY
    + bytes(256)
)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@dataclass
class Ports:
    """Where the server listens."""

    http: int
    grpc: int
    keeper: list[int] = field(default_factory=list)


@dataclass
class Tally:
    """What came of it."""

    attacks: Counter[str] = field(default_factory=Counter)
    replies: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    failures: list[str] = field(default_factory=list)


def edited(chance: random.Random, content: bytes) -> bytes:
    """Return content with some bytes changed, added, doubled, or cut off."""
    found = bytearray(content)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(found) + 1)
        length = chance.choice((0, 1, 1, 4, 40))
        piece = chance.choice((chance.randbytes(length), bytes(found[at : at + length]) * 2))
        found[at : at + chance.choice((0, length))] = piece
    return bytes(found[: chance.choice((len(found), chance.randrange(len(found) + 1)))])


def frame(chance: random.Random) -> bytes:
    """Return a frame of HTTP/2 whose length may lie."""
    payload = chance.randbytes(chance.choice((0, 4, 8, 100)))
    length = chance.choice((len(payload), chance.randrange(1 << 24)))
    kind, flags = chance.randrange(12), chance.randrange(256)
    stream = chance.choice((0, 1, 3, chance.randrange(1 << 31)))
    return length.to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def exchange(port: int, sent: bytes, patience_s: float = 0.2) -> str:
    """Send something; return how the reply begins."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        with suppress(OSError):
            connection.sendall(sent)
            connection.settimeout(patience_s)
            return str(connection.recv(64)[:12], "ascii", "replace").strip() or "closed"
        return "nothing"


def silent(ports: list[int], count: int, chance: random.Random) -> str:
    """Open connections, say little or nothing on them, and leave."""
    held = []
    for _ in range(count):
        with suppress(OSError):
            held.append(socket.create_connection(("127.0.0.1", chance.choice(ports)), timeout=5))
            held[-1].sendall(chance.choice((b"", b"", b"G", PREFACE)))
    time.sleep(0.5)
    for each in held:
        each.close()
    return "closed"


def deaf(port: int) -> str:
    """Ask many things and read no answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
        with suppress(OSError):
            for _ in range(300):
                connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")
        return "closed"


def called(port: int, content: bytes, method: str, timeout: float) -> str:
    """Call a method of gRPC with any bytes as its message; return the code of the answer."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            channel.unary_unary(f"/{SERVICE}/{method}")(content, timeout=timeout)
        except grpc.RpcError as error:
            return str(error.code().name)
    return "OK"


def message(chance: random.Random) -> bytes:
    """Return a request of gRPC that may be wrong in what it says."""
    request = MESSAGES["ModelInferRequest"](model_name=chance.choice(("digits", "x" * 5000)))
    shape = chance.choice(([1, 1, 8, 8], [2**62] * 4, [-1], [1] * 10_000))
    datatype = chance.choice(("FP32", "BYTES", "INT8", ""))
    request.inputs.add(name=chance.choice(("image", "")), datatype=datatype, shape=shape)
    request.raw_input_contents.append(bytes(chance.choice((256, 0, 60_000))))
    return bytes(request.SerializeToString())


def attacks(ports: Ports, chance: random.Random) -> dict[str, Callable[[], str]]:
    """Return what a bad client may do, by name."""
    both = [ports.http, ports.grpc]
    return {
        "random bytes": lambda: exchange(chance.choice(both), chance.randbytes(2000)),
        "damaged HTTP": lambda: exchange(ports.http, edited(chance, REQUEST)),
        "half a request": lambda: exchange(
            ports.http, REQUEST[: chance.randrange(len(REQUEST))], 0.05
        ),
        "frames of HTTP/2": lambda: exchange(
            ports.grpc, PREFACE + b"".join(frame(chance) for _ in range(chance.randint(1, 20)))
        ),
        "damaged message": lambda: called(
            ports.grpc, edited(chance, message(chance)), "ModelInfer", 5
        ),
        "wrong message": lambda: called(ports.grpc, message(chance), "ModelInfer", 5),
        "deadline": lambda: called(ports.grpc, message(chance), "ModelInfer", 1e-3),
        "reads nothing": lambda: deaf(ports.http),
        "many connections": lambda: silent(both, 300, chance),
        "keeper, random bytes": lambda: exchange(chance.choice(ports.keeper), chance.randbytes(90)),
        "keeper, connections": lambda: silent(ports.keeper, 40, chance),
    }


def attack(ports: Ports, seed: int, ends: float, tally: Tally) -> None:
    """Do harm until it is time."""
    chance = random.Random(seed)
    kinds = attacks(ports, chance)
    rare = [name for name in kinds if "connections" in name]
    while time.monotonic() < ends:
        name = chance.choice([name for name in kinds if name not in rare] * 8 + rare)
        tally.attacks[name] += 1
        with suppress(OSError):
            tally.replies[kinds[name]()] += 1


def ask(kind: Any, port: int, ends: float, tally: Tally) -> None:
    """Be a good client until it is time."""
    client = kind.InferenceServerClient(f"127.0.0.1:{port}")
    expected = None
    while time.monotonic() < ends:
        tensor = kind.InferInput("image", [1, 1, 8, 8], "FP32")
        tensor.set_data_from_numpy(np.zeros((1, 1, 8, 8), np.float32))
        began = time.monotonic()
        try:
            found = client.infer("digits", [tensor]).as_numpy("probabilities").tobytes()
        except Exception as error:
            if "have no result yet" not in str(error):
                tally.failures.append(f"{kind.__name__}: {type(error).__name__}: {error}")
            continue
        tally.slowest_s = max(tally.slowest_s, time.monotonic() - began)
        expected = expected or found
        if found != expected:
            tally.failures.append(f"{kind.__name__}: the answer has changed")
        tally.answers[kind.__name__] += 1
        time.sleep(0.02)
    client.close()


@contextmanager
def digits_server(place: Path) -> Iterator[tuple[psutil.Process, Ports]]:
    """Yield the process of a server, and its ports."""
    options = BuildOptions(share_cores=True)
    mapping = ROOT / "mappings" / "digits-two-ranks.json"
    folder = build(ROOT / "models" / "digits.onnx", mapping, "local", place / "out", options).folder
    program = Path(sys.executable).with_name("rankslice")
    line = [str(program), "serve", str(folder), "--http", "0", "--grpc", "0"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            told = server.stdout.readline()
            found = re.search(r"http://[^:]+:(\d+)/\S+, grpc [^:]+:(\d+)", told)
            assert found is not None, told
            process, ports = psutil.Process(server.pid), Ports(int(found[1]), int(found[2]))
            listening = {
                each.laddr.port
                for each in process.net_connections("tcp")
                if each.status == psutil.CONN_LISTEN
            }
            ports.keeper = sorted(listening - {ports.http, ports.grpc})
            yield process, ports
            server.send_signal(signal.SIGTERM)
            code = server.wait(60)
            assert code == 0, f"the server ended with code {code}"
        finally:
            server.kill()


def main() -> int:
    """Take the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    tally, memory = Tally(), []
    with tempfile.TemporaryDirectory() as name, digits_server(Path(name)) as (process, ports):
        began = time.monotonic()
        ends = began + given.seconds
        work = [
            *((attack, ports, given.seed + number, ends, tally) for number in range(ATTACKERS)),
            (ask, tritonclient.http, ports.http, ends, tally),
            (ask, tritonclient.grpc, ports.grpc, ends, tally),
        ]
        threads = [threading.Thread(target=each[0], args=each[1:]) for each in work]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads) and process.is_running():
            memory.append((time.monotonic() - began, process.memory_info().rss))
            time.sleep(min(5.0, given.seconds / 20))
        files = process.num_fds()
    settled = [rss for at, rss in memory if at > WARM_UP * given.seconds]
    growth = settled[-1] - settled[0]
    print(f"attacks: {dict(tally.attacks)}")
    print(f"replies: {dict(tally.replies.most_common(20))}")
    print(f"good clients: {dict(tally.answers)} answers, slowest {1e3 * tally.slowest_s:.0f} ms")
    shown = ", ".join(f"{at:.0f} s: {rss / 2**20:.1f}" for at, rss in memory[:: len(memory) // 10])
    print(f"memory in MiB: {shown}; {files} open files in the end")
    if growth > MOST_GROWTH:
        tally.failures.append(f"memory grew by {growth / 2**20:.1f} MiB")
    for failure in tally.failures[:20]:
        print(f"failure: {failure}")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
