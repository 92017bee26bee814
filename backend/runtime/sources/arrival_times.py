"""Times of arrivals in a file."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

from ..errors import JobError, reason_of


def parse_arrival_times(text: str) -> tuple[list[float], list[tuple[int, str]]]:
    """Return when frames arrive, ascending, in seconds; and what is wrong, by number of the line.

    The text has a number a line; what follows a ``#`` is left out.
    """
    times_s: list[float] = []
    faults = []
    for number, line in enumerate(text.splitlines(), 1):
        if word := line.partition("#")[0].strip():
            fault, seconds = _time(word, times_s[-1] if times_s else 0.0)
            if fault:
                faults.append((number, fault))
            else:
                times_s.append(seconds)
    return times_s, faults


def _time(text: str, last_s: float) -> tuple[str, float]:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        return f"{text!r} is not a time", 0.0
    if seconds < last_s:
        return f"{text} comes after {last_s:g}", 0.0
    return "", seconds


def read_arrival_times(path: Path) -> list[float]:
    """Return when frames arrive, ascending, in seconds.

    Raises:
        JobError: the file cannot be read, or a line is no time at or after the one before.
    """
    try:
        times_s, faults = parse_arrival_times(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise JobError(f"{path}: {reason_of(error)}") from None
    except UnicodeDecodeError:
        raise JobError(f"{path}: not a text") from None
    for number, fault in faults:
        raise JobError(f"{path}, line {number}: {fault}")
    return times_s


def max_in_a_second(times_s: Sequence[float]) -> int:
    """Return how many frames arrive within a second at most."""
    counts = (bisect_left(times_s, begin + 1.0) - at for at, begin in enumerate(times_s))
    return max(counts, default=0)
