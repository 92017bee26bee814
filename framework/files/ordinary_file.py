"""Files of the user, opened without ever blocking, and the home folder."""

from __future__ import annotations

import codecs
import os
import stat
from pathlib import Path

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.wording import bare

MAX_BYTES = 16 << 20
"""Default limit of a text; the mapping and the plan of a model with 100,000 layers are smaller."""


def open_ordinary(path: Path, expected: str) -> int:
    """Return a descriptor to read a regular file; pipes and devices are rejected.

    ``expected`` is the end of messages: ``expected a mapping file``.
    """
    where = str(path)
    try:
        # Opening a pipe would wait for somebody to write into it.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise RankSliceError(Mistake(where, "no such file", expected)) from None
    except OSError as error:
        found = f"cannot be read: {error.strerror}"
        raise RankSliceError(Mistake(where, found, expected)) from None
    except ValueError:  # a NUL
        raise RankSliceError(Mistake(where, "is not a file name", expected)) from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    found = "is a folder" if stat.S_ISDIR(mode) else "is not a regular file"
    raise RankSliceError(Mistake(where, found, expected))


def read_ordinary(path: Path, expected: str, most: int) -> bytes:
    """Read a regular file of at most ``most`` bytes, opened by :func:`open_ordinary`."""
    descriptor = open_ordinary(path, expected)
    try:
        size = os.fstat(descriptor).st_size
        if size > most:
            found = f"has {size} bytes; the maximum is {most}"
            raise RankSliceError(Mistake(str(path), found, expected))
        return b"".join(iter(lambda: os.read(descriptor, 1 << 20), b""))
    except OSError as error:
        found = f"cannot be read: {error.strerror}"
        raise RankSliceError(Mistake(str(path), found, expected)) from None
    finally:
        os.close(descriptor)


def read_text(path: Path, what: str, most: int = MAX_BYTES) -> str:
    """Return the text of an ordinary UTF-8 file, without a byte order mark."""
    content = read_ordinary(path, f"expected {what} file", most)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        is_wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        found = "the file is UTF-16 text" if is_wide else f"byte {error.start} is not UTF-8 text"
        expected = f"expected {what} file in UTF-8"
        raise RankSliceError(Mistake(bare(path.name), found, expected)) from None


def home_folder(remedy: str = "set HOME") -> Path:
    """Return the user's home folder, which an account without HOME may lack."""
    try:
        return Path.home()
    except RuntimeError:
        raise RankSliceError(Mistake("the home folder", "is not known", remedy)) from None
