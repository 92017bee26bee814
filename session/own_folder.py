"""Whether a folder that is to be replaced is a command's own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from rankslice.framework.errors import RankSliceError
from rankslice.framework.files.ordinary_file import open_ordinary
from rankslice.framework.wording import listed


def what_forbids(folder: Path, why_not_replaced: Callable[[Path], str]) -> str:
    """Return why a command may not put its folder there, as a clause; empty: it may.

    Args:
        folder: to be made, or replaced.
        why_not_replaced: the same for a folder that is there.
    """
    if folder.is_symlink():
        return "is a link, which is not followed"
    if not folder.exists():
        return ""
    return why_not_replaced(folder) if folder.is_dir() else "is a file"


def other_maker(folder: Path, record: str, format: str, made: str) -> str:
    """Return what shows that a folder is no command's own; empty: nothing.

    Args:
        folder: that is to be replaced.
        record: name of the JSON file that the command writes there.
        format: which that file names at its beginning.
        made: what the command makes, for messages: ``build``.
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
