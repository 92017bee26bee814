"""Histograms of durations: three digits from a nanosecond to an hour."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from math import ceil

import numpy as np
from numpy.typing import NDArray

PERCENTS = (50.0, 90.0, 99.0, 99.9, 99.99)
_MAX_NS = 3_600_000_000_000
_DIGITS = 3
_HALF_BITS = 10
"""Each power of two has so many bits of buckets, all of one width: three digits."""
_BUCKETS = ((_MAX_NS.bit_length() - _HALF_BITS) << _HALF_BITS) + (1 << _HALF_BITS)
_HEAD = struct.Struct(">iiiiqqd")
_COOKIE, _COMPRESSED_COOKIE = 0x1C849313, 0x1C849314


class DurationHistogram:
    """Counts durations in log-linear buckets; a percentile is exact to one per mille.

    The buckets are those of http://hdrhistogram.org.
    """

    def __init__(self, values_ns: Sequence[int] | NDArray[np.int64]) -> None:
        """Count durations in nanoseconds; longer ones than an hour count as an hour."""
        within = np.clip(np.asarray(values_ns, np.int64), 0, _MAX_NS)
        # frexp is exact up to 2**53; all values below two powers of two have the width 1.
        power = np.maximum(np.frexp(within.astype(float))[1].astype(np.int64) - _HALF_BITS - 1, 0)
        places = (power << _HALF_BITS) + (within >> power)
        self._counts = np.bincount(places, minlength=_BUCKETS)

    @property
    def count(self) -> int:
        return int(self._counts.sum())

    @property
    def min_ns(self) -> int:
        low, _, _ = self._filled()
        return int(low[0]) if low.size else 0

    @property
    def max_ns(self) -> int:
        _, high, _ = self._filled()
        return int(high[-1]) if high.size else 0

    @property
    def jitter_ns(self) -> int:
        """The longest less the shortest: the execution-time jitter of real-time systems."""
        return self.max_ns - self.min_ns

    def percentile_ns(self, percent: float) -> int:
        """Return the duration that so many per cent of all do not exceed; 0: there are none."""
        _, high, counts = self._filled()
        if not counts.size:
            return 0
        needed = max(1, ceil(round(self.count * percent / 100, 6)))
        place = int(np.searchsorted(np.cumsum(counts), needed))
        return int(high[min(place, len(high) - 1)])

    def curve(self) -> list[tuple[float, int]]:
        """Return percentiles and their durations, for a plot on whose axis each nine has the same
        room; up to that of the last frame.
        """
        points = (100 * (1 - 10 ** (-step / 20)) for step in range(101))
        last = 100 * (1 - 1 / self.count) if self.count else 0
        shown = [*(percent for percent in points if percent < last), last]
        return [(percent, self.percentile_ns(percent)) for percent in shown]

    def bins(self, edges_ns: Sequence[float]) -> list[int]:
        """Return how many durations lie between each edge and the next one."""
        _, high, counts = self._filled()
        places = np.searchsorted(edges_ns, high, side="right") - 1
        last = len(edges_ns) - 2
        sums = np.bincount(np.clip(places, 0, last), weights=counts, minlength=last + 1)
        return [int(count) for count in sums]

    def to_text(self) -> str:
        """Return the histogram in HdrHistogram's own compressed form, which its tools read."""
        counts, last = bytearray(), -1
        for place in np.flatnonzero(self._counts).tolist():
            if place > last + 1:  # a run of empty buckets
                counts += _varint(last + 1 - place)
            counts += _varint(int(self._counts[place]))
            last = place
        head = _HEAD.pack(_COOKIE, len(counts), 0, _DIGITS, 1, _MAX_NS, 1.0)
        packed = zlib.compress(head + counts)
        text = struct.pack(">ii", _COMPRESSED_COOKIE, len(packed)) + packed
        return base64.b64encode(text).decode("ascii")

    def _filled(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the shortest and longest duration of each bucket that has some, and how many."""
        places = np.flatnonzero(self._counts)
        power = np.maximum((places >> _HALF_BITS) - 1, 0)
        low = (places - (power << _HALF_BITS)) << power
        return low, low + (1 << power) - 1, self._counts[places]


def _varint(number: int) -> bytes:
    """Return a number in ZigZag LEB128, as HdrHistogram writes it."""
    rest, groups = (number << 1) ^ (number >> 63), bytearray()
    while rest >= 0x80 and len(groups) < 8:
        groups.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes((*groups, rest))
