"""The board's network: its interfaces, and links to other boards, which are measured."""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ...runtime.system.files import number_in, paths_below
from ..protocol import Answer, Request
from ..system import ipv4_at, ipv4_of


def interfaces(
    root: Path, address_of: Callable[[str], tuple[str, int] | None] = ipv4_of
) -> Iterator[Answer]:
    """Yield the network interfaces that have an IPv4 address, except the loopback interface.

    Args:
        address_of: returns the address and the length of the network's prefix.
    """
    for folder in paths_below(root, "sys/class/net/*"):
        has = address_of(folder.name)
        if has is None or has[0].startswith("127."):
            continue
        # The rate of a virtual interface is made up.
        is_physical = (folder / "device").exists()
        speed = number_in(folder / "speed") if is_physical else None
        yield {
            "name": folder.name,
            "address": has[0],
            "prefix": has[1],
            "mbps": speed if speed and speed > 0 else None,
            "kind": interface_kind(folder) if is_physical else "virtual",
        }


def interface_kind(folder: Path) -> str:
    return "wireless" if (folder / "wireless").exists() else "wired"


def connection(request: Request) -> Answer:
    """Return the addresses of the ssh connection: the board's and the caller's.

    Jobs need IPv4, so the board's is the IPv4 address of the same interface if there is one.
    """
    words = os.environ.get("SSH_CONNECTION", "").split()
    if not request["over_ssh"] or len(words) != 4:
        return {"address": "", "caller": ""}
    return {"address": same_interface(words[2]), "caller": words[0]}


def same_interface(address: str) -> str:
    has = ipv4_at(address) if ":" in address else None
    return has[0] if has else address


def addresses(request: Request) -> Answer:
    """Return the network interfaces; this takes less time than the whole report."""
    del request
    return {"interfaces": list(interfaces(Path("/")))}


CONNECT_S = 3.0
TRANSFER_S = 15.0
WARM_S = 0.1
ROUND_TRIPS = 60
BLOCK = 1 << 16
TOKEN_BYTES = 32
REACH, ECHO, TAKE = b"r", b"e", b"t"


def listen(request: Request) -> Answer:
    """Take connections at an address until the program ends; return the port that the system chose.

    Only peers that know the token are served.
    """
    address, token = request["address"], request["token"].encode()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server = socket.create_server((address, 0), family=family, backlog=64)
    threading.Thread(target=take_connections, args=(server, token), daemon=True).start()
    return {"port": server.getsockname()[1]}


def take_connections(server: socket.socket, token: bytes) -> None:
    while True:
        taken, _ = server.accept()
        threading.Thread(target=serve, args=(taken, token), daemon=True).start()


def serve(taken: socket.socket, token: bytes) -> None:
    """Serve a peer: only let it in, echo its messages, or measure the rate of what it sends."""
    with taken, contextlib.suppress(OSError):
        taken.settimeout(TRANSFER_S)
        greeting = receive(taken, TOKEN_BYTES + 1)
        if greeting[:TOKEN_BYTES] != token:
            return
        taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        taken.sendall(REACH)
        if greeting[TOKEN_BYTES:] == ECHO:
            for message in iter(lambda: receive(taken, 8), b""):
                taken.sendall(message)
        if greeting[TOKEN_BYTES:] == TAKE:
            taken.sendall(struct.pack("!Q", rate_of(taken)))


def receive(source: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        more = source.recv(size - len(got))
        if not more:
            break
        got += more
    return got


def rate_of(source: socket.socket) -> int:
    """Return the bits per second at which data arrive once the connection is up to speed."""
    memory = bytearray(1 << 18)
    counted = total = source.recv_into(memory)
    begin = since = last = time.perf_counter()
    while True:
        size = source.recv_into(memory)
        if not size:
            break
        last = time.perf_counter()
        total += size
        if since == begin and last - begin > WARM_S:
            since, counted = last, total
    return round((total - counted) * 8 / (last - since)) if last > since else 0


def connect(address: str, port: int, token: str, purpose: bytes) -> socket.socket:
    peer = socket.create_connection((address, port), CONNECT_S)
    try:
        peer.settimeout(CONNECT_S)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.sendall(token.encode() + purpose)
        if receive(peer, 1) != REACH:
            raise OSError("another program answers there")
        peer.settimeout(TRANSFER_S)
    except BaseException:
        peer.close()
        raise
    return peer


def reach(request: Request) -> Answer:
    """Connect to listeners, all at once; return a complaint for each, empty if it was reached."""

    def complaint(target: Sequence[Any]) -> str:
        try:
            connect(target[0], target[1], request["token"], REACH).close()
        except OSError as error:
            return reason(error)
        return ""

    with ThreadPoolExecutor(32) as pool:
        return {"complaints": list(pool.map(complaint, request["targets"]))}


def reason(error: OSError) -> str:
    return "timed out" if isinstance(error, socket.timeout) else str(error.strerror or error)


def exchange(request: Request) -> Answer:
    """Return half a round trip to a listener, and the rate at which it receives data from here."""
    target = (request["address"], request["port"], request["token"])
    try:
        with connect(*target, ECHO) as peer:
            latency = statistics.median(round_trips(peer)) / 2
        with connect(*target, TAKE) as peer:
            rate = sent_rate(peer, request["seconds"])
    except OSError as error:
        return {"error": reason(error)}
    return {"latency_us": round(latency * 1e6), "bits_per_s": rate}


def round_trips(peer: socket.socket) -> Iterator[float]:
    for _ in range(ROUND_TRIPS):
        begin = time.perf_counter()
        peer.sendall(b"rankslic")
        if len(receive(peer, 8)) < 8:
            raise OSError("the connection was closed")
        yield time.perf_counter() - begin


def sent_rate(peer: socket.socket, seconds: float) -> int:
    """Send for some seconds; return the bits per second that the peer measured."""
    # A small buffer: what is in it at the end has to be sent, too, which takes long on a slow link.
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 18)
    block, end = bytes(BLOCK), time.perf_counter() + seconds
    while time.perf_counter() < end:
        peer.sendall(block)
    peer.shutdown(socket.SHUT_WR)
    answer = receive(peer, 8)
    if len(answer) < 8:
        raise OSError("the connection was closed")
    return int(struct.unpack("!Q", answer)[0])
