"""Processes that work beside a job on this board: a co-runner.

Each works for a share of each hundredth of a second, and sleeps for the rest.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator

from ...runtime.system.processes import cpu_s_of
from ..protocol import Request, send
from .folders import RefusedError

SILENCE_S = 10
"""Without a line of the launcher, which sends one each second."""
TELL = b"cores"
PERIOD_S = 0.01
ARRAY_BYTES = 64 << 20
"""More than the caches of most processors."""
COPIED_BYTES = 1 << 20
SENT_BYTES = 1 << 16


def co_run(request: Request) -> None:
    """Work until the launcher ends or is lost.

    Once all processes work, and for each line :data:`TELL` of the launcher, it is told how many
    cores they have had on average.
    """
    used, usable = set(request["cores"]), os.sched_getaffinity(0)
    processes: list[int] = []
    try:
        for cores in places(request["kind"], used, usable):
            processes.append(start(request["kind"], request["busy"], cores))
        began_s = time.monotonic()
        send({"cores": 0.0})
        for line in lines_of_launcher():
            if line == TELL:
                used_s = sum(map(cpu_s_of, processes))
                send({"cores": used_s / max(1e-3, time.monotonic() - began_s)})
    finally:
        for process in processes:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


def lines_of_launcher() -> Iterator[bytes]:
    """Yield what the launcher writes, empty lines to show that it is alive, until it ends.

    Raises:
        RefusedError: it is lost.
    """
    rest = b""
    while select.select([0], [], [], SILENCE_S)[0]:
        block = os.read(0, 1 << 12)
        if not block:
            return
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
    raise RefusedError(f"it has heard nothing from the launcher for {SILENCE_S} s")


def places(kind: str, used: set[int], usable: set[int]) -> list[set[int]]:
    """Return the cores of each process.

    Args:
        kind: ``cpu`` works where ranks do, all else on cores that they leave free if there are any.
        used: cores of ranks here.
        usable: cores of this account.
    """
    used = used & usable or usable
    if kind == "cpu":
        return [{core} for core in sorted(used)]
    return [usable - used or used]


def start(kind: str, busy: float, cores: set[int]) -> int:
    """Start a process that works, and ends with this one; return its number.

    Raises:
        RefusedError: it does not come so far.
    """
    reader, writer = os.pipe()
    parent = os.getpid()
    process = os.fork()
    if not process:
        try:
            os.sched_setaffinity(0, cores)
            work = WORK[kind]()
            os.write(writer, b"works")
            os.close(writer)
            keep_on(work, busy, parent)
        except (OSError, MemoryError) as error:
            os.write(writer, str(error or "there is too little memory").encode())
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    if answer != b"works":
        os.waitpid(process, 0)
        raise RefusedError(f"the co-runner does not start: {answer.decode(errors='replace')}")
    return process


def keep_on(work: Callable[[], object], busy: float, parent: int) -> None:
    end = time.perf_counter()
    while os.getppid() == parent:
        begin = max(end, time.perf_counter() - PERIOD_S)  # what was missed is not made up for
        while time.perf_counter() < begin + busy * PERIOD_S:
            work()
        end = begin + PERIOD_S
        if busy < 1:
            time.sleep(max(0.0, end - time.perf_counter()))


def compute() -> Callable[[], object]:
    return lambda: sum(range(1000))


def copy() -> Callable[[], object]:
    source = memoryview(bytearray(b"1") * ARRAY_BYTES)
    target = memoryview(bytearray(b"0") * ARRAY_BYTES)
    place = 0

    def work() -> None:
        nonlocal place
        target[place : place + COPIED_BYTES] = source[place : place + COPIED_BYTES]
        place = (place + COPIED_BYTES) % ARRAY_BYTES

    return work


def send_bytes() -> Callable[[], object]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        while True:
            receiver, address = server.accept()
            if address == sender.getsockname():
                break
            receiver.close()
    buffer = bytearray(SENT_BYTES)

    def receive() -> None:
        while receiver.recv_into(buffer):
            pass

    threading.Thread(target=receive, daemon=True).start()
    return lambda: sender.sendall(buffer)


WORK = {"cpu": compute, "memory": copy, "network": send_bytes}
