"""The tables of a TensorFlow Lite file, its weights left where they are.

Such a file is a flatbuffer (https://flatbuffers.dev/internals): tables that refer to each other by
offsets, and somewhere among them the weights. Nothing in it can be trusted, so every offset is
checked before it is followed. A reference only ever leads forward, so none leads in a cycle; what
many references lead to is read as often, up to a limit. Bytes that are only ever copied are not
read at all, so a model of any size costs as much memory as its tables do.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, Union

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.graph import ByteRange
from rankslice.frontend.formats.pieces import Pieces, PositionedFile
from rankslice.frontend.formats.tflite.schema import CODES, SCALARS, TABLES, UNIONS, Field

Value: TypeAlias = Union[bytes, ByteRange, Pieces, "Table", tuple["Table", ...]]
"""What a field holds: a scalar, a string or a vector of scalars as bytes; a payload; tables."""

_EXPECTED = "expected a .tflite model file"
IDENTIFIER = b"TFL3"
_PAGE = 1 << 16
_PAGES = 64  # kept at a time
_MAX_TABLES = 400_000
_MAX_BYTES = 128 << 20
_MAX_DEPTH = 16
_SHORT = ("shape", "shape_signature", "inputs", "outputs", "intermediates")
_MAX_SHORT = 10_000  # numbers


@dataclass(frozen=True, slots=True)
class Table:
    """One table: only the fields that are there."""

    kind: str
    """Its name in :data:`rankslice.frontend.formats.tflite.schema.TABLES`."""
    values: Mapping[str, Value]
    start: int = 0
    """Offset in the file."""
    length: int = 0
    """Bytes of the table itself, without what it refers to."""

    def number(self, name: str, default: int = 0) -> int:
        """Return a whole number, or its default where the field is left out."""
        value = self.values.get(name)
        if not isinstance(value, bytes):
            return default
        number: int = struct.unpack(f"<{CODES[self.kind][name]}", value)[0]
        return number

    def numbers(self, name: str) -> tuple[int, ...]:
        """Return a vector of numbers; empty where it is left out."""
        value = self.values.get(name, b"")
        assert isinstance(value, bytes)
        code = CODES[self.kind][name]
        return struct.unpack(f"<{len(value) // struct.calcsize(code)}{code}", value)

    def text(self, name: str) -> str:
        """Return a string; bytes that are not UTF-8 are replaced."""
        value = self.values.get(name, b"")
        assert isinstance(value, bytes)
        return value.decode("utf-8", "replace")

    def table(self, name: str) -> Table | None:
        value = self.values.get(name)
        assert value is None or isinstance(value, Table)
        return value

    def tables(self, name: str) -> tuple[Table, ...]:
        value = self.values.get(name, ())
        assert isinstance(value, tuple)
        return value

    def payload(self, name: str) -> ByteRange | None:
        value = self.values.get(name)
        return value if isinstance(value, ByteRange) and value.length else None

    def changed(self, values: Mapping[str, Value | None]) -> Table:
        """Return the same table with other values; ``None`` leaves a field out."""
        merged = {**self.values, **values}
        kept = {name: value for name, value in merged.items() if value is not None}
        return Table(self.kind, kept, self.start, self.length)


def packed(code: str, *numbers: int) -> bytes:
    """Return numbers as they stand in a file, by a key of :data:`SCALARS`."""
    return struct.pack(f"<{len(numbers)}{SCALARS[code]}", *numbers)


class FlatFile(PositionedFile):
    """An open flatbuffer, with the pages of it that were read last."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _EXPECTED)
        self._pages: OrderedDict[int, bytes] = OrderedDict()

    def read(self, start: int, length: int) -> bytes:
        """Return ``length`` bytes from offset ``start``; raise if the file has not that many."""
        self.check(start, length)
        page, offset = divmod(start, _PAGE)
        if offset + length <= _PAGE:
            content = self._page(page)[offset : offset + length]
        else:
            content = self.bytes_at(start, length)
        if len(content) < length:
            raise self.malformed(start, "the file ends early")
        return content

    def check(self, start: int, length: int) -> None:
        if start < 0 or start + length > self.size:
            raise self.malformed(start, "an offset points beyond the end of the file")

    def malformed(self, offset: int, found: str) -> RankSliceError:
        return RankSliceError(Mistake(str(self.path), f"{found} (at byte {offset})", _EXPECTED))

    def _page(self, number: int) -> bytes:
        page = self._pages.get(number)
        if page is None:
            page = self._pages[number] = self.bytes_at(number * _PAGE, _PAGE)
            if len(self._pages) > _PAGES:
                self._pages.popitem(last=False)
        else:
            self._pages.move_to_end(number)
        return page


def read_tables(file: FlatFile) -> Table:
    """Return the table ``Model`` of a file, and all that it refers to.

    Raises:
        RankSliceError: the file is not a TensorFlow Lite model, is damaged, uses a part of the
            format that is newer than this program, or has more tables than any model needs.
    """
    head = file.read(0, 8) if file.size >= 8 else b""
    if head[4:] != IDENTIFIER:
        found = f"its identifier is {head[4:]!r}, not {IDENTIFIER!r}"
        raise file.malformed(4, found if head else f"has {file.size} bytes")
    return _Reader(file).table("Model", _number(head[:4]), 0)


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, "little")


