"""How long sub-models take on one accelerator of this board: ``python -m runtime.profiling WHAT``.

``WHAT`` is a JSON object: the accelerator as the rank of a job. Requests come on stdin,
one JSON object a line, and each is answered by a line on stdout before the next one is read. At the
end of stdin the program ends.

Sub-models run as in a rank: the same engine, options and cores, on slots of the runtime. Each runs
in a process forked for it, so that its memory can be measured and a crash ends nothing else.
"""

from __future__ import annotations

import base64
import ctypes
import json
import multiprocessing
import os
import platform
import shutil
import signal
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from itertools import accumulate
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from .direct.memory import Memory, make_memory
from .engines import engine_settings, engine_version, has_own_process, open_engine
from .errors import BoundError, JobError, reason_of, signal_name
from .faults.private_folder import in_memory, make_private
from .figures.operator_rows import operator_rows
from .figures.rank_usage import GpuMemory, peak_memory_mb
from .job import Facts, Rank, Tensor
from .job.strict import as_record
from .options import RunOptions
from .pipeline.slots import Ring, ring_bytes
from .process_setup import bind_to_cores, start_again_with
from .sizes import OpenSlot, Slot, make_slot, slot_bytes, values_in
from .sources.random_source import RandomSource
from .system.board.energy import SensorError, find_sensor
from .system.cores import clock_of, core_kinds, core_numbers, processor

Record = dict[str, Any]

_CONTEXT = multiprocessing.get_context("fork")
_MARK = "rankslice-answer "
_PR_SET_PDEATHSIG = 1
_BLOCK = 1 << 20
_SLOTS = 2
_WARM_RUNS = 2
_WARM_S = 0.5
"""Warming up ends after this time, once there was a run."""


def main(text: str) -> None:
    """Answer requests until there are no more."""
    what = json.loads(text)
    rank: Rank = as_record(Rank, what["rank"])
    start_again_with(dict(rank.environment))
    # Python warns of forks in processes with threads; those of numpy's library wait for work.
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # all other output goes to stderr

    def say(record: Record) -> None:
        print(f"{_MARK}{json.dumps(record)}", file=answers, flush=True)

    with make_private(in_memory()) as folder:
        service = _Service(rank, folder.path)
        try:
            say(service.greeting(what["idle_s"]))
        except JobError as error:
            say({"error": str(error)})
            return
        for request in _requests():
            say(service.answer(request))
        service.stop()


def _requests() -> Iterator[Record]:
    """Yield what stdin has, read without a buffer that a child would share."""
    left = b""
    while block := os.read(0, _BLOCK):
        *lines, left = (left + block).split(b"\n")
        yield from map(json.loads, lines)


class _Service:
    def __init__(self, rank: Rank, folder: Path) -> None:
        self._rank = rank
        self._settings = engine_settings(rank, exact=False)
        self._folder = folder
        self._busy: ForkProcess | None = None

    def greeting(self, idle_s: float) -> Record:
        """Describe the accelerator and its board.

        Raises:
            JobError: the accelerator cannot be used here.
        """
        if self._rank.cores:
            bind_to_cores(self._rank.cores)
        sensor = find_sensor()
        idle_mw = None
        if sensor is not None:
            with sensor, suppress(SensorError):
                time.sleep(idle_s)
                idle_mw = round(1e3 * sensor.joules() / sensor.seconds) if idle_s else None
        open_engine(self._rank.engine, self._settings).close()
        cores = core_numbers()
        board = {
            "name": self._rank.board,
            "sensor": sensor.name if sensor is not None else None,
            "idle_mw": idle_mw,
            "host": socket.gethostname(),
            "machine": platform.machine(),
            "processor": processor(),
            "python": platform.python_version(),
            "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
            "cores": [
                {"number": number, "governor": governor, "most_khz": most_khz}
                for number in cores
                for governor, most_khz in [clock_of(number)]
            ],
        }
        return {
            "engine_version": engine_version(self._rank.engine),
            "rank_bytes": round(1e6 * peak_memory_mb()),
            "core_kinds": core_kinds(cores[-1] + 1),
            "board": board,
        }

    def answer(self, request: Record) -> Record:
        self.stop()
        once = {"measure": self._measure, "operators": self._operators}.get(request["action"])
        if once is not None:
            return _report_of(*_fork(lambda _: once(request)))
        if request["action"] == "compute":
            self._busy, pipe = _fork(lambda say: self._compute(request, say))
            return _report_of(self._busy, pipe)
        return {}

    def _operators(self, request: Record) -> Record:
        settings = replace(self._settings, profile=str(self._folder / "profile"))
        with _Loaded(self._rank, settings, request, self._folder) as loaded:
            runs = len(list(_samples(loaded, request)))
            spans = loaded.engine.operators()
        if spans is None:
            return {"problem": f"the engine {self._rank.engine} does not report operators"}
        return {"rows": [asdict(row) for row in operator_rows(spans, runs)]}

    def _compute(self, request: Record, say: Callable[[Record], None]) -> NoReturn:
        """Run a sub-model again and again, until the next request."""
        with self._loaded(request) as loaded:
            loaded.pass_frame()
            say({})
            while True:
                loaded.pass_frame()

    def stop(self) -> None:
        if self._busy is not None:
            _end(self._busy)
            self._busy = None
        for left in self._folder.iterdir():
            shutil.rmtree(left, ignore_errors=True)

    def _measure(self, request: Record) -> Record:
        with self._loaded(request) as loaded:
            samples = list(_samples(loaded, request))
            record: Record = {
                "samples_ns": samples,
                "memory_bytes": max(0, round(1e6 * (peak_memory_mb() - loaded.before_mb))),
                "gpu_bytes": loaded.gpu_memory.bytes(),
            }
            if request["energy_s"]:
                record["energy_uj"] = _energy_uj(loaded.pass_frame, request["energy_s"])
        return record

    def _loaded(self, request: Record) -> _Loaded:
        return _Loaded(self._rank, self._settings, request, self._folder)


