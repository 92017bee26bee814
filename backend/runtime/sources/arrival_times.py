"""Times of arrivals in a file."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

from ..errors import JobError, reason_of


def read_arrival_times(path: Path) -> list[float]:
    """Return when frames arrive, ascending, in seconds.

    The file has a number a line; what follows a ``#`` is left out.

    Raises:
        JobError: it cannot be read, has something else, or times run backwards.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise JobError(f"{path}: {reason_of(error)}") from None
    except UnicodeDecodeError:
        raise JobError(f"{path}: not a text") from None
    times_s: list[float] = []
    for number, line in enumerate(lines, 1):
        if text := line.partition("#")[0].strip():
            seconds = _seconds(text)
            if not (times_s or [0.0])[-1] <= seconds < math.inf:
                raise JobError(
                    f"{path}, line {number}: {text!r} is not a time in seconds at or after the one"
                    " before"
                )
            times_s.append(seconds)
    return times_s


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def most_in_a_second(times_s: Sequence[float]) -> int:
    """Return how many frames arrive within a second at most."""
    found = (bisect_left(times_s, begin + 1.0) - at for at, begin in enumerate(times_s))
    return max(found, default=0)
