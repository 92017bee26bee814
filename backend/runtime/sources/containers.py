"""How long a video file should be, by its outermost structure."""

from __future__ import annotations

import os
from pathlib import Path

from .numpy_files import open_ordinary

_MATROSKA = (b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67")
"""Begins the head and the segment."""

_MOST_PARTS = 1 << 16
"""That are looked at: a video has a part for each of its fragments, and few others."""


def is_cut_short(path: Path) -> bool:
    """Return whether an MP4, AVI or Matroska file is shorter than it says itself."""
    place = 0
    with open_ordinary(path) as file:
        size = os.fstat(file.fileno()).st_size
        for _ in range(_MOST_PARTS):
            file.seek(place)
            length = _part_bytes(file.read(16).ljust(16, b"\0"))
            place += length
            if not length or place >= size:
                return place > size
    return False


def _part_bytes(head: bytes) -> int:
    """Return the size of a part of a file, by its first bytes; 0: it is not known."""
    if head.startswith(b"RIFF"):
        return 8 + int.from_bytes(head[4:8], "little")
    if head[:4] in _MATROSKA:
        width = 9 - head[4].bit_length()
        unknown = (1 << 7 * width) - 1
        length = int.from_bytes(head[4 : 4 + width], "big") & unknown
        return 0 if length == unknown else 4 + width + length
    length = int.from_bytes(head[:4], "big")  # of a box of an MP4 file
    length = int.from_bytes(head[8:], "big") if length == 1 else length
    return length if length >= 8 else 0
