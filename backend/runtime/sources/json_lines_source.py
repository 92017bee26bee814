"""Frames from text files with a frame per line; here, lines are JSON objects.

Each line can be read at any time.
"""

from __future__ import annotations

import io
import json
import math
import weakref
from abc import abstractmethod
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import FrameError, JobError
from . import FileSource, open_ordinary, refuse_unknown_inputs, write_frame

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..job import Tensor
    from ..options import RunOptions
    from ..sizes import Slot

_BYTES_PER_VALUE = 32
_MORE_BYTES = 1 << 16
"""For names, and for what is no input."""
_NUMBERS = {bool, int, float}
_KINDS = {"b": "b", "i": "iu", "u": "iu", "f": "fiu"}
"""Kinds of numbers that fit those of an input, by numpy's letters."""
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


class JsonLinesSource(LinesSource):
    """An object per line with a number or nested lists of them for each model input."""

    usage = ("FILE.jsonl",)
    suffixes = (".jsonl",)
    description = "a .jsonl file"

    def __init__(self, options: RunOptions, inputs: Sequence[Tensor]) -> None:
        check_types(inputs)
        super().__init__(options, inputs, longest_line(inputs))

    def _values(self, line: bytes, name: str) -> list[NDArray[Any]]:
        return values_of_line(line, name, self._inputs)


def check_types(inputs: Sequence[Tensor]) -> None:
    """Check that JSON has numbers of the inputs' types.

    Raises:
        JobError: it lacks one.
    """
    for spec in inputs:
        if spec.storage[0].name != spec.dtype:
            raise JobError(
                f"--input: model input {spec.name!r} is {spec.dtype}, which JSON does not have:"
                " give an .npz file"
            )


def longest_line(inputs: Sequence[Tensor]) -> int:
    values = sum(math.prod(spec.shape) for spec in inputs)
    return _BYTES_PER_VALUE * values + _MORE_BYTES


def values_of_line(line: bytes, name: str, inputs: Sequence[Tensor]) -> list[NDArray[Any]]:
    """Return the values of a line, an array per model input.

    Raises:
        JobError: they do not fit.
    """
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        expected = f"an object with {', '.join(repr(spec.name) for spec in inputs)}"
        raise FrameError(f"{name} is not a JSON object; expected {expected}")
    missing = [spec.name for spec in inputs if spec.name not in record]
    if missing:
        raise FrameError(f"{name} has no values for {missing[0]!r}")
    arrays = (key for key, value in record.items() if type(value) in {list, *_NUMBERS})
    refuse_unknown_inputs(name, arrays, inputs)
    try:
        return [_array(record[spec.name], spec) for spec in inputs]
    except JobError as error:
        raise FrameError(f"{name}: {error}") from None


def _array(value: Any, spec: Tensor) -> NDArray[Any]:
    import numpy as np

    dtype = spec.storage[0]
    try:
        # Of words, numpy would make an array in which each takes as much memory as the longest.
        array = np.array(value if _is_of_numbers(value) else None)
    except (ValueError, OverflowError, RecursionError):
        array = np.array(None)
    is_empty = not array.size and array.dtype.kind == "f"
    if array.dtype.kind not in _KINDS.get(dtype.kind, "") and not is_empty:
        raise JobError(
            f"{spec.name!r} is not {spec.dtype} numbers in lists of equal lengths; expected the"
            f" shape {list(spec.shape)}{', or smaller' if spec.is_open else ''}"
        )
    if dtype.kind in "iu" and array.size:
        limits = np.iinfo(dtype)
        low, high = array.min(), array.max()
        if low < limits.min or high > limits.max:
            raise JobError(f"{spec.name!r} has values beyond {dtype}")
    axis_0_is_1 = spec.shape[:1] == (1,) or any(spec.symbols[:1])
    if array.ndim == len(spec.shape) - 1 and axis_0_is_1:  # tokenizers leave the batch out
        array = array[np.newaxis]
    spec.of_shape(array.shape)
    with np.errstate(over="ignore"):
        return array.astype(dtype)


def _is_of_numbers(value: Any) -> bool:
    """Return whether a value of JSON is a number, or (nested) lists of numbers."""
    if type(value) is not list:
        return type(value) in _NUMBERS
    kinds = set(map(type, value))
    return kinds <= _NUMBERS or (kinds == {list} and all(map(_is_of_numbers, value)))


SOURCE = JsonLinesSource
