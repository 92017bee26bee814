"""Small files of the system."""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT = Path("/")
_MAX_BYTES = 1 << 20
_MAX_NUMBER = 10**18
"""No file of the system holds a larger number that means something."""


def text_of(path: Path) -> str:
    """Read and strip a file, with spaces for zero bytes; empty: it cannot be read."""
    try:
        content = path.read_bytes()[:_MAX_BYTES]
    except OSError:
        return ""
    return content.decode("utf-8", "replace").replace("\0", " ").strip()


def beginning_of(path: str | Path, max_bytes: int = 4096) -> bytes:
    """Read the beginning of a file, with less work than Python's files.

    Raises:
        OSError: it cannot be read.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, max_bytes)
    finally:
        os.close(file)


def number_in(path: str | Path) -> int | None:
    """Read a whole number; ``None``: the file holds none."""
    try:
        number = int(beginning_of(path, 64))
    except (OSError, ValueError):
        return None
    return number if abs(number) < _MAX_NUMBER else None


def paths_below(root: Path, pattern: str) -> list[Path]:
    """Find the paths below a root that match a pattern, ``zone10`` after ``zone9``."""
    return sorted(root.glob(pattern), key=lambda path: by_number(str(path)))


def by_number(name: str) -> list[tuple[int, str]]:
    """Make a sort key that puts ``zone10`` after ``zone9``."""
    parts = re.findall(r"\d{1,18}|\D+|\d", name)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]
