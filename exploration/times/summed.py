"""Times of spans: what exploration asks of them, and sums over layers."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["SpanTimes", "SummedTimes"]


class SpanTimes(Protocol):
    """How long contiguous layers take when they run as one slice."""

    def span_s(self, kind: int, first: int, last: int) -> float:
        """Return the seconds that layers ``first`` to ``last``, included, take on a kind."""

    def table(self, kind: int) -> NDArray[np.float64]:
        """Return all of them, (layers, layers), by first and last layer, in seconds.

        Entries with the last before the first mean nothing.
        """


class SummedTimes:
    """Spans that take as long as their layers one by one."""

    def __init__(self, times_s: NDArray[np.float64]) -> None:
        """Take the times of the layers, (kinds, layers), in seconds; inf where one cannot run."""
        can_run = np.isfinite(times_s)
        self._sums = _cumulative(np.where(can_run, times_s, 0.0))
        self._refused = _cumulative((~can_run).astype(np.float64))

    def span_s(self, kind: int, first: int, last: int) -> float:
        """Return the sum over the layers; inf if the kind cannot run one of them."""
        if self._refused[kind, last + 1] > self._refused[kind, first]:
            return float("inf")
        return float(self._sums[kind, last + 1] - self._sums[kind, first])

    def table(self, kind: int) -> NDArray[np.float64]:
        """Return all sums, (layers, layers)."""
        sums, refused = self._sums[kind], self._refused[kind]
        table: NDArray[np.float64] = sums[np.newaxis, 1:] - sums[:-1, np.newaxis]
        table[refused[np.newaxis, 1:] > refused[:-1, np.newaxis]] = np.inf
        return table


def _cumulative(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.pad(np.cumsum(values, axis=1), ((0, 0), (1, 0)))
