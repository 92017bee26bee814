"""The little that is read from a ``.tflite`` file without LiteRT: how many operators it has."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

__all__ = ["count_operators"]

_SUBGRAPHS, _OPERATORS = 2, 3
"""Numbers of the fields in the tables Model and SubGraph of LiteRT's schema, version 3."""


def count_operators(path: Path) -> int:
    """Return the number of operators in the file's first subgraph.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no ``.tflite`` file.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data[4:8] != b"TFL3":
                raise ValueError("this is no .tflite file")
            model = _follow(data, 0)
            subgraphs = _follow(data, _field(data, model, _SUBGRAPHS))
            first = _follow(data, subgraphs + 4)
            operators = _field(data, first, _OPERATORS)
            return _number(data, _follow(data, operators)) if operators else 0
    except (struct.error, ValueError):
        raise ValueError("this is no .tflite file") from None


def _number(data: mmap.mmap, place: int) -> int:
    value: int = struct.unpack_from("<I", data, place)[0]
    return value


def _follow(data: mmap.mmap, place: int) -> int:
    """Return where the offset at ``place`` leads."""
    return place + _number(data, place)


def _field(data: mmap.mmap, table: int, number: int) -> int:
    """Return where a field of a table lies; 0 if the table lacks it."""
    layout = table - struct.unpack_from("<i", data, table)[0]
    place = 4 + 2 * number
    if place >= struct.unpack_from("<H", data, layout)[0]:
        return 0
    offset = struct.unpack_from("<H", data, layout + place)[0]
    return table + offset if offset else 0
