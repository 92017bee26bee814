"""Waiting for what is about to happen."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(holds: Callable[[], object], within_s: float = 10.0) -> None:
    """Wait until a condition holds; fail if it does not in time."""
    ends = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.01)
