"""Files read by position and composed of byte ranges, of which only a small part is in memory."""

from __future__ import annotations

import errno
import itertools
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

from rankslice.backend.runtime.job.records import NO_FACTS, Facts
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.files.ordinary_file import open_ordinary
from rankslice.framework.graph import ByteRange, StoredPart, Tensor, Weight, dtype_bits

Piece: TypeAlias = bytes | ByteRange


@dataclass(frozen=True, slots=True)
class Pieces:
    """Bytes that lie one behind the other in what is written, but not where they come from."""

    pieces: tuple[Piece, ...]

    @property
    def length(self) -> int:
        return pieces_length(self.pieces)


_BUFFER = 1 << 20
_NO_KERNEL_COPY = {
    errno.EXDEV,
    errno.ENOSYS,
    errno.EOPNOTSUPP,
    errno.EINVAL,
    errno.EPERM,
    errno.EACCES,
}


def check_types(model: Path, tensors: Iterable[Tensor]) -> None:
    """Raise unless the element types of what a sub-model exchanges are known."""
    raise_mistakes(
        Mistake(f"{model}: tensor {tensor.name!r}", "its element type is unknown")
        for tensor in tensors
        if not tensor.dtype
    )


@dataclass(frozen=True, slots=True)
class SubModelFiles:
    """What to write for one sub-model."""

    model: tuple[Piece, ...]
    data: tuple[Piece, ...] | None = None
    """Content of the file ``<name>.data`` beside it; ``None`` if there is none."""
    facts: Facts = NO_FACTS
    is_doubtful: bool = False
    """Whether the engines for its format may lack one of its operators: they have to be tried."""


def pieces_length(pieces: Iterable[Piece]) -> int:
    return sum(len(piece) if isinstance(piece, bytes) else piece.length for piece in pieces)


def stored_pieces(weight: Weight) -> Iterator[Piece]:
    """Yield the values of a constant, where they lie as plain bytes."""
    if weight.content is not None:
        yield weight.content
    elif weight.data is not None:
        part = weight.part
        yield from (weight.data,) if part is None else _ranges(weight.data, part, weight.dtype)


def _ranges(data: ByteRange, part: StoredPart, dtype: str) -> Iterator[ByteRange]:
    """Yield the bytes of a box of values that are stored in rows."""
    shape, box = part.shape, part.box
    rows = len(shape)
    while rows and box[rows - 1] == (0, shape[rows - 1]):
        rows -= 1
    strides = [math.prod(shape[axis + 1 :]) * dtype_bits(dtype) // 8 for axis in range(len(shape))]
    if not rows:
        yield data
        return
    begin, end = box[rows - 1]
    length = (end - begin) * strides[rows - 1]
    for place in itertools.product(*(range(*ends) for ends in box[: rows - 1])):
        offset = sum(at * stride for at, stride in zip((*place, begin), strides, strict=False))
        yield ByteRange(data.path, data.offset + offset, length)


def coalesce(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Yield the same content in fewer pieces: neighbours joined, empty ones left out."""
    pending: Piece = b""
    for piece in pieces:
        joined = _join(pending, piece)
        if joined is None:
            yield pending
            pending = piece
        else:
            pending = joined
    if pieces_length([pending]):
        yield pending


def _join(first: Piece, second: Piece) -> Piece | None:
    if not pieces_length([second]):
        return first
    if not pieces_length([first]):
        return second
    if isinstance(first, bytes) and isinstance(second, bytes):
        return first + second
    if isinstance(first, bytes) or isinstance(second, bytes):
        return None
    if first.path == second.path and first.offset + first.length == second.offset:
        return ByteRange(first.path, first.offset, first.length + second.length)
    return None


def write_pieces(pieces: Iterable[Piece], path: Path) -> None:
    """Write a file composed of the pieces, the large ones copied inside the kernel."""
    with ExitStack() as stack:
        target = stack.enter_context(path.open("wb", buffering=_BUFFER))
        sources: dict[Path, int] = {}
        for piece in coalesce(pieces):
            if isinstance(piece, bytes):
                target.write(piece)
                continue
            if piece.path not in sources:
                sources[piece.path] = _open_source(piece.path)
                stack.callback(os.close, sources[piece.path])
            left = piece
            if piece.length > _BUFFER:
                target.flush()
                left = _copy_in_kernel(sources[piece.path], target.fileno(), piece)
            for part in _read(sources[piece.path], left):
                target.write(part)


def write_submodel(files: SubModelFiles, path: Path) -> None:
    write_pieces(files.model, path)
    if files.data is not None:
        write_pieces(files.data, path.with_name(f"{path.name}.data"))


def piece_bytes(piece: Piece) -> bytes:
    if isinstance(piece, bytes):
        return piece
    source = _open_source(piece.path)
    try:
        return b"".join(_read(source, piece))
    finally:
        os.close(source)


def _open_source(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise RankSliceError(Mistake(str(path), str(error.strerror))) from None


def _copy_in_kernel(source: int, target: int, piece: ByteRange) -> ByteRange:
    """Copy as much as the system can without showing us the bytes; return what is left."""
    offset, end = piece.offset, piece.offset + piece.length
    try:
        while offset < end and hasattr(os, "copy_file_range"):
            copied = os.copy_file_range(source, target, end - offset, offset)
            if not copied:
                break
            offset += copied
    except OSError as error:
        if error.errno not in _NO_KERNEL_COPY:
            raise
    return ByteRange(piece.path, offset, end - offset)


def _read(source: int, piece: ByteRange) -> Iterator[bytes]:
    offset, end = piece.offset, piece.offset + piece.length
    while offset < end:
        part = os.pread(source, min(_BUFFER, end - offset), offset)
        if not part:
            raise RankSliceError(
                Mistake(
                    str(piece.path),
                    f"ends at byte {offset}",
                    f"expected {end} or more: was it changed meanwhile?",
                )
            )
        yield part
        offset += len(part)


_DOWNLOADED_INSTEAD = {
    b"version https://git-lfs": ("is a Git LFS pointer, not the file itself", "run: git lfs pull"),
    b"<!doctype html": ("is an HTML page, not the file itself", "download the file itself"),
    b"<html": ("is an HTML page, not the file itself", "download the file itself"),
}
"""How files begin that people have instead of a model's, what those are, and the remedy."""

_Own = TypeVar("_Own", bound="PositionedFile")


class PositionedFile:
    """An open file, read by position: one that shrinks is an error, never a signal."""

    def __init__(self, path: Path, expected: str) -> None:
        """Open the file; ``expected``: how messages end."""
        self.path = path
        self._descriptor = open_ordinary(path, expected)
        self.size = os.fstat(self._descriptor).st_size
        beginning = self.bytes_at(0, 64).lstrip().lower()
        for known, (found, remedy) in _DOWNLOADED_INSTEAD.items():
            if beginning.startswith(known):
                os.close(self._descriptor)
                raise RankSliceError(Mistake(str(path), found, remedy))

    def __enter__(self: _Own) -> _Own:
        return self

    def __exit__(self, *ended: object) -> None:
        os.close(self._descriptor)

    def bytes_at(self, start: int, length: int) -> bytes:
        """Return ``length`` bytes from offset ``start``; fewer only where the file ends."""
        content = os.pread(self._descriptor, length, start)
        while content and len(content) < length:
            more = os.pread(self._descriptor, length - len(content), start + len(content))
            if not more:
                break
            content += more
        return content
