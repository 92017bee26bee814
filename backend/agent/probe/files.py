"""Names of files on the board."""

from __future__ import annotations

from pathlib import Path


def shown(path: Path, root: Path) -> str:
    """Return a path below a root as the board itself would name it."""
    return "/" + str(path.relative_to(root))


def home() -> Path:
    """Return the home folder; ``/`` for an account that has none."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")
