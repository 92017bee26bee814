"""The text of a file that a user wrote."""

from __future__ import annotations

from pathlib import Path

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.wording import bare

__all__ = ["read_text"]


def read_text(path: Path, what: str) -> str:
    """Return the text of a UTF-8 file, without a byte order mark.

    Args:
        path: The file.
        what: What it should hold, for the message: ``a mapping``.

    Raises:
        RankSliceError: The file cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        found = f"byte {error.start} is no UTF-8 text"
        raise RankSliceError(Mistake(path.name, found, f"expected {what} as text")) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise RankSliceError(Mistake(bare(str(path)), f"cannot be read: {reason}")) from None
