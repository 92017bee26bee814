"""Where the messages of an ONNX file lie, and the same file without its weights' bytes.

An ONNX file is one protobuf message that may hold gigabytes of weights. This module walks its
fields by position, never reading what a length lets it jump over, so a model of any size costs
kilobytes of memory. What it finds is used twice: the *skeleton*, a copy without large payloads,
is small enough for the `onnx` package to parse; the byte ranges of nodes and initialisers let a
sub-model be written by copying.

The encoding is that of https://protobuf.dev/programming-guides/encoding/, the field numbers are
those of ``onnx.proto``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.graph import ByteRange
from rankslice.frontend.formats.pieces import PositionedFile

SMALL = 1024
"""Messages up to this many bytes are kept whole in the skeleton; longer ones lose payloads."""

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED_LENGTH = {FIXED64: 8, FIXED32: 4}

_WINDOW = 1 << 14
_PIECE = 1 << 20
_MAX_KEY = 20  # a tag and a length, each a varint of ten bytes at most
_MAX_FIELDS = 20_000_000
_MAX_SKELETON = 128 << 20
_MAX_DEPTH = 90  # protobuf itself refuses messages nested deeper than 100


class Field(NamedTuple):
    """One field of a message; a named tuple because a scan makes very many."""

    number: int
    wire: int
    """Wire type: 0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes."""
    start: int
    body: int
    """Offset of the value, after tag and length."""
    end: int

    def record(self, path: Path) -> ByteRange:
        """Return the bytes of the whole field, tag and length included."""
        return ByteRange(path, self.start, self.end - self.start)


@dataclass(frozen=True, slots=True)
class _Message:
    """What the skeleton does with the fields of one kind of message."""

    inner: dict[int, str]
    """Fields that are messages which may hold payloads: field number -> kind."""
    dropped: frozenset[int]
    """Payloads, and prose that nobody reads."""


_MESSAGES = {
    "model": _Message({7: "graph", 25: "function"}, frozenset({6, 14, 20})),
    "graph": _Message({1: "node", 5: "tensor", 15: "sparse"}, frozenset({10, 16})),
    "node": _Message({5: "attribute"}, frozenset({6, 9})),
    "attribute": _Message(
        {5: "tensor", 10: "tensor", 6: "graph", 11: "graph", 22: "sparse", 23: "sparse"},
        frozenset({4, 13}),
    ),
    "tensor": _Message({}, frozenset({4, 5, 6, 7, 9, 10, 11, 12, 16})),
    "sparse": _Message({1: "tensor", 2: "tensor"}, frozenset()),
    "function": _Message({7: "node", 11: "attribute"}, frozenset({8, 14})),
}

GRAPH, _TRAINING, _FUNCTION = 7, 20, 25
_NODE, INITIALIZER, _SPARSE = 1, 5, 15
RAW_DATA = 9
_NOTES = frozenset({10, 16})  # doc_string and metadata_props of a graph


def varint(number: int) -> bytes:
    """Return a non-negative number as protobuf writes it: seven bits a byte, lowest first."""
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


class WireFile(PositionedFile):
    """An open protobuf file."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "expected an ONNX model file")
        self._fields_left = _MAX_FIELDS

    def read(self, start: int, end: int) -> bytes:
        content = self.bytes_at(start, end - start)
        if len(content) < end - start:
            raise self.malformed(start + len(content), "the file ends early")
        return content

    def malformed(self, offset: int, found: str) -> RankSliceError:
        return RankSliceError(
            Mistake(
                str(self.path),
                f"not an ONNX model, or damaged: {found} (at byte {offset})",
                "expected a file that was exported as .onnx",
            )
        )

    def fields(self, start: int, end: int) -> Iterator[Field]:
        """Yield the fields of the message that fills the file from ``start`` to ``end``."""
        window, base, position = b"", start, start
        while position < end:
            if position + _MAX_KEY > base + len(window) < end:
                window, base = self.read(position, min(position + _WINDOW, end)), position
            field = self._field(window, base, position)
            if field.end > end:
                raise self.malformed(position, "a record is longer than its container")
            yield field
            position = field.end

    def _field(self, window: bytes, base: int, position: int) -> Field:
        self._fields_left -= 1
        if self._fields_left < 0:
            raise self.malformed(position, f"more than {_MAX_FIELDS} fields")
        tag, cursor = self._varint(window, base, position - base)
        number, wire = tag >> 3, tag & 7
        body = base + cursor
        if wire == BYTES:
            length, cursor = self._varint(window, base, cursor)
            body = base + cursor
            end = body + length
        elif wire == VARINT:
            end = base + self._varint(window, base, cursor)[1]
        elif wire in _FIXED_LENGTH:
            end = body + _FIXED_LENGTH[wire]
        else:
            raise self.malformed(position, f"a field of the unknown wire type {wire}")
        if not number:
            raise self.malformed(position, "a field with number 0")
        return Field(number, wire, position, body, end)

    def _varint(self, window: bytes, base: int, cursor: int) -> tuple[int, int]:
        number = 0
        for index, byte in enumerate(window[cursor : cursor + 10]):
            number |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return number, cursor + index + 1
        raise self.malformed(base + cursor, "a number does not end")


