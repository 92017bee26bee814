"""How many events there are per second."""

from __future__ import annotations

from collections import deque

_OVER_S = 10.0
_STEP_S = 0.1


class Rate:
    """Counts events in steps of a tenth of a second, those of the last ten seconds."""

    def __init__(self) -> None:
        self._began_s: float | None = None
        self._steps: deque[list[int]] = deque(maxlen=int(_OVER_S / _STEP_S))
        """Number of each step that has events, and how many."""

    def begin(self, now_s: float) -> None:
        """Note that events may come from now on, unless that was noted before."""
        if self._began_s is None:
            self._began_s = now_s

    def count(self, now_s: float) -> None:
        """Count an event."""
        step = int(now_s / _STEP_S)
        if not self._steps or self._steps[-1][0] != step:
            self._steps.append([step, 0])
        self._steps[-1][1] += 1

    def per_second(self, now_s: float) -> float:
        """Return the rate since the beginning, over the last ten seconds at most."""
        if self._began_s is None:
            return 0.0
        first = int((now_s - _OVER_S) / _STEP_S)
        events = sum(count for step, count in self._steps if step > first)
        return events / min(max(now_s - self._began_s, _STEP_S), _OVER_S)
