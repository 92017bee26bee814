"""How many events there are per second."""

from __future__ import annotations

from collections import deque

_OVER_S = 10.0
_LEAST_S = 0.1


class Rate:
    """Of events in the last ten seconds, or of the last thousand if that is less."""

    def __init__(self) -> None:
        self._began_s: float | None = None
        self._times: deque[float] = deque(maxlen=1000)

    def begin(self, now_s: float) -> None:
        """Note that events may come from now on, unless that was noted before."""
        self._began_s = now_s if self._began_s is None else self._began_s

    def count(self, now_s: float) -> None:
        """Count an event."""
        self._times.append(now_s)

    def per_second(self, now_s: float) -> float:
        """Return the rate; what was before :meth:`begin` does not lower it."""
        first_s = max(now_s - _OVER_S, self._began_s or 0.0)
        if len(self._times) == self._times.maxlen:
            first_s = max(first_s, self._times[0])
        return sum(at_s >= first_s for at_s in self._times) / max(now_s - first_s, _LEAST_S)
