"""How many values lie where: what is left of the times of frames.

Counts are tuples of a lower limit, an upper limit one per cent above it, both in milliseconds, and
how many values lie between.
"""

from __future__ import annotations

import math

from rankslice.backend.runtime.figures.histogram import GROWTH
from rankslice.backend.runtime.figures.rank_figures import Counts


def total(counts: Counts) -> int:
    return round(sum(count for _, _, count in counts))


def percentile_ms(counts: Counts, percent: float) -> float:
    """Return the value that ``percent`` of all do not exceed, to one per cent; 0 without any."""
    needed = max(1, math.ceil(total(counts) * percent / 100))
    for low, high, count in counts:
        needed -= round(count)
        if needed <= 0:
            return math.sqrt(low * high)
    return 0.0


def merged(counts: Counts, most: int) -> Counts:
    """Return at most as many counts of the same width, on a logarithmic scale.

    The limits lie where those of the given ones do.
    """
    if not counts:
        return ()
    first = counts[0][0]
    places = [round(math.log(low / first) / GROWTH) for low, _, _ in counts]
    width = places[-1] // most + 1
    sums: dict[int, float] = {}
    for place, (_, _, count) in zip(places, counts, strict=True):
        sums[place // width] = sums.get(place // width, 0) + count
    grown = math.exp(GROWTH * width)
    return tuple((first * grown**n, first * grown ** (n + 1), count) for n, count in sums.items())
