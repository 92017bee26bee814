"""How messages show names and values that a user wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import is_dataclass

_MAX_LETTERS = 80


def quoted(text: str) -> str:
    """Quote a text: on one line, printable, and shortened if it is very long."""
    return repr(_shortened(text))


def bare(text: str) -> str:
    """Show a text without quotes if that is safe to print, else as :func:`quoted`."""
    return _shortened(text) if text and text.isprintable() else quoted(text)


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_LETTERS else text[: _MAX_LETTERS - 3] + "..."


def joined(words: Sequence[str], last: str = "and") -> str:
    """Write ``a``, ``a and b`` or ``a, b and c``."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def described(value: object) -> str:
    """Describe a value of a file, for "expected ..., found ...": ``a list``."""
    if isinstance(value, str):
        return quoted(value)
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return bare(f"{value}")
    if is_dataclass(value):
        return f"a {type(value).__name__}"
    kind = "list" if isinstance(value, list) else "object"
    if not value:
        return f"an empty {kind}"
    return f"a {kind}" if kind == "list" else f"an {kind}"
