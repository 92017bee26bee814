"""Files that are read by position, of which only a small part ever is in memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

from rankslice.framework.files.ordinary_file import open_ordinary

_Own = TypeVar("_Own", bound="PositionedFile")


class PositionedFile:
    """An open file, read by position: one that shrinks is an error, never a signal."""

    def __init__(self, path: Path, expected: str) -> None:
        """Open the file.

        Args:
            path: of an ordinary file.
            expected: how messages end: ``expected a .tflite model file``.

        Raises:
            RankSliceError: there is no such file, it may not be read, or is not an ordinary file.
        """
        self.path = path
        self._descriptor = open_ordinary(path, expected)
        self.size = os.fstat(self._descriptor).st_size

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
