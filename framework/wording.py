"""How messages show names, lists and values from the user."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

_LONGEST = 80
_LONGEST_LINE = 500


def quoted(text: str) -> str:
    """Return ``text`` in quotes, on one line, printable, and shortened if it is very long."""
    return repr(_shortened(text))


def bare(text: str) -> str:
    """Return ``text`` without quotes if that is safe to print, else as :func:`quoted`."""
    return _shortened(text) if text and text.isprintable() else quoted(text)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def harmless(text: str) -> str:
    """Return a text of the same width and lines without control characters."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(
        letter if letter == "\n" or letter.isprintable() else "\N{REPLACEMENT CHARACTER}"
        for letter in text
    )


def on_one_line(text: str) -> str:
    """Return ``text`` on one line, without control characters, shortened in the middle if long."""
    if len(text) > _LONGEST_LINE:
        half = _LONGEST_LINE // 2
        text = f"{text[:half]}...{text[-half:]}"
    return printable(text)


def printable(text: str) -> str:
    """Return ``text`` with escape sequences instead of unprintable characters."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def joined(words: Sequence[str], last: str = "and") -> str:
    """Return ``a``, ``a and b`` or ``a, b and c``."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def listed(names: Sequence[str], most: int = 5) -> str:
    """Return the names in quotes, at most ``most`` of them: ``'a', 'b', ... and 37 more``."""
    shown = ", ".join(quoted(name) for name in names[:most])
    left = len(names) - most
    return f"{shown}, ... and {left} more" if left > 0 else shown


def described(value: object) -> str:
    """Return what a value of a JSON or YAML file is, for "expected ..., found ...": ``a list``."""
    if isinstance(value, str):
        return quoted(value)
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return bare(f"{value}")
    kind = "list" if isinstance(value, list) else "object"
    if not value:
        return f"an empty {kind}"
    return f"a {kind}" if kind == "list" else f"an {kind}"


def size_option(option: str, name: str, sizes: Iterable[int]) -> str:
    """Return what to write on the command line to give sizes to a tensor, printable."""
    given = f"{name}={','.join(map(str, sizes))}"
    return f"{option} {shlex.quote(printable(given))}"
