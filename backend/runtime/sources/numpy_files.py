"""Numpy's files, ``.npz`` and ``.npy``, whose arrays are frames or stacks of them.

How many frames an array holds follows from its number of dimensions. One that has as many as the
model input is a frame, and one that has one more is a stack ``[frames, ...]``. There are two
exceptions where the numbers are equal. If the input's first size is fixed at 1, the array is a
stack that leaves it out. If it is open and the array has more rows than its bound, the array is
cut into frames of as many rows as the bound; the last may have fewer.
"""

from __future__ import annotations

import io
import math
import os
import re
import weakref
import zipfile
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError
from ..job import Tensor
from ..keeper import bytes_of
from ..sizes import Slot, is_aligned, private_memory, shaped
from . import open_ordinary, refuse_unknown_inputs

MAX_BYTES = 1 << 30
"""Of the arrays of an ``.npz`` file, which are held in memory."""

_MAX_NAMES = 10
_MAX_REASON_LETTERS = 200
"""Letters of an error's text, which may repeat what a file has."""
_MAX_LENT_BYTES = 32 << 20
"""Of an ``.npy`` file that is read before frame 0, and of frames that are copied to be aligned."""

_UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    TypeError,  # a head that is no dictionary
    KeyError,
    NotImplementedError,  # a way to compress that zipfile lacks
    RuntimeError,  # encrypted
    OverflowError,
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What zipfile and numpy raise for files that are not plain arrays."""


def _read_head(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the header of an array: its shape, whether it is in Fortran's order, and its type."""
    version = np.lib.format.read_magic(file)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read is None:
        raise ValueError(f"version {version} of numpy's format")
    head = read(file)
    if not all(0 <= size < 1 << 62 for size in head[0]):
        raise ValueError(f"shape {list(head[0])}")
    return head


@dataclass(frozen=True, slots=True)
class _Division:
    """How an array is divided into frames, along its first axis."""

    frames: int
    shape: tuple[int, ...]
    """Of each frame."""
    last: tuple[int, ...]
    """Of the last one, which may have fewer rows."""

    def note(self, name: str) -> str:
        """Return a note for the user on an array that is cut; empty: it is not."""
        if self.last == self.shape:
            return ""
        return (
            f"{name} has more rows than its bound: it is cut into {self.frames} frames of"
            f" {self.shape[0]} rows, the last one of {self.last[0]}"
        )


@dataclass(frozen=True, slots=True)
class Stack:
    """Frames of one input: arrays in memory."""

    frames: Sequence[NDArray[Any]] | NDArray[Any]
    note: str = ""
    """What the user is told of them; empty: nothing."""

    def __len__(self) -> int:
        return len(self.frames)

    def shape_of(self, index: int) -> tuple[int, ...]:
        return self.frames[index].shape

    def read(self, index: int, slot: Slot) -> None:
        """Copy a frame; those beyond their number begin again at the first."""
        values = self.frames[index % len(self.frames)]
        shaped(slot, values.shape)[...] = values

    def lent(self) -> Sequence[NDArray[Any]]:
        """Return the frames, aligned as slots are: where they lie, or copies if they are small."""
        frames = [np.asarray(frame) for frame in self.frames]
        if all(map(is_aligned, frames)):
            return frames
        is_small = sum(frame.nbytes for frame in frames) <= _MAX_LENT_BYTES
        return [_aligned(frame) for frame in frames] if is_small else ()

    def close(self) -> None:
        """Nothing is open."""


class FileStack:
    """Frames of one input, one after the other in a file."""

    def __init__(self, path: Path, begin: int, division: _Division, spec: Tensor) -> None:
        """Open a file, whose values begin there, in C order."""
        self._path, self._begin, self._division = path, begin, division
        self._frame_bytes = math.prod(division.shape) * spec.storage[0].itemsize
        self._is_fixed = not spec.is_open
        self.note = division.note("its array")
        self._file = open_ordinary(path)
        self._close = weakref.finalize(self, self._file.close)

    def __len__(self) -> int:
        return self._division.frames

    def shape_of(self, index: int) -> tuple[int, ...]:
        division = self._division
        return division.last if index == division.frames - 1 else division.shape

    def read(self, index: int, slot: Slot) -> None:
        """Read a frame into contiguous memory; those beyond their number begin again."""
        index %= self._division.frames
        values: Any = slot if self._is_fixed else shaped(slot, self.shape_of(index))
        try:
            self._file.seek(self._begin + index * self._frame_bytes)
            if self._file.readinto(values) < values.nbytes:
                raise JobError(f"{self._path}: was truncated in the meantime")
        except OSError as error:
            raise JobError(f"{self._path}: cannot be read: {error.strerror}") from None

    def lent(self) -> Sequence[NDArray[Any]]:
        """Return none: a file that is mapped would end the process if somebody cut it short."""
        return ()

    def close(self) -> None:
        self._close()


