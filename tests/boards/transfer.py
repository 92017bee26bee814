"""Bytes from one board to another over a plain TCP connection."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from boards import Board

PORT = 5000

RECEIVE = f"""
import socket, sys, time
with socket.create_server((sys.argv[1], {PORT})) as server:
    print("listening", flush=True)
    connection = server.accept()[0]
    first = connection.recv(1 << 16)
    start, received = time.perf_counter(), 0
    while block := connection.recv(1 << 16):
        received += len(block)
    print(received / (time.perf_counter() - start))
"""

SEND = f"""
import socket, sys
with socket.create_connection((sys.argv[1], {PORT})) as connection:
    connection.sendall(bytes(int(sys.argv[2])))
"""


def bytes_per_second(sender: Board, receiver: Board, size: int) -> float:
    """Return the rate at which a board receives this many bytes from another."""
    with ThreadPoolExecutor(1) as threads:
        receiving = threads.submit(receiver.run, ["python3", "-c", RECEIVE, receiver.address])
        await_listener(receiver)
        sender.run(["python3", "-c", SEND, receiver.address, str(size)])
        return float(receiving.result().stdout.split()[1])


def await_listener(board: Board) -> None:
    """Return once the receiver on a board takes connections."""
    deadline = time.monotonic() + 20
    state = f"{PORT:04X} 00000000:0000 0A"
    while state not in board.run(["cat", "/proc/net/tcp"]).stdout:
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody listens on {board.name}")
        time.sleep(0.02)
