"""User files, opened without ever blocking."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from rankslice.framework.errors import Mistake, RankSliceError


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
    """Return what a regular file of at most so many bytes holds, as :func:`open_ordinary`."""
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
