"""A clock that a test sets."""

from __future__ import annotations


class Clock:
    """Stands still until the test sets it; also takes the place of a module's ``time``."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s
        self.worked_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    perf_counter = monotonic = __call__

    def monotonic_ns(self) -> int:
        return int(1e9 * self.now_s)

    def thread_time(self) -> float:
        return self.worked_s

    def spend(self, seconds: float, *, working: bool = True) -> None:
        self.now_s += seconds
        self.worked_s += seconds * working
