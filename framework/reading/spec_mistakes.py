"""What pydantic finds wrong in a file, as mistakes that name the place in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from pydantic_core import ErrorDetails

from rankslice.framework.errors import Mistake, nearest
from rankslice.framework.wording import bare, described, joined, quoted

Path: TypeAlias = Sequence[int | str]
"""Of a value in a file: keys and positions."""


def path_text(path: Path) -> str:
    """Return a path behind the place of the value in which it begins: ``.boards.edge01[0]``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{bare(part)}" for part in path)


def place_in(file: str, path: Path) -> str:
    return f"{file}: {path_text(path).removeprefix('.')}" if path else file


def known_keys(keys: Iterable[str]) -> str:
    return f"known keys are {joined([*keys])}"


def spec_mistake(
    detail: ErrorDetails,
    path: Path,
    place: Callable[[Path], str],
    keys: Iterable[str],
    expected: str,
) -> Mistake:
    """Return a mistake.

    Args:
        path: where it is; of a key that is missing or unknown, with that key.
        place: writes a path.
        keys: of the object that has the value.
        expected: what the value should be.
    """
    kind, last = detail["type"], str(path[-1]) if path else ""
    if kind == "missing":
        return Mistake(place(path[:-1]), f"{last!r} is missing", expected)
    if kind == "extra_forbidden":
        hint = nearest(last, keys) or known_keys(keys)
        return Mistake(place(path[:-1]), f"unknown key {quoted(last)}", hint)
    is_ours = kind == "value_error"
    found = str(detail["ctx"]["error"]) if is_ours else f"found {described(detail['input'])}"
    return Mistake(place(path), found, expected)
