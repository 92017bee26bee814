"""How many values lie where: what is left of the times of frames."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from rankslice.backend.runtime.figures.histogram import GROWTH
from rankslice.framework.reading.records import between

_Limit = Annotated[float, between(1e-9, 1e15)]


@dataclass(frozen=True, slots=True)
class Count:
    """How many values lie between two limits, which are one per cent apart."""

    low_ms: _Limit
    high_ms: _Limit
    count: Annotated[int, between(1, 1 << 62)]

    @property
    def middle_ms(self) -> float:
        """The value that stands for all of them."""
        return math.sqrt(self.low_ms * self.high_ms)


def counts_of(lists: Iterable[Sequence[float]]) -> tuple[Count, ...]:
    """Return the counts of a report, where each is a list."""
    return tuple(Count(low, high, int(count)) for low, high, count in lists)


def are_in_order(counts: Sequence[Count]) -> bool:
    """Return whether each count has values, and begins where the one before ends, or later."""
    limits = [limit for each in counts for limit in (each.low_ms, each.high_ms)]
    are_sound = all(each.low_ms < each.high_ms and each.count >= 1 for each in counts)
    return are_sound and limits == sorted(limits)


def percentile_ms(counts: Sequence[Count], percent: float) -> float:
    """Return the value that ``percent`` of all do not exceed, to one per cent; 0 without any."""
    needed = max(1, math.ceil(sum(each.count for each in counts) * percent / 100))
    for each in counts:
        needed -= each.count
        if needed <= 0:
            return each.middle_ms
    return 0.0


def merged(counts: Sequence[Count], most: int) -> list[Count]:
    """Return at most as many counts of the same width, on a logarithmic scale.

    The limits lie where those of the given ones do.
    """
    if not counts:
        return []
    places = [round(math.log(each.low_ms / counts[0].low_ms) / GROWTH) for each in counts]
    width = places[-1] // most + 1
    sums: dict[int, int] = {}
    for place, each in zip(places, counts, strict=True):
        sums[place // width] = sums.get(place // width, 0) + each.count
    grown = math.exp(GROWTH * width)
    begin = counts[0].low_ms
    return [Count(begin * grown**n, begin * grown ** (n + 1), count) for n, count in sums.items()]
