"""Numpy's files, ``.npz`` and ``.npy``: their headers are checked before memory is taken."""

from __future__ import annotations

import math
import os
import stat
import weakref
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError
from ..job import TensorSpec

MAX_BYTES = 1 << 30
"""Of the arrays of an ``.npz`` file, which are held in memory."""

_MAX_NAMES = 10
_LONGEST_HEAD = 10_000
"""Letters; numpy's own limit."""

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
    return _Head(shape, is_fortran, dtype, file.tell())


@dataclass(frozen=True, slots=True)
class Stack:
    """Frames of one input: an array [frames, *shape] in memory."""

    values: NDArray[Any]

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self.values)

    def read(self, index: int, slot: NDArray[Any]) -> None:
        """Copy a frame."""
        slot[...] = self.values[index]

    def close(self) -> None:
        """Nothing is open."""


class FileStack:
    """Frames of one input, one after the other in a file."""

    def __init__(self, path: Path, file: IO[bytes], begin: int, frames: int) -> None:
        """Take over an open file; its frames begin at byte ``begin``."""
        self._path, self._begin, self._frames = path, begin, frames
        self._descriptor = os.dup(file.fileno())
        file.close()
        self._close = weakref.finalize(self, os.close, self._descriptor)

    def __len__(self) -> int:
        """Return the number of frames."""
        return self._frames

    def read(self, index: int, slot: NDArray[Any]) -> None:
        """Read a frame into a contiguous array.

        Raises:
            JobError: the file cannot be read, or is too short.
        """
        rest = memoryview(slot.reshape(-1).view(np.uint8).data)
        offset = self._begin + index * slot.nbytes
        while rest:
            try:
                count = os.preadv(self._descriptor, [rest], offset)
            except OSError as error:
                raise JobError(f"{self._path}: cannot be read: {error.strerror}") from None
            if not count:
                raise JobError(f"{self._path}: was cut short meanwhile")
            rest, offset = rest[count:], offset + count

    def close(self) -> None:
        """Close the file."""
        self._close()


def open_npy(path: Path, spec: TensorSpec) -> FileStack | Stack:
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
        frames = _frames(path, "its array", head, spec)
        if not head.is_fortran:
            return FileStack(path, file, head.size, frames)
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
    return Stack(_shaped(values, head, frames, spec))


def read_npz(path: Path, specs: Sequence[TensorSpec]) -> list[Stack]:
    """Return the frames of an ``.npz`` file's arrays, one stack per model input.

    Raises:
        JobError: it is not a file of plain arrays, or they do not fit the model inputs or memory.
    """
    with open_ordinary(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                members = [_member(path, archive, spec.name) for spec in specs]
                _check_memory(path, sum(member.file_size for member in members))
                pairs = zip(members, specs, strict=True)
                return [_read_member(path, archive, *pair) for pair in pairs]
        except _UNREADABLE as error:
            raise JobError(
                f"{path}: is not an .npz file of plain arrays{_reason(error)};"
                " numpy.savez makes one"
            ) from None


def _member(path: Path, archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    for candidate in (f"{name}.npy", name):
        try:
            return archive.getinfo(candidate)
        except KeyError:
            continue
    names = sorted(member.removesuffix(".npy") for member in archive.namelist())
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    raise JobError(f"{path}: has no array {name!r}; it has {names[:_MAX_NAMES]}{more}")


def _read_member(
    path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo, spec: TensorSpec
) -> Stack:
    with archive.open(member) as file:
        head = _read_head(file)
        if head.nbytes != member.file_size:
            raise ValueError(
                f"{member.filename!r} has {member.file_size} bytes,"
                f" its header promises {head.nbytes}"
            )
        frames = _frames(path, repr(spec.name), head, spec)
        values = np.frombuffer(file.read(), head.dtype)
    return Stack(_shaped(values, head, frames, spec))


def _shaped(values: NDArray[Any], head: _Head, frames: int, spec: TensorSpec) -> NDArray[Any]:
    whole = values.reshape(head.shape, order="F" if head.is_fortran else "C")
    return whole.reshape((frames, *spec.storage[1]))


def _check_memory(path: Path, nbytes: int) -> None:
    if nbytes > MAX_BYTES:
        raise JobError(
            f"{path}: its arrays take {nbytes / 1e9:.1f} GB of memory; at most"
            f" {MAX_BYTES / 1e9:.1f} GB are read: give fewer frames, or an .npy file in C order,"
            " which is read frame by frame"
        )


def _frames(path: Path, name: str, head: _Head, spec: TensorSpec) -> int:
    """Return how many frames an array holds.

    Raises:
        JobError: it does not fit the model input.
    """
    dtype, shape = spec.storage
    if head.dtype != dtype:
        raise JobError(f"{path}: {name} is {head.dtype}; the model takes {dtype}")
    if head.shape == shape:
        return 1
    if head.shape[1:] == shape or (shape[:1] == (1,) and head.shape[1:] == shape[1:]):
        return head.shape[0]
    raise JobError(
        f"{path}: {name} has shape {list(head.shape)}; expected {list(shape)} or a stack"
        f" [N, {', '.join(map(str, shape))}]"
    )


def _reason(error: BaseException) -> str:
    """Return an error's text, but not numpy's advice on how to read files that run code."""
    text = str(error)
    return f" ({text})" if text and "pickle" not in text else ""