class _RefusedError(JobError):
    """The accelerator cannot run the layers."""


class _Loaded:
    """A sub-model in its engine, with slots: a context manager."""

    def __init__(self, rank: Rank, settings: Any, request: Record, folder: Path) -> None:
        self._rank, self._request = rank, request
        self._settings = replace(settings, facts=as_record(Facts, request["facts"]))
        if request["engine"]:
            self._rank = replace(rank, engine=request["engine"])
            self._settings = replace(self._settings, options={})
        self._folder = folder
        self._resources = ExitStack()
        self._memories: list[Memory] = []
        self._turn = 0

    def __enter__(self) -> _Loaded:
        sides = (self._request["inputs"], self._request["outputs"])
        inputs, outputs = ([as_record(Tensor, record) for record in side] for side in sides)
        rings = self._make_rings([*inputs, *outputs])
        self._inputs, self._outputs = rings[: len(inputs)], rings[len(inputs) :]
        frames = self._request["frames"] or [[(spec.shape, None) for spec in inputs]]
        self._received = [_messages(inputs, *frame) for frame in enumerate(frames)]
        self._sent = [np.zeros_like(ring.raw[0]) for ring in self._outputs]
        try:
            path = _write_files(self._request["files"], self._folder)
        except OSError as error:
            raise JobError(f"{self._folder.parent}: {reason_of(error)}") from None
        self.before_mb = peak_memory_mb()
        self.gpu_memory = GpuMemory(self._rank.accelerator)
        self.engine = open_engine(self._rank.engine, self._settings)
        self._resources.callback(self.engine.close)
        self.engine.share(self._memories)
        try:
            self.engine.load(path, *map(self._settings.facts.in_file, (inputs, outputs)))
        except JobError as error:
            self._resources.close()
            raise _RefusedError(str(error)) from None
        return self

    def __exit__(self, *ended: object) -> None:
        self._resources.close()

    def _make_rings(self, tensors: list[Tensor]) -> list[Ring]:
        """Make slots as in a rank: in memory that an engine in its own process can map."""
        if not has_own_process(self._rank.engine, self._settings):
            return [Ring(spec, _SLOTS, 0) for spec in tensors]
        ends = list(accumulate((ring_bytes(spec, _SLOTS) for spec in tensors), initial=0))
        self._memories = [make_memory(ends[-1], others_write=True)]
        self._resources.callback(os.close, self._memories[0].descriptor)
        return [
            Ring(spec, _SLOTS, 0, self._memories[0].content[begin:])
            for spec, begin in zip(tensors, ends, strict=False)
        ]

    def pass_frame(self) -> int:
        """Run once, on the next frame and the next slots, as in a rank; return the nanoseconds.

        Inputs are copied into the slots before and outputs out of them after, outside the measured
        time, so that caches are as in a pipeline.
        """
        self._turn += 1
        turn, received = self._turn % _SLOTS, self._received[self._turn % len(self._received)]
        for ring, message in zip(self._inputs, received, strict=True):
            np.copyto(ring.raw[turn][: message.size], message)
        inputs = [values_in(ring.slots[turn]) for ring in self._inputs]
        begin = time.perf_counter_ns()
        # From values that no layer has made, data may decide on more than there is room for.
        with suppress(BoundError):
            self.engine.run(inputs, [ring.slots[turn] for ring in self._outputs])
        taken = time.perf_counter_ns() - begin
        for ring, sent in zip(self._outputs, self._sent, strict=True):
            message = _message(ring.slots[turn], ring.raw[turn])
            np.copyto(sent[: message.size], message)
        return max(1, taken)


