"""Tells the launcher how many frames have come out."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from ..job import Job
from ..options import RunOptions
from . import Sink

_EVERY_S = 0.2


class ProgressSink(Sink):
    """Prints a line ``completed N`` now and then, and at the end."""

    is_last = True

    @classmethod
    def open(cls, job: Job, options: RunOptions) -> Sink | None:
        return cls() if options.progress else None

    def __init__(self) -> None:
        self._completed = 0
        self._next_s = 0.0

    def write(self, frame: int, outputs: Sequence[NDArray[Any]]) -> None:
        self._completed += 1
        if time.monotonic() >= self._next_s:
            self.finish()

    def finish(self) -> None:
        # mpirun's daemon may have been killed; the watchdog and the launcher tell of that.
        with contextlib.suppress(OSError):
            os.write(1, f"completed {self._completed}\n".encode())
        self._next_s = time.monotonic() + _EVERY_S


SINK = ProgressSink
