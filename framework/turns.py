"""Which frames a rank handles, where several ranks with the same layers take turns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

_MOST_SHOWN = 8
"""Positions that are named one by one."""


@dataclass(frozen=True, slots=True)
class Turns:
    """The frames whose number, modulo ``period``, is one of ``positions``; by default all."""

    period: int = 1
    positions: tuple[int, ...] = (0,)
    """Ascending, from 0 to ``period - 1``."""

    def __str__(self) -> str:
        """Return it for people: ``all``, or ``0, 2 of 3``; of many ``99 of every 100``."""
        if self == ALL:
            return "all"
        if len(self.positions) > _MOST_SHOWN:
            return f"{len(self.positions)} of every {self.period}"
        return f"{', '.join(map(str, self.positions))} of {self.period}"

    @property
    def share(self) -> Fraction:
        """Which part of all frames it is."""
        return Fraction(len(self.positions), self.period)

    def shared_with(self, other: Turns) -> Fraction:
        """Return which part of all frames is handled by both."""
        common = math.gcd(self.period, other.period)
        pairs = sum((a - b) % common == 0 for a in self.positions for b in other.positions)
        return Fraction(pairs, math.lcm(self.period, other.period))

    @property
    def levels(self) -> int:
        """How many levels of a pipeline a step on such a frame takes.

        A pipeline takes a frame in each step. Who handles a third of the frames may take three
        steps for one, and longer if two of its frames follow each other at once.
        """
        takes = Fraction(1) / self.share
        free, latest = Fraction(0), Fraction(0)
        for frame in (*self.positions, *(self.period + position for position in self.positions)):
            free = max(free, Fraction(frame)) + takes
            latest = max(latest, free - frame)
        return math.ceil(latest)


ALL = Turns()
"""All frames."""

MOST_TURNS = 100
"""Largest period: so the turns of two groups of ranks have at most 9,900 frames in common."""

_MOST_CHOSEN = 12
"""Largest sum of weights that are chosen, unless there are more than half as many ranks."""

_ALIKE = 1.02
"""By how much longer a frame may take if that makes the weights smaller."""


def by_weights(weights: Sequence[int]) -> tuple[Turns, ...]:
    """Return the turns of ranks that handle frames in proportion to weights, as evenly as can be.

    It is smooth weighted round robin: each rank gains its weight with every frame, and the one that
    has most gives the sum of all weights for the frame. Of equal ones the first takes it.

    Args:
        weights: of each rank, 1 or more.
    """
    divisor = math.gcd(*weights)
    reduced = [weight // divisor for weight in weights]
    period = sum(reduced)
    has = [0] * len(reduced)
    positions: list[list[int]] = [[] for _ in reduced]
    for position in range(period):
        has = [mine + weight for mine, weight in zip(has, reduced, strict=True)]
        chosen = has.index(max(has))
        has[chosen] -= period
        positions[chosen].append(position)
    return tuple(Turns(period, tuple(each)) for each in positions)


def weights_for(times: Sequence[float]) -> tuple[int, ...]:
    """Return weights for ranks in turn that get close to the highest rate with small numbers.

    Frames come out at intervals of what the rank takes that has most to do: its time, times its
    share of the frames. Of sums of weights whose intervals differ by 2 % at most, the smallest
    is taken.

    Args:
        times: what each rank takes for a frame that it handles, in any unit, 0 or more; two ranks
            or more, at most :data:`MOST_TURNS`.
    """
    most = min(MOST_TURNS, max(_MOST_CHOSEN, 2 * len(times)))
    weights = [1] * len(times)
    found: list[tuple[float, tuple[int, ...]]] = []
    while True:
        longest = max(weight * time for weight, time in zip(weights, times, strict=True))
        found.append((longest / sum(weights), tuple(weights)))
        if sum(weights) == most:
            break
        # One more for the rank that then has least to do is the best for every sum.
        least = [(weight + 1) * time for weight, time in zip(weights, times, strict=True)]
        weights[least.index(min(least))] += 1
    best = min(interval for interval, _ in found)
    return next(weights for interval, weights in found if interval <= best * _ALIKE)
