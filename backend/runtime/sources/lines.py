"""Text files with a frame per line, any of which can be read at any time."""

from __future__ import annotations

import io
import weakref
from abc import abstractmethod
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import JobError
from . import FileSource, open_ordinary, write_frame

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..job import Tensor
    from ..options import RunOptions
    from ..sizes import Slot

_MAX_LINES = 1 << 22
"""Eight bytes of memory each."""


def read_line(file: io.BufferedReader[Any], longest: int, name: str) -> bytes:
    """Read a line with its end; empty: there is none.

    Raises:
        JobError: the line, which messages call ``name``, has more than ``longest`` bytes.
    """
    line = file.readline(longest + 2)
    if len(line.rstrip(b"\r\n")) > longest:
        raise JobError(f"{name} has more than {longest} bytes")
    return line


class LinesSource(FileSource):
    def __init__(self, options: RunOptions, inputs: Sequence[Tensor], longest: int) -> None:
        """Check all lines, which may have ``longest`` bytes.

        Raises:
            JobError: the file cannot be read, or a line does not fit the model inputs.
        """
        from ..sizes import differing_size

        self._inputs = inputs
        self._path = Path(options.inputs[0])
        self._begins = array("q", [0])
        self._file = open_ordinary(self._path)
        self._close = weakref.finalize(self, self._file.close)
        while line := read_line(self._file, longest, self._name(len(self._begins) - 1)):
            if len(self._begins) > _MAX_LINES:
                raise JobError(f"{self._path}: has more than {_MAX_LINES} lines: give fewer frames")
            self._begins.append(self._begins[-1] + len(line))
        if len(self._begins) == 1:
            raise JobError(f"{self._path}: is empty; expected a frame per line")
        self._count_frames(len(self._begins) - 1, options)
        for index in range(self._count):
            name, frame = self._name(index), self._frame(index)
            try:
                shapes = [
                    spec.of_shape(values.shape).shape
                    for spec, values in zip(inputs, frame, strict=True)
                ]
            except JobError as error:
                raise JobError(f"{name}: {error}") from None
            if problem := differing_size(zip(inputs, shapes, strict=True)):
                raise JobError(f"{name}: {problem}")

    def _name(self, index: int) -> str:
        """Return how messages name a line, counted from 0."""
        return f"{self._path}: line {index + 1}"

    @abstractmethod
    def _values(self, line: bytes, name: str) -> Sequence[NDArray[Any]]:
        """Return the values of a line without its end, by model input.

        Raises:
            JobError: it has none.
        """

    def _frame(self, index: int) -> Sequence[NDArray[Any]]:
        begin, end = self._begins[index : index + 2]
        try:
            self._file.seek(begin)
            line = self._file.read(end - begin)
        except OSError as error:
            raise JobError(f"{self._path}: cannot be read: {error.strerror}") from None
        if len(line) != end - begin:
            raise JobError(f"{self._path}: was truncated in the meantime")
        return self._values(line.rstrip(b"\r\n"), self._name(index))

    def read(self, index: int, slots: Sequence[Slot]) -> None:
        write_frame(self._frame(index % self._count), slots)

    def label(self, index: int) -> str:
        return f"{self._path.name}:{index % self._count + 1}"

    def close(self) -> None:
        self._close()
