"""JSON from other machines: size, depth and numbers are limited before values are used."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.wording import printable

MAX_NUMBER = 1 << 63
"""Whole numbers are smaller, without their sign."""
_MAX_DEPTH = 8
_MAX_TEXT = 4000


class UntrustedJsonError(ValueError):
    """The text of another machine is not valid or exceeds a limit; the message says how."""


def from_other_machine(content: bytes, where: str, expected: str = "") -> Any:
    """Return :func:`untrusted_json` of a file's content.

    Raises:
        RankSliceError: it is not valid, or exceeds a limit.
    """
    try:
        return untrusted_json(content)
    except UntrustedJsonError as error:
        raise RankSliceError(Mistake(where, str(error), expected)) from None


def untrusted_json(text: bytes) -> Any:
    """Parse a JSON text of another machine.

    Numbers are finite and have 64 bits; nesting is at most eight brackets deep. Texts are cut
    after 4,000 characters, and unprintable characters become escape sequences, so that no text
    controls a terminal or ends a line.
    """
    try:
        value = json.loads(
            text.decode(errors="replace"),
            parse_constant=_refuse,
            parse_int=_whole_number,
            parse_float=_number,
        )
    except UntrustedJsonError:
        raise
    except RecursionError:
        raise UntrustedJsonError("brackets are nested too deeply") from None
    except ValueError:
        raise UntrustedJsonError("it is not JSON") from None
    return _cleaned(value, _MAX_DEPTH)


def _refuse(constant: str) -> NoReturn:
    raise UntrustedJsonError(f"{constant} is not a number")


def _whole_number(digits: str) -> int:
    if len(digits) > 20 or abs(number := int(digits)) >= MAX_NUMBER:
        raise UntrustedJsonError("a number has too many digits")
    return number


def _number(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise UntrustedJsonError("a number is too large")
    return number


def _cleaned(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return _shown(value)
    if not isinstance(value, (list, dict)):
        return value
    if not depth:
        raise UntrustedJsonError("brackets are nested too deeply")
    if isinstance(value, list):
        return [_cleaned(item, depth - 1) for item in value]
    return {_shown(name): _cleaned(item, depth - 1) for name, item in value.items()}


def _shown(text: str) -> str:
    return printable(text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}...")
