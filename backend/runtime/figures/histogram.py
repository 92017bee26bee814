"""Durations, counted in logarithmic buckets: fixed memory for any number of frames."""

from __future__ import annotations

import math

import numpy as np

_SMALLEST_S = 1e-7
_GROWTH = math.log(1.01)
_BUCKETS = 2600
"""From 0.1 us to some hours, in steps of one per cent."""


class Histogram:
    """Counts durations; percentiles are exact to one per cent."""

    def __init__(self) -> None:
        self._counts = [0] * _BUCKETS
        self.count = 0
        self.total_s = 0.0
        self.max_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration in seconds."""
        bucket = int(math.log(max(seconds, _SMALLEST_S) / _SMALLEST_S) / _GROWTH)
        self._counts[min(bucket, _BUCKETS - 1)] += 1
        self.count += 1
        self.total_s += seconds
        self.max_s = max(self.max_s, seconds)

    @property
    def mean_s(self) -> float:
        """Mean in seconds; 0 if nothing was counted."""
        return self.total_s / self.count if self.count else 0.0

    def percentile_s(self, percent: float) -> float:
        """Return the duration in seconds that ``percent`` of all durations do not exceed."""
        if not self.count:
            return 0.0
        needed = max(1, math.ceil(self.count * percent / 100))
        bucket = int(np.searchsorted(np.cumsum(self._counts), needed))
        return min(_SMALLEST_S * math.exp((bucket + 0.5) * _GROWTH), self.max_s)

    def counts_ms(self) -> list[list[float]]:
        """Return where durations lie, the shortest first: from, to (in milliseconds), how many."""
        found = [(bucket, count) for bucket, count in enumerate(self._counts) if count]
        return [[_begin_ms(bucket), _begin_ms(bucket + 1), count] for bucket, count in found]

    def with_mean_ms(self, *percents: float) -> dict[str, float]:
        """Return ``{"mean": ..., "p50": ..., ..., "max": ...}`` in milliseconds."""
        return {"mean": 1e3 * self.mean_s, **self.summary_ms(*percents)}

    def summary_ms(self, *percents: float) -> dict[str, float]:
        """Return ``{"p50": ..., ..., "max": ...}`` in milliseconds."""
        summary = {f"p{percent:g}": 1e3 * self.percentile_s(percent) for percent in percents}
        return {**summary, "max": 1e3 * self.max_s}


def _begin_ms(bucket: int) -> float:
    """Return where a bucket begins, in milliseconds with seven digits."""
    return float(f"{1e3 * _SMALLEST_S * math.exp(bucket * _GROWTH):.7g}")
