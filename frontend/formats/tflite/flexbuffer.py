"""Settings of custom operators that are a FlexBuffer (https://flatbuffers.dev/flexbuffers).

Such bytes end in the offset of the root, its packed type, and the width of the offset. Offsets lead
backward. Many of them may lead to the same value, so how much is read is limited.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

_MAX_DEPTH = 16
_MAX_VALUES = 10_000
_MAX_TEXT = 1 << 16  # bytes

_NULL, _INT, _UINT, _FLOAT, _KEY, _STRING = range(6)
_INDIRECT = {6: _INT, 7: _UINT, 8: _FLOAT}
_MAP, _VECTOR = 9, 10
_BLOB, _BOOL = 25, 26
_TYPED = {11: _INT, 12: _UINT, 13: _FLOAT, 14: _KEY, 15: _STRING, 36: _BOOL}
_FIXED = {16 + number: (number // 3 + 2, _INT + number % 3) for number in range(9)}
"""Vectors without a length: their length, and the type of their elements."""
_CODES = {_INT: "bhiq", _UINT: "BHIQ", _FLOAT: " efd", _BOOL: "BHIQ"}
"""Codes of :mod:`struct` by width; no float has one byte."""
_MAX_PADDING = 7


def flexbuffer_value(data: bytes) -> Any:
    """Return the map or vector in a FlexBuffer, as JSON has it; ``None`` if the bytes are none.

    Blobs are hexadecimal texts. Nearly all bytes could be a single number, so these do not count.
    """
    try:
        width, packed = data[-1], data[-2]
        kind, root = packed >> 2, len(data) - 2 - width
        if width in (1, 2, 4, 8) and (kind in (_MAP, _VECTOR) or kind in _TYPED or kind in _FIXED):
            reader = _Reader(data)
            value = reader.value(root, width, packed, 0)
            # Writers put the root last.
            return value if 0 <= root - reader.end <= _MAX_PADDING else None
    except (ValueError, IndexError, struct.error):
        pass
    return None


class _Reader:
    """Reads the values of one buffer."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._values_left, self._text_left = _MAX_VALUES, _MAX_TEXT
        self.end = 0
        """Where the last of the vectors and maps that were read ends."""

    def value(self, at: int, width: int, packed: int, depth: int) -> Any:
        """Return the value at ``at``, or that to which an offset of ``width`` bytes there leads."""
        kind, own_width = packed >> 2, 1 << (packed & 3)
        self._values_left -= 1
        if self._values_left < 0 or depth > _MAX_DEPTH:
            raise ValueError("too many values, or nested too deeply")
        if kind == _NULL:
            return None
        if kind in _CODES:
            return self._number(at, width, kind)
        target = at - self._number(at, width, _UINT)
        if kind in _INDIRECT:
            return self._number(target, own_width, _INDIRECT[kind])
        if kind == _KEY:
            return self._text(target, self._data.index(0, max(target, 0)) - target)
        if kind in _FIXED:
            count, element = _FIXED[kind]
            return self._items(target, own_width, [element << 2] * count, depth)
        count = self._number(target - own_width, own_width, _UINT)
        if kind == _STRING:
            return self._text(target, count)
        if kind == _BLOB:
            return self._bytes(target, count).hex()
        if count > self._values_left:
            raise ValueError("too many values")
        if kind in _TYPED:
            packed = _TYPED[kind] << 2 | packed & 3
            return self._items(target, own_width, [packed] * count, depth)
        if kind not in (_MAP, _VECTOR):
            raise ValueError("an unknown type")
        types = self._bytes(target + count * own_width, count)
        values = self._items(target, own_width, types, depth)
        if kind == _VECTOR:
            return values
        before = target - 3 * own_width
        place = before - self._number(before, own_width, _UINT)
        key_width = self._number(before + own_width, own_width, _UINT)
        if self._number(place - key_width, key_width, _UINT) != count:
            raise ValueError("a map whose keys are not as many as its values")
        keys = self._items(place, key_width, [_KEY << 2] * count, depth)
        return dict(zip(keys, values, strict=True))

    def _items(self, start: int, width: int, types: Sequence[int], depth: int) -> list[Any]:
        # Bytes of types follow the elements of vectors that have them.
        length = len(types) * (width + isinstance(types, bytes))
        self.end = max(self.end, start + length)
        return [
            self.value(start + number * width, width, packed, depth + 1)
            for number, packed in enumerate(types)
        ]

    def _number(self, start: int, width: int, kind: int) -> Any:
        raw = self._bytes(start, width)
        (number,) = struct.unpack(f"<{_CODES[kind][width.bit_length() - 1]}", raw)
        if kind == _FLOAT and not math.isfinite(number):
            raise ValueError("a number that JSON lacks")
        return bool(number) if kind == _BOOL else number

    def _text(self, start: int, length: int) -> str:
        return self._bytes(start, length).decode()

    def _bytes(self, start: int, length: int) -> bytes:
        self._text_left -= length
        if start < 0 or length < 0 or start + length > len(self._data) or self._text_left < 0:
            raise ValueError("outside the buffer, or too much text")
        return self._data[start : start + length]
