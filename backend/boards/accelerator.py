"""Time and memory of sub-models on an accelerator of a board, measured by the runtime there.

The board gets one package, with the runtime and the model file. A sub-model is described by the
byte ranges of that file of which it consists. The board puts it together, byte for byte as
``build`` writes it, so nothing large travels.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

from rankslice.backend.boards.answers import Answer, read_answer
from rankslice.backend.boards.board_packages import Package
from rankslice.backend.boards.remote_process import RemoteProcess
from rankslice.backend.boards.ssh import BoardShell
from rankslice.backend.runtime.figures.operator_rows import OperatorRow
from rankslice.backend.runtime.job import NO_FACTS, Facts, Rank
from rankslice.backend.runtime.job.strict import plain
from rankslice.framework.engines import other_engine
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.graph import ByteRange, Tensor
from rankslice.framework.profile import MeasuredBoard
from rankslice.framework.reading.records import between
from rankslice.framework.wording import on_one_line

T = TypeVar("T")

_START_S = 60.0
_END_S = 2.0
_REMEDY = "rankslice profile ... --venv"


@dataclass(frozen=True, slots=True)
class SubModel:
    files: Mapping[str, Sequence[bytes | ByteRange]]
    """Content by name; the model first, then what lies beside it."""
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    frames: tuple[tuple[InputOfFrame, ...], ...] = ()
    """What it runs on in turn, by input; none: random values in the largest shapes."""
    facts: Facts = NO_FACTS
    format: str = ""
    """For which a CPU may have another engine than it usually has; empty: its own runs it."""


@dataclass(frozen=True, slots=True)
class InputOfFrame:
    """What a sub-model is given of one input in a frame."""

    shape: tuple[int, ...]
    values: bytes | None = None
    """Little-endian; ``None``: random ones."""

    def to_json(self) -> list[Any]:
        text = None if self.values is None else base64.b64encode(self.values).decode()
        return [list(self.shape), text]


@dataclass(frozen=True, slots=True)
class Timings:
    min_runs: int = 5
    min_s: float = 0.03
    """It runs until its runs have taken this time together, in seconds, ..."""
    max_runs: int = 50
    """... or there were this many."""
    energy_s: float = 0.0
    """Seconds for which it runs once more while energy is read; 0: not at all."""


_Amount = Annotated[int, between(0, 1 << 60)]


@dataclass(frozen=True, slots=True)
class Greeting:
    """The first answer of the program for an accelerator."""

    engine_version: str
    rank_bytes: _Amount
    """Memory of a process with the engine and no layers."""
    core_kinds: tuple[str, ...]
    """Kind and speed of each core, as far as the board knows; equal texts mean equal cores."""
    board: MeasuredBoard


@dataclass(frozen=True, slots=True)
class _Problems:
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """What was measured of a sub-model, or why nothing was."""

    samples_ns: tuple[Annotated[int, between(1, 1 << 60)], ...] = ()
    memory_bytes: _Amount | None = None
    gpu_bytes: _Amount | None = None
    energy_uj: _Amount | None = None
    rows: tuple[OperatorRow, ...] = ()
    problem: str | None = None
    refused: bool = False
    """Whether the accelerator cannot run these layers."""


_NO_READING: Answer = plain(Reading, Reading())


class Accelerator:
    """An accelerator of a board, and the program there that measures it: a context manager."""

    def __init__(
        self, shell: BoardShell, package: Package, rank: Rank, sources: Sequence[Path]
    ) -> None:
        """Take a board and its package.

        Args:
            package: of :func:`.write_profiler_package`; it must have been deployed, except on this
                machine.
        """
        self._shell, self._package, self._rank = shell, package, rank
        self._numbers = {path: f"sources/{number}" for number, path in enumerate(sources)}
        self._process: RemoteProcess | None = None

    @property
    def key(self) -> str:
        return self._rank.key

    def __enter__(self) -> Accelerator:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def greet(self, *, idle_s: float = 0.0) -> Greeting:
        """Start the program; return its description of the accelerator.

        Args:
            idle_s: seconds for which the idle board's power is measured first.

        Raises:
            RankSliceError: the board cannot be reached, lacks something, or does not have the
                accelerator.
        """
        self._end()
        environment = (*self._rank.environment, ("OPENBLAS_NUM_THREADS", "1"))
        rank = replace(self._rank, environment=environment)
        what = {"rank": plain(Rank, rank), "idle_s": idle_s}
        process = self._start(json.dumps(what))
        answer = process.answer(_START_S + idle_s)
        if answer is None:
            raise self._shell.mistake(process.complaint())
        if "error" in answer:
            raise self._shell.mistake(f"{self._rank.key}: {answer['error']}")
        if "problems" in answer:
            found = "; ".join(self._record(_Problems, answer).problems)
            raise self._shell.mistake(found.replace("rankslice deploy OUT --venv", _REMEDY))
        greeting = self._record(Greeting, answer)
        return replace(greeting, board=replace(greeting.board, name=self._rank.board))

    def _record(self, kind: type[T], answer: Answer) -> T:
        return read_answer(kind, answer, self._shell.login.full_name)

    def measure(self, model: SubModel, timings: Timings, *, timeout_s: float = 120.0) -> Reading:
        """Return the times of a sub-model.

        If the engine crashes or hangs, the reading says so, and the next call starts it again.
        """
        reading = self._ask("measure", timeout_s, model, timings)
        if not reading.samples_ns and reading.problem is None:
            return replace(reading, problem="no reason was given")
        return reading

    def operators(
        self, model: SubModel, timings: Timings, *, timeout_s: float = 120.0
    ) -> tuple[OperatorRow, ...]:
        """Return how long the operators of a sub-model take.

        Raises:
            RankSliceError: it cannot run, or the engine does not report its operators.
        """
        reading = self._ask("operators", timeout_s, model, timings)
        if reading.problem is not None:
            raise RankSliceError(Mistake(self.key, reading.problem))
        return reading.rows

    def compute(self, model: SubModel, *, timeout_s: float = 120.0) -> str:
        """Let a sub-model run repeatedly until the next request.

        Returns:
            Why it cannot run; empty: it runs.
        """
        return self._ask("compute", timeout_s, model).problem or ""

    def rest(self) -> None:
        self._ask("rest", _START_S)

    def _description(self, model: SubModel) -> dict[str, Any]:
        is_cpu = self._rank.accelerator == "cpu" and model.format
        return {
            "engine": other_engine(self._rank.engine, model.format) if is_cpu else "",
            "files": {name: [*map(self._piece, pieces)] for name, pieces in model.files.items()},
            "inputs": [asdict(tensor.in_job()) for tensor in model.inputs],
            "outputs": [asdict(tensor.in_job()) for tensor in model.outputs],
            "facts": plain(Facts, model.facts),
            "frames": [[values.to_json() for values in frame] for frame in model.frames],
        }

    def _piece(self, piece: bytes | ByteRange) -> str | list[Any]:
        if isinstance(piece, bytes):
            return base64.b64encode(piece).decode()
        return [self._numbers[piece.path], piece.offset, piece.length]

    def _ask(
        self,
        action: str,
        timeout_s: float,
        model: SubModel | None = None,
        timings: Timings | None = None,
    ) -> Reading:
        """Return the program's answer. If there is none, end the program and return the problem."""
        request = {"action": action} | (asdict(timings) if timings is not None else {})
        request |= self._description(model) if model is not None else {}
        if self._process is None:
            self.greet()
        assert self._process is not None
        self._process.write(json.dumps(request).encode() + b"\n")
        answer = self._process.answer(timeout_s)
        if answer is not None:
            return self._record(Reading, {**_NO_READING, **answer})
        hangs = not self._process.is_over
        words = self._process.last_words().strip().splitlines()
        self._end()
        found = f"no answer within {timeout_s:g} s" if hangs else "the program there has ended"
        return Reading(problem=f"{found}: {on_one_line(words[-1])}" if words else found)

    def _start(self, what: str) -> RemoteProcess:
        if self._shell.is_here:
            local = [sys.executable, "-m", "runtime.profiling", what]
            name, folder = self._shell.login.full_name, self._package.folder
            self._process = RemoteProcess(local, name, folder=folder)
        else:
            details = {"what": what, **self._package.needs(), **self._package.identity()}
            self._process = self._shell.start("measure", **details)
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.close(_END_S)
