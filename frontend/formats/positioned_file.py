"""Files that are read by position, of which only a small part ever is in memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.ordinary_file import open_ordinary

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
        found = os.pread(self._descriptor, length, start)
        while found and len(found) < length:
            more = os.pread(self._descriptor, length - len(found), start + len(found))
            if not more:
                break
            found += more
        return found
