"""How texts show names, lists, values from the user, and quantities."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from rankslice.backend.runtime.job.wording import (
    bare as bare,
    bytes_text as bytes_text,
    count_text as count_text,
    described as described,
    digits as digits,
    fixed_text as fixed_text,
    joined as joined,
    joules_text as joules_text,
    mb_text as mb_text,
    megabytes_text as megabytes_text,
    ms_text as ms_text,
    number_text as number_text,
    percent_text as percent_text,
    quoted as quoted,
    share_text as share_text,
    short_ms_text as short_ms_text,
    time_text as time_text,
)

_MAX_LINE = 500


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
    if len(text) > _MAX_LINE:
        half = _MAX_LINE // 2
        text = f"{text[:half]}...{text[-half:]}"
    return printable(text)


def printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def listed(names: Sequence[str], most: int = 5) -> str:
    """Return the names in quotes, at most ``most`` of them: ``'a', 'b', ... and 37 more``."""
    shown = ", ".join(quoted(name) for name in names[:most])
    left = len(names) - most
    return f"{shown}, ... and {left} more" if left > 0 else shown


def first_of(texts: Sequence[str], most: int, rest: str = "... and {} more") -> list[str]:
    """Return at most ``most`` of the texts; then ``rest``, with the number of the others."""
    left = len(texts) - most
    return [*texts[:most], *([rest.format(left)] if left > 0 else [])]


def size_option(option: str, name: str, sizes: Iterable[int]) -> str:
    given = f"{name}={','.join(map(str, sizes))}"
    return f"{option} {shlex.quote(printable(given))}"
