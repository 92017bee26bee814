"""Where the contents of a TensorFlow Lite file's buffers lie."""

from __future__ import annotations

from pathlib import Path

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.graph import ByteRange
from rankslice.frontend.formats.tflite.wire import FlatFile, Table

_INSIDE = 1  # an offset of 0 or 1 means that the data stand in the flatbuffer


def buffer_contents(file: FlatFile, root: Table) -> tuple[ByteRange | None, ...]:
    """Return where the content of each buffer lies; ``None`` for an empty one."""
    _check_options(file, root)
    return tuple(_buffer(file, number, item) for number, item in enumerate(root.tables("buffers")))


def _buffer(file: FlatFile, number: int, buffer: Table) -> ByteRange | None:
    outside = ByteRange(file.path, buffer.number("offset"), buffer.number("size"))
    if outside.offset <= _INSIDE or not outside.length:
        return buffer.payload("data")
    return _checked(file, f"buffer {number}", outside)


def _check_options(file: FlatFile, root: Table) -> None:
    for number, subgraph in enumerate(root.tables("subgraphs")):
        for position, operator in enumerate(subgraph.tables("operators")):
            if found := large_options(file.path, operator):
                _checked(file, f"operator {position} of subgraph {number}", found)


def large_options(path: Path, operator: Table) -> ByteRange | None:
    offset = operator.number("large_custom_options_offset")
    size = operator.number("large_custom_options_size")
    return ByteRange(path, offset, size) if offset > _INSIDE and size else None


def _checked(file: FlatFile, what: str, found: ByteRange) -> ByteRange:
    if found.offset + found.length > file.size:
        raise RankSliceError(
            Mistake(
                f"{file.path}: {what}",
                f"lies at bytes {found.offset} to {found.offset + found.length}",
                f"the file has {file.size}: was it cut off?",
            )
        )
    return found
