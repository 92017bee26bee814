"""Temporary folders of the launcher, of which nothing stays even if it is killed."""

from __future__ import annotations

from pathlib import Path

from rankslice.backend.runtime.faults.private import PrivateFolder, make_private
from rankslice.framework.errors import Mistake, RankSliceError

__all__ = ["temporary_folder"]


def temporary_folder(place: Path | None = None) -> PrivateFolder:
    """Return a new folder, which is removed when it is released.

    Args:
        place: where; the place for temporary files by default.

    Raises:
        RankSliceError: it cannot be made.
    """
    try:
        return make_private(place)
    except OSError as error:
        raise RankSliceError(
            Mistake(
                str(place or "the place for temporary files"),
                f"takes no new folder: {error.strerror or error}",
                "make room there, or name another place with the variable TMPDIR",
            )
        ) from None