def open_npy(path: Path, spec: Tensor) -> FileStack | Stack:
    """Return the frames of an ``.npy`` file; if they are large, they are read one by one.

    Raises:
        JobError: it is not a file of one plain array, or that does not fit the model input.
    """
    with open_ordinary(path) as file:
        try:
            shape, is_fortran, dtype = _read_head(file)
            size, promised = os.fstat(file.fileno()).st_size, math.prod(shape) * dtype.itemsize
            if promised > size - file.tell():
                raise ValueError(f"it has {size} bytes, its header promises {promised} of values")
            division = _division(path, "its array", shape, dtype, spec)
            if promised > _MAX_LENT_BYTES and not is_fortran:
                return FileStack(path, file.tell(), division, spec)
            _check_memory(path, promised)
            file.seek(0)
            return _stack("its array", _read_array(file), division)
        except _UNREADABLE as error:
            raise JobError(
                f"{path}: is not an .npy file of a plain array{_reason(error)}; numpy.save makes"
                " one"
            ) from None


def read_array(file: io.BufferedReader[Any], name: str, spec: Tensor, slot: Slot) -> None:
    """Read one frame of an input from a stream of arrays, as ``numpy.save`` writes them.

    Raises:
        JobError: no plain array follows, or it does not fit the model input.
    """
    try:
        shape, is_fortran, dtype = _read_head(file)
        division = _division(Path(name), "its array", shape, dtype, spec)
        if division.frames != 1:
            raise JobError(f"{name}: its array holds {division.frames} frames; expected one")
        whole = shaped(slot, division.shape)
        # Values in Fortran's order are read as those of the transposed array.
        values = np.empty(shape[::-1], dtype) if is_fortran else whole
        if file.readinto(bytes_of(values)) < values.nbytes:
            raise ValueError("it was cut short")
    except _UNREADABLE as error:
        raise JobError(
            f"{name}: is not a plain array{_reason(error)}; numpy.save writes one"
        ) from None
    if is_fortran:
        whole[...] = values.T.reshape(division.shape)


def read_npz(path: Path, specs: Sequence[Tensor]) -> list[Stack]:
    """Return the frames of an ``.npz`` file's arrays, one stack per model input.

    An input ``x`` has an array ``x``, or one for each frame: ``x/0``, ``x/1`` and so on.

    Raises:
        JobError: it is not a file of plain arrays, or they do not fit the model inputs or memory.
    """
    inputs = {spec.name for spec in specs}
    with open_ordinary(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
                present = {member.filename.removesuffix(".npy"): member for member in members}
                names = [_names_of(path, present, spec.name, inputs) for spec in specs]
                refuse_unknown_inputs(
                    str(path), (_input_of(name, inputs) for name in present), specs
                )
                _check_memory(path, sum(member.file_size for member in members))
                return [
                    _read_arrays(path, archive, {name: present[name] for name in arrays}, spec)
                    for arrays, spec in zip(names, specs, strict=True)
                ]
        except _UNREADABLE as error:
            raise JobError(
                f"{path}: is not an .npz file of plain arrays{_reason(error)};"
                " numpy.savez makes one"
            ) from None


def _names_of(
    path: Path, present: Collection[str], name: str, inputs: Collection[str]
) -> list[str]:
    """Return the name of an input's array, or those of its frames' arrays, by their numbers."""
    numbered = re.compile(re.escape(name) + r"/(0|[1-9][0-9]*)").fullmatch
    count = sum(1 for array in present if numbered(array) and array not in inputs)
    if name in present and count:
        problem = f"has an array {name!r} and arrays for its frames"
        raise JobError(f"{path}: {problem}; leave one of them out")
    names = [f"{name}/{number}" for number in range(count)] or [name]
    lacks = next((array for array in names if array not in present), None)
    if lacks is None:
        return names
    if count:
        problem = f"has {count} arrays {name + '/N'!r}, but none {lacks!r}"
        raise JobError(f"{path}: {problem}; number them from 0 without a gap")
    others = sorted(present)
    more = f" and {len(others) - _MAX_NAMES} more" if len(others) > _MAX_NAMES else ""
    raise JobError(f"{path}: has no array {lacks!r}; it has {others[:_MAX_NAMES]}{more}")


def _input_of(name: str, inputs: Collection[str]) -> str:
    """Return the input whose array or frame has a name; else the name."""
    stem, _, number = name.rpartition("/")
    return stem if name not in inputs and stem in inputs and number.isdecimal() else name


def _read_arrays(
    path: Path, archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo], spec: Tensor
) -> Stack:
    is_stack = spec.name in members
    stacks = []
    for name, member in members.items():
        with archive.open(member) as file:
            values = _read_array(file)
        division = _division(path, repr(name), values.shape, values.dtype, spec, is_stack=is_stack)
        stacks.append(_stack(repr(name), values, division))
    return stacks[0] if is_stack else Stack([stack.frames[0] for stack in stacks])


