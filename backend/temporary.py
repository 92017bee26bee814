"""Temporary folders of the launcher; those of a killed launcher are removed later."""

from __future__ import annotations

from pathlib import Path

from rankslice.backend.runtime.faults.private_folder import PrivateFolder, make_private
from rankslice.framework.errors import Mistake, RankSliceError


def temporary_folder(parent: Path | None = None) -> PrivateFolder:
    """Return a new private folder, which is removed when it is released."""
    try:
        return make_private(parent)
    except OSError as error:
        raise RankSliceError(
            Mistake(
                str(parent or "the folder for temporary files"),
                f"no folder can be made there: {error.strerror or error}",
                "make room there, or name another folder with the variable TMPDIR",
            )
        ) from None
