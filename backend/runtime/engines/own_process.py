"""An engine in a process of its own, for libraries that hold the GIL while they compute.

The tensors lie in memory that both processes see; a frame costs two short messages and a copy of
its tensors. The process is started before MPI is, ends when its rank does however that ends, and
what goes wrong in it is told by the rank.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError, signal_name
from ..figures.rank_figures import count_process, forget_process
from ..job import TensorSpec, typed_view
from .acceleration import Acceleration

_PR_SET_PDEATHSIG = 1
_ALIGNMENT = 64
_MAX_LOG_BYTES = 1 << 20
_END_TIMEOUT_S = 2.0

_PROGRAM = """
import importlib, json, sys
sys.path[:] = json.loads(sys.argv[1])
importlib.import_module(sys.argv[2]).serve(*map(int, sys.argv[3:]))
"""

_waiting: list[_Process] = []
"""Processes that were started and have no sub-model yet."""


def start_processes(count: int) -> None:
    """Start processes for engines that are opened later."""
    _waiting.extend(_Process() for _ in range(count))


class _Process:
    """The other process: its two ends of a connection, its log, and memory to share."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        # Both are files without names, so nothing is left behind however the processes end.
        self.log = os.memfd_create("rankslice-log")
        self.memory = os.memfd_create("rankslice-tensors")
        shared = (theirs.fileno(), self.memory, self.log)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, json.dumps(sys.path), __name__]
            + [str(number) for number in (os.getpid(), *shared)],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            pass_fds=shared,
        )
        theirs.close()
        self.connection = Connection(ours.detach())
        count_process(self._process.pid)

    def ask(self, record: bytes) -> bytes:
        """Send a message and return the answer; the GIL is released meanwhile.

        Raises:
            JobError: the process has ended.
        """
        try:
            self.connection.send_bytes(record)
            return self.connection.recv_bytes()
        except (EOFError, OSError):
            raise JobError(f"the process of the accelerator {self._how_it_ended()}") from None

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return "has closed its connection"
        ended = f"ended with exit code {code}"
        if code < 0:
            ended = f"was killed or crashed ({signal_name(-code)})"
        last = self.log_text().strip().splitlines()[-1:]
        return f"{ended}; its last words: {last[0].strip()}" if last else ended

    def log_text(self) -> str:
        """Return what the process and its libraries have printed."""
        return read_log(self.log)

    def close(self) -> None:
        """End the process."""
        self.connection.close()
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        forget_process(self._process.pid)
        os.close(self.log)
        os.close(self.memory)


def read_log(descriptor: int) -> str:
    """Return the content of a log, without moving where it is written."""
    return os.pread(descriptor, _MAX_LOG_BYTES, 0).decode(errors="replace")


