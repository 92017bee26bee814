"""Sizes, counts and energies as text with three digits."""

from __future__ import annotations

from rankslice.framework.wording import digits

_PREFIXES = ("", "k", "M", "G", "T", "P", "E")


def bytes_text(number: int) -> str:
    """Return a number of bytes with three digits and a decimal prefix: ``1.54 kB``, ``12 B``."""
    return _prefixed(number, ("B", "kB", "MB", "GB", "TB", "PB", "EB"))


def count_text(number: int) -> str:
    """Return a count with three digits and a decimal prefix: ``4.09 G``, ``12``."""
    return _prefixed(number, _PREFIXES).rstrip()


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
