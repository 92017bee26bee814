"""The process that works beside a job: ``KIND BUSY CORES``, until it is ended.

It works for a share of each hundredth of a second, and sleeps for the rest.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable

_PERIOD_S = 0.01
_ARRAY_BYTES = 64 << 20
"""More than the caches of most processors."""
_COPIED_BYTES = 1 << 20
_SENT_BYTES = 1 << 16


def _main(kind: str, busy: float, cores: set[int]) -> None:
    if cores:
        os.sched_setaffinity(0, cores)
    work = _WORK[kind]()
    print("ready", flush=True)
    end = time.perf_counter()
    while True:
        begin = max(end, time.perf_counter() - _PERIOD_S)  # what was missed is not made up for
        while time.perf_counter() < begin + busy * _PERIOD_S:
            work()
        end = begin + _PERIOD_S
        if busy < 1:
            time.sleep(max(0.0, end - time.perf_counter()))


def _compute() -> Callable[[], object]:
    return lambda: sum(range(1000))


def _copy() -> Callable[[], object]:
    """Return what copies the next part of a large array to another one."""
    import numpy as np

    source = np.ones((_ARRAY_BYTES // _COPIED_BYTES, _COPIED_BYTES), np.uint8)
    target = np.zeros_like(source)
    place = 0

    def work() -> None:
        nonlocal place
        target[place] = source[place]
        place = (place + 1) % len(source)

    return work


def _send() -> Callable[[], object]:
    """Return what sends bytes over the loopback interface to another thread of this process."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        while True:
            receiver, address = server.accept()
            if address == sender.getsockname():
                break
            receiver.close()
    buffer = bytearray(_SENT_BYTES)

    def receive() -> None:
        while receiver.recv_into(buffer):
            pass

    threading.Thread(target=receive, daemon=True).start()
    return lambda: sender.sendall(buffer)


_WORK: dict[str, Callable[[], Callable[[], object]]] = {
    "cpu": _compute,
    "memory": _copy,
    "network": _send,
}


if __name__ == "__main__":
    _main(sys.argv[1], float(sys.argv[2]), {int(core) for core in sys.argv[3].split(",") if core})
