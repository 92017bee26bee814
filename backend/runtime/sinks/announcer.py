"""The sink's voice: how many frames have come out."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from .results import ResultsWriter

__all__ = ["Announcer"]

_EVERY_S = 0.2


class Announcer:
    """Passes results on to their file and prints a line ``completed N`` now and then."""

    def __init__(self, writer: ResultsWriter, enabled: bool) -> None:
        self._writer = writer
        self._enabled = enabled
        self._completed = 0
        self._next_s = 0.0

    def write(self, frame: int, slots: Sequence[NDArray[Any]]) -> None:
        """Take one frame."""
        self._writer.write(frame, slots)
        self._completed += 1
        if self._enabled and time.monotonic() >= self._next_s:
            self._tell()

    def finish(self) -> None:
        """Tell the final number."""
        if self._enabled:
            self._tell()

    def _tell(self) -> None:
        # mpirun's daemon may have been killed; the guard and the launcher tell of that.
        with contextlib.suppress(OSError):
            os.write(1, f"completed {self._completed}\n".encode())
        self._next_s = time.monotonic() + _EVERY_S
