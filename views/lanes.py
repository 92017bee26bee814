"""Lanes for a drawing of a graph: a row per layer, and a vertical line per tensor."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

_LANE, _MIN_LANE, _ALL_LANES = 14, 5, 360
"""Pixels."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """Which lane each row's dot and each tensor's line is in, numbered from the left."""

    rows: tuple[int, ...]
    tensors: dict[str, int]
    """Those that some row reads."""
    count: int

    @property
    def lane(self) -> int:
        """Width of one lane: the narrower, the more there are."""
        return max(_MIN_LANE, min(_LANE, _ALL_LANES // max(1, self.count)))

    @property
    def width(self) -> int:
        return max(1, self.count) * self.lane


def assign_lanes(rows: Sequence[tuple[Sequence[str], Sequence[str]]]) -> Lanes:
    """Return lanes such that no two lines share one at the same height.

    Of each row, ``rows`` has the names of the tensors that it reads and that it makes.

    A row's dot is in the lane of a tensor that it is the last to read, so a chain of layers
    is a straight line; failing that, it is in the leftmost free lane. Its first result goes on
    from there.
    """
    last = {name: index for index, (reads, _) in enumerate(rows) for name in reads}
    free: list[int] = []
    count = 0
    tensors: dict[str, int] = {}
    dots = []
    for index, (reads, makes) in enumerate(rows):
        ending = sorted({tensors[name] for name in reads if last[name] == index})
        for lane in ending:
            heapq.heappush(free, lane)
        lasting = [name for name in makes if name in last]
        own: list[int] = []
        for _ in range(max(1, len(lasting))):
            if not free:
                heapq.heappush(free, count)
                count += 1
            own.append(_taken(free, ending[0] if ending and not own else None))
        dots.append(own[0])
        tensors |= dict(zip(lasting, own, strict=False))
        if not lasting:
            heapq.heappush(free, own[0])
    return Lanes(tuple(dots), tensors, count)


def _taken(free: list[int], wanted: int | None) -> int:
    if wanted is None:
        return heapq.heappop(free)
    free.remove(wanted)
    heapq.heapify(free)
    return wanted
