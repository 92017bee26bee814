"""Durations, counted in logarithmic buckets: fixed memory for any number of frames."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

_MIN_S = 1e-7
GROWTH = math.log(1.01)
"""Logarithm of by how much each bucket is wider than the one before."""
_PERCENTS = (50, 90, 99)
_BUCKETS = 2600
"""From 0.1 us to some hours, in steps of one per cent."""


SORTED_AT_ONCE = 256
"""After so many durations, whoever adds them has them sorted."""


class Histogram:
    """Counts durations; percentiles are exact to one per cent.

    Durations are kept until :meth:`sort` is called, or a figure is asked for.
    """

    def __init__(self) -> None:
        self._counts = np.zeros(_BUCKETS, np.int64)
        self._new: list[float] = []
        self._total_s = self._max_s = 0.0
        self.add: Callable[[float], None] = self._new.append
        """Counts one duration in seconds."""

    def sort(self) -> None:
        if self._new:
            seconds = np.array(self._new)
            logarithms = np.log(np.maximum(seconds, _MIN_S) / _MIN_S)
            buckets = np.minimum(logarithms / GROWTH, _BUCKETS - 1).astype(int)
            self._counts += np.bincount(buckets, minlength=_BUCKETS)
            self._total_s += float(seconds.sum())
            self._max_s = max(self._max_s, float(seconds.max()))
            self._new.clear()

    @property
    def max_s(self) -> float:
        """The longest duration in seconds; 0 if nothing was counted."""
        self.sort()
        return self._max_s

    @property
    def mean_s(self) -> float:
        """Mean in seconds; 0 if nothing was counted."""
        self.sort()
        return self._total_s / max(1, int(self._counts.sum()))

    def percentile_s(self, percent: float) -> float:
        """Return the duration in seconds that ``percent`` of all durations do not exceed."""
        self.sort()
        total = int(self._counts.sum())
        if not total:
            return 0.0
        needed = max(1, math.ceil(total * percent / 100))
        bucket = int(np.searchsorted(np.cumsum(self._counts), needed))
        return min(_MIN_S * math.exp((bucket + 0.5) * GROWTH), self.max_s)

    def counts_ms(self) -> tuple[tuple[float, ...], ...]:
        """Return where durations lie, the shortest first: from, to (in milliseconds), how many."""
        self.sort()
        filled = [(bucket, count) for bucket, count in enumerate(self._counts.tolist()) if count]
        return tuple((_begin_ms(bucket), _begin_ms(bucket + 1), count) for bucket, count in filled)

    def summary_ms(self) -> dict[str, float]:
        percentiles = {f"p{percent}": 1e3 * self.percentile_s(percent) for percent in _PERCENTS}
        return {"mean": 1e3 * self.mean_s, **percentiles, "max": 1e3 * self.max_s}


def _begin_ms(bucket: int) -> float:
    return float(f"{1e3 * _MIN_S * math.exp(bucket * GROWTH):.7g}")
