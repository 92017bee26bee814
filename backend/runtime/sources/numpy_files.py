"""Numpy's files, ``.npz`` and ``.npy``: their headers are checked before memory is taken.

How many frames an array holds follows from its number of dimensions. One that has as many as the
model input is a frame, and one that has one more is a stack ``[frames, ...]``. There are two
exceptions where the numbers are equal. If the input's first size is fixed at 1, the array is a
stack that leaves it out. If it is open and the array has more rows than its bound, the array is
cut into frames of as many rows as the bound; the last may have fewer.
"""

from __future__ import annotations

import math
import os
import re
import stat
import weakref
import zipfile
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError
from ..job import Tensor, typed_view
from ..sizes import Slot, private_memory, shaped
from . import refuse_others

MAX_BYTES = 1 << 30
"""Of the arrays of an ``.npz`` file, which are held in memory."""

_MAX_NAMES = 10
_LONGEST_REASON = 200
"""Letters of an error's text, which may repeat what a file has."""
_LONGEST_HEAD = 10_000
"""Letters; numpy's own limit."""
_CHUNK = 1 << 20
"""Bytes that are read at once."""
_MOST_LENT_BYTES = 32 << 20
"""Of the frames of an ``.npy`` file that are read before frame 0."""
_LONGEST_READ = 1 << 24
"""Bytes; an ``.npz`` file's table of contents is read at once, some 50 bytes per array."""

_UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    TypeError,  # a head that is no dictionary
    KeyError,
    NotImplementedError,  # a way to compress that zipfile lacks
    RuntimeError,  # encrypted
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What zipfile and numpy raise for files that are not plain arrays."""


def open_ordinary(path: Path) -> IO[bytes]:
    """Return a file, opened for reading; pipes and devices are refused, as they may have no end.

    Raises:
        JobError: it cannot be read, or is not an ordinary file.
    """
    try:
        # Opening a pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "is not a file name"
        raise JobError(f"{path}: cannot be read: {reason}") from None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise JobError(f"{path}: is not a regular file")


@dataclass(frozen=True, slots=True)
class _Head:
    """The header of an array."""

    shape: tuple[int, ...]
    is_fortran: bool
    dtype: np.dtype[Any]
    size: int
    """Of the header itself, in bytes."""

    @property
    def nbytes(self) -> int:
        return self.size + math.prod(self.shape) * self.dtype.itemsize


def _read_head(file: IO[bytes]) -> _Head:
    """Read the header of an array.

    Raises:
        ValueError: it is not a header, or no plain values follow it.
    """
    version = np.lib.format.read_magic(file)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read is None:
        raise ValueError(f"version {version} of numpy's format")
    shape, is_fortran, dtype = read(file, _LONGEST_HEAD)
    if dtype.kind not in "biufc":
        raise ValueError(f"values of type {dtype}")
    if not all(0 <= size < 1 << 62 for size in shape):
        raise ValueError(f"shape {list(shape)}")
    return _Head(shape, is_fortran, dtype, file.tell() if file.seekable() else 0)


@dataclass(frozen=True, slots=True)
class _Division:
    """How an array is divided into frames, along its first axis."""

    frames: int
    shape: tuple[int, ...]
    """Of each frame."""
    last: tuple[int, ...]
    """Of the last one, which may have fewer rows."""

    def shape_of(self, index: int) -> tuple[int, ...]:
        """Return the shape of a frame."""
        return self.last if index == self.frames - 1 else self.shape

    def note(self, name: str) -> str:
        """Return what the user is told of an array that is cut; empty: it is not."""
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
        """Return the number of frames."""
        return len(self.frames)

    def shape_of(self, index: int) -> tuple[int, ...]:
        """Return the shape of a frame."""
        return self.frames[index].shape

    def read(self, index: int, slot: Slot) -> None:
        """Copy a frame; those beyond their number begin again at the first."""
        values = self.frames[index % len(self.frames)]
        shaped(slot, values.shape)[...] = values

    def lent(self) -> Sequence[NDArray[Any]]:
        """Return the frames; of scalars, copies."""
        return [np.asarray(frame) for frame in self.frames]

    def close(self) -> None:
        """Nothing is open."""


class FileStack:
    """Frames of one input, one after the other in a file."""

    def __init__(
        self, path: Path, file: IO[bytes], head: _Head, division: _Division, spec: Tensor
    ) -> None:
        """Take over an open file of an array in C order."""
        self._path, self._begin, self._division = path, head.size, division
        self._frame_bytes = math.prod(division.shape) * head.dtype.itemsize
        self._is_fixed, self._spec = not spec.is_open, spec
        self.note = division.note("its array")
        self._descriptor = os.dup(file.fileno())
        file.close()
        self._close = weakref.finalize(self, os.close, self._descriptor)

    def __len__(self) -> int:
        """Return the number of frames."""
        return self._division.frames

    def shape_of(self, index: int) -> tuple[int, ...]:
        """Return the shape of a frame."""
        return self._division.shape_of(index)

    def read(self, index: int, slot: Slot) -> None:
        """Read a frame into contiguous memory; those beyond their number begin again at the first.

        Raises:
            JobError: the file cannot be read, or is too short.
        """
        index %= self._division.frames
        values: Any = slot if self._is_fixed else shaped(slot, self.shape_of(index))
        offset = self._begin + index * self._frame_bytes
        try:
            count = os.preadv(self._descriptor, (values,), offset)
            rest = _bytes_of(values)[count:] if count < values.nbytes else b""
            while rest:
                count = os.preadv(self._descriptor, (rest,), offset + values.nbytes - len(rest))
                if not count:
                    raise JobError(f"{self._path}: was truncated in the meantime")
                rest = rest[count:]
        except OSError as error:
            raise JobError(f"{self._path}: cannot be read: {error.strerror}") from None

    def lent(self) -> Sequence[NDArray[Any]]:
        """Read all frames of fixed sizes into memory, if they are small; else return none.

        A file that is mapped would end the process if somebody cut it short.
        """
        if len(self) * self._frame_bytes > _MOST_LENT_BYTES:
            return ()
        frames = [
            typed_view(self._spec, private_memory(self._frame_bytes)) for _ in range(len(self))
        ]
        for index, frame in enumerate(frames):
            self.read(index, frame)
        return frames

    def close(self) -> None:
        """Close the file."""
        self._close()


def open_npy(path: Path, spec: Tensor) -> FileStack | Stack:
    """Return the frames of an ``.npy`` file, which are read one by one.

    Raises:
        JobError: it is not a file of one plain array, or that does not fit the model input.
    """
    file = open_ordinary(path)
    try:
        head = _read_head(file)
        size = os.fstat(file.fileno()).st_size
        if head.nbytes > size:
            raise ValueError(f"it has {size} bytes, its header promises {head.nbytes}")
        division = _division(path, "its array", head, spec)
        if not head.is_fortran:
            return FileStack(path, file, head, division, spec)
        _check_memory(path, head.nbytes)
        values = np.fromfile(file, head.dtype, math.prod(head.shape))
    except JobError:
        file.close()
        raise
    except _UNREADABLE as error:
        file.close()
        raise JobError(
            f"{path}: is not an .npy file of a plain array{_reason(error)}; numpy.save makes one"
        ) from None
    file.close()
    return _stack("its array", values, head, division)


def read_array(file: IO[bytes], name: str, spec: Tensor, slot: Slot) -> None:
    """Read one frame of an input from a stream of arrays, as ``numpy.save`` writes them.

    Args:
        file: the stream, at the beginning of an array.
        name: of the array, for messages.
        spec: the model input.
        slot: of the model input.

    Raises:
        JobError: no plain array follows, or it does not fit the model input.
    """
    try:
        head = _read_head(file)
        division = _division(Path(name), "its array", head, spec)
        if division.frames != 1:
            raise JobError(f"{name}: its array holds {division.frames} frames; expected one")
        whole = shaped(slot, division.shape)
        # Values in Fortran's order are read as those of the transposed array.
        values = np.empty(head.shape[::-1], head.dtype) if head.is_fortran else whole
        rest = _bytes_of(values)
        while rest:
            chunk = file.read(min(len(rest), _CHUNK))
            if not chunk:
                raise ValueError("it was cut short")
            rest[: len(chunk)] = chunk
            rest = rest[len(chunk) :]
    except _UNREADABLE as error:
        raise JobError(
            f"{name}: is not a plain array{_reason(error)}; numpy.save writes one"
        ) from None
    if head.is_fortran:
        whole[...] = values.T.reshape(division.shape)


def read_npz(path: Path, specs: Sequence[Tensor]) -> list[Stack]:
    """Return the frames of an ``.npz`` file's arrays, one stack per model input.

    An input ``x`` has an array ``x``, or one for each frame: ``x/0``, ``x/1`` and so on.

    Raises:
        JobError: it is not a file of plain arrays, or they do not fit the model inputs or memory.
    """
    with open_ordinary(path) as file:
        try:
            with zipfile.ZipFile(_ShortReads(file)) as archive:
                names = {spec.name for spec in specs}
                members = [_members(path, archive, spec, names) for spec in specs]
                arrays = map(_name_of, archive.infolist())
                refuse_others(str(path), (_input_of(name, names) for name in arrays), specs)
                _check_memory(path, sum(one.file_size for found in members for one in found))
                pairs = zip(members, specs, strict=True)
                return [_read_members(path, archive, *pair) for pair in pairs]
        except _UNREADABLE as error:
            raise JobError(
                f"{path}: is not an .npz file of plain arrays{_reason(error)};"
                " numpy.savez makes one"
            ) from None


class _ShortReads:
    """A file that refuses to read very much at once, whatever its contents promise."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        """Return bytes of the file.

        Raises:
            ValueError: that would be too many.
        """
        content = self._file.read(size if 0 <= size <= _LONGEST_READ else _LONGEST_READ + 1)
        if len(content) > _LONGEST_READ:
            raise ValueError("it has too many arrays")
        return content


def _members(
    path: Path, archive: zipfile.ZipFile, spec: Tensor, inputs: Collection[str]
) -> list[zipfile.ZipInfo]:
    """Return the array of an input, or those of its frames, by their numbers."""
    present = {member.removesuffix(".npy"): member for member in archive.namelist()}
    numbered = re.compile(re.escape(spec.name) + r"/(0|[1-9][0-9]*)").fullmatch
    count = sum(1 for member in present if numbered(member) and member not in inputs)
    if spec.name in present:
        if count:
            found = f"has an array {spec.name!r} and arrays for its frames"
            raise JobError(f"{path}: {found}; leave one of them out")
        return [archive.getinfo(present[spec.name])]
    frames = [f"{spec.name}/{number}" for number in range(count)]
    lacks = next((name for name in frames or [spec.name] if name not in present), None)
    if lacks is None:
        return [archive.getinfo(present[name]) for name in frames]
    if frames:
        found = f"has {count} arrays {spec.name + '/N'!r}, but none {lacks!r}"
        raise JobError(f"{path}: {found}; number them from 0 without a gap")
    names = sorted(present)
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    raise JobError(f"{path}: has no array {lacks!r}; it has {names[:_MAX_NAMES]}{more}")


def _input_of(name: str, inputs: Collection[str]) -> str:
    """Return the input whose array or frame has a name; else the name."""
    stem, _, number = name.rpartition("/")
    return stem if name not in inputs and stem in inputs and number.isdecimal() else name


def _read_members(
    path: Path, archive: zipfile.ZipFile, members: Sequence[zipfile.ZipInfo], spec: Tensor
) -> Stack:
    if [_name_of(member) for member in members] == [spec.name]:
        return _read_member(path, archive, members[0], spec)
    parts = [_read_member(path, archive, member, spec, is_stack=False) for member in members]
    return Stack([part.frames[0] for part in parts])


def _name_of(member: zipfile.ZipInfo) -> str:
    return member.filename.removesuffix(".npy")


def _read_member(
    path: Path,
    archive: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    spec: Tensor,
    *,
    is_stack: bool = True,
) -> Stack:
    with archive.open(member) as file:
        head = _read_head(file)
        if head.nbytes != member.file_size:
            raise ValueError(
                f"{member.filename!r} has {member.file_size} bytes,"
                f" its header promises {head.nbytes}"
            )
        name = repr(_name_of(member))
        division = _division(path, name, head, spec, is_stack=is_stack)
        memory = private_memory(head.nbytes - head.size)
        values, rest = memory.view(head.dtype), memory.data
        while rest:
            chunk = file.read(min(len(rest), _CHUNK))
            if not chunk:
                raise ValueError(f"{member.filename!r} was cut short")
            rest[: len(chunk)] = chunk
            rest = rest[len(chunk) :]
    return _stack(name, values, head, division)


def _bytes_of(values: NDArray[Any]) -> memoryview:
    """Return the memory of a contiguous array."""
    return memoryview(values.reshape(-1).view(np.uint8).data)


def _stack(name: str, values: NDArray[Any], head: _Head, division: _Division) -> Stack:
    whole = values.reshape(head.shape, order="F" if head.is_fortran else "C")
    if division.shape == division.last:
        return Stack(whole.reshape((division.frames, *division.shape)))
    rows = division.shape[0]
    cuts = [whole[first : first + rows] for first in range(0, len(whole), rows)]
    return Stack(cuts, division.note(name))


def _check_memory(path: Path, nbytes: int) -> None:
    if nbytes > MAX_BYTES:
        raise JobError(
            f"{path}: its arrays take {nbytes / 1e9:.1f} GB of memory; at most"
            f" {MAX_BYTES / 1e9:.1f} GB are read: give fewer frames, or an .npy file in C order,"
            " which is read frame by frame"
        )


def _division(
    path: Path, name: str, head: _Head, spec: Tensor, *, is_stack: bool = True
) -> _Division:
    """Return which frames an array holds.

    Raises:
        JobError: it does not fit the model input.
    """
    dtype, bound = spec.storage
    if head.dtype != dtype:
        raise JobError(f"{path}: {name} is {head.dtype}; the model takes {dtype}")
    if spec.is_open and len(bound) != len(spec.shape):
        found = f"{name} cannot say which shape its frames have, as the model takes {spec.dtype}"
        raise JobError(f"{path}: {found}: build the model with fixed sizes (--shape)")
    stored = replace(spec, shape=bound)
    division = _divided(head.shape, stored) if is_stack else _one_frame(head.shape)
    sizes = _sizes(stored)
    expected = f"[{sizes}] or a stack [{', '.join(filter(None, ('N', sizes)))}]"
    problem = f"has shape {list(head.shape)}; expected {expected if is_stack else f'[{sizes}]'}"
    if division is not None and len(division.shape) == len(bound):
        try:
            stored.of_shape(division.shape)
        except JobError as error:
            if spec.is_open:
                raise JobError(f"{path}: {name}: {error}") from None
        else:
            return division
    raise JobError(f"{path}: {name} {problem}")


def _one_frame(shape: tuple[int, ...]) -> _Division:
    return _Division(1, shape, shape)


def _divided(shape: tuple[int, ...], spec: Tensor) -> _Division | None:
    """Return which frames an array of some shape holds; ``None``: it has too many dimensions."""
    bound, has_open_rows = spec.shape, any(spec.symbols[:1])
    if len(shape) == len(bound) + 1:
        return _Division(shape[0], shape[1:], shape[1:])
    if len(shape) != len(bound):
        return None
    if has_open_rows and 0 < bound[0] < shape[0]:
        frames = math.ceil(shape[0] / bound[0])
        rest = shape[0] - (frames - 1) * bound[0]
        return _Division(frames, (bound[0], *shape[1:]), (rest, *shape[1:]))
    if bound[:1] == (1,) and not has_open_rows:
        return _Division(shape[0], (1, *shape[1:]), (1, *shape[1:]))
    return _one_frame(shape)


def _sizes(spec: Tensor) -> str:
    """Return the sizes of a tensor as messages have them: ``1, seq<=128``."""
    symbols = spec.symbols or ("",) * len(spec.shape)
    return ", ".join(
        f"{symbol.strip('?')}<={size}" if symbol else str(size)
        for symbol, size in zip(symbols, spec.shape, strict=True)
    )


def _reason(error: BaseException) -> str:
    """Return an error's text, but not numpy's advice on how to read files that run code."""
    text = str(error)
    text = text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}..."
    return f" ({text})" if text and "pickle" not in text else ""
