"""Files that commands write: what may be replaced, and how."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["whole_file"]


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file that becomes ``path`` when the block ends well; else nothing changes.

    It lies beside ``path`` meanwhile, and gets the permissions of the file that it replaces.

    Raises:
        OSError: it cannot be written.
    """
    draft = path.with_name(f".{path.name[:40]}.{secrets.token_hex(8)}.partial")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(draft, flags, 0o666), "wb") as file:
            with suppress(FileNotFoundError):
                os.fchmod(file.fileno(), stat.S_IMODE(path.lstat().st_mode))
            yield file
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
