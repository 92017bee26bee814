"""Small files of the system, and files that processes of one user share."""

from __future__ import annotations

import errno
import mmap
import os
import re
import stat
from contextlib import suppress
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


def map_new_file(path: str | Path, nbytes: int, folder: int | None = None) -> mmap.mmap:
    """Map a new file, of zeros, that only this user may open; what had its name is removed.

    ``folder``: descriptor of the folder that a path without one is in.

    Raises:
        OSError: there is no room.
    """
    with suppress(FileNotFoundError):
        os.unlink(path, dir_fd=folder)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(path, flags, 0o600, dir_fd=folder)
    try:
        os.posix_fallocate(file, 0, nbytes)  # or a full disk would end the process by SIGBUS
        return mmap.mmap(file, nbytes)
    except OSError:
        os.unlink(path, dir_fd=folder)
        raise
    finally:
        os.close(file)


def open_own_file(path: str | Path, folder: int | None = None) -> int:
    """Open a file of this user for reading; ``folder``: as for :func:`map_new_file`.

    Raises:
        OSError: there is none, or it is a link, no ordinary file, or another user's.
    """
    # A FIFO would block the reader.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.open(path, flags, dir_fd=folder)
    status = os.fstat(file)
    if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
        os.close(file)
        raise PermissionError(errno.EACCES, "is not a file of this user", str(path))
    return file


def paths_below(root: Path, pattern: str) -> list[Path]:
    """Find the paths below a root that match a pattern, ``zone10`` after ``zone9``."""
    return sorted(root.glob(pattern), key=lambda path: by_number(str(path)))


def by_number(name: str) -> list[tuple[int, str]]:
    """Make a sort key that puts ``zone10`` after ``zone9``."""
    parts = re.findall(r"\d{1,18}|\D+|\d", name)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]