def _read_array(file: IO[bytes]) -> NDArray[Any]:
    return _aligned(np.lib.format.read_array(file, allow_pickle=False))


def _aligned(values: NDArray[Any]) -> NDArray[Any]:
    """Return a copy in C order, in memory that is aligned as that of slots."""
    copy = private_memory(values.nbytes).view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


def _stack(name: str, values: NDArray[Any], division: _Division) -> Stack:
    if division.shape == division.last:
        return Stack(values.reshape((division.frames, *division.shape)))
    rows = division.shape[0]
    cuts = [values[first : first + rows] for first in range(0, len(values), rows)]
    return Stack(cuts, division.note(name))


def _check_memory(path: Path, nbytes: int) -> None:
    if nbytes > MAX_BYTES:
        raise JobError(
            f"{path}: its arrays take {nbytes / 1e9:.1f} GB of memory; at most"
            f" {MAX_BYTES / 1e9:.1f} GB are read: give fewer frames, or an .npy file in C order,"
            " which is read frame by frame"
        )


def _division(
    path: Path,
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    spec: Tensor,
    *,
    is_stack: bool = True,
) -> _Division:
    expected, bound = spec.storage
    if dtype != expected:
        raise JobError(f"{path}: {name} is {dtype}; the model takes {expected}")
    if spec.is_open and len(bound) != len(spec.shape):
        problem = f"{name} cannot say which shape its frames have, as the model takes {spec.dtype}"
        raise JobError(f"{path}: {problem}: build the model with fixed sizes (--shape)")
    stored = replace(spec, shape=bound)
    division = _divided(shape, stored) if is_stack else _Division(1, shape, shape)
    if len(division.shape) == len(bound):
        try:
            stored.of_shape(division.shape)
        except JobError as error:
            if spec.is_open:
                raise JobError(f"{path}: {name}: {error}") from None
        else:
            return division
    sizes = _sizes(stored)
    wanted = f"[{sizes}]"
    if is_stack:
        wanted += f" or a stack [{', '.join(filter(None, ('N', sizes)))}]"
    raise JobError(f"{path}: {name} has shape {list(shape)}; expected {wanted}")


def _divided(shape: tuple[int, ...], spec: Tensor) -> _Division:
    bound, has_open_rows = spec.shape, any(spec.symbols[:1])
    if len(shape) == len(bound) + 1:
        return _Division(shape[0], shape[1:], shape[1:])
    if len(shape) == len(bound):
        if has_open_rows and 0 < bound[0] < shape[0]:
            frames = math.ceil(shape[0] / bound[0])
            rest = shape[0] - (frames - 1) * bound[0]
            return _Division(frames, (bound[0], *shape[1:]), (rest, *shape[1:]))
        if bound[:1] == (1,) and not has_open_rows:
            return _Division(shape[0], (1, *shape[1:]), (1, *shape[1:]))
    return _Division(1, shape, shape)


def _sizes(spec: Tensor) -> str:
    """Return the sizes of a tensor as messages have them: ``1, seq<=128``."""
    symbols = spec.symbols or ("",) * len(spec.shape)
    return ", ".join(
        f"{symbol.strip('?')}<={size}" if symbol else str(size)
        for symbol, size in zip(symbols, spec.shape, strict=True)
    )


def _reason(error: BaseException) -> str:
    """Return an error's text, but not numpy's advice on how to read files that run code."""
    text = str(error).partition(" when allow_pickle")[0]
    text = text if len(text) <= _MAX_REASON_LETTERS else f"{text[:_MAX_REASON_LETTERS]}..."
    return f" ({text})" if text and "pickle" not in text else ""
