"""Actions of a probe: requests come on stdin, one a line, and each is answered by one line.

The program ends with its stdin, or when nothing is asked for two minutes.
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..protocol import Answer, Request, send
from ..system import home
from .device_files import load
from .environments import environment, mpiruns, open_mpi, pythons
from .machine_files import architecture, free_mb, hardware
from .network import addresses, connection, exchange, interfaces, listen, reach

IDLE_S = 120


def main() -> None:
    while True:
        signal.alarm(IDLE_S)  # a launcher whose cable was pulled never closes stdin
        line = sys.stdin.buffer.readline()
        signal.alarm(0)
        if not line:
            return
        request = json.loads(line)
        try:
            answer = ACTIONS[request["action"]](request)
        except OSError as error:
            answer = {"error": f"{error.filename or 'the board'}: {error.strerror or error}"}
        send(answer)


def report(request: Request) -> Answer:
    with ThreadPoolExecutor(8) as pool:
        own = pool.map(lambda python: environment(python, request["packages"]), pythons())
        versions = pool.map(open_mpi, mpiruns())
        return {
            "hostname": socket.gethostname(),
            "arch": architecture(),
            **hardware(Path("/"), request["searched"]),
            "disk_free_mb": free_mb(home()),
            "home": str(home()),
            "interfaces": list(interfaces(Path("/"))),
            **connection(request),
            "has_rsync": shutil.which("rsync") is not None,
            "environments": list(own),
            "open_mpi": [version for version in versions if version is not None],
        }


def clock(request: Request) -> Answer:
    del request
    return {"now_us": time.time_ns() // 1000}


ACTIONS = {
    action.__name__: action for action in (report, addresses, load, clock, listen, reach, exchange)
}
