"""Frames at given gaps, and when they were sent and ready: what both sides of a channel share.

It needs numpy and nothing else, and takes part in programs without RankSlice. As an engine of a
build folder (:func:`null_jobs.let_ranks_stamp` puts it there) it paces rank 0 and stamps what comes
to rank 1; or it notes when another engine began and ended each run.
"""

from __future__ import annotations

import os
import struct
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

try:
    from . import Engine
except ImportError:  # in a program without RankSlice
    Engine: Any = object  # type: ignore[no-redef]

TURN = struct.Struct("=qqq")
"""Number of a turn, its gap in nanoseconds, and when it ends (``time.monotonic_ns``)."""
STAMP = struct.Struct("=qq")
"""Number of the turn, and when the frame was sent."""
RECORD = np.dtype([(name, "i8") for name in ("turn", "sent", "ready", "done", "cpu")])
"""Of a frame: times in nanoseconds, the last one the receiver's processor time so far."""
MIN_SUMMED = 3 << 20
"""Bytes; the receiver sums frames of this size or more."""


class Turns:
    """The turns of a sender, which are told to it through a FIFO."""

    def __init__(self, fifo: str) -> None:
        """Open the FIFO; who tells the turns has opened it, too."""
        self._fifo = os.open(fifo, os.O_RDONLY)
        self._turn = self._gap = self._until = self._due = 0

    def await_turn(self) -> int:
        """Sleep until there is a turn; return its number.

        Raises:
            EOFError: there are no more turns.
        """
        token = os.read(self._fifo, TURN.size)
        if not token:
            raise EOFError("no more turns")
        self._turn, self._gap, self._until = TURN.unpack(token)
        return self._turn

    def is_over(self) -> bool:
        """Whether the turn has come to its end."""
        return time.monotonic_ns() >= self._until

    def await_frame(self) -> int:
        """Sleep until the next frame is due; return the number of its turn, which has one at least.

        Raises:
            EOFError: there are no more turns.
        """
        self._due = max(self._due + self._gap, time.monotonic_ns())
        if self._due >= self._until:
            self.await_turn()
            self._due = time.monotonic_ns()
        time.sleep(max(0, self._due - time.monotonic_ns()) / 1e9)
        return self._turn


class Log:
    """Where a receiver notes its frames."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("ab", buffering=0)  # noqa: SIM115 - open until the end

    def note(self, turn: int, sent_ns: int, ready_ns: int, frame: Any = None) -> None:
        """Sum the frame's bytes, if it is large; write its record."""
        if frame is not None and frame.nbytes >= MIN_SUMMED:
            frame.reshape(-1).view(np.int64).sum()
        done_ns = time.monotonic_ns()
        record = (turn, sent_ns, ready_ns, done_ns, time.process_time_ns())
        self._file.write(struct.pack("=5q", *record))


def read_log(path: Path) -> Any:
    """Return the records of a log, as an array of :data:`RECORD`."""
    data = path.read_bytes() if path.exists() else b""
    return np.frombuffer(data[: len(data) // RECORD.itemsize * RECORD.itemsize], RECORD)


def open_engine(settings: Any) -> Any:
    """Return the engine of a rank; options: ``turns`` of a sender, ``log``, and ``inner``."""
    options = dict(settings.options)
    inner = options.get("inner")
    if inner is None:
        return _Paced(options)
    from . import open_engine as open_inner

    return _Watched(open_inner(inner, replace(settings, options={})), Log(options["log"]))


class _Paced(Engine):
    """Sends frames in turns, or notes what has come."""

    def __init__(self, options: dict[str, str]) -> None:
        self._turns = Turns(options["turns"]) if "turns" in options else None
        self._log = Log(options["log"]) if "log" in options else None
        self._frames = 0

    def load(self, path: Path, inputs: Any, outputs: Any) -> None:
        """Nothing is read."""

    def run(self, inputs: Any, outputs: Any) -> None:
        """Fill and stamp the output when it is due; or note the input."""
        ready_ns = time.monotonic_ns()
        if self._turns is not None:
            turn = self._turns.await_frame()
            self._frames += 1
            outputs[0].fill(self._frames)
            outputs[0].reshape(-1).view(np.int64)[:2] = (turn, time.monotonic_ns())
        elif self._log is not None:
            turn, sent_ns = inputs[0].reshape(-1).view(np.int64)[:2].tolist()
            self._log.note(turn, sent_ns, ready_ns, inputs[0])

    def warm_up_hindrance(self) -> str:
        """Its first run is already a turn."""
        return "it computes nothing"


class _Watched:
    """Another engine, with a record of each run: when it began (``ready``) and ended (``done``)."""

    def __init__(self, inner: Any, log: Log) -> None:
        self._inner, self._log = inner, log

    def run(self, inputs: Any, outputs: Any) -> None:
        """Let the other engine run."""
        begin_ns = time.monotonic_ns()
        self._inner.run(inputs, outputs)
        self._log.note(0, begin_ns, begin_ns)

    def bind(self, inputs: Any, outputs: Any) -> Any:
        """Return a function that does the same as ``run`` on these slots."""
        return partial(self.run, inputs, outputs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