@dataclass(frozen=True, slots=True)
class Scan:
    """What lies where in an ONNX file."""

    header: tuple[ByteRange, ...]
    """Fields of the model outside its graph (versions, operator sets, metadata, ...): whole
    records. Training information is left out: it names tensors that a sub-model may lack."""
    functions: tuple[Field, ...]
    graph_notes: tuple[ByteRange, ...]
    """What is said about the graph as a whole, its description and metadata: whole records."""
    nodes: tuple[Field, ...]
    initializers: tuple[Field, ...]
    sparse_initializers: tuple[Field, ...]
    skeleton: bytes
    """The model as protobuf, without large payloads; its lists match the ones here."""


def scan_model(file: WireFile) -> Scan:
    """Return the byte ranges of an ONNX file's records, and its skeleton.

    Tensors of more than :data:`SMALL` bytes have no values in the skeleton.
    """
    top = tuple(file.fields(0, file.size))
    graph = tuple(
        record
        for field in top
        if field.number == GRAPH and field.wire == BYTES
        for record in file.fields(field.body, field.end)
        if record.wire == BYTES
    )
    if not graph:
        raise file.malformed(0, "it holds no graph" if file.size else "the file is empty")
    return Scan(
        header=tuple(
            field.record(file.path)
            for field in top
            if field.number not in (GRAPH, _TRAINING, _FUNCTION)
        ),
        functions=tuple(f for f in top if f.number == _FUNCTION and f.wire == BYTES),
        graph_notes=tuple(field.record(file.path) for field in graph if field.number in _NOTES),
        nodes=tuple(field for field in graph if field.number == _NODE),
        initializers=tuple(field for field in graph if field.number == INITIALIZER),
        sparse_initializers=tuple(field for field in graph if field.number == _SPARSE),
        skeleton=_skeleton(file, 0, file.size, "model"),
    )


def _skeleton(file: WireFile, start: int, end: int, kind: str, depth: int = 0) -> bytes:
    if depth > _MAX_DEPTH:
        raise file.malformed(start, "graphs nested too deeply")
    parts = bytearray()
    for part in _skeleton_parts(file, start, end, kind, depth):
        parts += part
        if len(parts) > _MAX_SKELETON:
            raise file.malformed(start, f"more than {_MAX_SKELETON >> 20} MiB that are not weights")
    return bytes(parts)


def _skeleton_parts(file: WireFile, start: int, end: int, kind: str, depth: int) -> Iterator[bytes]:
    message = _MESSAGES[kind]
    kept = start
    for field in file.fields(start, end):
        inner = message.inner.get(field.number)
        large = field.wire == BYTES and field.end - field.body > SMALL
        if field.number not in message.dropped and not (inner and large):
            continue
        yield from _pieces(file, kept, field.start)
        kept = field.end
        if inner and large:
            body = _skeleton(file, field.body, field.end, inner, depth + 1)
            yield varint(field.number << 3 | BYTES) + varint(len(body)) + body
    yield from _pieces(file, kept, end)


def _pieces(file: WireFile, start: int, end: int) -> Iterator[bytes]:
    """Yield the bytes from ``start`` to ``end`` in pieces, so that a limit can stop them."""
    for offset in range(start, end, _PIECE):
        yield file.read(offset, min(offset + _PIECE, end))
