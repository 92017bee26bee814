"""Whether a folder that is to be replaced is a command's own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from rankslice.framework.errors import RankSliceError
from rankslice.framework.files.ordinary_file import open_ordinary
from rankslice.framework.wording import listed


def what_forbids(folder: Path, why_not_replaced: Callable[[Path], str]) -> str:
    """Return why a command may not make or replace a folder, as a clause; empty: it may."""
    if folder.is_symlink():
        return "is a link, which is not followed"
    if not folder.exists():
        return ""
    return why_not_replaced(folder) if folder.is_dir() else "is a file"


def other_maker(folder: Path, record: str, format: str, made: str) -> str:
    """Return what shows that a folder is no command's own; empty: nothing.

    The command writes a JSON ``record`` there, which begins with its ``format``; it ``made`` a
    "build", say.
    """
    try:
        with os.fdopen(open_ordinary(folder / record, f"a {made}"), "rb") as file:
            beginning = file.read(200)
    except (OSError, RankSliceError):
        return f"has no {record}"
    return "" if f'"{format}"'.encode() in beginning else f"has a {record} that no {made} made"


def other_entries(folder: Path, is_own: Callable[[str], bool]) -> str:
    """Return what else than a command's own a folder holds; empty: nothing."""
    foreign = sorted(path.name for path in folder.iterdir() if not is_own(path.name))
    return f"also holds {listed(foreign)}: move it elsewhere" if foreign else ""
