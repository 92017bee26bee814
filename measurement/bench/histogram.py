"""HdrHistograms of durations: three digits from a nanosecond to an hour, merged by adding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rankslice.framework.errors import RankSliceError

if TYPE_CHECKING:
    from hdrh.histogram import HdrHistogram

PERCENTS = (50.0, 90.0, 99.0, 99.9, 99.99)
MISSING = "rankslice bench needs HdrHistogram and scipy: pip install 'rankslice[bench]'"
_LONGEST_NS = 3_600_000_000_000
_DIGITS = 3


class DurationHistogram:
    """Counts durations; a percentile is exact to one per mille.

    See http://hdrhistogram.org. Those of several ranks, starts or sessions can be merged.
    """

    def __init__(self, values_ns: Iterable[int] | NDArray[np.int64] = ()) -> None:
        """Count durations in nanoseconds; longer ones than an hour count as an hour.

        Raises:
            RankSliceError: the extra ``bench`` is not installed.
        """
        self._counts = _new_histogram()
        self.add(values_ns)

    def add(self, values_ns: Iterable[int] | NDArray[np.int64]) -> None:
        """Count more durations."""
        values = np.asarray(values_ns if isinstance(values_ns, np.ndarray) else [*values_ns])
        if values.size:
            within = np.clip(values.astype(np.int64), 0, _LONGEST_NS)
            for value, count in zip(*np.unique(within, return_counts=True), strict=True):
                self._counts.record_value(int(value), int(count))

    def merge(self, other: DurationHistogram) -> None:
        """Count what another one has counted, too."""
        self._counts.add(other._counts)

    @property
    def count(self) -> int:
        """How many durations were counted."""
        return int(self._counts.get_total_count())

    @property
    def mean_ns(self) -> float:
        """Their mean; 0: there are none."""
        return float(self._counts.get_mean_value()) if self.count else 0.0

    @property
    def least_ns(self) -> int:
        """The smallest."""
        return int(self._counts.get_min_value()) if self.count else 0

    @property
    def largest_ns(self) -> int:
        """The largest."""
        return int(self._counts.get_max_value()) if self.count else 0

    @property
    def jitter_ns(self) -> int:
        """The largest less the smallest: the execution-time jitter of real-time systems."""
        return self.largest_ns - self.least_ns

    def percentile_ns(self, percent: float) -> int:
        """Return the duration that so many per cent of all do not exceed; 0: there are none."""
        if not self.count:
            return 0
        # The package rounds the number of frames; nothing is left to round here.
        needed = max(1, ceil(round(self.count * percent / 100, 6)))
        return int(self._counts.get_value_at_percentile(100 * needed / self.count))

    def curve(self, points: Sequence[float]) -> list[tuple[float, int]]:
        """Return percentiles and their durations, for a plot; up to that of the last frame."""
        last = 100 * (1 - 1 / self.count) if self.count else 0
        shown = [*(percent for percent in points if percent < last), last]
        return [(percent, self.percentile_ns(percent)) for percent in shown]

    def bins(self, edges_ns: Sequence[float]) -> list[int]:
        """Return how many durations lie between each edge and the next one."""
        counts = [0] * (len(edges_ns) - 1)
        for item in self._counts.get_recorded_iterator():
            place = int(np.searchsorted(edges_ns, item.value_iterated_to, side="right")) - 1
            counts[min(max(place, 0), len(counts) - 1)] += item.count_added_in_this_iter_step
        return counts

    def to_text(self) -> str:
        """Return the histogram in HdrHistogram's own compressed form, which its tools read."""
        text: bytes = self._counts.encode()
        return text.decode("ascii")


def _new_histogram() -> HdrHistogram:
    try:
        from hdrh.histogram import HdrHistogram
    except ImportError:
        raise RankSliceError(MISSING) from None
    return HdrHistogram(1, _LONGEST_NS, _DIGITS)