def _messages(inputs: list[Tensor], number: int, frame: list[list[Any]]) -> list[NDArray[np.uint8]]:
    """Make what a rank would receive of a frame.

    ``frame``: by input, its shape, and its values in base64; ``None``: random ones.
    """
    memory = [np.zeros(slot_bytes(spec), np.uint8) for spec in inputs]
    slots = [make_slot(spec, raw) for spec, raw in zip(inputs, memory, strict=True)]
    here = [spec.of_shape(shape) for spec, (shape, _) in zip(inputs, frame, strict=True)]
    arrays = [
        slot.shaped(spec.shape) if isinstance(slot, OpenSlot) else slot
        for spec, slot in zip(here, slots, strict=True)
    ]
    RandomSource(RunOptions(), here).read(number, arrays)
    for values, (_, text) in zip(arrays, frame, strict=True):
        if text:
            known = np.frombuffer(base64.b64decode(text), values.dtype)
            np.copyto(values, known.reshape(values.shape))
    return [_message(slot, raw) for slot, raw in zip(slots, memory, strict=True)]


def _message(slot: Slot, raw: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return raw[: slot.message_bytes] if isinstance(slot, OpenSlot) else raw


def _samples(loaded: _Loaded, request: Record) -> Iterator[int]:
    """Yield times in nanoseconds: of enough runs, for long enough."""
    begin = time.perf_counter_ns()
    for _ in range(_WARM_RUNS):
        loaded.pass_frame()
        if time.perf_counter_ns() - begin > 1e9 * _WARM_S:
            break
    total = count = 0
    while count < request["min_runs"] or (
        total < 1e9 * request["min_s"] and count < request["max_runs"]
    ):
        taken = loaded.pass_frame()
        yield taken
        total, count = total + taken, count + 1


def _energy_uj(run: Callable[[], object], seconds: float) -> int | None:
    """Mean energy of a run in microjoules; ``None`` without a working sensor."""
    sensor = find_sensor()
    if sensor is None:
        return None
    count = 0
    with sensor, suppress(SensorError):
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            run()
            count += 1
        return round(1e6 * sensor.joules() / count)
    return None


def _write_files(files: dict[str, list[Any]], folder: Path) -> Path:
    """Write a sub-model's files; return the first one's path.

    A piece is bytes, in base64, or a range of one of the package's files: name, offset, length.
    """
    target = Path(tempfile.mkdtemp(dir=folder))
    for name, pieces in files.items():
        with (target / name).open("wb") as file:
            for piece in pieces:
                if isinstance(piece, str):
                    file.write(base64.b64decode(piece))
                else:
                    _copy(file, *piece)
    return target / next(iter(files))


def _copy(target: Any, name: str, offset: int, length: int) -> None:
    with Path(name).open("rb") as source:
        source.seek(offset)
        while length > 0:
            block = source.read(min(length, _BLOCK))
            if not block:
                raise JobError(f"{name}: ends too early: was it changed?")
            target.write(block)
            length -= len(block)


# Processes


def _fork(work: Callable[[Callable[[Record], None]], Record]) -> tuple[ForkProcess, Connection]:
    """Start a process that does some work and reports on it: what it says, and its result."""
    pipe, reports = _CONTEXT.Pipe(duplex=False)
    parent = os.getpid()

    def run() -> None:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return
        try:
            reports.send(work(reports.send))
        except JobError as error:
            refused = isinstance(error, _RefusedError)
            reports.send({"problem": str(error), "refused": refused})
        except Exception as error:  # engines' exceptions have no common base class
            reports.send({"problem": f"{type(error).__name__}: {error}"})

    child = _CONTEXT.Process(target=run, daemon=True)
    child.start()
    reports.close()
    return child, pipe


def _report_of(child: ForkProcess, pipe: Connection) -> Record:
    """Wait for a child's report; end everything if the launcher ends meanwhile."""
    with pipe:
        if pipe not in wait([pipe, 0]):  # nobody asks before an answer: it is the end
            _end(child)
            raise SystemExit
        try:
            record: Record = pipe.recv()
            return record
        except EOFError:
            child.join()
    code = child.exitcode or 0
    if code < 0:
        return {"problem": f"the engine was killed or crashed ({signal_name(-code)})"}
    return {"problem": "the engine ended the process"}


def _end(child: ForkProcess) -> None:
    child.kill()
    child.join()


if __name__ == "__main__":
    np.seterr(all="ignore")
    main(sys.argv[1])