class OwnProcessEngine:
    """The rank's side: copies tensors to and fro, and waits."""

    def __init__(self, module: str, settings: Any) -> None:
        """Take a process that waits, or start one.

        Args:
            module: in this folder, with ``open_engine``; the other process loads it.
            settings: for the engine.
        """
        self._module = module
        self._settings = settings
        self._process: _Process | None = _waiting.pop() if _waiting else _Process()
        self._inputs: list[NDArray[Any]] = []
        self._outputs: list[NDArray[Any]] = []
        self._acceleration: Acceleration | None = None
        self._name = ""
        self._hindrance = ""

    def load(self, path: Path, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        """Let the other process load the sub-model, on this thread's cores."""
        assert self._process is not None
        self._name = path.name
        arrays = _shared_arrays(self._process.memory, [*inputs, *outputs], create=True)
        self._inputs, self._outputs = arrays[: len(inputs)], arrays[len(inputs) :]
        answer = self._ask(
            {
                "module": self._module,
                "settings": asdict(self._settings),
                "cores": sorted(os.sched_getaffinity(0)),
                "path": str(path),
                "inputs": [asdict(spec) for spec in inputs],
                "outputs": [asdict(spec) for spec in outputs],
            }
        )
        self._hindrance = answer["warm_up_hindrance"]
        if answer["acceleration"] is not None:
            record = answer["acceleration"]
            self._acceleration = Acceleration(
                **{**record, **{name: tuple(record[name]) for name in ("others", "uses")}}
            )

    def _ask(self, record: dict[str, Any] | None) -> dict[str, Any]:
        assert self._process is not None
        try:
            answer = self._process.ask(json.dumps(record).encode() if record else b"")
        except JobError as error:
            raise JobError(f"{self._name}: {error}") from None
        values: dict[str, Any] = json.loads(answer) if answer else {}
        if "error" in values:
            raise JobError(values["error"])
        return values

    def run(self, inputs: Sequence[NDArray[Any]], outputs: Sequence[NDArray[Any]]) -> None:
        """Copy the inputs in, wait for the other process, copy the outputs out."""
        for shared, values in zip(self._inputs, inputs, strict=True):
            np.copyto(shared, values, casting="no")
        self._ask(None)
        for target, shared in zip(outputs, self._outputs, strict=True):
            np.copyto(target, shared, casting="no")

    def warm_up_hindrance(self) -> str:
        """Say what the other process's engine says."""
        return self._hindrance

    def acceleration(self) -> Acceleration | None:
        """Tell what the other process's engine tells."""
        return self._acceleration

    def close(self) -> None:
        """End the other process."""
        self._inputs, self._outputs = [], []
        if self._process is not None:
            self._process.close()
            self._process = None


def _shared_arrays(
    descriptor: int, tensors: Sequence[TensorSpec], *, create: bool
) -> list[NDArray[Any]]:
    """Return the tensors' values, in memory that lasts as long as they are referred to."""
    size = sum(map(_stride, tensors)) or 1
    if create:
        os.ftruncate(descriptor, size)
    block = np.frombuffer(mmap.mmap(descriptor, size), np.uint8)
    arrays, begin = [], 0
    for tensor in tensors:
        arrays.append(typed_view(tensor, block[begin : begin + _stride(tensor)]))
        begin += _stride(tensor)
    return arrays


def _stride(tensor: TensorSpec) -> int:
    return max(1, -(-tensor.nbytes // _ALIGNMENT)) * _ALIGNMENT


# The other process.


def serve(parent: int, connection: int, memory: int, log: int) -> None:
    """Run in the other process: load a sub-model, then run it whenever told, to the end."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    # Whoever ends the rank ends this process; a signal to all of them is for the rank to handle.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = Connection(connection)
    try:
        engine, inputs, outputs = _load(channel, memory)
        while True:
            channel.recv_bytes()
            channel.send_bytes(_answer(lambda: engine.run(inputs, outputs)))
            if os.fstat(log).st_size > _MAX_LOG_BYTES:
                os.ftruncate(log, 0)
    except (EOFError, OSError, SystemExit):
        os._exit(0)


def _load(channel: Connection, memory: int) -> tuple[Any, list[Any], list[Any]]:
    request = json.loads(channel.recv_bytes())
    os.sched_setaffinity(0, request["cores"])
    from . import EngineSettings

    inputs, outputs = (
        [TensorSpec(item["name"], item["dtype"], tuple(item["shape"])) for item in request[side]]
        for side in ("inputs", "outputs")
    )
    opened: list[Any] = []

    def load() -> dict[str, Any]:
        module = importlib.import_module(f".{request['module']}", __package__)
        opened.append(module.open_engine(EngineSettings(**request["settings"])))
        opened[0].load(Path(request["path"]), inputs, outputs)
        found = opened[0].acceleration()
        return {
            "acceleration": found.to_json() if found is not None else None,
            "warm_up_hindrance": opened[0].warm_up_hindrance(),
        }

    answer = _answer(load)
    channel.send_bytes(answer)
    if b'"error"' in answer[:10]:
        raise SystemExit
    arrays = _shared_arrays(memory, [*inputs, *outputs], create=False)
    return opened[0], arrays[: len(inputs)], arrays[len(inputs) :]


def _answer(step: Any) -> bytes:
    """Do a step; return what it gave, or what went wrong with its kind and text."""
    try:
        record = step()
    except JobError as error:
        record = {"error": str(error)}
    except Exception as error:  # whatever a library raises crosses to the rank as text
        record = {"error": f"{type(error).__name__}: {error}"}
    return json.dumps(record).encode() if record else b""
