"""A tree of tables as a flatbuffer, with payloads copied from files."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from rankslice.framework.graph import ByteRange
from rankslice.frontend.formats.pieces import Piece, Pieces
from rankslice.frontend.formats.tflite.schema import SCALARS, TABLES
from rankslice.frontend.formats.tflite.wire import IDENTIFIER, Table

ALIGNMENT = 16
"""Bytes; the schema demands it of buffers (``force_align``), and all payloads get it here."""


def flatbuffer(root: Table) -> list[Piece]:
    """Return the content of a file with a table and all that it refers to.

    Tables come first, one after the other as they are met, then the payloads in the order in
    which they lie in their files, so that copying them reads forward. A scalar of eight bytes
    whose value is a range of bytes becomes the offset in the file at which these stand, behind
    everything else: so a file may have more than the 2 GB that references can span. The same
    tree gives the same bytes.
    """
    builder = _Builder(bytearray(4) + IDENTIFIER)
    builder.refer(0, builder.table(root))
    return list(builder.pieces())


@dataclass(slots=True)
class _Builder:
    """The bytes so far, and what is to follow."""

    head: bytearray
    _vtables: dict[bytes, int] = field(default_factory=dict)
    _inside: list[tuple[ByteRange | Pieces, int]] = field(default_factory=list)
    """Payloads, and where the references to them stand."""
    _behind: list[tuple[ByteRange | Pieces, int]] = field(default_factory=list)
    """Bytes outside the flatbuffer, and where their offsets stand."""

    def refer(self, offset: int, target: int) -> None:
        struct.pack_into("<I", self.head, offset, target - offset)

    def table(self, table: Table) -> int:
        """Append a table, then all that it refers to; return its offset."""
        fields = [item for item in TABLES[table.kind] if item.name in table.values]
        widths = {
            item.name: struct.calcsize(SCALARS[item.type]) if item.is_scalar else 4
            for item in fields
        }
        offsets, end = {}, 4
        for name in sorted(widths, key=lambda name: -widths[name]):
            offsets[name], end = end, end + widths[name]
        end += -end % 4
        entries = [offsets.get(name, 0) for name in _trimmed(table)]
        count = len(entries) + 2
        vtable = self._vtable(struct.pack(f"<{count}H", 2 * count, end, *entries))
        # Fields of eight bytes come right behind the head of four, and have to be aligned.
        self._pad(*((8, 4) if 8 in widths.values() else (4, 0)))
        start = len(self.head)
        self.head += struct.pack("<i", start - vtable) + bytes(end - 4)
        for item in fields:
            offset, value = start + offsets[item.name], table.values[item.name]
            if not item.is_scalar:
                self._append(item.type, item.is_vector, value, offset)
            elif isinstance(value, (ByteRange, Pieces)):
                self._behind.append((value, offset))
            else:
                assert isinstance(value, bytes)
                self.head[offset : offset + len(value)] = value
        return start

    def _vtable(self, content: bytes) -> int:
        if content not in self._vtables:
            self._pad(2)
            self._vtables[content] = len(self.head)
            self.head += content
        return self._vtables[content]

    def _append(self, kind: str, is_vector: bool, value: object, offset: int) -> None:
        if isinstance(value, Table):
            self.refer(offset, self.table(value))
        elif isinstance(value, tuple):
            self._tables(value, offset)
        elif isinstance(value, (ByteRange, Pieces)):
            self._inside.append((value, offset))
        else:
            assert isinstance(value, bytes)
            self._bytes(value, struct.calcsize(SCALARS[kind]) if is_vector else 0, offset)

    def _tables(self, tables: tuple[Table, ...], offset: int) -> None:
        self._pad(4)
        start = len(self.head)
        self.refer(offset, start)
        self.head += struct.pack("<I", len(tables)) + bytes(4 * len(tables))
        for index, table in enumerate(tables):
            self.refer(start + 4 + 4 * index, self.table(table))

    def _bytes(self, value: bytes, width: int, offset: int) -> None:
        """Append a vector of scalars of ``width`` bytes, or with 0 a string."""
        self._pad(max(width, 4), -4)
        self.refer(offset, len(self.head))
        self.head += struct.pack("<I", len(value) // (width or 1)) + value
        if not width:
            self.head += b"\0"

    def _pad(self, alignment: int, offset: int = 0) -> None:
        """Append zeros until the length is a multiple of ``alignment``, plus ``offset``."""
        self.head += bytes((offset - len(self.head)) % alignment)

    def pieces(self) -> Iterator[Piece]:
        tail: list[Piece] = []
        end = len(self.head)
        for payload, offset in sorted(self._inside, key=_by_source):
            padding = (-4 - end) % ALIGNMENT
            self.refer(offset, end + padding)
            tail += [bytes(padding) + struct.pack("<I", payload.length), *_pieces(payload)]
            end += padding + 4 + payload.length
        # Two references to the same bytes lead to one copy of them.
        starts: dict[ByteRange | Pieces, int] = {}
        for payload, offset in sorted(self._behind, key=_by_source):
            if payload not in starts:
                padding = -end % ALIGNMENT
                tail += [bytes(padding), *_pieces(payload)]
                starts[payload] = end + padding
                end += padding + payload.length
            struct.pack_into("<Q", self.head, offset, starts[payload])
        yield bytes(self.head)
        yield from tail


def _trimmed(table: Table) -> list[str]:
    names = [item.name for item in TABLES[table.kind]]
    while names and names[-1] not in table.values:
        names.pop()
    return names


def _pieces(payload: ByteRange | Pieces) -> tuple[Piece, ...]:
    return payload.pieces if isinstance(payload, Pieces) else (payload,)


def _by_source(entry: tuple[ByteRange | Pieces, int]) -> tuple[str, int, int]:
    payload, offset = entry
    first = _pieces(payload)[0]
    return (
        (str(first.path), first.offset, offset) if isinstance(first, ByteRange) else ("", 0, offset)
    )
