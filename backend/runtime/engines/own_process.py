"""An engine in a process of its own, for libraries that hold the GIL while they compute.

It maps the memory of the slots, so a frame costs two short messages that say where its tensors
are. The process is started before MPI is, ends when its rank does however that ends, and what goes
wrong in it is reported by the rank.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..direct.memory import Memory, map_memory
from ..errors import JobError, signal_name
from ..figures.rank_usage import helper_processes
from ..job import Tensor, typed_view
from ..keeper import bytes_of
from . import Engine, EngineSettings, refuse_open_sizes

_PR_SET_PDEATHSIG = 1
_PLACE = struct.Struct("=qq")
"""Number of a memory that both processes have mapped, and where in it a tensor begins."""
_MESSAGE = _PLACE.pack(-1, 0)
"""A place of no such memory: the values are sent."""
_MAX_FRAMES = 4096
"""Combinations of places that the other process remembers."""
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
    _waiting.extend(_Process() for _ in range(count))


class _Process:
    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        # A file without a name, so nothing is left behind however the processes end.
        self.log = os.memfd_create("rankslice-log")
        self.name = ""
        shared = (theirs.fileno(), self.log)
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
        helper_processes.add(self._process.pid)

        self.send, self.receive = self.connection.send_bytes, self.connection.recv_bytes

    def hand_over(self, descriptor: int) -> None:
        send_handle(self.connection, descriptor, self._process.pid)

    @contextmanager
    def talk(self) -> Iterator[None]:
        """Turn errors of the connection into a :class:`JobError`: the process has ended."""
        try:
            yield
        except (EOFError, OSError):
            ended = self._how_it_ended()
            raise JobError(f"{self.name}: the process of the accelerator {ended}") from None

    def _how_it_ended(self) -> str:
        code = self._ended()
        if code is None:
            return "has closed its connection"
        ended = f"ended with exit code {code}"
        if code < 0:
            ended = f"was killed or crashed ({signal_name(-code)})"
        last = read_log(self.log).strip().splitlines()[-1:]
        return f"{ended}; its last words: {last[0].strip()}" if last else ended

    def _ended(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(_END_TIMEOUT_S)
        return None

    def close(self) -> None:
        if self.connection.closed:
            return
        self.connection.close()
        if self._ended() is None:
            self._process.kill()
            self._process.wait()
        helper_processes.discard(self._process.pid)
        os.close(self.log)


def read_log(descriptor: int) -> str:
    """Return the content of a log, without moving where it is written."""
    return os.pread(descriptor, _MAX_LOG_BYTES, 0).decode(errors="replace")


class OwnProcessEngine(Engine):
    """The rank's side: tells where tensors are, and waits."""

    def __init__(self, module: str, settings: EngineSettings) -> None:
        """Take a process that waits, or start one; it loads ``module``, of this folder."""
        self._module = module
        self._settings = settings
        self._process = _waiting.pop() if _waiting else _Process()
        self._memories: Sequence[Memory] = ()
        self._places: dict[int, tuple[bytes, NDArray[Any]]] = {}
        """Slots, by identity, -> where they are, and themselves: so they stay what they are."""

    def share(self, memories: Sequence[Memory]) -> None:
        """Let the other process map memories when it loads; what is in no memory is sent to it."""
        self._memories = tuple(memories)

    def load(self, path: Path, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        refuse_open_sizes(path.name, (*inputs, *outputs), "a compiled model")
        self._process.name = path.name
        contents = [memory.content for memory in self._memories]
        request = _Request(
            module=self._module,
            settings=self._settings,
            cores=os.sched_getaffinity(0),
            path=path,
            sides=(tuple(inputs), tuple(outputs)),
            memories=[(content.nbytes, content.flags.writeable) for content in contents],
        )
        with self._process.talk():
            self._process.connection.send(request)
            for memory in self._memories:
                self._process.hand_over(memory.descriptor)
            _check(self._process.receive())
            self._acceleration = self._process.connection.recv()

    def run(self, inputs: Sequence[NDArray[Any]], outputs: Sequence[Any]) -> None:
        process, places = self._process, [self._place(array) for array in (*inputs, *outputs)]
        with process.talk():
            process.send(b"".join(places))
            for place, array in zip(places, inputs, strict=False):
                if place == _MESSAGE:
                    process.send(bytes_of(array))
            _check(process.receive())
            for place, array in zip(places[len(inputs) :], outputs, strict=True):
                if place == _MESSAGE:
                    bytes_of(array)[:] = process.receive()

    def _place(self, array: NDArray[Any]) -> bytes:
        known = self._places.get(id(array))
        if known is not None:
            return known[0]
        for number, memory in enumerate(self._memories):
            offset = memory.offset_of(array)
            if offset is not None:
                place = _PLACE.pack(number, offset)
                self._places[id(array)] = place, array
                return place
        return _MESSAGE

    def close(self) -> None:
        self._places = {}
        self._process.close()


class _Request(NamedTuple):
    module: str
    settings: EngineSettings
    cores: set[int]
    path: Path
    sides: tuple[tuple[Tensor, ...], tuple[Tensor, ...]]
    """Inputs and outputs."""
    memories: list[tuple[int, bool]]
    """Size of each memory, and whether it may be written; the descriptors follow."""


def _check(answer: bytes) -> None:
    if answer:
        raise JobError(answer.decode())


# The other process.


def serve(parent: int, connection: int, log: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    # Whoever ends the rank ends this process; a signal to all of them is for the rank to handle.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = Connection(connection)
    try:
        served = _Served(channel)
        while True:
            served.do_frame()
            if os.fstat(log).st_size > _MAX_LOG_BYTES:
                os.ftruncate(log, 0)
    except (EOFError, OSError, SystemExit):
        os._exit(0)


class _Frame(NamedTuple):
    inputs: list[NDArray[Any]]
    outputs: list[NDArray[Any]]
    sent: list[NDArray[np.uint8]]
    """Values of those outputs that are in no memory of both processes."""


class _Served:
    def __init__(self, channel: Connection) -> None:
        """Take the rank's request, load, and answer."""
        self._channel = channel
        request: _Request = channel.recv()
        os.sched_setaffinity(0, request.cores)
        self._inputs, self._outputs = request.sides
        descriptors = [recv_handle(channel) for _ in request.memories]
        self._memories: list[NDArray[np.uint8]] = []
        self._known: dict[bytes, _Frame] = {}
        problem = _problem(lambda: self._load(request, descriptors))
        channel.send_bytes(problem)
        if problem:
            raise SystemExit
        channel.send(self._engine.acceleration())

    def _load(self, request: _Request, descriptors: Sequence[int]) -> None:
        for descriptor, (size, writable) in zip(descriptors, request.memories, strict=True):
            self._memories.append(map_memory(descriptor, size, writable=writable))
            os.close(descriptor)
        module = importlib.import_module(f".{request.module}", __package__)
        self._engine: Engine = module.open_engine(request.settings)
        self._engine.load(request.path, *request.sides)

    def do_frame(self) -> None:
        message = self._channel.recv_bytes()
        known = self._known.get(message)
        inputs, outputs, sent = known if known is not None else self._find(message)
        problem = _problem(lambda: self._engine.run(inputs, outputs))
        self._channel.send_bytes(problem)
        if not problem:
            for array in sent:
                self._channel.send_bytes(bytes_of(array))

    def _find(self, message: bytes) -> _Frame:
        places = list(_PLACE.iter_unpack(message))
        frame = _Frame([], [], [])
        sides = [(spec, frame.inputs) for spec in self._inputs]
        sides += [(spec, frame.outputs) for spec in self._outputs]
        for (spec, side), (memory, offset) in zip(sides, places, strict=True):
            if memory >= 0:
                values = self._memories[memory][offset:]
            elif side is frame.inputs:
                values = np.frombuffer(self._channel.recv_bytes(), np.uint8)
            else:
                values = np.empty(spec.nbytes, np.uint8)
                frame.sent.append(values)
            side.append(typed_view(spec, values))
        if all(memory >= 0 for memory, _ in places) and len(self._known) < _MAX_FRAMES:
            self._known[message] = frame
        return frame


def _problem(step: Callable[[], None]) -> bytes:
    """Do a step; return why it failed, empty if it did not."""
    try:
        step()
    except JobError as error:
        return str(error).encode()
    except Exception as error:  # whatever a library raises crosses to the rank as text
        return f"{type(error).__name__}: {error}".encode(errors="replace")
    return b""
