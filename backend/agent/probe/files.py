"""Small files of the system, below a root: tests show boards that they do not have."""

from __future__ import annotations

import re
from pathlib import Path


def text_of(path: Path) -> str:
    """Return the stripped text of a small file; empty if it cannot be read."""
    try:
        content = path.read_bytes()[: 1 << 20]
    except OSError:
        return ""
    return content.decode("utf-8", "replace").replace("\0", " ").strip()


def number_in(path: Path) -> int | None:
    """Return the whole number that a file holds; ``None``: it holds none."""
    text = text_of(path)
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else None


def found(root: Path, pattern: str) -> list[Path]:
    """Return the paths below a root that match a pattern, numbers in numerical order."""
    return sorted(root.glob(pattern), key=lambda path: by_number(str(path)))


def by_number(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts ``zone10`` after ``zone9``."""
    parts = re.findall(r"\d{1,18}|\D+|\d", name)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def shown(path: Path, root: Path) -> str:
    """Return a path below a root as the board itself would name it."""
    return "/" + str(path.relative_to(root))


def home() -> Path:
    """Return the home folder; ``/`` for an account that has none."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")
