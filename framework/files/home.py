"""The user's home folder."""

from __future__ import annotations

from pathlib import Path

from rankslice.framework.errors import Mistake, RankSliceError


def has_home() -> bool:
    try:
        home_folder()
    except RankSliceError:
        return False
    return True


def home_folder(remedy: str = "set HOME") -> Path:
    """Return the user's home folder, which an account without HOME may lack."""
    try:
        return Path.home()
    except RuntimeError:
        raise RankSliceError(Mistake("the home folder", "is not known", remedy)) from None
