"""How texts show names, lists, values from the user, and quantities."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from rankslice.backend.runtime.job.wording import (
    bare as bare,
    described as described,
    digits as digits,
    joined as joined,
    quoted as quoted,
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


def bytes_text(number: int) -> str:
    """Return a number of bytes with three digits and a decimal prefix: ``1.54 kB``, ``12 B``."""
    return _prefixed(number, ("B", "kB", "MB", "GB", "TB", "PB", "EB"))


def count_text(number: int) -> str:
    """Return a count with three digits and a decimal prefix: ``4.09 G``, ``12``."""
    return _prefixed(number, ("", "k", "M", "G", "T", "P", "E")).rstrip()


def joules_text(joules: float) -> str:
    """Return an energy with about three digits: ``430 mJ``, ``1.52 J``."""
    return f"{digits(1e3 * joules)} mJ" if joules < 0.9995 else f"{digits(joules)} J"


def share_text(share: float) -> str:
    """Return a share from 0 to 1 in per cent: ``53.5 %``."""
    return f"{100 * share:.1f} %"


def _prefixed(number: int, units: tuple[str, ...]) -> str:
    if number < 1000:
        return f"{number} {units[0]}"
    power = 0
    scaled = float(number)
    while scaled >= 999.5 and power < len(units) - 1:  # 999.5 would be shown as 1000
        scaled /= 1000
        power += 1
    decimals = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
    return f"{scaled:.{decimals}f} {units[power]}"
