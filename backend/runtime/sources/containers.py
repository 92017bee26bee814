"""The outermost structure of video files, which says how long a file should be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

from .numpy_files import open_ordinary

_MATROSKA = b"\x1a\x45\xdf\xa3"
_HEAD_BYTES = 4096


def is_cut_short(path: Path) -> bool:
    """Return whether an MP4, AVI or Matroska file is shorter than it says itself.

    Raises:
        JobError: it cannot be read.
    """
    with open_ordinary(path) as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(_HEAD_BYTES)
        if head.startswith(_MATROSKA):
            return _matroska_end(head) > size
        place = 0
        while place < size and (length := _chunk_bytes(file, place)):
            place += length
        return place > size


def _chunk_bytes(file: IO[bytes], place: int) -> int:
    """Return the size of a box of an MP4 file, or of a RIFF chunk; 0: it is not known."""
    file.seek(place)
    head = file.read(16)
    if head.startswith(b"RIFF"):
        return 8 + int.from_bytes(head[4:8], "little")
    length = int.from_bytes(head[:4], "big")
    length = int.from_bytes(head[8:], "big") if length == 1 else length
    return length if length >= 8 else 0


def _matroska_end(head: bytes) -> int:
    """Return where the segment of a Matroska file ends; 0: it is not known."""
    try:
        length, place = _number(head, len(_MATROSKA))
        length, place = _number(head, place + length + 4)
    except IndexError:
        return 0
    return place + length if length >= 0 else 0


def _number(data: bytes, place: int) -> tuple[int, int]:
    """Return a number of Matroska, -1 if it is unknown, and the place after it."""
    width = 9 - data[place].bit_length()
    limit = 1 << 7 * width
    number = int.from_bytes(data[place : place + width], "big") % limit
    return -1 if number == limit - 1 else number, place + width
