"""Times of arrivals in a file."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

from ..errors import JobError, reason_of


def read_trace(path: Path) -> list[float]:
    """Return when frames arrive, ascending, in seconds.

    The file has a number a line; what follows a ``#`` is left out.

    Raises:
        JobError: it cannot be read, or has something else.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        texts = (line.partition("#")[0].strip() for line in lines)
        return [float(text) for text in texts if text]
    except OSError as error:
        raise JobError(f"{path}: {reason_of(error)}") from None
    except ValueError as error:
        raise JobError(f"{path}: {error}") from None


def most_in_a_second(times_s: Sequence[float]) -> int:
    """Return how many frames arrive within a second at most."""
    found = (bisect_left(times_s, begin + 1.0) - at for at, begin in enumerate(times_s))
    return max(found, default=0)
