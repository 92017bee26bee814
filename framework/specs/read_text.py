"""The text of a file that a user wrote."""

from __future__ import annotations

import codecs
import os
import stat
from pathlib import Path

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.wording import bare

__all__ = ["MOST_BYTES", "read_text"]

MOST_BYTES = 16 << 20
"""Largest file that is read, if the caller names no other size; a model of 100,000 layers needs
less for its mapping and its plan."""

_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_text(path: Path, what: str, most: int = MOST_BYTES) -> str:
    """Return the text of a UTF-8 file, without a byte order mark.

    Args:
        path: An ordinary file: pipes and devices may have no end.
        what: Which file it is, for the message: ``a mapping``.
        most: Largest size of the file in bytes.

    Raises:
        RankSliceError: The file cannot be read, is larger than that, or is not UTF-8.
    """
    expected = f"expected {what} file in UTF-8"
    content = _content(path, f"expected {what} file", most)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        wide = content.startswith(_WIDE)
        found = "the file is UTF-16 text" if wide else f"byte {error.start} is no UTF-8 text"
        raise RankSliceError(Mistake(bare(path.name), found, expected)) from None


def _content(path: Path, expected: str, most: int) -> bytes:
    place = bare(str(path))
    try:
        # Opening a pipe would wait for somebody to write into it.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if fault := _fault(os.fstat(descriptor), most):
                raise RankSliceError(Mistake(place, fault, expected))
            return b"".join(iter(lambda: os.read(descriptor, 1 << 20), b""))
        finally:
            os.close(descriptor)
    except OSError as error:
        found = f"cannot be read: {error.strerror}"
        raise RankSliceError(Mistake(place, found, expected)) from None
    except ValueError:  # a NUL
        raise RankSliceError(Mistake(place, "is no file name", expected)) from None


def _fault(status: os.stat_result, most: int) -> str:
    """Return why a file is not read, as a clause; empty: it may be."""
    if stat.S_ISDIR(status.st_mode):
        return "is a folder"
    if not stat.S_ISREG(status.st_mode):
        return "is no ordinary file"
    if status.st_size > most:
        return f"has {status.st_size} bytes, and {most} are the most"
    return ""
