"""How texts show names and values that a user wrote, and quantities, in all rooms."""

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


def digits(value: float, count: int = 3) -> str:
    """Write a number with so many digits, large ones without exponent: ``1.84``, ``1840``."""
    return f"{value:.{count}g}" if abs(value) < 10**count - 0.5 else f"{value:.0f}"


def number_text(value: float) -> str:
    """Return a number with three digits or more: ``0.107``, ``12.50``, ``6214``."""
    size = abs(value)
    return fixed_text(value, 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 else 3)


def fixed_text(value: float, decimals: int = 2) -> str:
    return f"{value:.{decimals}f}"


def percent_text(share: float) -> str:
    """Return a share from 0 to 1 in per cent: ``53 %``."""
    return f"{100 * share:.0f} %"


def share_text(share: float) -> str:
    """Return a share from 0 to 1 in per cent, with a decimal: ``53.5 %``."""
    return f"{100 * share:.1f} %"


def time_text(ms: float) -> str:
    """Return milliseconds with their unit: ``12.34 ms``."""
    return f"{ms:.2f} ms"


def ms_text(ms: float) -> str:
    """Return milliseconds with the digits that matter: ``12.34``, ``0.123``."""
    return f"{ms:.2f}" if ms >= 1 or not ms else f"{ms:.3g}"


def short_ms_text(ms: float) -> str:
    """Return milliseconds with the digits for which terminals have room: ``0.12``, ``0.012``."""
    return f"{ms:.2g}" if 0 < ms < 0.1 else f"{ms:.2f}"


def mb_text(mb: float) -> str:
    return f"{mb:.0f}"


def megabytes_text(nbytes: float, decimals: int = 0) -> str:
    """Return a number of bytes in 10^6 bytes: ``1,234 MB``."""
    return f"{nbytes / 1e6:,.{decimals}f} MB"


def bytes_text(number: int) -> str:
    """Return a number of bytes with three digits and a decimal prefix: ``1.54 kB``, ``12 B``."""
    return _prefixed(number, ("B", "kB", "MB", "GB", "TB", "PB", "EB"))


def count_text(number: int) -> str:
    """Return a count with three digits and a decimal prefix: ``4.09 G``, ``12``."""
    return _prefixed(number, ("", "k", "M", "G", "T", "P", "E")).rstrip()


def joules_text(joules: float) -> str:
    """Return an energy with about three digits: ``430 mJ``, ``1.52 J``."""
    return f"{digits(1e3 * joules)} mJ" if joules < 0.9995 else f"{digits(joules)} J"


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
