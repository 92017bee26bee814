"""Text files with a frame per line, any of which can be read at any time."""

from __future__ import annotations

import os
import weakref
from array import array
from collections.abc import Sequence
from pathlib import Path

from ..errors import JobError
from .numpy_files import open_ordinary

MAX_LINES = 1 << 22
"""Eight bytes of memory each."""


class Lines:
    """The lines of an open file, without their ends."""

    def __init__(self, path: Path, longest: int) -> None:
        """Find where lines begin.

        Raises:
            JobError: the file cannot be read, is empty, or has too many or too long lines.
        """
        self._path = path
        self._begins = array("q", [0])
        with open_ordinary(path) as file:
            self._descriptor = os.dup(file.fileno())
            self._close = weakref.finalize(self, os.close, self._descriptor)
            while line := file.readline(longest + 2):
                if len(line.rstrip(b"\r\n")) > longest:
                    raise JobError(f"{self.name(len(self))} has more than {longest} bytes")
                if len(self) == MAX_LINES:
                    raise JobError(f"{path}: has more than {MAX_LINES} lines: give fewer frames")
                self._begins.append(self._begins[-1] + len(line))
        if not len(self):
            raise JobError(f"{path}: is empty; expected a frame per line")

    def __len__(self) -> int:
        """Return the number of lines."""
        return len(self._begins) - 1

    def name(self, index: int) -> str:
        """Return how messages name a line, counted from 0."""
        return f"{self._path}: line {index + 1}"

    def read(self, index: int) -> bytes:
        """Return a line.

        Raises:
            JobError: the file cannot be read, or has changed.
        """
        begin, end = self._begins[index : index + 2]
        try:
            line = os.pread(self._descriptor, end - begin, begin)
        except OSError as error:
            raise JobError(f"{self._path}: cannot be read: {error.strerror}") from None
        if len(line) != end - begin:
            raise JobError(f"{self._path}: was truncated in the meantime")
        return line.rstrip(b"\r\n")

    def close(self) -> None:
        """Close the file."""
        self._close()


def only_file(inputs: Sequence[str]) -> Path:
    """Return the file that is the only input.

    Raises:
        JobError: there are others.
    """
    path = Path(inputs[0])
    if len(inputs) > 1:
        suffixes = sorted({Path(name).suffix.lower() for name in inputs})
        raise JobError(f"--input: a {' or '.join(suffixes)} file must be the only input")
    return path
