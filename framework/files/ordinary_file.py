"""Files of the user's, opened so that none keeps the opener waiting."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from rankslice.framework.errors import Mistake, RankSliceError

__all__ = ["open_ordinary"]


def open_ordinary(path: Path, expected: str) -> int:
    """Return the descriptor of a file to read; pipes and devices may have no end, so none of them.

    Args:
        path: the file, or a link to it.
        expected: how messages end: ``expected a mapping file``.

    Raises:
        RankSliceError: there is no such file, it may not be read, or is no ordinary one.
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
        raise RankSliceError(Mistake(where, "is no file name", expected)) from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    found = "is a folder" if stat.S_ISDIR(mode) else "is no ordinary file"
    raise RankSliceError(Mistake(where, found, expected))