@dataclass(slots=True)
class _Reader:
    """Follows the references of one file."""

    file: FlatFile
    _tables_left: int = _MAX_TABLES
    _bytes_left: int = _MAX_BYTES
    _vtables: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def table(self, kind: str, start: int, depth: int) -> Table:
        self._tables_left -= 1
        if self._tables_left < 0:
            raise self.file.malformed(start, f"more than {_MAX_TABLES} tables")
        if depth > _MAX_DEPTH:
            raise self.file.malformed(start, "tables nested too deeply")
        vtable = start - int.from_bytes(self._read(start, 4), "little", signed=True)
        length, *offsets = self._vtable(vtable)
        body = self._read(start, length)
        fields = TABLES[kind]
        if any(offsets[len(fields) :]):
            where = f"{self.file.path}: table {kind} at byte {start}"
            found = "has a field that is newer than this version of RankSlice"
            raise RankSliceError(Mistake(where, found, "convert the model with an older converter"))
        values: dict[str, Value] = {}
        table = Table(kind, values, start, length)
        for item, offset in zip(fields, offsets, strict=False):
            if offset and (value := self._value(item, table, body, offset, depth)) is not None:
                values[item.name] = value
        return table

    def _vtable(self, start: int) -> tuple[int, ...]:
        """Return the length of a table, then where in it its fields are; 0: not there."""
        known = self._vtables.get(start)
        if known is None:
            size = _number(self._read(start, 2))
            if size < 4 or size % 2:
                raise self.file.malformed(start, "a table without a description")
            known = struct.unpack(f"<{size // 2 - 1}H", self._read(start + 2, size - 2))
            if known[0] < 4:
                raise self.file.malformed(start, "a table that is shorter than its head")
            self._vtables[start] = known
        return known

    def _value(
        self, item: Field, table: Table, body: bytes, offset: int, depth: int
    ) -> Value | None:
        width = struct.calcsize(SCALARS[item.type]) if item.is_scalar else 4
        raw = body[offset : offset + width]
        if offset < 4 or len(raw) < width:
            found = f"field {item.name} of {table.kind} lies outside its table"
            raise self.file.malformed(table.start, found)
        if item.is_scalar:
            return raw
        target = table.start + offset + _number(raw)
        if item.is_vector and item.type in TABLES:
            return self._tables(item.type, target, depth)
        if item.type in TABLES:
            return self.table(item.type, target, depth + 1)
        if item.type in UNIONS:
            return self._member(item, table, target, depth)
        return self._bytes(item, target)

    def _member(self, item: Field, table: Table, target: int, depth: int) -> Table | None:
        """Return the table in a union; the field before says which kind it is."""
        number, members = table.number(f"{item.name}_type"), UNIONS[item.type]
        if not number:
            return None
        if number > len(members):
            where = f"{self.file.path}: {item.name} of a table {table.kind} at byte {target}"
            found = f"are of kind {number}, which is newer than this version of RankSlice"
            raise RankSliceError(Mistake(where, found, "convert the model with an older converter"))
        return self.table(members[number - 1], target, depth + 1)

    def _tables(self, kind: str, start: int, depth: int) -> tuple[Table, ...]:
        count = _number(self._read(start, 4))
        if count > self._tables_left:
            raise self.file.malformed(start, f"a list of {count} tables")
        offsets = struct.unpack(f"<{count}I", self._read(start + 4, 4 * count))
        return tuple(
            self.table(kind, start + 4 + 4 * index + offset, depth + 1)
            for index, offset in enumerate(offsets)
        )

    def _bytes(self, item: Field, start: int) -> bytes | ByteRange:
        count = _number(self._read(start, 4))
        if item.name in _SHORT and count > _MAX_SHORT:
            raise self.file.malformed(start, f"a list of {count} numbers as {item.name}")
        if item.type == "payload":
            self.file.check(start + 4, count)
            return ByteRange(self.file.path, start + 4, count)
        width = struct.calcsize(SCALARS[item.type]) if item.is_vector else 1
        return self._read(start + 4, count * width)

    def _read(self, start: int, length: int) -> bytes:
        self._bytes_left -= length
        if self._bytes_left < 0:
            raise self.file.malformed(
                start, f"more than {_MAX_BYTES >> 20} MiB that are not weights"
            )
        return self.file.read(start, length)


_INSIDE = 1  # an offset of 0 or 1 means that the data stand in the flatbuffer


def buffer_contents(file: FlatFile, root: Table) -> tuple[ByteRange | None, ...]:
    """Locate the content of each buffer; ``None`` for an empty one."""
    for number, subgraph in enumerate(root.tables("subgraphs")):
        for position, operator in enumerate(subgraph.tables("operators")):
            if place := large_options(file.path, operator):
                _checked(file, f"operator {position} of subgraph {number}", place)
    contents = []
    for number, buffer in enumerate(root.tables("buffers")):
        outside = ByteRange(file.path, buffer.number("offset"), buffer.number("size"))
        is_inside = outside.offset <= _INSIDE or not outside.length
        contents.append(
            buffer.payload("data") if is_inside else _checked(file, f"buffer {number}", outside)
        )
    return tuple(contents)


def large_options(path: Path, operator: Table) -> ByteRange | None:
    offset = operator.number("large_custom_options_offset")
    size = operator.number("large_custom_options_size")
    return ByteRange(path, offset, size) if offset > _INSIDE and size else None


def _checked(file: FlatFile, what: str, place: ByteRange) -> ByteRange:
    if place.offset + place.length > file.size:
        raise RankSliceError(
            Mistake(
                f"{file.path}: {what}",
                f"lies at bytes {place.offset} to {place.offset + place.length}",
                f"the file has {file.size}: was it cut off?",
            )
        )
    return place
